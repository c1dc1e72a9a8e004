//! `docs/CLIENTS.md` and the pages in `examples` name the helpers and versions that are tested.

use std::path::{Path, PathBuf};

use redis_lock_harness::page::root;

use crate::agent::directory;
use crate::{ALL, PACKAGES, PROGRAMS};

/// The limit of lines: a helper must be short enough to read at a glance.
const LONGEST_HELPER: usize = 40;

/// The same for helpers that wait by tickets.
const LONGEST_TICKET_HELPER: usize = 125;

/// The same for a whole program.
const LONGEST_PROGRAM: usize = 100;

/// A text file of the repository.
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The page.
fn page() -> String {
    read(&root().join("docs/CLIENTS.md"))
}

/// What is in a directory.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path())
}

#[test]
fn the_pages_name_every_helper_that_is_tested() {
    let all = page();
    for client in ALL {
        let name = client.name;
        let examples = root().join("examples").join(name);
        let own = read(&examples.join("README.md"));
        let helpers = [
            (client.parks, LONGEST_HELPER),
            (client.tickets, LONGEST_TICKET_HELPER),
        ];
        for (file, longest) in helpers {
            let lines = read(&examples.join(file)).lines().count();
            assert!(lines <= longest, "{name}: {file} has {lines} lines");
            let linked = format!("](../examples/{name}/{file})");
            assert!(all.contains(&linked), "no {linked}");
            assert!(own.contains(&format!("]({file})")), "{name}: no {file}");
        }
        assert_eq!(
            entries(&examples).count(),
            3,
            "{name}: a file that no test runs"
        );
    }
}

#[test]
fn the_versions_are_those_that_are_installed() {
    let page = page();
    for client in ALL {
        let (name, version) = (client.name, client.version);
        let pinned = read(&directory(name).join(client.pinned_in));
        assert!(pinned.contains(version), "{name}: {pinned}");
        let row = format!("\n| {name} {version} |");
        assert!(page.contains(&row), "no row of {name} in the table");
    }
}

#[test]
fn every_program_has_its_links() {
    let examples = root().join("examples");
    let own = read(&examples.join("README.md"));
    let all = read(&root().join("clients/README.md"));
    for program in PROGRAMS {
        let file = program.file;
        let (language, _) = file.split_once('/').expect("a directory");
        let package = read(&root().join(format!("clients/{language}/README.md")));
        assert!(own.contains(&format!("]({file})")), "no {file}");
        assert!(all.contains(&format!("](../examples/{file})")), "no {file}");
        assert!(package.contains(&format!("examples/{file}")), "no {file}");
        let files = entries(&examples.join(language)).count();
        assert_eq!(files, 1, "{language}: a file that no test runs");
        let lines = read(&examples.join(file)).lines().count();
        assert!(lines <= LONGEST_PROGRAM, "{file} has {lines} lines");
    }
}

#[test]
fn every_directory_with_an_agent_is_tested() {
    for path in entries(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        let name = path.file_name().expect("a name");
        let known = ALL.iter().any(|client| *client.name == *name)
            || PACKAGES.iter().any(|package| **package == *name);
        assert!(
            known || !path.join("run").exists(),
            "{name:?} is not in the list"
        );
    }
}
