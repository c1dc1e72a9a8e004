//! Partitions by the network itself: every server in a namespace of its own, with two links to it, one for each of two
//! clients. A link can be cut, or cut only in the direction from the server.
//!
//! That needs root. Without it the outer test says so, and only the tests with stopped servers (`red.rs`, `multi.rs`)
//! run. All interfaces are in namespaces that end with their processes: nothing is visible from outside, or left
//! behind.

use std::future::IntoFuture;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fleet::{in_time, soon};
use redis_lock_client::{Lock, LostReason, MultiLock, RedLock, Released, Server};
use redis_lock_harness::process::{spawn, tame};
use redis_lock_harness::{module_path, patience, server_binary, wait_for};

const LEASE: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(60);
/// Set for the tests that are run inside: nothing is to be laid in the machine's own network.
const INSIDE: &str = "LOCK_IN_NETWORK_NAMESPACE";

/// Runs all the tests of this file that are ignored, in a network namespace.
#[test]
fn in_network_namespaces() {
    let may = Command::new("unshare")
        .args(["--net", "ip", "link"])
        .output();
    if !may.is_ok_and(|done| done.status.success()) {
        println!("not run: no right to make network namespaces");
        return;
    }
    let me = std::env::current_exe().expect("this test's own program");
    let done = tame(&mut Command::new("unshare"))
        .arg("--net")
        .arg(me)
        .env(INSIDE, "1")
        .args([
            "partitions::",
            "--ignored",
            "--test-threads",
            "1",
            "--nocapture",
        ])
        .output()
        .expect("a run of the tests inside");
    let told = String::from_utf8_lossy(&done.stdout);
    println!("{told}");
    let failed = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}{failed}");
}

/// Which of the two clients a link belongs to.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

const SIDES: [Side; 2] = [Side::Left, Side::Right];

impl Side {
    fn link(self, island: usize) -> String {
        let side = match self {
            Side::Left => "left",
            Side::Right => "right",
        };
        format!("{side}{island}")
    }

    /// The first three numbers of the link's network: the client is `.1`, the server `.2`.
    fn net(self, island: usize) -> String {
        format!("10.{}.{island}", 77 + self as u8)
    }
}

/// A server with a network of its own.
struct Island {
    number: usize,
    process: Child,
}

