//! What an observer is told.

use std::future::{poll_fn, Future};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use redis_lock_client::{
    Error, Lock, LockName, LockObserver, LostReason, MultiLock, RedLock, Released, Semaphore,
    Server,
};
use redis_lock_harness::TestServer;

use crate::servers::{at, until, until_waits, PATIENT};
use crate::{lock, RENEWED};

/// The events so far, and a loss whose handler blocks.
#[derive(Clone, Default)]
struct Told {
    events: Arc<Mutex<Vec<String>>>,
    blocks: Arc<Mutex<Option<Receiver<()>>>>,
}

impl Told {
    fn add(&self, lock: &LockName, event: String) {
        let key = String::from_utf8_lossy(&lock.key);
        let event = format!("{key} {} {event}", lock.kind);
        self.events.lock().unwrap().push(event);
    }

    /// The events since the last call.
    fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    fn server(&self, real: &TestServer) -> Server {
        let server = at(real.port).response_timeout(PATIENT);
        server.observer(self.clone()).build().unwrap()
    }
}

impl LockObserver for Told {
    fn asked(&self, lock: &LockName) {
        self.add(lock, "asked".into());
    }

    fn answered(&self, lock: &LockName, granted: bool, waited: Duration, error: Option<&Error>) {
        assert!(waited < PATIENT);
        let error = error.map_or(String::new(), |error| format!(" {error}"));
        self.add(lock, format!("answered {granted}{error}"));
    }

    fn released(&self, lock: &LockName, held: Duration) {
        assert!(held < PATIENT);
        self.add(lock, "released".into());
    }

    fn lost(&self, lock: &LockName, reason: &LostReason) {
        self.add(lock, format!("lost {reason:?}"));
        if let Some(blocks) = &*self.blocks.lock().unwrap() {
            let _ = blocks.recv();
        }
    }

