//! The text for `{:?}` of every public type: it has no owner, user or password.

use std::fmt::Debug;
use std::time::Duration;

use crate::fleet::Fleet;
use redis_lock_client::{Error, Semaphore, Server};
use redis_lock_client::{Latch, Lock, Mode, MultiLock, RedLock, Search};
use redis_lock_harness::TestServer;

const LEASE: Duration = Duration::from_secs(10);

/// What no text has: the owner, the user and the password, also as lists of bytes.
struct Secrets(Vec<String>);

impl Secrets {
    fn of(words: &[&[u8]]) -> Secrets {
        let mut secrets = Vec::new();
        for word in words {
            secrets.push(String::from_utf8_lossy(word).into_owned());
            secrets.push(format!("{word:?}").trim_matches(['[', ']']).to_string());
        }
        Secrets(secrets)
    }

    fn check(&self, shown: &dyn Debug) -> String {
        let text = format!("{shown:?}");
        for secret in &self.0 {
            assert!(!text.contains(secret.as_str()), "{secret} in {text}");
        }
        text
    }
}

fn patient(url: &str) -> Server {
    let server = Server::builder(url).response_timeout(Duration::from_secs(100));
    server.build().unwrap()
}

/// The address of the server with a user of its own.
fn url(real: &TestServer) -> String {
    let made = "ACL SETUSER hidden-user on >hidden-password allkeys allchannels +@all";
    assert_eq!(real.conn().line(made).text(), "OK");
    format!(
        "redis://hidden-user:hidden-password@127.0.0.1:{}",
        real.port
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_value_has_an_owner_a_user_or_a_password() {
    let real = TestServer::start();
    let url = url(&real);
    let server = patient(&url);
    let secrets = Secrets::of(&[b"hidden-owner", b"hidden-user", b"hidden-password"]);
    let lock = Lock::new(&server, b"k\n\xff").owner("hidden-owner");
    let session = Lock::new(&server, "s").owner("hidden-owner").session();
    let keys = ["a", "b"].map(|key| Lock::new(&server, key).owner("hidden-owner"));
    let several = MultiLock::new(keys).unwrap();
    let semaphore = Semaphore::new(&server, "p").owner("hidden-owner").limit(2);
    let guard = lock.acquire().await.unwrap();
    let text = secrets.check(&guard);
    for part in ["k\\n\\xff", &format!("127.0.0.1:{}/0", real.port)] {
        assert!(text.contains(part), "{text}");
    }
    let info = lock.info().await.unwrap();
    assert_eq!(info.holders[0].owner, b"hidden-owner");
    let waiting = tokio::spawn({
        let lock = lock.clone().owner("hidden-owner-2");
        async move { lock.acquire().await }
    });
    real.wait_for_waits(1);
    let mut waited = server.info(b"k\n\xff", 1).await.unwrap().unwrap();
    let waiter = waited.queue.remove(0);
    assert_eq!(waiter.owner, b"hidden-owner-2");
    waiting.abort();
    let (bound, both) = (session.acquire().await, several.acquire().await);
    let permit = semaphore.acquire().await.unwrap();
    let events = server.key_events("k").await.unwrap();
    let search = Search::held().matching("k*").owner("hidden-owner");
    let latch = Latch::new(&server, "l");
    let of_server: [&dyn Debug; 7] = [&server, &info, &waiter, &events, &search, &latch, &permit];
    let of_locks: [&dyn Debug; 7] = [
        &lock,
        &session,
        &several,
        &semaphore,
        &bound.unwrap(),
        &both.unwrap(),
        &guard.lost(),
    ];
    for shown in of_server.into_iter().chain(of_locks) {
        secrets.check(shown);
    }
    secrets.check(&guard);
    secrets.check(&Server::builder(&url));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_an_error_has_an_owner_a_user_or_a_password() {
    let mut real = TestServer::start();
    let url = url(&real);
    let secrets = Secrets::of(&[b"hidden-owner", b"hidden-user", b"hidden-password"]);
    let server = patient(&url);
    let lock = Lock::new(&server, "k")
        .lease(Duration::from_secs(6))
        .owner("hidden-owner");
    let held = lock.acquire().await.unwrap();
    let other = lock.clone().mode(Mode::Read).try_acquire().await;
    secrets.check(&other.unwrap_err());
    let wrong = patient(&url.replace("-password", "-passwords"));
    let refused = Lock::new(&wrong, "k").try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    secrets.check(&refused);
    secrets.check(&Server::open(&format!("{url}/x")).unwrap_err());
    real.conn().line("ACL SETUSER hidden-user -lock.acquire");
    let refused = Lock::new(&server, "other").try_acquire().await.unwrap_err();
    assert!(secrets.check(&refused).contains("NOPERM"));
    real.crash();
    drop(held);
    let left = server.settled().await;
    assert_eq!(left[0].owner, b"hidden-owner");
    assert!(secrets.check(&left).contains("\"k\""));
    real.start_again();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_red_lock_has_its_owner() {
    let fleet = Fleet::of_three(LEASE);
    let lock = RedLock::new(&fleet.clients(), "k").unwrap().lease(LEASE);
    let guard = lock.acquire().await.unwrap();
    let secrets = Secrets::of(&[guard.owner()]);
    secrets.check(&lock);
    secrets.check(&guard);
}