impl Island {
    fn start(number: usize, startup_delay: Duration) -> Island {
        let [left, right] = SIDES.map(|side| format!("{}.2", side.net(number)));
        // The network is laid before the server starts.
        let mut server = Command::new("unshare");
        server
            .args(["--net", "sh", "-c", "read go && exec \"$@\"", "sh"])
            .arg(server_binary())
            .args(["--port", "6379", "--bind", &left, &right])
            .args(["--protected-mode", "no", "--save", ""])
            .args(["--dir", env!("CARGO_TARGET_TMPDIR")])
            .arg("--loadmodule")
            .arg(module_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let process = spawn(&mut server).expect("a server in a namespace");
        let mut island = Island { number, process };
        wait_for("a namespace of its own", || {
            let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
            let (own, its) = (of("self"), of(&island.pid()));
            own.is_some() && its.is_some() && own != its
        });
        for side in SIDES {
            let (link, net, pid) = (side.link(number), side.net(number), island.pid());
            ip(&format!(
                "link add {link} type veth peer name {link} netns {pid}"
            ));
            ip(&format!("addr add {net}.1/30 dev {link}"));
            ip(&format!("link set {link} up"));
            island.inside(&format!("addr add {net}.2/30 dev {link}"));
            island.inside(&format!("link set {link} up"));
        }
        let mut go = island.process.stdin.take().expect("its input");
        writeln!(go, "go").expect("it waits for that");
        wait_for("a server that answers", || island.ask(&["PING"]).is_some());
        let delay = startup_delay.as_millis().to_string();
        let set = ["CONFIG", "SET", "lock.startup-delay", &delay];
        island.ask(&set).expect("the setting");
        island
    }

    fn pid(&self) -> String {
        self.process.id().to_string()
    }

    fn inside(&self, arguments: &str) {
        let enter = ["--net", "--target", &self.pid(), "ip"];
        let mut command = Command::new("nsenter");
        command.args(enter).args(arguments.split(' '));
        assert!(command.status().expect("nsenter").success(), "{arguments}");
    }

    /// Drops all packets in both directions, without an error to either side.
    fn cut(&self, side: Side) {
        self.inside(&format!("link set {} down", side.link(self.number)));
    }

    fn mend(&self, side: Side) {
        self.inside(&format!("link set {} up", side.link(self.number)));
    }

    /// The server receives from its client; its replies are dropped.
    fn mute(&self, side: Side) {
        let client = format!("{}.1", side.net(self.number));
        self.inside(&format!("route add blackhole {client}/32"));
    }

    fn unmute(&self, side: Side) {
        let client = format!("{}.1", side.net(self.number));
        self.inside(&format!("route del blackhole {client}/32"));
    }

    fn url(&self, side: Side) -> String {
        format!("redis://{}.2:6379", side.net(self.number))
    }

    /// A command through the right link, which no test cuts.
    fn ask(&self, words: &[&str]) -> Option<redis::Value> {
        let client = redis::Client::open(self.url(Side::Right)).ok()?;
        let mut connection = client.get_connection_with_timeout(patience()).ok()?;
        redis::cmd(words.first()?)
            .arg(words.get(1..)?)
            .query(&mut connection)
            .ok()
    }

    fn is_free(&self) -> bool {
        self.ask(&["LOCK.INFO", "k"]) == Some(redis::Value::Nil)
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        // A namespace ends some time after its last process; the next test wants the names at once.
        for side in SIDES {
            let _ = Command::new("ip")
                .args(["link", "del", &side.link(self.number)])
                .status();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status();
    assert!(done.expect("ip").success(), "ip {arguments}");
}

fn islands(startup_delay: Duration) -> Vec<Island> {
    let is_inside = std::env::var_os(INSIDE).is_some();
    assert!(is_inside, "only inside: run in_network_namespaces");
    let numbers = 1..=3;
    numbers
        .map(|number| Island::start(number, startup_delay))
        .collect()
}

fn seen_from(islands: &[Island], side: Side) -> Vec<Server> {
    seen_within(islands, side, Duration::from_secs(1))
}

fn seen_within(islands: &[Island], side: Side, timeout: Duration) -> Vec<Server> {
    let urls = islands.iter().map(|island| island.url(side));
    let opened = urls.map(|url| Server::builder(&url).response_timeout(timeout).build());
    opened.map(|server| server.expect("a URL")).collect()
}

fn red(islands: &[Island], side: Side) -> RedLock {
    let servers = seen_from(islands, side);
    RedLock::new(&servers, "k")
        .expect("three servers")
        .lease(LEASE)
}

fn multi(islands: &[Island], side: Side) -> MultiLock {
    let servers = seen_from(islands, side);
    let locks = servers
        .iter()
        .map(|server| Lock::new(server, "k").lease(LEASE));
    MultiLock::new(locks).expect("three locks")
}

fn wait_for_a_waiter(island: &Island) {
    wait_for("a waiter", || {
        let info = island.ask(&["INFO", "lock"]);
        let info = info.map(|info| format!("{info:?}")).unwrap_or_default();
        info.contains("lock_waiters:1") || info.contains("lock_tickets:1")
    });
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by in_network_namespaces"]
async fn a_red_lock_cut_off_from_a_majority_reports_the_loss_before_the_next_grant() {
    in_time(Duration::from_millis(500), cut_off_from_most).await;
}

/// How late the loss was reported.
async fn cut_off_from_most() -> Duration {
    let islands = islands(LEASE);
    let guard = red(&islands, Side::Left)
        .acquire()
        .await
        .expect("a majority");
    let next = red(&islands, Side::Right);
    let next = tokio::spawn(async move { (next.acquire_within(LONG).await, Instant::now()) });
    wait_for_a_waiter(&islands[0]);
    let cut = Instant::now();
    islands[0].cut(Side::Left);
    islands[2].cut(Side::Left);
    let lost = tokio::spawn(guard.lost().into_future());
    let mut end = cut;
    while !lost.is_finished() {
        end = end.max(Instant::now() + guard.valid_for());
        // sleep: the interval at which the validity is read
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        lost.await.expect("the notice"),
        Some(LostReason::Unconfirmed)
    );
    let told = cut.elapsed();
    let (got, granted) = next.await.expect("the other client");
    let got = got.expect("a majority").expect("its turn");
    assert!(end < granted, "valid {:?} beside the other", end - granted);
    println!(
        "measured: RedLock cut off: told after {told:?}, the next granted {:?} after its end",
        granted - end
    );
    // Its own undo reaches them when the links are there again, and takes nothing of the other's.
    islands[0].mend(Side::Left);
    islands[2].mend(Side::Left);
    drop(guard);
    tokio::time::timeout(LEASE * 2, got.lost().into_future())
        .await
        .expect_err("held on");
    told.saturating_sub(LEASE)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by in_network_namespaces"]
async fn a_red_lock_cut_off_from_one_server_stays_held_and_regains_it() {
    let islands = islands(LEASE);
    let guard = red(&islands, Side::Left)
        .acquire()
        .await
        .expect("a majority");
    islands[0].cut(Side::Left);
    wait_for("its lease is over there", || islands[0].is_free());
    assert!(!guard.valid_for().is_zero());
    // They have a twentieth of this for their replies.
    let others = seen_within(&islands, Side::Right, LONG);
    let other = RedLock::new(&others, "k")
        .expect("three servers")
        .lease(LEASE);
    let refused = other.try_acquire().await.expect("an answer");
    assert!(refused.is_none());
    islands[0].mend(Side::Left);
    wait_for("the hold is there again", || !islands[0].is_free());
    wait_for("its holder knows", || guard.tokens().len() == 3);
    assert_eq!(guard.release().await.expect("an answer"), Released::Yes);
}

/// A hand-off whose reply is lost leaves the lock with an owner that does not know of the grant.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by in_network_namespaces"]
async fn a_grant_whose_reply_was_lost_is_released() {
    let islands = islands(LONG);
    let servers = seen_from(&islands, Side::Right);
    let other = Lock::new(&servers[0], "k").acquire().await.expect("free");
    let waiting = red(&islands, Side::Left).lease(LONG);
    let waiting = tokio::spawn(async move { waiting.acquire_within(LONG).await });
    wait_for_a_waiter(&islands[0]);
    islands[0].mute(Side::Left);
    assert_eq!(other.release().await.expect("an answer"), Released::Yes);
    let guard = waiting.await.expect("the client").expect("a majority");
    let guard = guard.expect("by the two others");
    assert_eq!(guard.tokens().len(), 2);
    let holder = format!("{:?}", islands[0].ask(&["HGETALL", "k"]));
    let owner = String::from_utf8_lossy(guard.owner()).into_owned();
    assert!(holder.contains(&owner), "{owner} does not know of {holder}");
    let released = guard.release_each().await;
    assert!(released[0].1.is_err(), "{released:?}");
    islands[0].unmute(Side::Left);
    // The lease there is a minute, so the lock was released.
    wait_for("free", || islands.iter().all(Island::is_free));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by in_network_namespaces"]
async fn a_multi_lock_cut_off_from_one_server_reports_the_loss_before_the_next_grant() {
    let islands = islands(LEASE);
    let guard = multi(&islands, Side::Left)
        .acquire()
        .await
        .expect("free locks");
    let next = multi(&islands, Side::Right);
    let next = tokio::spawn(async move { (next.acquire().await, Instant::now()) });
    wait_for_a_waiter(&islands[0]);
    let cut = Instant::now();
    islands[1].cut(Side::Left);
    assert_eq!(soon(guard.lost()).await, Some(LostReason::Unconfirmed));
    let told = cut.elapsed();
    let (released, took) = (guard.release_each().await, cut.elapsed() - told);
    assert!(
        released[0].is_ok() && released[1].is_err() && released[2].is_ok(),
        "{released:?}"
    );
    println!("measured: MultiLock cut off: told after {told:?}, released in {took:?}");
    let (got, granted) = next.await.expect("the other client");
    assert!(got.is_ok() && granted - cut > told);
}
