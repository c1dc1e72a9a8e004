//! The links between the pages and into the tree: every relative link has a target, headings included.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README, CHANGELOG and all pages in docs/.
fn pages() -> Vec<PathBuf> {
    let in_dir = |dir: PathBuf| {
        std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    let all = in_dir(root().into()).chain(in_dir(root().join("docs")));
    all.filter(|path| path.extension().is_some_and(|ext| ext == "md"))
        .collect()
}

/// The page without its code, which has neither links nor headings.
fn prose(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    let mut is_code = false;
    let outside = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("    ")
    };
    text.lines()
        .filter(outside)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The anchors of a page's headings.
fn anchors(page: &Path) -> Vec<String> {
    let name = |heading: &str| -> String {
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        text.chars()
            .filter(kept)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    prose(page)
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(name)
        .collect()
}

/// The targets of a page's links, without those to other sites.
fn links(page: &Path) -> Vec<String> {
    let text = prose(page);
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    targets
        .filter(|link| !link.contains("://"))
        .map(str::to_string)
        .collect()
}

#[test]
fn every_link_between_the_pages_has_a_target() {
    let mut dead = Vec::new();
    let mut count = 0;
    for page in pages() {
        for link in links(&page) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let is_there = target.exists()
                && (anchor.is_empty() || anchors(&target).iter().any(|a| a == anchor));
            if !is_there {
                dead.push(format!("{}: {link}", page.display()));
            }
            count += 1;
        }
    }
    assert!(count > 50, "only {count} links were found");
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}
