//! Commands under a lock, and elections.

use redis_lock_client::{Election, Error, Lock, Mode, Observer, Released, Reply};
use redis_lock_harness::TestServer;

use crate::servers::{client, until_waits};
use crate::{lock, LEASE};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_under_the_lock_runs_only_while_it_is_held() {
    let real = TestServer::start();
    let server = client(&real);
    let guard = lock(&server).acquire().await.unwrap();
    let ok = Reply::Bytes(b"OK".to_vec());
    assert_eq!(guard.execute(["SET", "data", "1"]).await.unwrap(), ok);
    assert_eq!(
        guard.execute(["INCRBY", "data", "5"]).await.unwrap(),
        Reply::Integer(6)
    );
    assert_eq!(guard.execute(["GET", "none"]).await.unwrap(), Reply::Nil);
    let words: [&[u8]; 4] = [b"HSET", b"h", b"\xff", b"x"];
    assert_eq!(guard.execute(words).await.unwrap(), Reply::Integer(1));
    let whole = guard.execute(["HGETALL", "h"]).await.unwrap();
    let parts = [b"\xff", b"x"].map(|part| Reply::Bytes(part.to_vec()));
    assert_eq!(whole, Reply::List(parts.to_vec()));
    let refused = guard.execute(["GET", "data", "data"]).await.unwrap_err();
    assert!(refused.to_string().contains("wrong number"), "{refused}");
    real.conn().line("LOCK.BREAK k");
    let late = guard.execute(["SET", "data", "9"]).await.unwrap_err();
    assert!(matches!(late, Error::Lost(_)), "{late}");
    assert!(guard.valid_for().is_zero(), "the reply proves the loss");
    let late = guard.set_note("late").await.unwrap_err();
    assert!(matches!(late, Error::Lost(_)), "{late}");
    assert_eq!(real.conn().line("GET data").text(), "6");
}

/// A refusal that may have another cause than a loss: the server is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_may_prove_a_loss_is_looked_into() {
    let real = TestServer::start();
    let server = client(&real);
    let mut conn = real.conn();
    conn.line("RPUSH list x");
    let guard = lock(&server).acquire().await.unwrap();
    let refused = guard.execute(["GET", "list"]).await.unwrap_err();
    assert!(!matches!(refused, Error::Lost(_)), "{refused}");
    assert!(!guard.valid_for().is_zero());
    conn.line("DEL k");
    conn.line("RPUSH k x");
    let late = guard.execute(["SET", "data", "9"]).await.unwrap_err();
    assert!(matches!(late, Error::Lost(_)), "{late}");
    assert!(guard.valid_for().is_zero());
    let late = guard.set_note("late").await.unwrap_err();
    assert!(matches!(late, Error::Lost(_)), "{late}");
    conn.line("DEL k");
    let reader = lock(&server).mode(Mode::Read).acquire().await.unwrap();
    conn.line("LOCK.BREAK k");
    let late = reader.execute(["SET", "data", "9"]).await.unwrap_err();
    assert!(matches!(late, Error::Lost(_)), "{late}");
    assert!(reader.valid_for().is_zero());
}

async fn next(observer: &mut Observer) -> Option<String> {
    let leader = observer.next().await.unwrap();
    leader.map(|leader| String::from_utf8(leader.note).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_follow_each_other_and_each_change_is_observed_once() {
    let real = TestServer::start();
    let (server, elsewhere) = (client(&real), client(&real));
    let election = Election::new(&server, "k").lease(LEASE);
    // Of another process, which the server tells of changes; and of this one.
    let mut observers = [&elsewhere, &server].map(|at| Election::new(at, "k").observe());
    assert_eq!(election.leader().await.unwrap(), None);
    for observer in &mut observers {
        assert_eq!(next(observer).await, None);
    }
    let first = election.campaign("a:1").await.unwrap();
    let said = election.leader().await.unwrap().unwrap();
    assert_eq!((&said.note[..], said.token), (&b"a:1"[..], first.token()));
    for observer in &mut observers {
        assert_eq!(next(observer).await.as_deref(), Some("a:1"));
    }
    first.set_note("a:2").await.unwrap();
    for observer in &mut observers {
        assert_eq!(next(observer).await.as_deref(), Some("a:2"));
    }
    let candidate = election.clone();
    let second = tokio::spawn(async move { candidate.campaign("b:1").await });
    until_waits(&real, 1);
    assert_eq!(first.release().await.unwrap(), Released::Yes);
    let second = second.await.unwrap().unwrap();
    for observer in &mut observers {
        assert_eq!(next(observer).await.as_deref(), Some("b:1"));
    }
    real.conn().line("LOCK.BREAK k");
    for observer in &mut observers {
        assert_eq!(next(observer).await, None);
    }
    second.lost().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_messages_of_the_server_a_change_is_found_within_a_third_of_the_lease() {
    let real = TestServer::start();
    let url = format!("redis://127.0.0.1:{}/0?protocol=2", real.port);
    let server = redis_lock_client::Server::open(&url).unwrap();
    let mut observer = Election::new(&server, "k")
        .lease(std::time::Duration::from_millis(300))
        .observe();
    assert_eq!(next(&mut observer).await, None);
    let held = Lock::new(&client(&real), "k").acquire().await.unwrap();
    assert_eq!(next(&mut observer).await.as_deref(), Some(""));
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    assert_eq!(next(&mut observer).await, None);
}
