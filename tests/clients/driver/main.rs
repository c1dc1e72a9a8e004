//! Client libraries of many languages, each through the same tests on a real server.
//!
//! A client is an entry in the list below, a directory in `examples` with the *helper* (acquire, renew, release in at
//! most 40 lines) and a directory beside this one with
//! * an *agent* around the helper: a program that reads orders from its standard input and answers each with a line
//!   (`agent.rs` has the list of them);
//! * `install` and `run`, two short scripts, and the file that pins the library's version.
//!
//! A helper that waits by tickets is an entry in the second list and a file in its client's directory of `examples`.
//! `ticket_agent.rs` has the orders of its agent, `tickets.rs` its tests.
//!
//! The packages of `clients/` go through the same tests: the third list is theirs. Their agents use the built packages,
//! once with parked waits and once with tickets.
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
mod defaults;
mod page;
mod proxy;
mod strings;
mod suite;
mod ticket_agent;
mod tickets;

/// What a test of parked waits knows of the program that it drives.
pub struct Subject {
    /// Its directory.
    name: &'static str,
    /// The arguments of `run` after host and port.
    mode: &'static [&'static str],
    /// The milliseconds without a reply after which it gives up by default; 0: never.
    gives_up_after: u64,
    /// Whether one client object sends all commands through one connection.
    multiplexed: bool,
    /// The answer to a release that is sent again, because the reply to the first one was lost: `0` (nothing is held
    /// any more), or `1` where it counts as the first one's.
    repeated_release: &'static str,
}

