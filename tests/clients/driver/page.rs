//! `docs/CLIENTS.md` shows exactly the code that is tested.

use std::path::{Path, PathBuf};

use crate::agent::directory_of;
use crate::ALL;

/// The limit of lines: a helper must be short enough to read at a glance.
const LONGEST_HELPER: usize = 40;

/// The page.
pub fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CLIENTS.md")
}

/// A text file of the repository.
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_page_shows_every_helper_as_it_is_tested() {
    let page = read(&page());
    for client in ALL {
        let helper = read(&directory_of(client).join(client.helper));
        let (_, section) = page
            .split_once(&format!("\n## {}\n", client.name))
            .unwrap_or_else(|| panic!("no section about {}", client.name));
        let section = section.split("\n## ").next().unwrap_or_default();
        let shown = section.contains(&format!("\n{helper}```\n"));
        assert!(
            shown,
            "the section about {} shows another helper",
            client.name
        );
        assert!(
            helper.lines().count() <= LONGEST_HELPER,
            "{}",
            client.helper
        );
        // The name under which it is tested: of Node's clients the suffix says that it is an ES module.
        let name = format!("This is `{}`", client.helper);
        assert!(section.contains(&name), "{}: no {name}", client.name);
    }
}

/// The dependencies on the page, with their features, are those of the helper's build.
#[test]
fn the_page_names_the_features_that_the_helper_needs() {
    let cargo = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("redis-rs/Cargo.toml"));
    let (_, built) = cargo.split_once("[dependencies]\n").expect("a list");
    let shown = redis_lock_harness::page::block("docs/CLIENTS.md", "toml", "redis = ");
    assert_eq!(shown.text.trim(), built.replace("\"=", "\"").trim());
}

#[test]
fn the_versions_are_those_that_are_installed() {
    let page = read(&page());
    for client in ALL {
        let pinned = read(&directory_of(client).join(client.pinned_in));
        assert!(pinned.contains(client.version), "{}: {pinned}", client.name);
        let row = format!("\n| {} {} |", client.name, client.version);
        assert!(
            page.contains(&row),
            "no row of {} in the table",
            client.name
        );
    }
}

#[test]
fn every_directory_with_an_agent_is_tested() {
    let beside = std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    for entry in beside.map(|entry| entry.expect("an entry")) {
        let name = entry.file_name();
        let known = ALL.iter().any(|client| *client.name == *name);
        assert!(
            known || !entry.path().join("run").exists(),
            "{name:?} is not in the list"
        );
    }
}
