//! `docs/CLIENTS.md` and the pages in `examples` name the helpers, versions and figures that are tested.

use std::path::{Path, PathBuf};

use redis_lock_harness::page::{block, root};

use crate::agent::directory;
use crate::{ALL, PACKAGES, TICKET_HELPERS};

/// The limit of lines: a helper must be short enough to read at a glance.
const LONGEST_HELPER: usize = 40;

/// The same for helpers that wait by tickets.
const LONGEST_TICKET_HELPER: usize = 125;

/// The page.
pub fn page() -> PathBuf {
    root().join("docs/CLIENTS.md")
}

/// The directory with the helpers of a client.
fn example(client: &str) -> PathBuf {
    root().join("examples").join(client)
}

/// A text file of the repository.
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_pages_name_every_helper_that_is_tested() {
    let parked = ALL.iter().map(|client| {
        let subject = &client.subject;
        (subject.name, client.helper, LONGEST_HELPER)
    });
    let tickets = TICKET_HELPERS.iter().map(|(helper, _)| {
        let subject = &helper.subject;
        (subject.client, helper.file, LONGEST_TICKET_HELPER)
    });
    let all = read(&page());
    let mut helpers = Vec::new();
    for (client, file, longest) in parked.chain(tickets) {
        let path = example(client).join(file);
        let lines = read(&path).lines().count();
        assert!(lines <= longest, "{client}: {file} has {lines} lines");
        let linked = format!("](../examples/{client}/{file})");
        assert!(all.contains(&linked), "no {linked}");
        let own = read(&example(client).join("README.md"));
        assert!(own.contains(&format!("]({file})")), "{client}: no {file}");
        helpers.push(path);
    }
    // The tests of the command line run its examples.
    let is_helpers = |directory: &PathBuf| !directory.ends_with("command-line");
    for directory in entries(&root().join("examples")).filter(is_helpers) {
        for path in entries(&directory) {
            let is_page = path.ends_with("README.md");
            assert!(is_page || helpers.contains(&path), "no test runs {path:?}");
        }
    }
}

/// What is in a directory.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path())
}

/// The dependencies on the page, with their features, are those of the helper's build.
#[test]
fn the_page_names_the_features_that_the_helper_needs() {
    let cargo = read(&directory("redis-rs").join("Cargo.toml"));
    let (_, built) = cargo.split_once("[dependencies]\n").expect("a list");
    let shown = block("examples/redis-rs/README.md", "toml", "redis = ");
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
    for path in entries(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        let name = path.file_name().expect("a name");
        let is_client = ALL.iter().any(|client| *client.subject.name == *name);
        let known = is_client
            || PACKAGES.iter().any(|package| **package == *name)
            || TICKET_HELPERS
                .iter()
                .any(|(helper, _)| *helper.subject.client == *name);
        assert!(
            known || !path.join("run").exists(),
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
    let page = read(&example("rueidis").join("README.md"));
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
