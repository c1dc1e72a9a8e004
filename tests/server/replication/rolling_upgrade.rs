//! The steps of docs/PACKAGES.md, "A pair of servers": each gets the new build at its restart, and no hold is lost.

use std::path::PathBuf;

use crate::common::replica::{fail_over, follow, PROMPT_MASTER};
use crate::common::{module_path, TestServer};
use crate::tickets::scene::{message, subscribe};

/// The same code under another path.
fn new_build(server: &TestServer) -> PathBuf {
    let new = server.dir().join("new.so");
    std::fs::copy(module_path(), &new).expect("a copy");
    new
}

#[test]
fn a_pair_gets_a_new_build_one_server_after_the_other() {
    let [mut first, mut second] = [(); 2].map(|()| TestServer::with(&PROMPT_MASTER));
    follow(&second, &first);
    let mut c = first.conn();
    let token = c.line("LOCK.ACQUIRE k alice PX 600000").int();
    c.line("LOCK.ACQUIRE r reader READ PX 600000");
    c.line("SEM.ACQUIRE s permit LIMIT 1 PX 600000");
    c.line("LOCK.ACQUIRE j bound SESSION");
    let (mut parked, mut channel) = (first.conn(), subscribe(&first, "ch"));
    parked.send_line("LOCK.ACQUIRE k bob PX 600000 BLOCK 0");
    first.wait_for_waiters(1);
    let ask = "LOCK.ACQUIRE k carol PX 600000 BLOCK 0 NOTIFY ch carol";
    assert_eq!(c.line(ask).text(), "QUEUED");

    let new = new_build(&second);
    second.set_module(Some(&new));
    second.restart();
    follow(&second, &first);
    fail_over(&first, &second);
    assert!(parked.recv().error().starts_with("UNBLOCKED"));
    assert_eq!(message(&mut channel), "failed UNBLOCKED carol");

    // The holds are there, and those who waited ask again.
    let mut there = second.conn();
    assert_eq!(
        there
            .line(&format!("LOCK.RENEW k alice TOKEN {token} PX 600000"))
            .int(),
        1
    );
    assert_eq!(there.line("LOCK.RENEW r reader PX 600000").int(), 1);
    assert_eq!(there.line("SEM.RENEW s permit PX 600000").int(), 1);
    let mut bob = second.conn();
    bob.send_line("LOCK.ACQUIRE k bob PX 600000 BLOCK 0");
    second.wait_for_waiters(1);
    let mut channel = subscribe(&second, "ch");
    assert_eq!(there.line(ask).text(), "QUEUED");
    let bound = there.line("PTTL j").int();
    assert!(
        (1..=10_000).contains(&bound),
        "bound no more, it ends with its lease: {bound}"
    );

    let new = new_build(&first);
    first.set_module(Some(&new));
    first.restart();
    follow(&first, &second);
    assert_eq!(there.line("LOCK.RELEASE k alice").int(), 1);
    let granted = bob.recv().int();
    assert!(granted > token);
    assert_eq!(there.line("LOCK.RELEASE k bob").int(), 1);
    let told = message(&mut channel);
    let of_carol = told
        .strip_prefix("granted ")
        .and_then(|rest| rest.split(' ').next());
    assert!(
        of_carol
            .and_then(|token| token.parse().ok())
            .is_some_and(|of: i64| of > granted),
        "{told}"
    );

    // And back to the first.
    fail_over(&second, &first);
    let mut back = first.conn();
    assert_eq!(back.line("LOCK.RELEASE k carol").int(), 1);
    assert!(back.line("LOCK.ACQUIRE k dave PX 600000").int() > granted);
    assert_eq!(back.line("LOCK.RELEASE r reader").int(), 1);
    assert_eq!(back.line("SEM.RELEASE s permit").int(), 1);
}