    fn late(&self, lock: &LockName, by: Duration) {
        assert!(by > Duration::from_secs(8));
        self.add(lock, "late".into());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_acquisition_is_asked_and_answered_once_and_each_guard_released_once() {
    let real = TestServer::start();
    let told = Told::default();
    let server = told.server(&real);
    let lock = lock(&server);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(
        told.events(),
        ["k exclusive asked", "k exclusive answered true"]
    );
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(
        told.events(),
        ["k exclusive asked", "k exclusive answered false"]
    );
    let (asking, waiter) = (lock.clone(), tokio::spawn);
    let waiting = waiter(async move { asking.acquire().await });
    until_waits(&real, 1);
    assert_eq!(told.events(), ["k exclusive asked"]);
    waiting.abort();
    assert!(waiting.await.is_err());
    assert_eq!(told.events(), ["k exclusive answered false"]);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    assert_eq!(told.events(), ["k exclusive released"]);
    drop(lock.resume("secret-owner", 7).await);
    let [asked, answered] = &told.events()[..] else {
        panic!("two events");
    };
    assert_eq!(asked, "k exclusive asked");
    assert!(answered.starts_with("k exclusive answered false the lock was lost"));
    let guard = lock.acquire().await.unwrap();
    told.events();
    assert_eq!(guard.leave(PATIENT).await.unwrap(), Released::Yes);
    assert_eq!(told.events(), ["k exclusive released"]);
    drop(
        Semaphore::new(&server, "s")
            .limit(1)
            .acquire()
            .await
            .unwrap(),
    );
    let of_permit =
        ["asked", "answered true", "released"].map(|event| format!("s semaphore {event}"));
    assert_eq!(told.events(), of_permit);
    let both = ["a", "b"].map(|key| Lock::new(&server, key));
    drop(MultiLock::new(both).unwrap().acquire().await.unwrap());
    // Its locks are acquired on the thread of the crate.
    let mut events = Vec::new();
    until("the events of both", || {
        events.extend(told.events());
        events.len() == 6
    });
    real.conn().line("RPUSH x 1");
    assert!(Lock::new(&server, "x").acquire().await.is_err());
    let [_, answered] = &told.events()[..] else {
        panic!("two events");
    };
    assert!(answered.contains("answered false") && answered.contains("WRONGTYPE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_red_lock_is_one_lock() {
    let reals = [0; 3].map(|_| TestServer::with(&["--lock.startup-delay", "1"]));
    let told = Told::default();
    let servers = reals.each_ref().map(|real| told.server(real));
    let red = RedLock::new(&servers, "r")
        .unwrap()
        .lease(Duration::from_secs(30));
    drop(red.try_acquire().await);
    let events = told.events();
    assert_eq!(events.len(), 2, "{events:?}");
    for real in &reals {
        real.conn().line("CONFIG SET lock.startup-delay 60000");
    }
    drop(red.acquire().await.unwrap());
    let events = ["asked", "answered true", "released"].map(|event| format!("r exclusive {event}"));
    assert_eq!(told.events(), events);

    // Dropped when it was granted, and before the program had it.
    for server in &servers {
        assert!(server.settled().await.is_empty());
    }
    let mut acquiring = Box::pin(red.acquire());
    let begun = poll_fn(|context| Poll::Ready(acquiring.as_mut().poll(context).is_pending()));
    assert!(begun.await);
    until("the grants", || {
        let mut conns = reals.iter().map(TestServer::conn);
        conns.all(|mut conn| conn.line("EXISTS r").int() == 1)
    });
    drop(acquiring);
    for server in &servers {
        assert!(server.settled().await.is_empty());
    }
    let events = ["asked", "answered false"].map(|event| format!("r exclusive {event}"));
    assert_eq!(told.events(), events);
}

/// The handler of a loss blocks; what this crate has to send goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_told_and_its_handler_may_block() {
    let real = TestServer::start();
    let told = Told::default();
    let (end, blocks) = channel();
    *told.blocks.lock().unwrap() = Some(blocks);
    let server = told.server(&real);
    let guard = lock(&server).acquire().await.unwrap();
    told.events();
    real.conn().line("LOCK.BREAK k");
    assert_eq!(guard.lost().await, Some(LostReason::Taken));
    until("the event", || told.events() == ["k exclusive lost Taken"]);
    let other = Lock::new(&server, "o")
        .lease(RENEWED)
        .acquire()
        .await
        .unwrap();
    let renewals = real.stat("renewals");
    until("a renewal", || real.stat("renewals") > renewals);
    end.send(()).unwrap();
    assert_eq!(other.release().await.unwrap(), Released::Yes);
    told.events();
    drop(guard);
    assert_eq!(told.events(), [""; 0], "it was lost");
}

/// A grant that the program never had, because too few replicas have it or it was dropped meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_given_up_is_not_released() {
    let real = TestServer::start();
    let told = Told::default();
    let server = told.server(&real);
    let lock = lock(&server).replicas(1);
    let error = lock.acquire().await.unwrap_err();
    let refused = format!("k exclusive answered false {error}");
    assert_eq!(told.events(), ["k exclusive asked", refused.as_str()]);
    let looking = lock.replicas_within(PATIENT);
    let looking = tokio::spawn(async move { looking.acquire().await });
    until("a WAIT", || {
        real.info_field("clients", "blocked_clients") == "1"
    });
    looking.abort();
    assert!(looking.await.is_err());
    assert!(server.settled().await.is_empty());
    let given_up = ["k exclusive asked", "k exclusive answered false"];
    assert_eq!(told.events(), given_up);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_without_an_answer_is_late() {
    let real = TestServer::start();
    let told = Told::default();
    let server = told.server(&real);
    let lease = Duration::from_secs(24);
    let guard = lock(&server).lease(lease).margin(Duration::ZERO);
    let guard = guard.acquire().await.unwrap();
    told.events();
    real.signal(libc::SIGSTOP);
    until("the event", || told.events() == ["k exclusive late"]);
    real.signal(libc::SIGCONT);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

struct Panics;

impl LockObserver for Panics {
    fn asked(&self, _: &LockName) {
        panic!("a defect of the program");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_panics_costs_no_lock() {
    let real = TestServer::start();
    let server = at(real.port).observer(Panics).build().unwrap();
    let guard = lock(&server).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}
