//! Every fenced block of the pages that readers copy from is run verbatim by a test, or is listed here with the reason
//! why it cannot be.

use crate::common::page::{self, blocks};

const PAGES: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "client/README.md",
    "cli/README.md",
    "docs/CLIENTS.md",
    "docs/MIGRATION.md",
];

/// The test of a block.
enum By {
    /// The test of this name in this file.
    Test(&'static str, &'static str),
    /// `make test-clients`: the block is the file of this name, compared by `driver/page.rs`.
    Client(&'static str, &'static str),
    /// Not run, with the reason.
    Nothing(&'static str),
}

use By::{Client, Nothing, Test};

const SAMPLES: &str = "tests/server/docs/samples.rs";
const EXAMPLES: &str = "tests/server/docs/examples.rs";
const CLI: &str = "cli/tests/cli/samples.rs";
const CRATE: &str = "cli/tests/cli/samples_crate.rs";
const MAKE: By = Test(
    "tests/server/docs/samples_inventory.rs",
    "every_make_target_on_a_page_exists",
);

/// Page, language, start of the first line, test of the block: in the order of the pages.
const INVENTORY: &[(&str, &str, &str, By)] = &[
    ("README.md", "sh", "make run ", MAKE),
    (
        "README.md",
        "console",
        "1> LOCK.ACQUIRE",
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
    ("README.md", "sh", "make client ", MAKE),
    (
        "README.md",
        "console",
        "$ redis-lock run nightly",
        Test(CLI, "the_shell_lines_of_the_first_page"),
    ),
    (
        "README.md",
        "console",
        "$ redis-lock run --quorum",
        Test(CLI, "a_quorum_of_three"),
    ),
    (
        "README.md",
        "toml",
        "[dependencies]",
        Test(CRATE, "the_programs_of_the_pages_build_and_lock"),
    ),
    (
        "README.md",
        "rust",
        "use redis_lock_client",
        Test(CRATE, "the_programs_of_the_pages_build_and_lock"),
    ),
    (
        "README.md",
        "python",
        "import redis",
        Test("clients/python/tests/test_readme.py", "test_an_example"),
    ),
    (
        "README.md",
        "java",
        "try (LockClient",
        Test(
            "clients/java/core/src/test/java/redislock/ReadmeTest.java",
            "the_examples_are_in_this_test",
        ),
    ),
    ("CONTRIBUTING.md", "sh", "make setup", MAKE),
    (
        "CONTRIBUTING.md",
        "text",
        "A newcomer without",
        Nothing("the head of a patch, as an example"),
    ),
    (
        "client/README.md",
        "toml",
        "[dependencies]",
        Test(CRATE, "the_programs_of_the_pages_build_and_lock"),
    ),
    (
        "client/README.md",
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
        "console",
        "$ redis-lock ls --graph",
        Test(CLI, "the_waits_of_the_clients_page"),
    ),
    (
        "docs/CLIENTS.md",
        "python",
        "\"\"\"Locks",
        Client("redis-py", "redis_lock.py"),
    ),
    (
        "docs/CLIENTS.md",
        "python",
        "\"\"\"Locks",
        Client("redis-py", "tickets.py"),
    ),
    (
        "docs/CLIENTS.md",
        "python",
        "\"\"\"Locks of the redis-lock module for threads",
        Client("redis-py", "tickets_threads.py"),
    ),
    (
        "docs/CLIENTS.md",
        "js",
        "// Locks of the redis-lock module for node-redis",
        Client("node-redis", "redis_lock.mjs"),
    ),
    (
        "docs/CLIENTS.md",
        "js",
        "// Locks of the redis-lock module for node-redis",
        Client("node-redis", "tickets.mjs"),
    ),
    (
        "docs/CLIENTS.md",
        "js",
        "// Locks of the redis-lock module for ioredis",
        Client("ioredis", "redis_lock.mjs"),
    ),
    (
        "docs/CLIENTS.md",
        "js",
        "// Locks of the redis-lock module for ioredis",
        Client("ioredis", "tickets.mjs"),
    ),
    (
        "docs/CLIENTS.md",
        "toml",
        "redis = ",
        Client("redis-rs", "Cargo.toml"),
    ),
    (
        "docs/CLIENTS.md",
        "rust",
        "//! Locks",
        Client("redis-rs", "redis_lock.rs"),
    ),
    (
        "docs/CLIENTS.md",
        "rust",
        "//! Locks",
        Client("redis-rs", "tickets.rs"),
    ),
    (
        "docs/CLIENTS.md",
        "go",
        "// Locks",
        Client("go-redis", "redislock.go"),
    ),
    (
        "docs/CLIENTS.md",
        "go",
        "// Locks",
        Client("go-redis", "tickets.go"),
    ),
    (
        "docs/CLIENTS.md",
        "go",
        "// Locks of the redis-lock module for rueidis",
        Client("rueidis", "tickets.go"),
    ),
    (
        "docs/CLIENTS.md",
        "java",
        "import java.util",
        Client("jedis", "Locks.java"),
    ),
    (
        "docs/CLIENTS.md",
        "java",
        "import static",
        Client("jedis", "Tickets.java"),
    ),
    (
        "docs/CLIENTS.md",
        "java",
        "import io.lettuce",
        Client("lettuce", "Locks.java"),
    ),
    (
        "docs/CLIENTS.md",
        "java",
        "import static",
        Client("lettuce", "Tickets.java"),
    ),
    (
        "docs/CLIENTS.md",
        "ruby",
        "# frozen_string_literal",
        Client("redis-rb", "redis_lock.rb"),
    ),
    (
        "docs/CLIENTS.md",
        "ruby",
        "# frozen_string_literal",
        Client("redis-rb", "tickets.rb"),
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
        "SCAN 0 MATCH",
        Test(SAMPLES, "both_kinds_are_listed"),
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
    let not_run = INVENTORY.iter().filter(|row| matches!(row.3, Nothing(_)));
    let not_run = not_run.count();
    let run = INVENTORY.len() - not_run;
    println!("\nblocks of six pages: {run} run, {not_run} not run");
}

#[test]
fn every_test_in_the_inventory_exists() {
    for (_, _, first, by) in INVENTORY {
        match by {
            Test(file, name) => {
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
            Client(client, file) => {
                let file = format!("tests/clients/{client}/{file}");
                assert!(page::root().join(&file).exists(), "{first}: no {file}");
            }
            Nothing(why) => assert!(!why.is_empty(), "{first}"),
        }
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
