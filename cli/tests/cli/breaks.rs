//! `break`: whom it broke, and the question at a terminal.

use redis_lock_harness::TestServer;

use crate::console::Console;
use crate::program::{start, url};

fn is_held(real: &TestServer) -> bool {
    real.conn().line("EXISTS k").int() == 1
}

#[test]
fn break_says_whom_it_broke() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("CLIENT SETNAME nightly");
    let token = conn.line("LOCK.ACQUIRE k me").int();
    let broken = start(&real, "break k").end().ok();
    let whom = format!("k: broken, was held by me, token {token}, for ");
    assert!(
        broken.starts_with(&whom) && broken.ends_with("(nightly)\n"),
        "{broken}"
    );
    let token = conn.line("LOCK.ACQUIRE k me").int();
    let broken = start(&real, "break k --json").end().ok();
    for field in [
        r#""broken":true"#,
        r#""owner":"me""#,
        &format!(r#""token":{token}"#),
    ] {
        assert!(broken.contains(field), "{broken}");
    }
    let broken = start(&real, "break k --json").end();
    assert_eq!(
        (broken.code(), broken.out.contains(r#""holders":[]"#)),
        (1, true)
    );
}

/// A user may be permitted to break locks, and not to see their holders.
#[test]
fn break_needs_no_permission_to_look() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k me");
    conn.line("ACL SETUSER may on >pass ~* +@all -lock.info");
    let server = url(&real).replace("//", "//may:pass@");
    let broken = start(&real, &format!("break k --server {server}"))
        .end()
        .ok();
    assert_eq!(broken, "k: broken\n");
}

#[test]
fn break_asks_at_a_terminal() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    for (answer, status) in [("n", "1"), ("", "1"), ("y", "0")] {
        real.conn().line("LOCK.ACQUIRE k me ONCE");
        console.line("$L break k");
        console.see("k: held by me, token ");
        console.see("break it? [y/N] ");
        console.line(answer);
        assert_eq!(console.status(), status, "{answer}");
        assert_eq!(is_held(&real), status == "1", "{answer}");
    }
    real.conn().line("LOCK.ACQUIRE k me");
    console.line("$L break -y k");
    console.see("k: broken, was held by me");
    assert_eq!(console.status(), "0");
}
