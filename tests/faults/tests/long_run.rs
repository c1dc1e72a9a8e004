//! The long run: a slice of short minutes passes, and each law of its end can be broken.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing
)]

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use redis_lock_faults::long_run::figures::Figures;
use redis_lock_faults::long_run::site::Site;
use redis_lock_faults::long_run::{laws, settings, Lengths, Run, GROWTH};

const LENGTHS: Lengths = Lengths {
    run: Duration::ZERO,
    slice: 2,
    minute: Duration::from_secs(5),
};

/// Servers with the data of the residents.
fn site() -> (Site, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::start(&dir.path().join("data")).unwrap();
    laws::quiet(&site).unwrap();
    (site, dir)
}

#[test]
fn a_run_continues_with_the_next_minute_and_the_same_data() {
    let (site, dir) = site();
    let load = || Figures::at(dir.path().join("run.jsonl"), dir.path().join("data")).unwrap();
    let mut figures = load();
    let mut run = Run::new(&site, "a server".into(), figures.next());
    run.slice(LENGTHS, &mut figures).unwrap();
    site.finish(&figures.data()).unwrap();
    let figures = load();
    assert_eq!(figures.next(), (2, 3));
    let minute = figures.minutes().last().unwrap();
    assert!(minute.operations > 0 && minute.tickets > 0 && minute.pair[0] > 0);
    let stop = figures.stops().last().unwrap().clone();
    assert_eq!((stop.run, stop.minute, stop.refused), (1, 2, None));
    let again = Site::start(&figures.data()).unwrap();
    assert_eq!(again.digest().data(), stop.digest);
}

#[test]
fn every_setting_is_changed() {
    let (site, _dir) = site();
    let known = site.conn().run(["CONFIG", "GET", "lock.*"]).list();
    let known: BTreeSet<String> = known.iter().step_by(2).map(|name| name.text()).collect();
    let changed = settings::names().into_iter().map(str::to_string);
    assert_eq!(known, changed.collect());
}

#[test]
fn memory_that_grows_is_refused() {
    let (site, _dir) = site();
    let baseline = laws::memory(&site, site.memory().settled).unwrap();
    // A script stays in the server's memory, and is in no key.
    let script = format!("return '{}'", "x".repeat(2 * GROWTH as usize));
    site.conn().run(["SCRIPT", "LOAD", &script]);
    let refusal = laws::memory(&site, baseline).unwrap_err();
    assert!(refusal.contains("memory has grown by"), "{refusal}");
}

#[test]
fn a_waiter_without_a_client_of_the_load_is_refused() {
    let (site, _dir) = site();
    let mut waits = site.conn();
    waits.send_line("LOCK.ACQUIRE resident:0 another PX 1000 BLOCK 0");
    let refusal = laws::quiet(&site).unwrap_err();
    assert!(refusal.contains("lock_waiters:1"), "{refusal}");
}

#[test]
fn other_data_at_the_replica_is_refused() {
    let (site, _dir) = site();
    site.equal_digests().unwrap();
    let mut conn = site.replica.borrow().conn();
    conn.run(["CONFIG", "SET", "replica-read-only", "no"]);
    for change in ["PEXPIRE resident:0 100000000", "HSET resident:0 ghost 1"] {
        conn.line(change);
        let refusal = site.equal_digests().unwrap_err();
        assert!(refusal.contains("the replica has other data"), "{refusal}");
        assert!(refusal.contains("resident:0"), "{refusal}");
    }
}

#[test]
fn other_data_in_the_aof_is_refused() {
    let (site, _dir) = site();
    site.digest_of_aof().unwrap();
    let dir = site.primary.borrow().dir().join("appendonlydir");
    let files = std::fs::read_dir(dir).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    let increment = paths.find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let mut file = std::fs::OpenOptions::new();
    let mut file = file.append(true).open(increment.unwrap()).unwrap();
    let delete = b"*2\r\n$3\r\nDEL\r\n$10\r\nresident:4\r\n";
    file.write_all(delete).unwrap();
    let refusal = site.digest_of_aof().unwrap_err();
    assert!(refusal.contains("the AOF has other data"), "{refusal}");
    assert!(refusal.contains("resident:4"), "{refusal}");
}
