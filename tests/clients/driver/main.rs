//! Client libraries of many languages, each through the same tests on a real server.
//!
//! A library without a package in `clients/` is an entry in the list below. It has a directory in `examples` with two
//! *helpers* (acquire, renew, release): one that parks requests, of at most 40 lines, and one that waits by tickets.
//! Beside this directory it has one with
//! * an *agent* around each helper: a program that reads orders from its standard input and answers each with a line
//!   (`agent.rs` and `ticket_agent.rs` have the lists of them);
//! * `install` and `run`, two short scripts, and the file that pins the library's version.
//!
//! Its pages are a README.md beside the helpers, and rows in `docs/CLIENTS.md` (`page.rs` checks them).
//!
//! The packages go through the tests of tickets (`tickets.rs`), the scenarios of holds (`holds.rs`) and those of calls
//! (`calls.rs`), the last ones above their doubles of a server too: the second list is theirs. Their agents use the
//! built packages, that of Rust the crate. (The command line has its own tests of losses, by the same table:
//! `cli/tests/cli/lost.rs`.)
//!
//! The whole programs in `examples`, one for each language with a package, have tests of their own, in `examples.rs`:
//! `install` of a package puts them beside the agent, and the one for Rust is a program of this crate.
//!
//! The tasks of `docs/TASKS.md` are run in every language, and on the command line, by `tasks.rs`.
//!
//! The libraries that lock with `SET NX PX` have tests of their own, in `strings.rs`, and agents in `strings`.
//!
//! `make test-clients` installs the clients that the machine supports and runs their tests; a test of a client that is
//! not installed fails. The driver's own connections hold locks and wait for them, too, so that a test can see the
//! queue and add other waiters.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

mod agent;
mod calls;
mod examples;
mod holds;
mod page;
mod payments;
mod proxy;
mod strings;
mod suite;
mod tasks;
mod ticket_agent;
mod tickets;

/// A client library with helpers.
pub struct Client {
    /// Its directory, here and in `examples`.
    name: &'static str,
    /// The version that is tested.
    version: &'static str,
    /// The file in its directory that pins the version.
    pinned_in: &'static str,
    /// Its helper that parks requests.
    parks: &'static str,
    /// Its helper that waits by tickets.
    tickets: &'static str,
    /// The milliseconds without a reply after which it gives up by default.
    gives_up_after: u64,
    /// Whether one client object sends all commands through one connection.
    multiplexed: bool,
}

/// What a test of tickets knows of the program that it drives.
pub struct TicketSubject {
    /// The directory of its client.
    client: &'static str,
    /// The third argument of `run`.
    mode: &'static str,
    /// The highest number of connections that it needs.
    connections: usize,
    /// The request by which it confirms the message of a grant.
    confirms_by: &'static str,
}

