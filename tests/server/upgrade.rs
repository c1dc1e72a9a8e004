//! Another build of the module in a running server: draining, and the script that does it all.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::process::tame;
use crate::common::scene::{only_reply, Scene};
use crate::common::{module_path, Conn, TestServer};

fn upgrade(server: &TestServer, module: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/upgrade.sh");
    tame(&mut Command::new("sh"))
        .current_dir(server.dir().parent().unwrap())
        .arg(script)
        .arg(module)
        .args(["-p", &server.port.to_string()])
        .output()
        .expect("the script")
}

fn output(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr[..]].concat()).into_owned()
}

#[test]
fn draining_sends_waiters_away_and_parks_nobody() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    assert_eq!(scene.alice.line("CONFIG SET lock.drain yes").text(), "OK");
    for waiter in [&mut scene.bob, &mut carol] {
        let told = only_reply(waiter).error();
        assert!(told.starts_with("UNBLOCKED"), "{told}");
    }
    scene.server.wait_for_waiters(0);
    scene.assert_stats(&[("places_kept", 0), ("waits_failed", 2)]);
    let refused = carol.line("LOCK.ACQUIRE k carol BLOCK 0").error();
    assert!(refused.starts_with("LOCKBUSY"), "{refused}");
    // What needs no waiting goes on.
    scene.assert_held("alice", scene.first);
    assert!(carol.line("LOCK.ACQUIRE other carol").int() > 0);
    assert_eq!(carol.line("LOCK.RELEASE other carol").int(), 1);

    scene.alice.line("CONFIG SET lock.drain no");
    let _dave = scene.park("dave");
}

#[test]
fn locks_that_are_held_and_waited_for_outlive_an_upgrade() {
    let mut scene = Scene::new();
    let mut other = scene.server.conn();
    other.line("CONFIG SET lock.default-lease 12345");
    let before = other.snapshot_of("k");
    // The same code under another path.
    let new = scene.server.dir().join("new.so");
    std::fs::copy(module_path(), &new).unwrap();
    let out = upgrade(&scene.server, &new);
    assert!(out.status.success(), "{}", output(&out));

    // On Redis 8 the script closes all connections.
    let told = scene.bob.try_recv();
    assert!(told.is_none_or(|told| told.error().starts_with("UNBLOCKED")));
    scene.alice = scene.server.conn();
    scene.bob = scene.server.conn();
    assert_eq!(scene.alice.snapshot_of("k"), before);
    let modules = format!("{:?}", scene.alice.line("MODULE LIST"));
    assert!(modules.contains("new.so"), "{modules}");
    let lease = scene.alice.line("CONFIG GET lock.default-lease").list()[1].text();
    assert_eq!(lease, "12345");
    let drain = scene.alice.line("CONFIG GET lock.drain").list()[1].text();
    assert_eq!(drain, "no");

    assert_eq!(
        scene.alice.line("LOCK.ACQUIRE k alice ONCE").int(),
        scene.first
    );
    scene.bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    scene.server.wait_for_waiters(1);
    assert_eq!(scene.alice.line("LOCK.RELEASE k alice").int(), 1);
    scene.assert_bob_is_granted();
}

#[test]
fn a_build_that_does_not_load_gives_way_to_the_old_one() {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("CONFIG SET lock.default-lease 12345");
    // Executable, and no module.
    let out = upgrade(&server, Path::new("/bin/sh"));
    assert!(!out.status.success(), "{}", output(&out));
    assert!(output(&out).contains("back to"), "{}", output(&out));
    // On Redis 8 the script closes all connections.
    let mut conn = server.conn();
    assert!(conn.line("LOCK.ACQUIRE k a").int() > 0);
    let lease = conn.line("CONFIG GET lock.default-lease").list()[1].text();
    assert_eq!(lease, "12345");
}

/// Redis 8 remembers the command that a connection sent last, and ends when it uses one that is gone.
#[test]
fn clients_that_never_pause_do_not_end_the_server() {
    let server = TestServer::start();
    let done = AtomicBool::new(false);
    let ask_on_and_on = |owner: usize| {
        while !done.load(Ordering::Relaxed) {
            let Some(mut conn) = Conn::try_open(server.port) else {
                continue;
            };
            let line = format!("LOCK.ACQUIRE k{owner} {owner} PX 60000 ONCE");
            while !done.load(Ordering::Relaxed) && conn.try_send(line.split(' ')) {
                if conn.try_recv().is_none() {
                    break;
                }
            }
        }
    };
    thread::scope(|scope| {
        for owner in 0..4 {
            scope.spawn(move || ask_on_and_on(owner));
        }
        let outs: Vec<_> = (0..3).map(|_| upgrade(&server, &module_path())).collect();
        done.store(true, Ordering::Relaxed);
        for out in outs {
            assert!(out.status.success(), "{}", output(&out));
        }
    });
    assert!(server.conn().line("LOCK.ACQUIRE mine me").int() > 0);
}

#[test]
fn the_path_of_the_new_build_may_be_relative() {
    let server = TestServer::start();
    std::fs::copy(module_path(), server.dir().join("new.so")).unwrap();
    let relative = Path::new(server.dir().file_name().unwrap()).join("new.so");
    let out = upgrade(&server, &relative);
    assert!(out.status.success(), "{}", output(&out));
    let modules = format!("{:?}", server.conn().line("MODULE LIST"));
    assert!(modules.contains("new.so"), "{modules}");
}
