//! Client libraries of many languages, each through the same tests on a real server.
//!
//! A client is an entry in the list below and a directory beside this one with
//! * the *helper*: acquire, renew, release in at most 40 lines, the very code that `docs/CLIENTS.md` shows;
//! * an *agent* around it: a program that reads orders from its standard input and answers each with a line
//!   (`agent.rs` has the list of them);
//! * `install` and `run`, two short scripts, and the file that pins the library's version.
//!
//! A helper that waits by tickets is an entry in the second list and a file in its client's directory.
//! `ticket_agent.rs` has the orders of its agent, `tickets.rs` its tests.
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
mod suite;
mod ticket_agent;
mod tickets;

/// A client library.
pub struct Client {
    /// Its directory.
    name: &'static str,
    /// The version that is tested.
    version: &'static str,
    /// The file in its directory that pins the version.
    pinned_in: &'static str,
    /// The file in its directory that the page shows.
    helper: &'static str,
    /// The milliseconds without a reply after which it gives up by default; 0: never.
    gives_up_after: u64,
    /// Whether one client object sends all commands through one connection.
    multiplexed: bool,
    /// The setting that the page recommends.
    setting: &'static str,
}

/// A helper that waits by tickets.
pub struct TicketHelper {
    /// Its name in the page's table.
    name: &'static str,
    /// The directory of its client.
    client: &'static str,
    /// The file in it that the page shows.
    file: &'static str,
    /// The third argument of `run`.
    mode: &'static str,
    /// The highest number of connections that it needs.
    connections: usize,
}

/// The tests of every client: `suite.rs` has them.
macro_rules! clients {
    ($($module:ident: $client:expr,)*) => {
        const ALL: &[&Client] = &[$(&$module::CLIENT),*];
        $(mod $module {
            use super::{suite, Client};
            pub const CLIENT: Client = $client;
            clients!(@tests
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
        })*
    };
    (@tests $($test:ident)*) => {
        $(#[test] fn $test() { suite::$test(&CLIENT); })*
    };
}

clients! {
    redis_py: Client {
        name: "redis-py",
        version: "8.1.0",
        pinned_in: "requirements.txt",
        helper: "redis_lock.py",
        gives_up_after: 5_000,
        multiplexed: false,
        setting: "`retry=None`, and slices below `socket_timeout`",
    },
    node_redis: Client {
        name: "node-redis",
        version: "6.3.1",
        pinned_in: "package.json",
        helper: "redis_lock.mjs",
        gives_up_after: 0,
        multiplexed: true,
        setting: "`duplicate()` for the wait; `socketTimeout` on it",
    },
    ioredis: Client {
        name: "ioredis",
        version: "6.0.0",
        pinned_in: "package.json",
        helper: "redis_lock.mjs",
        gives_up_after: 0,
        multiplexed: true,
        setting: "`duplicate()` for the wait; `maxRetriesPerRequest: 0` and `socketTimeout` on it",
    },
    redis_rs: Client {
        name: "redis-rs",
        version: "1.8.1",
        pinned_in: "Cargo.toml",
        helper: "redis_lock.rs",
        gives_up_after: 500,
        multiplexed: true,
        setting: "`set_response_timeout`, on a connection of its own for the wait",
    },
    go_redis: Client {
        name: "go-redis",
        version: "9.23.0",
        pinned_in: "go.mod",
        helper: "redislock.go",
        gives_up_after: 5_000,
        multiplexed: false,
        setting: "`MaxRetries: -1`, and slices below `ReadTimeout`",
    },
    jedis: Client {
        name: "jedis",
        version: "8.0.2",
        pinned_in: "pom.xml",
        helper: "Locks.java",
        gives_up_after: 2_000,
        multiplexed: false,
        setting: "`sendBlockingCommand`, not `sendCommand`",
    },
    lettuce: Client {
        name: "lettuce",
        version: "7.7.0.RELEASE",
        pinned_in: "pom.xml",
        helper: "Locks.java",
        gives_up_after: 60_000,
        multiplexed: true,
        setting: "a connection of its own, always `ONCE`, slices below the timeout",
    },
    redis_rb: Client {
        name: "redis-rb",
        version: "6.0.0",
        pinned_in: "Gemfile",
        helper: "redis_lock.rb",
        gives_up_after: 1_000,
        multiplexed: true,
        setting: "a `timeout` above the slices, `reconnect_attempts: 0`",
    },
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
                use crate::{tickets, TicketHelper};
                pub const HELPER: TicketHelper = $helper;
                ticket_helpers!(@tests
                    a_thousand_waits_on_two_connections
                    a_grant_without_a_subscriber
                    the_message_of_a_grant_is_lost
                    the_reply_of_a_grant_is_lost
                    the_reply_of_the_renewal_is_lost
                    a_forged_message_grants_nothing
                    a_wait_that_ends_is_nil
                    a_refusal_is_told_at_once
                    the_server_hangs_while_it_waits
                    a_replica_is_promoted
                    $($more)*
                );
            })*
        }
    };
    (@tests $($test:ident)*) => {
        $(#[test] fn $test() { tickets::$test(&HELPER); })*
    };
}

ticket_helpers! {
    redis_py: TicketHelper {
        name: "redis-py, asyncio",
        client: "redis-py",
        file: "tickets.py",
        mode: "tasks",
        connections: 2,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    threads_of_redis_py: TicketHelper {
        name: "redis-py, threads",
        client: "redis-py",
        file: "tickets_threads.py",
        mode: "threads",
        connections: 2,
    }, and [the_slot_moves],
    node_redis: TicketHelper {
        name: "node-redis",
        client: "node-redis",
        file: "tickets.mjs",
        mode: "tickets",
        connections: 1,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    ioredis: TicketHelper {
        name: "ioredis",
        client: "ioredis",
        file: "tickets.mjs",
        mode: "tickets",
        connections: 2,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    redis_rs: TicketHelper {
        name: "redis-rs",
        client: "redis-rs",
        file: "tickets.rs",
        mode: "tickets",
        connections: 1,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    go_redis: TicketHelper {
        name: "go-redis",
        client: "go-redis",
        file: "tickets.go",
        mode: "tickets",
        connections: 2,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    jedis: TicketHelper {
        name: "Jedis",
        client: "jedis",
        file: "Tickets.java",
        mode: "tickets",
        connections: 2,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    lettuce: TicketHelper {
        name: "Lettuce",
        client: "lettuce",
        file: "Tickets.java",
        mode: "tickets",
        connections: 1,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    rueidis: TicketHelper {
        name: "rueidis",
        client: "rueidis",
        file: "tickets.go",
        mode: "tickets",
        connections: 1,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
    redis_rb: TicketHelper {
        name: "redis-rb",
        client: "redis-rb",
        file: "tickets.rb",
        mode: "tickets",
        connections: 2,
    }, and [a_cancelled_wait_is_withdrawn, the_slot_moves],
}
