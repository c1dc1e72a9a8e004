//! `check`: one line and an exit status for probes, and nothing changed on the server.

use redis_lock_harness::cluster::two_nodes;
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{program, start, url, Running};

fn code(real: &TestServer, words: &str, status: i32) -> String {
    let end = start(real, words).end();
    assert_eq!(end.code(), status, "{words}: {} {}", end.out, end.err);
    end.out + &end.err
}

#[test]
fn a_primary_with_the_module_is_ready_and_unchanged() {
    let real = TestServer::start();
    let ready = code(&real, "check", 0);
    let expected = format!(
        "127.0.0.1:{}/0: ready, primary, module {}\n",
        real.port,
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(ready, expected);
    assert_eq!(real.conn().line("DBSIZE").int(), 0);
    assert_eq!(real.stat("grants"), 0);
    // A held lock is no failure.
    real.conn().line("LOCK.ACQUIRE k anna");
    code(&real, "check k", 0);
}

/// The version is known to users that may run INFO. The key that is asked about by default is one of the users in
/// users.acl.example.
#[test]
fn a_user_with_the_rights_of_the_example_is_ready() {
    let real = TestServer::start();
    let rights =
        "~lock:* &lock:tickets:* -@all +@connection +lock.acquire +lock.renew +lock.release";
    let rules = format!("ACL SETUSER app on nopass {rights} +publish +subscribe");
    real.conn().line(&rules);
    let mut command = program(&real);
    let own = url(&real).replace("//", "//app:x@");
    let end = Running::of(command.env("REDIS_LOCK_URL", own).arg("check")).end();
    let expected = format!("127.0.0.1:{}/0: ready, primary\n", real.port);
    assert_eq!(end.ok(), expected);
}

#[test]
fn a_server_that_cannot_lock_is_not_ready() {
    let without = TestServer::without_module(&[]);
    assert!(code(&without, "check", 69).contains("loadmodule"));
    let real = TestServer::with(&["--lock.startup-delay", "60000"]);
    assert!(code(&real, "check", 69).contains("grants nothing for 5"));
    let real = TestServer::start();
    real.signal(libc::SIGSTOP);
    assert!(code(&real, "check --timeout 0.3", 69).contains("no answer"));
    real.signal(libc::SIGCONT);
    let gone = format!("check --server {} --server redis://127.0.0.1:1", url(&real));
    let lines = code(&real, &gone, 69);
    assert!(
        lines.contains("ready, primary") && lines.contains("refused"),
        "{lines}"
    );
}

#[test]
fn a_replica_is_ready_only_where_that_is_asked() {
    let (primary, replica) = (TestServer::start(), TestServer::start());
    replica
        .conn()
        .line(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    wait_for("the copy", || {
        replica.info_field("replication", "master_link_status") == "up"
    });
    assert!(code(&replica, "check", 69).contains("READONLY"));
    assert!(code(&replica, "check --replica", 0).contains("ready, replica, module"));
    assert!(code(&primary, "check --replica", 0).contains("ready, primary"));
}

#[test]
fn in_a_cluster_the_node_of_the_key_is_asked() {
    let (one, two) = two_nodes(&[]);
    for node in [&one, &two] {
        let server = format!("redis+cluster://127.0.0.1:{}", node.port);
        code(node, &format!("check {{a}} --server {server}"), 0);
    }
    // As single servers one of them does not serve the key.
    let alone = [&one, &two].map(|node| start(node, "check {a}").end());
    let statuses: Vec<i32> = alone.iter().map(|end| end.code()).collect();
    assert!(
        statuses.contains(&0) && statuses.contains(&69),
        "{statuses:?}"
    );
    assert!(alone
        .iter()
        .any(|end| end.err.contains("name it redis+cluster://")));
}
