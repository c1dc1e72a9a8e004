//! Two versions of the module on the same data: what one has written, the other continues, in both directions.
//!
//! `make test-versions` builds the other version from git and names its file in `LOCK_OTHER_MODULE`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod data;
mod unknown;

use std::path::PathBuf;

use common::ending::ENDINGS;
use common::replica::{fail_over, follow, PROMPT_MASTER};
use common::{module_path, TestServer};
use data::{assert_continues, assert_same, set_tokens_ahead, write_first, write_second, State};
use redis_lock_harness as common;

/// The other version of the module.
fn other_module() -> PathBuf {
    std::env::var_os("LOCK_OTHER_MODULE")
        .expect("LOCK_OTHER_MODULE: first make test-versions")
        .into()
}

/// The two directions: the version that writes the data, and the version that continues with it.
fn directions() -> [(PathBuf, PathBuf); 2] {
    let (this, other) = (module_path(), other_module());
    let differ = std::fs::read(&this).unwrap() != std::fs::read(&other).unwrap();
    assert!(differ, "the two files are one version");
    [(other.clone(), this.clone()), (this, other)]
}

#[test]
fn a_restart_with_the_other_version_continues_with_the_files() {
    for (old, new) in directions() {
        for ending in ENDINGS {
            let mut server = TestServer::with_module(&old, ending.options());
            set_tokens_ahead(&server);
            write_first(&server);
            ending.half_way(&server);
            write_second(&server);
            let before = State::of(&server);

            server.set_module(Some(&new));
            ending.restart(&mut server);
            assert_eq!(State::of(&server), before, "{ending:?} {new:?}");
            assert_continues(&server, &before);
        }
    }
}

#[test]
fn a_replica_of_the_other_version_is_promoted_and_the_former_primary_follows() {
    for (old, new) in directions() {
        let mut primary = TestServer::with_module(&old, &PROMPT_MASTER);
        set_tokens_ahead(&primary);
        write_first(&primary);
        let replica = TestServer::with_module(&new, &PROMPT_MASTER);
        follow(&replica, &primary);
        write_second(&primary);
        assert_same(&replica, &primary);

        let before = State::of(&primary);
        primary.crash();
        replica.conn().line("REPLICAOF NO ONE");
        assert_continues(&replica, &before);

        // The way back, with data that this version has continued.
        replica.conn().line("FLUSHALL");
        write_first(&replica);
        primary.start_again();
        follow(&primary, &replica);
        write_second(&replica);
        assert_same(&primary, &replica);
        let before = State::of(&replica);
        fail_over(&replica, &primary);
        assert_continues(&primary, &before);
    }
}

/// The steps of docs/PACKAGES.md, "A pair of servers".
#[test]
fn a_pair_is_upgraded_one_server_after_the_other() {
    for (old, new) in directions() {
        let mut first = TestServer::with_module(&old, &PROMPT_MASTER);
        let mut second = TestServer::with_module(&old, &PROMPT_MASTER);
        follow(&second, &first);
        set_tokens_ahead(&first);
        write_first(&first);
        write_second(&first);
        let before = State::of(&first);
        let waits = |server: &TestServer| {
            let mut waiter = server.conn();
            waiter.send_line("LOCK.ACQUIRE plain b PX 600000 BLOCK 0");
            server.wait_for_waiters(1);
            waiter
        };
        let mut waiter = waits(&first);

        second.set_module(Some(&new));
        second.restart();
        follow(&second, &first);
        fail_over(&first, &second);
        let reply = waiter.recv().error();
        assert!(reply.starts_with("UNBLOCKED"), "{reply}");
        assert_eq!(State::of(&second), before, "{new:?}");

        let mut waiter = waits(&second);
        first.set_module(Some(&new));
        first.restart();
        follow(&first, &second);
        assert_same(&first, &second);
        assert_eq!(second.conn().line("LOCK.RELEASE plain a ALL").int(), 1);
        assert!(waiter.recv().int() > before.token("plain"));
        assert_same(&first, &second);
    }
}