/// A test for each of these functions, which take the subject.
macro_rules! tests {
    ($suite:ident, $subject:expr; $($test:ident)*) => {
        $(#[test] fn $test() { $suite::$test(&$subject); })*
    };
}

/// The tests of waits by tickets of this subject, and `more`.
macro_rules! ticket_tests {
    ($subject:expr; $($more:ident)*) => {
        tests!(tickets, $subject;
            a_thousand_waits_on_two_connections
            a_grant_without_a_subscriber
            the_message_of_a_grant_is_lost
            the_reply_of_a_grant_is_lost
            the_reply_of_the_confirmation_is_lost
            a_forged_message_grants_nothing
            a_wait_that_ends_is_nil
            a_refusal_is_told_at_once
            the_server_hangs_while_it_waits
            a_replica_is_promoted
            the_slot_moves
            $($more)*
        );
    };
}

/// The scenarios of a hold: each package passes all of them.
macro_rules! hold_tests {
    ($subject:expr) => {
        tests!(holds, $subject;
            every_end_of_a_hold_is_a_loss
            frozen_past_the_lease
            a_node_that_hangs_costs_no_hold_of_another
            a_break_at_each_request_leaves_nothing
            a_command_without_a_reply_may_have_run
            errors_say_what_is_wrong
            a_full_or_loading_server_says_so
            an_older_module_is_named
            a_clock_that_is_set_changes_no_bound
        );
    };
}

/// What the calls of a package mean, above a server and above its double.
macro_rules! call_tests {
    ($subject:expr) => {
        tests!(calls, $subject;
            owners_wait_in_their_order
            readers_and_a_writer
            permits_in_one_step
            several_keys
            a_queue_that_stays_short
            grants_that_replicas_have
            who_holds_it
            resumed_by_another
            left_for_a_while
            a_loss_on_demand
            commands_under_a_lock
            an_odd_argument_is_a_wrong_use
            what_an_observer_is_told
        );
    };
}

/// Those of a package with holds that are not renewed.
macro_rules! fixed {
    ($subject:expr) => {
        tests!(calls, $subject; a_lease_that_ends);
    };
}

/// Those of a package whose waits a program can cancel.
macro_rules! cancelled {
    ($subject:expr) => {
        tests!(tickets, $subject;
            a_cancelled_wait_is_withdrawn
            cancelled_at_each_request
        );
    };
}

/// The same above a double.
macro_rules! withdrawn {
    ($subject:expr) => {
        tests!(calls, $subject; a_cancelled_wait);
    };
}

/// Those of a package with a client object that a program closes.
macro_rules! closed {
    ($subject:expr) => {
        tests!(holds, $subject;
            closed_while_it_holds_and_waits
            closed_in_the_callback_of_a_loss
        );
    };
}

/// Those of a package on a client of the program that stays closed once it is closed.
macro_rules! disconnected {
    ($subject:expr) => {
        tests!(holds, $subject; the_programs_client_is_closed);
    };
}

/// Those of a package with threads, where what blocks does not block all.
macro_rules! blocked {
    ($subject:expr) => {
        tests!(holds, $subject; what_blocks_delays_nothing);
    };
}

/// Those of a package whose commands have arguments of any type.
macro_rules! typed {
    ($subject:expr) => {
        tests!(holds, $subject; arguments_are_written_as_by_the_programs_client);
    };
}

/// The tests of every library with helpers.
macro_rules! clients {
    ($($module:ident: $client:expr,)*) => {
        const ALL: &[&Client] = &[$(&$module::CLIENT),*];
        $(mod $module {
            use super::{suite, Client};
            pub const CLIENT: Client = $client;
            tests!(suite, CLIENT;
                two_owners_contend
                a_wait_that_ends_is_nil
                a_refusal_is_told_at_once
                the_connection_is_killed_while_it_waits
                the_reply_of_an_acquire_is_lost
                the_reply_of_a_hand_off_is_lost
                a_wait_longer_than_the_clients_own_limit
                the_server_starts_again_while_it_waits
                the_server_hangs_while_it_waits
                the_server_hangs_for_a_moment
                a_wait_delays_no_other_call
                a_renew_and_a_release_are_sent_again
                a_token_is_good_for_its_own_grant_only
                given_up_while_the_server_hangs
                a_late_request_grants_nothing
            );
            mod with_tickets {
                use crate::{tickets, TicketSubject};
                const SUBJECT: TicketSubject = TicketSubject {
                    client: super::CLIENT.name,
                    mode: "tickets",
                    connections: 2,
                    confirms_by: "LOCK.RENEW",
                };
                ticket_tests!(SUBJECT;
                    a_cancelled_wait_is_withdrawn
                    given_up_while_the_server_hangs
                    a_late_request_grants_nothing
                );
            }
        })*
    };
}

clients! {
    jedis: Client {
        name: "jedis",
        version: "8.0.2",
        pinned_in: "pom.xml",
        parks: "Locks.java",
        tickets: "Tickets.java",
        gives_up_after: 2_000,
        multiplexed: false,
    },
    redis_rb: Client {
        name: "redis-rb",
        version: "6.0.0",
        pinned_in: "Gemfile",
        parks: "redis_lock.rb",
        tickets: "tickets.rb",
        gives_up_after: 1_000,
        multiplexed: true,
    },
}

/// The packages of `clients/`, in `tests/clients/NAME-package`: each by its ways to wait, with the groups of tests that
/// not all of them pass, and by its doubles of a server, with their groups.
macro_rules! packages {
    ($($module:ident: $directory:literal,
        [$($mode:ident = $word:literal on $connections:literal and [$($group:ident),*]),*],
        [$($double:ident = $as:literal and [$($shown:ident),*]),*],)*) => {
        /// The directories of the packages.
        const PACKAGES: &[&str] = &[$($directory),*];
        $(mod $module {
            $(mod $mode {
                use crate::{calls, holds, tickets, TicketSubject};
                const SUBJECT: TicketSubject = TicketSubject {
                    client: $directory,
                    mode: $word,
                    connections: $connections,
                    confirms_by: "LOCK.ACQUIRE",
                };
                ticket_tests!(SUBJECT;);
                hold_tests!(SUBJECT);
                call_tests!(SUBJECT);
                $($group!(SUBJECT);)*
            })*
            $(mod $double {
                use crate::{calls, TicketSubject};
                const SUBJECT: TicketSubject = TicketSubject {
                    client: $directory,
                    mode: $as,
                    connections: 0,
                    confirms_by: "",
                };
                call_tests!(SUBJECT);
                $($shown!(SUBJECT);)*
            })*
        })*
    };
}

packages! {
    go_package: "go-package", [
        go_redis = "go-redis" on 2 and [cancelled, closed, disconnected, blocked, typed, fixed],
        rueidis = "rueidis" on 1 and [cancelled, closed, disconnected, blocked, typed, fixed]
    ], [double = "double" and [fixed, withdrawn]],
    java_package: "java-package", [
        tickets = "tickets" on 2 and [cancelled, closed, blocked, typed, fixed],
        own = "own" on 2 and [cancelled, closed, disconnected, blocked, typed, fixed]
    ], [double = "double" and [fixed, withdrawn]],
    node_package: "node-package", [
        node_redis = "node-redis" on 2 and [cancelled, closed, disconnected, typed, fixed],
        ioredis = "ioredis" on 2 and [cancelled, closed, disconnected, typed, fixed],
        iovalkey = "iovalkey" on 2 and [cancelled, closed, disconnected, typed, fixed]
    ], [double = "double" and [fixed, withdrawn]],
    // A closed client of redis-py connects again.
    python_package: "python-package", [
        tasks = "tasks" on 2 and [cancelled, closed, typed, fixed],
        // A thread that waits cannot be cancelled. Of the threads that ask, 16 at a time have a connection.
        threads = "threads" on 17 and [closed, blocked, typed, fixed]
    ], [
        double_of_tasks = "double-tasks" and [fixed, withdrawn],
        double_of_threads = "double-threads" and [fixed]
    ],
    rust_package: "rust-package", [
        // Nothing is closed there: a program drops what it has. Words of commands are bytes. All holds are renewed.
        tickets = "tickets" on 2 and [cancelled, blocked]
    ], [double = "double" and [withdrawn]],
}

/// The programs in `examples`, each by its language.
macro_rules! programs {
    ($($language:ident: $program:expr,)*) => {
        /// The programs.
        const PROGRAMS: &[&examples::Program] = &[$(&$language::PROGRAM),*];
        $(mod $language {
            use crate::examples::{self, Program, Shape};
            pub const PROGRAM: Program = $program;
            tests!(examples, PROGRAM;
                never_two_at_once
                another_goes_on_after_a_kill
                ended_by_sigterm_it_leaves_nothing
                it_writes_nothing_after_a_loss
                the_server_is_away
            );
        })*
    };
}

programs! {
    go_example: Program {
        file: "go/main.go",
        command: &["target/clients/go-package/orders"],
        shape: Shape::Service,
    },
    java_example: Program {
        file: "java/Scheduler.java",
        command: &["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
            "target/clients/java-package/example:target/clients/java-package/lib/*", "Scheduler"],
        shape: Shape::Leader,
    },
    node_example: Program {
        file: "node/orders.mjs",
        command: &["node", "target/clients/node-package/orders.mjs"],
        shape: Shape::Service,
    },
    python_example: Program {
        file: "python/report.py",
        command: &["target/clients/python-package/venv/bin/python", "-B", "examples/python/report.py"],
        shape: Shape::Job,
    },
    rust_example: Program {
        file: "rust/workers.rs",
        command: &[env!("CARGO_BIN_EXE_workers")],
        shape: Shape::Pool,
    },
}

/// The languages of `docs/TASKS.md`.
macro_rules! tasks {
    ($($module:ident: $fence:literal, $source:expr, $compile:literal, $command:expr;)*) => {
        $(mod $module {
            use crate::tasks::{self, Language};
            use std::sync::OnceLock;
            static LANGUAGE: Language = Language {
                fence: $fence,
                source: $source,
                compile: $compile,
                command: &$command,
                is_ready: OnceLock::new(),
            };
            tests!(tasks, LANGUAGE;
                one_job_a_night
                one_request_at_a_time
                five_at_a_time
                one_leader
                a_fenced_write
                a_deploy
                a_migration
                a_batch
                readers_and_a_rebuild
                a_long_job
                a_change_of_process
                once_a_minute
            );
        })*
    };
}

tasks! {
    shell_tasks: "sh", None, "", [];
    rust_tasks: "rust", None, "", [env!("CARGO_BIN_EXE_tasks")];
    java_tasks: "java",
        Some(("java-package/tasks.template", "target/clients/java-package/tasks/Tasks.java")),
        "cd target/clients/java-package && javac --release 17 -cp 'lib/*' -d tasks tasks/Tasks.java",
        ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
            "target/clients/java-package/tasks:target/clients/java-package/lib/*", "Tasks"];
    python_tasks: "python",
        Some(("python-package/tasks.template", "target/clients/python-package/tasks.py")),
        "",
        ["target/clients/python-package/venv/bin/python", "-B", "target/clients/python-package/tasks.py"];
    go_tasks: "go",
        Some(("go-package/tasks.template", "target/clients/go-package/src/tasks/main.go")),
        "export GOTOOLCHAIN=local GOMODCACHE=$PWD/target/clients/go-modules GOFLAGS=-modcacherw GODEBUG=goindex=0
            cd target/clients/go-package/src && go vet ./tasks && go build -o ../tasks ./tasks",
        ["target/clients/go-package/tasks"];
    node_tasks: "js",
        Some(("node-package/tasks.template", "target/clients/node-package/tasks.mjs")),
        "",
        ["node", "target/clients/node-package/tasks.mjs"];
}
