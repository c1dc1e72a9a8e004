//! Every fenced block of the pages that readers copy from is run verbatim by a test.

use crate::common::page::{self, blocks};

const PAGES: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "clients/rust/README.md",
    "cli/README.md",
    "docs/MIGRATION.md",
    "docs/REDLOCK.md",
];

/// The test of a block: the one of this name in this file.
struct Test(&'static str, &'static str);

const SAMPLES: &str = "tests/server/docs/samples.rs";
const EXAMPLES: &str = "tests/server/docs/examples.rs";
const CLI: &str = "cli/tests/cli/samples.rs";
const CRATE: &str = "cli/tests/cli/samples_crate.rs";
const MAKE: Test = Test(
    "tests/server/docs/samples_inventory.rs",
    "every_make_target_on_a_page_exists",
);

const RED_LOCK_SQL: Test = Test(
    "tests/server/docs/red_lock_examples.rs",
    "the_sql_refuses_every_earlier_majority_and_no_later_one",
);

/// Page, language, start of the first line, test of the block: in the order of the pages.
const INVENTORY: &[(&str, &str, &str, Test)] = &[
    ("README.md", "sh", "make run ", MAKE),
    (
        "README.md",
        "console",
        "1> LOCK.ACQUIRE",
        Test(EXAMPLES, "the_examples_show_what_the_server_replies"),
    ),
    (
        "README.md",
        "console",
        "1> LOCK.IF",
        Test(EXAMPLES, "the_examples_show_what_the_server_replies"),
    ),
    ("README.md", "sh", "make build", MAKE),
    (
        "README.md",
        "text",
        "loadmodule",
        Test(SAMPLES, "the_lines_of_the_configuration"),
    ),
    (
        "README.md",
        "text",
        "ACL SETUSER app",
        Test(SAMPLES, "the_user_of_an_application"),
    ),
    (
        "README.md",
        "text",
        "LOCK.ACQUIRE invoices:42 worker-7 PX",
        Test(SAMPLES, "the_command_of_the_first_screen"),
    ),
    (
        "README.md",
        "text",
        "LOCK.ACQUIRE invoices:42 worker-7 SESSION",
        Test(SAMPLES, "a_lock_for_a_connection"),
    ),
    ("CONTRIBUTING.md", "sh", "make setup", MAKE),
    (
        "clients/rust/README.md",
        "toml",
        "[dependencies]",
        Test(CRATE, "the_programs_of_the_pages_build_and_lock"),
    ),
    (
        "clients/rust/README.md",
        "rust",
        "use redis_lock_client",
        Test(CRATE, "the_programs_of_the_pages_build_and_lock"),
    ),
    ("cli/README.md", "sh", "make client ", MAKE),
    (
        "cli/README.md",
        "console",
        "$ redis-lock run nightly",
        Test(CLI, "the_shell_lines_of_the_clients_page"),
    ),
    (
        "cli/README.md",
        "toml",
        "# ~/.config/redis-lock.toml",
        Test(CLI, "the_file_and_the_probe_of_the_clients_page"),
    ),
    (
        "cli/README.md",
        "console",
        "$ redis-lock check",
        Test(CLI, "the_file_and_the_probe_of_the_clients_page"),
    ),
    (
        "cli/README.md",
        "console",
        "$ redis-lock ls --graph",
        Test(CLI, "the_waits_of_the_clients_page"),
    ),
    (
        "docs/MIGRATION.md",
        "lua",
        "-- release",
        Test(
            "tests/server/docs/migration.rs",
            "side_by_side_both_answer_alike",
        ),
    ),
    (
        "docs/MIGRATION.md",
        "lua",
        "-- renew",
        Test(
            "tests/server/docs/migration.rs",
            "side_by_side_both_answer_alike",
        ),
    ),
    (
        "docs/MIGRATION.md",
        "text",
        "lock.string-holders yes",
        Test(
            "tests/server/docs/migration.rs",
            "one_name_for_both_with_the_setting",
        ),
    ),
    (
        "docs/MIGRATION.md",
        "text",
        "SCAN 0 MATCH",
        Test(SAMPLES, "both_kinds_are_listed"),
    ),
    (
        "docs/REDLOCK.md",
        "rust",
        "let servers",
        Test(CRATE, "the_programs_of_the_pages_build_and_lock"),
    ),
    (
        "docs/REDLOCK.md",
        "console",
        "$ redis-lock run --quorum",
        Test(CLI, "a_quorum_of_three"),
    ),
    (
        "docs/REDLOCK.md",
        "sql",
        "CREATE TABLE red_lock_fence",
        RED_LOCK_SQL,
    ),
    (
        "docs/REDLOCK.md",
        "sql",
        "INSERT INTO red_lock_fence",
        RED_LOCK_SQL,
    ),
];

#[test]
fn every_block_of_a_page_is_in_the_inventory() {
    let mut rows = INVENTORY.iter();
    for name in PAGES {
        for block in blocks(name) {
            let said = format!("{name}: ```{} {}", block.language, block.first_line());
            let Some((page, language, first, _)) = rows.next() else {
                panic!("no test runs {said}");
            };
            assert!(
                (*page, *language) == (name, &block.language)
                    && block.first_line().starts_with(first),
                "no test runs {said}\n(or the order is another: the next row is {page} {language} {first})"
            );
        }
    }
    assert!(rows.next().is_none(), "a row without a block");
}

#[test]
fn every_test_in_the_inventory_exists() {
    for (_, _, first, by) in INVENTORY {
        let Test(file, name) = by;
        let text = page::text(file);
        // In Rust, Python, Java.
        let heads = [
            format!("fn {name}() "),
            format!("def {name}("),
            format!("void {name}()"),
        ];
        let found = heads.iter().any(|head| text.contains(head));
        assert!(found, "{first}: no test {name} in {file}");
    }
}

/// Code in an indented block would escape these tests.
#[test]
fn the_pages_have_no_code_without_fences() {
    for name in PAGES {
        let (mut is_fenced, mut before) = (false, String::from("text"));
        for line in page::text(name).lines() {
            is_fenced ^= line.starts_with("```");
            let is_code = !is_fenced && before.trim().is_empty() && line.starts_with("    ");
            assert!(!is_code, "{name}: {line}");
            before = line.into();
        }
    }
}

/// Blocks of shell commands are lines of `make`, some with `sudo`. `.ci/run`, a packager or a reader runs them; this
/// test checks that each target exists.
#[test]
fn every_make_target_on_a_page_exists() {
    let makefile = page::text("Makefile");
    let lines = |page: &str| -> Vec<String> {
        let shell = blocks(page).into_iter().filter(|b| b.language == "sh");
        let text: String = shell.map(|block| block.text).collect();
        let commands = text.lines().flat_map(|line| {
            let line = line.split('#').next().unwrap_or_default();
            line.split("&&")
                .map(|command| command.trim().to_string())
                .collect::<Vec<_>>()
        });
        commands.collect()
    };
    for command in PAGES.iter().flat_map(|page| lines(page)) {
        let words: Vec<&str> = command.trim_start_matches("sudo ").split(' ').collect();
        let ["make", target, ..] = words[..] else {
            panic!("not a line of make: {command}")
        };
        let rule = format!("\n{target}: ");
        assert!(makefile.contains(&rule), "make {target}");
        for variable in words.iter().filter_map(|word| word.split_once('=')) {
            assert!(makefile.contains(variable.0), "{command}");
        }
    }
}
