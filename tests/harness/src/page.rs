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
    blocks_in(&text(page), page)
}

/// All fenced blocks of this text, a page or a section of it.
fn blocks_in(text: &str, page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
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

/// Of each section of the page, the only block of this language in it. What precedes the first section is one, too.
///
/// # Panics
/// When there is no such page, or a section without such a block or with several.
pub fn of_each_section(page: &str, language: &str) -> Vec<String> {
    let text = text(page);
    let only = |section: &str| {
        let mut blocks = blocks_in(section, page);
        blocks.retain(|block| block.language == language);
        let title = section.lines().next().unwrap_or_default();
        assert_eq!(blocks.len(), 1, "{page}: ```{language} in: {title}");
        blocks.remove(0).text
    };
    text.split("\n## ").map(only).collect()
}

/// A program of all blocks of this language in a page, by a template. The first block has the imports and, behind an
/// empty line, the object that the other blocks use: `client = connect("redis://127.0.0.1:6379")`. Its address becomes
/// `address()`, a function of the template. Four lines of the template are comments of one word, each replaced:
/// `IMPORTS`; `EACH` to `END`, what is between them, once for each further block, with its number for `NUMBER`; and
/// there `OBJECT` and `BLOCK`.
///
/// # Panics
/// When the page or the template is another one.
pub fn program(page: &str, language: &str, template: &str) -> String {
    let blocks = of_each_section(page, language);
    let (imports, object) = blocks[0].rsplit_once("\n\n").expect("an object");
    let quotes = |c: char| c == '"' || c == '\'';
    let is_address = |text: &&str| text.ends_with("127.0.0.1:6379");
    let address = object.split(quotes).find(is_address).expect("an address");
    let object = object.replace(&format!("\"{address}\""), "address()");
    let object = object.replace(&format!("'{address}'"), "address()");
    let mut program = String::new();
    let mut each: Option<Vec<&str>> = None;
    for line in template.lines() {
        let word = line.trim().trim_start_matches(['/', '#']).trim();
        match (word, &mut each) {
            ("IMPORTS", _) => program += imports,
            ("EACH", _) => each = Some(Vec::new()),
            ("END", each) => {
                let lines = each.take().unwrap_or_default();
                for (number, block) in blocks.iter().enumerate().skip(1) {
                    for line in &lines {
                        let indent = &line[..line.len() - line.trim_start().len()];
                        match line.trim().trim_start_matches(['/', '#']).trim() {
                            "OBJECT" => indented(&mut program, indent, &object),
                            "BLOCK" => indented(&mut program, indent, block),
                            _ => program += &line.replace("NUMBER", &number.to_string()),
                        }
                        program.push('\n');
                    }
                }
            }
            (_, Some(lines)) => lines.push(line),
            (_, None) => program += line,
        }
        program.push('\n');
    }
    program
}

fn indented(program: &mut String, indent: &str, text: &str) {
    for line in text.lines() {
        program.push_str(indent);
        program.push_str(line);
        program.push('\n');
    }
}