/// A client library.
pub struct Client {
    subject: Subject,
    /// The version that is tested.
    version: &'static str,
    /// The file in its directory that pins the version.
    pinned_in: &'static str,
    /// Its helper in `examples`.
    helper: &'static str,
    /// The setting that the page recommends.
    setting: &'static str,
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

/// A helper that waits by tickets.
pub struct TicketHelper {
    subject: TicketSubject,
    /// Its name in the page's table.
    name: &'static str,
    /// Its file in `examples`.
    file: &'static str,
}

/// The tests of parked waits of this subject.
macro_rules! parked_tests {
    ($subject:expr) => {
        parked_tests!(@tests $subject;
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
        );
    };
    (@tests $subject:expr; $($test:ident)*) => {
        $(#[test] fn $test() { suite::$test(&$subject); })*
    };
}

/// The tests of every client: `suite.rs` has them. `and` lists those that not every client can pass.
macro_rules! clients {
    ($($module:ident: $client:expr, and [$($more:ident),*],)*) => {
        const ALL: &[&Client] = &[$(&$module::CLIENT),*];
        $(mod $module {
            use super::{suite, Client, Subject};
            pub const CLIENT: Client = $client;
            parked_tests!(CLIENT.subject);
            parked_tests!(@tests CLIENT.subject;
                given_up_while_the_server_hangs
                a_late_request_grants_nothing
                $($more)*
            );
        })*
    };
}

clients! {
    redis_py: Client {
        subject: Subject {
            name: "redis-py",
            mode: &[],
            gives_up_after: 5_000,
            multiplexed: false,
            repeated_release: "0",
        },
        version: "8.1.0",
        pinned_in: "requirements.txt",
        helper: "redis_lock.py",
        setting: "`retry=None`, and slices below `socket_timeout`",
    }, and [],
    node_redis: Client {
        subject: Subject {
            name: "node-redis",
            mode: &[],
            gives_up_after: 0,
            multiplexed: true,
            repeated_release: "0",
        },
        version: "6.3.1",
        pinned_in: "package.json",
        helper: "redis_lock.mjs",
        setting: "`duplicate()` for the wait; `socketTimeout` on it",
    }, and [the_prefix_of_keys],
    ioredis: Client {
        subject: Subject {
            name: "ioredis",
            mode: &[],
            gives_up_after: 0,
            multiplexed: true,
            repeated_release: "0",
        },
        version: "6.0.0",
        pinned_in: "package.json",
        helper: "redis_lock.mjs",
        setting: "`duplicate()` for the wait; `maxRetriesPerRequest: 0` and `socketTimeout` on it",
    }, and [the_prefix_of_keys],
    redis_rs: Client {
        subject: Subject {
            name: "redis-rs",
            mode: &[],
            gives_up_after: 500,
            multiplexed: true,
            repeated_release: "0",
        },
        version: "1.8.1",
        pinned_in: "Cargo.toml",
        helper: "redis_lock.rs",
        setting: "`set_response_timeout`, on a connection of its own for the wait",
    }, and [],
    go_redis: Client {
        subject: Subject {
            name: "go-redis",
            mode: &[],
            gives_up_after: 5_000,
            multiplexed: false,
            repeated_release: "0",
        },
        version: "9.23.0",
        pinned_in: "go.mod",
        helper: "redislock.go",
        setting: "`MaxRetries: -1`, and slices below `ReadTimeout`",
    }, and [a_cancelled_context],
    jedis: Client {
        subject: Subject {
            name: "jedis",
            mode: &[],
            gives_up_after: 2_000,
            multiplexed: false,
            repeated_release: "0",
        },
        version: "8.0.2",
        pinned_in: "pom.xml",
        helper: "Locks.java",
        setting: "`sendBlockingCommand`, not `sendCommand`",
    }, and [],
    lettuce: Client {
        subject: Subject {
            name: "lettuce",
            mode: &[],
            gives_up_after: 60_000,
            multiplexed: true,
            repeated_release: "0",
        },
        version: "7.7.0.RELEASE",
        pinned_in: "pom.xml",
        helper: "Locks.java",
        setting: "a connection of its own, always `ONCE`, slices below the timeout",
    }, and [],
    redis_rb: Client {
        subject: Subject {
            name: "redis-rb",
            mode: &[],
            gives_up_after: 1_000,
            multiplexed: true,
            repeated_release: "0",
        },
        version: "6.0.0",
        pinned_in: "Gemfile",
        helper: "redis_lock.rb",
        setting: "a `timeout` above the slices, `reconnect_attempts: 0`",
    }, and [],
}

/// The tests of waits by tickets of this subject, and `more`.
macro_rules! ticket_tests {
    ($subject:expr; $($more:ident)*) => {
        ticket_tests!(@tests $subject;
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
            $($more)*
        );
    };
    (@tests $subject:expr; $($test:ident)*) => {
        $(#[test] fn $test() { tickets::$test(&$subject); })*
    };
}

/// The tests of every helper that waits by tickets: `tickets.rs` has them. `and` lists those that not every helper can
/// pass.
macro_rules! ticket_helpers {
    ($($module:ident: $helper:expr, and [$($more:ident),*],)*) => {
        /// The helpers, each with the names of its further tests.
        const TICKET_HELPERS: &[(&TicketHelper, &[&str])] =
            &[$((&with_tickets::$module::HELPER, &[$(stringify!($more)),*])),*];
        mod with_tickets {
            $(pub mod $module {
                use crate::{tickets, TicketHelper, TicketSubject};
                pub const HELPER: TicketHelper = $helper;
                ticket_tests!(HELPER.subject;
                    given_up_while_the_server_hangs
                    a_late_request_grants_nothing
                    $($more)*
                );
            })*
        }
    };
}

ticket_helpers! {
    redis_py: TicketHelper {
        subject: TicketSubject {
            client: "redis-py",
            mode: "tasks",
            connections: 2,
            confirms_by: "LOCK.RENEW",
        },
        name: "redis-py, asyncio",
        file: "tickets.py",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    threads_of_redis_py: TicketHelper {
        subject: TicketSubject {
            client: "redis-py",
            mode: "threads",
            connections: 2,
            confirms_by: "LOCK.RENEW",
        },
        name: "redis-py, threads",
        file: "tickets_threads.py",
    }, and [the_slot_moves],
    node_redis: TicketHelper {
        subject: TicketSubject {
            client: "node-redis",
            mode: "tickets",
            connections: 1,
            confirms_by: "LOCK.RENEW",
        },
        name: "node-redis",
        file: "tickets.mjs",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves, the_prefix_of_keys],
    ioredis: TicketHelper {
        subject: TicketSubject {
            client: "ioredis",
            mode: "tickets",
            connections: 2,
            confirms_by: "LOCK.RENEW",
        },
        name: "ioredis",
        file: "tickets.mjs",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves, the_prefix_of_keys],
    redis_rs: TicketHelper {
        subject: TicketSubject {
            client: "redis-rs",
            mode: "tickets",
            connections: 1,
            confirms_by: "LOCK.RENEW",
        },
        name: "redis-rs",
        file: "tickets.rs",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    go_redis: TicketHelper {
        subject: TicketSubject {
            client: "go-redis",
            mode: "tickets",
            connections: 2,
            confirms_by: "LOCK.RENEW",
        },
        name: "go-redis",
        file: "tickets.go",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves, a_cancelled_context_releases],
    jedis: TicketHelper {
        subject: TicketSubject {
            client: "jedis",
            mode: "tickets",
            connections: 2,
            confirms_by: "LOCK.RENEW",
        },
        name: "Jedis",
        file: "Tickets.java",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    lettuce: TicketHelper {
        subject: TicketSubject {
            client: "lettuce",
            mode: "tickets",
            connections: 1,
            confirms_by: "LOCK.RENEW",
        },
        name: "Lettuce",
        file: "Tickets.java",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    rueidis: TicketHelper {
        subject: TicketSubject {
            client: "rueidis",
            mode: "tickets",
            connections: 1,
            confirms_by: "LOCK.RENEW",
        },
        name: "rueidis",
        file: "tickets.go",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves, a_cancelled_context_releases],
    redis_rb: TicketHelper {
        subject: TicketSubject {
            client: "redis-rb",
            mode: "tickets",
            connections: 2,
            confirms_by: "LOCK.RENEW",
        },
        name: "redis-rb",
        file: "tickets.rb",
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
}

/// The packages of `clients/`, in `tests/clients/NAME-package`: each by its ways to wait, with the command that
/// confirms the message of a grant.
macro_rules! packages {
    ($($module:ident: $directory:literal, $confirms:literal, [$($parked:ident)?],
        [$($mode:ident = $word:literal on $connections:literal and [$($more:ident),*]),*],)*) => {
        /// The directories of the packages.
        const PACKAGES: &[&str] = &[$($directory),*];
        $(mod $module {
            $(mod $parked {
                use crate::{suite, Subject};
                const SUBJECT: Subject = Subject {
                    name: $directory,
                    mode: &["parked"],
                    gives_up_after: 5_000,
                    multiplexed: true,
                    repeated_release: "1",
                };
                parked_tests!(SUBJECT);
            })?
            $(mod $mode {
                use crate::{tickets, TicketSubject};
                const SUBJECT: TicketSubject = TicketSubject {
                    client: $directory,
                    mode: $word,
                    connections: $connections,
                    confirms_by: $confirms,
                };
                ticket_tests!(SUBJECT; the_slot_moves $($more)*);
            })*
        })*
    };
}

packages! {
    java_package: "java-package", "LOCK.ACQUIRE", [], [
        tickets = "tickets" on 2 and [a_cancelled_wait_is_withdrawn]
    ],
    node_package: "node-package", "LOCK.ACQUIRE", [], [
        node_redis = "node-redis" on 2 and [a_cancelled_wait_is_withdrawn],
        ioredis = "ioredis" on 2 and [a_cancelled_wait_is_withdrawn]
    ],
    python_package: "python-package", "LOCK.ACQUIRE", [], [
        tasks = "tasks" on 2 and [a_cancelled_wait_is_withdrawn],
        // A thread that waits cannot be cancelled. Of the threads that ask, 16 at a time have a connection.
        threads = "threads" on 17 and []
    ],
}
