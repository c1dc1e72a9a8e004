//! `docs/CLIENTS.md` shows exactly the code that is tested.

use std::path::{Path, PathBuf};

use crate::agent::directory;
use crate::{ALL, PACKAGES, TICKET_HELPERS};

/// The limit of lines: a helper must be short enough to read at a glance.
const LONGEST_HELPER: usize = 40;

/// The same for helpers that wait by tickets.
const LONGEST_TICKET_HELPER: usize = 125;

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
    for client in ALL {
        check_shown(client.subject.name, client.helper, LONGEST_HELPER);
    }
    for (helper, _) in TICKET_HELPERS {
        check_shown(helper.subject.client, helper.file, LONGEST_TICKET_HELPER);
    }
}

/// The section about this client shows this file, under the name by which it is tested.
fn check_shown(client: &str, file: &str, longest: usize) {
    let page = read(&page());
    let helper = read(&directory(client).join(file));
    let (_, section) = page
        .split_once(&format!("\n## {client}\n"))
        .unwrap_or_else(|| panic!("no section about {client}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let shown = section.contains(&format!("\n{helper}```\n"));
    assert!(shown, "the section about {client} shows another {file}");
    assert!(helper.lines().count() <= longest, "{client}: {file}");
    // Of Node's clients the suffix says that it is an ES module.
    let name = format!("This is `{file}`");
    assert!(section.contains(&name), "{client}: no {name}");
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
        let pinned = read(&directory(client.subject.name).join(client.pinned_in));
        assert!(
            pinned.contains(client.version),
            "{}: {pinned}",
            client.subject.name
        );
        let row = format!("\n| {} {} |", client.subject.name, client.version);
        assert!(
            page.contains(&row),
            "no row of {} in the table",
            client.subject.name
        );
    }
}

#[test]
fn every_directory_with_an_agent_is_tested() {
    let beside = std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    for entry in beside.map(|entry| entry.expect("an entry")) {
        let name = entry.file_name();
        let is_client = ALL.iter().any(|client| *client.subject.name == *name);
        let known = is_client
            || PACKAGES.iter().any(|package| **package == *name)
            || TICKET_HELPERS
                .iter()
                .any(|(helper, _)| *helper.subject.client == *name);
        assert!(
            known || !entry.path().join("run").exists(),
            "{name:?} is not in the list"
        );
    }
}

/// The table of tickets says what the tests check: the number of connections, and whether the slot moves.
#[test]
fn the_table_of_tickets_is_that_of_the_tests() {
    let page = read(&page());
    for (helper, more) in TICKET_HELPERS {
        let start = format!("| {} | {}", helper.name, helper.subject.connections);
        let row = page.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("no row {start}"));
        let in_cluster = row.split(" | ").nth(3).expect("a fourth column");
        assert_eq!(
            in_cluster.starts_with("yes"),
            more.contains(&"the_slot_moves"),
            "{row}"
        );
    }
}

#[test]
fn the_page_names_the_version_of_rueidis() {
    let pinned = read(&directory("rueidis").join("go.mod"));
    let page = read(&page());
    let (_, version) = page.split_once("Tested with rueidis ").expect("a version");
    let version = version
        .split(')')
        .next()
        .expect("a version")
        .trim_end_matches('.');
    assert!(
        pinned.contains(&format!("/rueidis v{version}\n")),
        "{version}: {pinned}"
    );
}
