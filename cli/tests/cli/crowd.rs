//! Many at once: a counter in a file that each reads, adds one to and writes, without another guard than the
//! lock. Nothing is lost, and they come in the order in which they were parked.
//!
//! `LOCK_CROWD=1000` makes it a thousand.

use redis_lock_harness::process::tame;
use redis_lock_harness::{wait_for, Conn, TestServer};

use crate::program::{program, script, Running};

/// Reads, adds one, writes, and prints its number.
const COUNT: &str = "n=$(cat counter); echo $((n + 1)) >counter; echo $LOCK_OWNER >>order";

/// A wait is sent in slices, of half the timeout and a third of the lease at most. A waiter between two slices keeps
/// its place, but the lock may go to the next one: no waiter is between slices here.
const LONG_SLICES: [&str; 5] = ["run", "--timeout", "120", "--lease", "300"];

fn crowd() -> usize {
    let wanted = std::env::var("LOCK_CROWD").ok();
    wanted.map_or(200, |text| text.parse().expect("a number"))
}

fn owners_waiting(conn: &mut Conn, count: usize) -> Vec<String> {
    let info = conn.run(["LOCK.INFO", "k", "WAITERS", "COUNT", &count.to_string()]);
    let queue = info.field("queue").expect("a queue").list();
    queue
        .iter()
        .map(|waiter| waiter.field("owner").expect("an owner").text())
        .collect()
}

#[test]
fn no_update_is_lost_and_the_order_is_that_of_the_queue() {
    let real = TestServer::start();
    let crowd = crowd();
    let dir = real.dir().join("crowd");
    std::fs::create_dir(&dir).expect("a directory");
    std::fs::write(dir.join("counter"), "0\n").expect("a file");
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k first PX 3600000");
    let mut runs = Vec::new();
    // Started by the handful: they are parked in whichever order they come.
    while runs.len() < crowd {
        for _ in 0..8.min(crowd - runs.len()) {
            let mut command = program(&real);
            command
                .args(LONG_SLICES)
                .args(["k", "--", "sh", "-c", COUNT]);
            runs.push(Running::of(command.current_dir(&dir)));
        }
        real.wait_for_waits(runs.len() as u64);
    }
    let parked = owners_waiting(&mut conn, crowd);
    assert_eq!(parked.len(), crowd);
    conn.line("LOCK.RELEASE k first");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    // No deadline, as long as the grants continue.
    let mut done = 0;
    while done < crowd {
        wait_for("the next one", || read("order").lines().count() > done);
        done = read("order").lines().count();
    }
    for run in runs {
        assert_eq!(run.end().code(), 0);
    }
    assert_eq!(read("counter").trim(), crowd.to_string());
    assert_eq!(read("order").lines().collect::<Vec<_>>(), parked);
    assert_eq!(
        (real.stat("tickets_granted"), real.stat("grants_expired")),
        (crowd as u64, 0)
    );
}

#[test]
fn two_that_come_again_and_again_lose_no_update() {
    let real = TestServer::start();
    let count = real.dir().join("count");
    std::fs::write(&count, "0\n").expect("a file");
    let add = format!("n=$(cat {0}); echo $((n + 1)) >{0}", count.display());
    let rounds = 30;
    let again: Vec<_> = (0..2)
        .map(|_| {
            let (url, add) = (crate::program::url(&real), add.clone());
            std::thread::spawn(move || {
                for _ in 0..rounds {
                    let mut command = std::process::Command::new(crate::program::PROGRAM);
                    command
                        .env("REDIS_LOCK_URL", &url)
                        .args(["run", "k", "--", "sh", "-c", &add]);
                    assert!(tame(&mut command).status().expect("redis-lock").success());
                }
            })
        })
        .collect();
    for thread in again {
        thread.join().expect("no panic");
    }
    assert_eq!(
        std::fs::read_to_string(&count).expect("a file"),
        format!("{}\n", 2 * rounds)
    );
    assert_eq!(script(&real, "-n", "echo free").end().ok(), "free\n");
}
