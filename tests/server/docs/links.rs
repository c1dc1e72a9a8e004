//! The links between the documents and into the tree: every relative link has a target, headings included, also in the
//! packages that ship documents, and the contents of the site (site/SUMMARY.md) name every document.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every document below a directory; of the repository without the parts of the site.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && !["target", "site"].contains(&&*name) {
                directories.push(path);
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages
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

/// The anchors of a page's headings. A repeated one has a number.
fn anchors(page: &Path) -> Vec<String> {
    let name = |heading: &str| -> String {
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        text.chars()
            .filter(kept)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    let mut anchors: Vec<String> = Vec::new();
    for heading in prose(page).lines().filter(|line| line.starts_with('#')) {
        let name = name(heading);
        let numbered = (1..).map(|n| format!("{name}-{n}"));
        let free = std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
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

/// The links of all pages below a directory must have targets there.
fn check_links(root: &Path) {
    let mut dead = Vec::new();
    let mut count = 0;
    for page in pages(root) {
        for link in links(&page) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let is_there = target.exists()
                && target.canonicalize().unwrap().starts_with(root)
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

#[test]
fn every_link_between_the_pages_has_a_target() {
    check_links(root());
}

/// As scripts/documents.sh makes them for the archive and for Debian's packages.
#[test]
fn every_link_in_a_package_has_a_target_in_the_package() {
    for layout in ["archive", "deb"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap().join(layout);
        let mut script = Command::new(root().join("scripts/documents.sh"));
        let made = script.arg(layout).arg(&dir).status().unwrap();
        assert!(made.success());
        check_links(&dir);
    }
}

/// Registries show such a page beside what the package has: of crates what Cargo.toml includes, of the others nothing.
#[test]
fn the_page_of_a_library_or_program_leads_to_nothing_outside_of_its_package() {
    for package in [
        "cli",
        "clients/rust",
        "clients/go",
        "clients/node",
        "clients/python",
    ] {
        let dir = root().join(package);
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
        let included = manifest.lines().find(|line| line.starts_with("include = "));
        for link in links(&dir.join("README.md")) {
            let (file, _) = link.split_once('#').unwrap_or((&link, ""));
            let ships = included.is_some_and(|list| list.contains(&format!("\"{file}\"")));
            assert!(file.is_empty() || ships, "{package}/README.md: {link}");
        }
    }
}

#[test]
fn the_contents_of_the_site_name_every_document() {
    let contents = links(&root().join("site/SUMMARY.md"));
    let mut listed: Vec<PathBuf> = contents.iter().map(|link| root().join(link)).collect();
    // Made of redis.conf.example by site/build.sh.
    let settings = root().join("docs/settings.md");
    assert!(listed.contains(&settings));
    listed.retain(|path| *path != settings);
    let mut pages = pages(root());
    listed.sort();
    pages.sort();
    assert_eq!(listed, pages);
}
