//! The samples of the pages, verbatim: the fenced blocks, by page, language and first line.

use std::path::{Path, PathBuf};

/// The top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A fenced block.
#[derive(Debug, Clone)]
pub struct Block {
    /// The word after the fence.
    pub language: String,
    /// All lines between the fences, each with its line end.
    pub text: String,
}

impl Block {
    /// The text that identifies a block: its first line that is not empty, less the fence's own indentation.
    pub fn first_line(&self) -> &str {
        let said = |line: &&str| !line.trim().is_empty();
        self.text.lines().find(said).unwrap_or_default()
    }
}

/// The text of a page, by its path from the top of the repository.
///
/// # Panics
/// When there is no such page.
pub fn text(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// All fenced blocks of a page.
///
/// # Panics
/// When there is no such page, or a block without an end.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text(page).lines() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(language), None) => {
                open = Some(Block {
                    language: language.trim().into(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block without an end");
    blocks
}

/// The block of this page and language whose first line starts with this text.
///
/// # Panics
/// When there is none, or more than one.
pub fn block(page: &str, language: &str, first: &str) -> Block {
    let fits = |block: &Block| block.language == language && block.first_line().starts_with(first);
    let mut found: Vec<Block> = blocks(page).into_iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{page}: ```{language} {first}");
    found.remove(0)
}
