//! Another build of the module in a running server: draining, and the script that does the whole upgrade.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::process::tame;
use crate::common::scene::{only_reply, Scene};
use crate::common::{module_path, wait_for, Conn, TestServer};
use crate::docs::acl_example::{furnished, login, must, must_not};
use crate::lifecycle::faults::fault_module;

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
fn draining_sends_waiters_away_and_parks_no_request() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    assert_eq!(scene.alice.line("CONFIG SET lock.drain yes").text(), "OK");
    for waiter in [&mut scene.bob, &mut carol] {
        let response = only_reply(waiter).error();
        assert!(response.starts_with("UNBLOCKED"), "{response}");
    }
    scene.server.wait_for_waiters(0);
    scene.assert_stats(&[("places_kept", 0), ("waits_failed", 2)]);
    let refused = carol.line("LOCK.ACQUIRE k carol BLOCK 0").error();
    assert!(refused.starts_with("LOCKBUSY"), "{refused}");
    // Commands that need no waiting still work.
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

    let response = scene.bob.recv().error();
    assert!(response.starts_with("UNBLOCKED"), "{response}");
    assert!(scene.bob.is_closed());
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
fn a_build_that_does_not_load_is_replaced_by_the_old_one() {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("CONFIG SET lock.default-lease 12345");
    let out = upgrade(&server, &broken_build(&server));
    assert!(!out.status.success(), "{}", output(&out));
    assert!(output(&out).contains("back to"), "{}", output(&out));
    let mut conn = server.conn();
    assert!(conn.line("LOCK.ACQUIRE k a").int() > 0);
    let lease = conn.line("CONFIG GET lock.default-lease").list()[1].text();
    assert_eq!(lease, "12345");
}

/// Files that are no module, and one that is cut off, whose load would end the server.
#[test]
fn a_file_that_is_no_module_disturbs_nobody() {
    let mut scene = Scene::new();
    let half = scene.server.dir().join("half.so");
    let build = std::fs::read(module_path()).unwrap();
    std::fs::write(&half, &build[..build.len() / 2]).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&half, mode).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/upgrade.sh");
    for file in [Path::new("/bin/sh"), &script, &half] {
        let out = upgrade(&scene.server, file);
        assert!(!out.status.success(), "{}", output(&out));
        assert!(output(&out).contains("is no module"), "{}", output(&out));
    }
    assert_eq!(scene.server.stat("waiters"), 1);
    assert_eq!(scene.alice.line("LOCK.RELEASE k alice").int(), 1);
    scene.assert_bob_is_granted();
}

#[test]
fn the_module_is_unloaded_without_another() {
    let mut server = TestServer::start();
    let mut conn = server.conn();
    let token = conn.line("LOCK.ACQUIRE k o PX 600000").int();
    conn.line("ACL SETUSER app on >secret +lock.acquire");
    let out = upgrade(&server, Path::new("--unload"));
    assert!(out.status.success(), "{}", output(&out));
    assert!(
        output(&out).contains("\"app\" \"-@all\" \"+lock.acquire\""),
        "{}",
        output(&out)
    );
    assert!(server.is_alive() && conn.is_closed());
    let mut conn = server.conn();
    assert_eq!(conn.line("HGET k #token").text(), format!("t{token}"));
    assert!(conn
        .line("LOCK.OWNER")
        .error()
        .starts_with("ERR unknown command"));
    let path = module_path();
    assert_eq!(
        conn.run(["MODULE", "LOAD", &path.to_string_lossy()]).text(),
        "OK"
    );
    assert_eq!(conn.line("LOCK.ACQUIRE k o ONCE").int(), token);
}

/// As after the upgrade of a package: the loaded file is replaced, and the build before it is kept beside it.
#[test]
fn the_kept_build_returns_when_the_one_in_its_place_does_not_load() {
    let dir = tempfile::tempdir().unwrap();
    let module = dir.path().join("libredis_lock.so");
    let kept = dir.path().join("libredis_lock.so.old");
    std::fs::copy(module_path(), &module).unwrap();
    let mut scene = Scene::on(TestServer::with_module(&module, &[]));
    std::fs::hard_link(&module, &kept).unwrap();
    std::fs::rename(broken_build(&scene.server), &module).unwrap();
    let repaired = dir.path().join("new");

    let out = upgrade(&scene.server, &module);
    assert!(!out.status.success(), "{}", output(&out));
    let back = format!("back to {}", kept.display());
    assert!(output(&out).contains(&back), "{}", output(&out));
    scene.alice = scene.server.conn();
    let modules = format!("{:?}", scene.alice.line("MODULE LIST"));
    assert!(modules.contains("libredis_lock.so.old"), "{modules}");
    scene.assert_held("alice", scene.first);

    // The repaired build, while the kept one is loaded.
    std::fs::copy(module_path(), &repaired).unwrap();
    std::fs::rename(&repaired, &module).unwrap();
    let out = upgrade(&scene.server, &module);
    assert!(out.status.success(), "{}", output(&out));
    scene.alice = scene.server.conn();
    let modules = format!("{:?}", scene.alice.line("MODULE LIST"));
    assert!(!modules.contains("libredis_lock.so.old"), "{modules}");
    scene.assert_held("alice", scene.first);
}

/// An older build does not load with the settings of a newer one.
#[test]
fn a_setting_that_the_new_build_lacks_is_left_out_and_printed() {
    let server = TestServer::start();
    let mut conn = server.conn();
    conn.line("CONFIG SET lock.max-tickets 77");
    conn.line("CONFIG SET lock.default-lease 12345");
    let other = server.dir().join("other.so");
    std::fs::write(&other, with_other_setting()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&other, mode).unwrap();

    let out = upgrade(&server, &other);
    assert!(out.status.success(), "{}", output(&out));
    let line = "left out, this build has no such setting: lock.max-tickets 77\n";
    assert!(output(&out).contains(line), "{}", output(&out));
    let mut conn = server.conn();
    let mut setting = |name: &str| conn.run(["CONFIG", "GET", name]).list()[1].text();
    assert_eq!(setting("lock.default-lease"), "12345");
    assert_eq!(setting("lock.mox-tickets"), "100000");

    let out = upgrade(&server, &module_path());
    assert!(out.status.success(), "{}", output(&out));
    let line = "left out, this build has no such setting: lock.mox-tickets 100000\n";
    assert!(output(&out).contains(line), "{}", output(&out));
}

/// The module under test, in which `lock.max-tickets` has another name.
fn with_other_setting() -> Vec<u8> {
    with_other_text(b"max-tickets", b"mox-tickets")
}

/// A build that needs a library that does not exist.
fn broken_build(server: &TestServer) -> PathBuf {
    let path = server.dir().join("broken.so");
    std::fs::write(&path, with_other_text(b"libc.so.6", b"libq.so.6")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    path
}

/// The module under test, in which a text is replaced by another of its length.
fn with_other_text<const LEN: usize>(name: &[u8; LEN], other: &[u8; LEN]) -> Vec<u8> {
    let mut build = std::fs::read(module_path()).unwrap();
    let places: Vec<usize> = (0..build.len())
        .filter(|&at| build[at..].starts_with(name))
        .collect();
    assert!(!places.is_empty(), "the module has this text");
    for at in places {
        build[at..at + name.len()].copy_from_slice(other);
    }
    build
}

/// Redis 8 remembers the last command of a connection, and ends when it uses one that is gone.
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

/// Every user's description, each as a list of sorted words: Redis 7.0 reorders them.
fn users(server: &TestServer) -> Vec<Vec<String>> {
    let list = server.conn().line("ACL LIST").list();
    let words = |user: &crate::common::Reply| {
        let text = user.text();
        let mut words: Vec<_> = text.split([' ', '(', ')']).map(str::to_string).collect();
        words.sort();
        words
    };
    list.iter().map(words).collect()
}

/// The same code under another path.
fn new_build(server: &TestServer) -> PathBuf {
    let new = server.dir().join("new.so");
    std::fs::copy(module_path(), &new).unwrap();
    new
}

#[test]
fn users_whose_rules_name_the_commands_are_as_they_were() {
    let (_files, mut server) = furnished();
    let mut admin = server.conn();
    let selectors = "ACL SETUSER mixed on >secret ~lock:* -@all +get +lock.renew -get +lock.acquire|x (~x +sem.acquire +get) (%R~lock:y +@all -lock.break)";
    must(&mut admin, &[selectors]);
    let before = users(&server);
    let log_in = |server: &TestServer| {
        ["app", "app", "observer", "operator"].map(|name| login(server, name))
    };
    let mut clients = log_in(&server);
    let [holder, waiter, observer, operator] = &mut clients;
    let token = holder.line("LOCK.ACQUIRE lock:held p PX 600000").int();
    assert!(holder.line("SEM.ACQUIRE lock:sem p PX 600000").int() > 0);
    waiter.send_line("LOCK.ACQUIRE lock:held q PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    must(observer, &["SUBSCRIBE __keyevent@0__:lock.acquire"]);
    must(operator, &["LOCK.INFO lock:held"]);

    let out = upgrade(&server, &new_build(&server));
    assert!(out.status.success(), "{}", output(&out));
    assert!(server.is_alive());
    assert_eq!(users(&server), before);
    let modules = format!("{:?}", server.conn().line("MODULE LIST"));
    assert!(modules.contains("new.so"), "{modules}");

    let response = waiter.recv().error();
    assert!(response.starts_with("UNBLOCKED"), "{response}");
    clients = log_in(&server);
    let [holder, waiter, observer, operator] = &mut clients;
    server.conn().line("CONFIG SET notify-keyspace-events KEAd");
    must(observer, &["SUBSCRIBE __keyevent@0__:lock.acquire"]);
    assert_eq!(holder.line("LOCK.ACQUIRE lock:held p ONCE").int(), token);
    waiter.send_line("LOCK.ACQUIRE lock:held q PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(holder.line("LOCK.RELEASE lock:held p").int(), 1);
    assert!(waiter.recv().int() > token);
    assert_eq!(observer.recv().list()[0].text(), "message");
    must_not(
        holder,
        &[
            "LOCK.BREAK lock:held",
            "LOCK.INFO lock:held",
            "GET lock:held",
        ],
    );
    must(operator, &["LOCK.BREAK lock:held"]);
    must(&mut server.conn(), &["ACL SAVE", "ACL LOAD"]);
    assert_eq!(users(&server), before);
}

#[test]
fn users_are_as_they_were_when_the_new_build_does_not_load() {
    let (_files, mut server) = furnished();
    let before = users(&server);
    let out = upgrade(&server, &broken_build(&server));
    assert!(!out.status.success(), "{}", output(&out));
    assert!(output(&out).contains("back to"), "{}", output(&out));
    assert!(server.is_alive());
    assert_eq!(users(&server), before);
    must(&mut login(&server, "app"), &["LOCK.ACQUIRE lock:2 p"]);
    let drain = server.conn().line("CONFIG GET lock.drain").list()[1].text();
    assert_eq!(drain, "no");
}

/// A rule names a command that the new build does not have.
#[test]
fn users_that_the_new_build_does_not_understand_bring_the_old_one_back() {
    let server = TestServer::with_module(fault_module(), &[]);
    must(
        &mut server.conn(),
        &["ACL SETUSER app on >secret ~* -@all +lock.fault +lock.acquire"],
    );
    let before = users(&server);
    let out = upgrade(&server, &new_build(&server));
    assert!(!out.status.success(), "{}", output(&out));
    assert!(output(&out).contains("back to"), "{}", output(&out));
    assert_eq!(users(&server), before);
    must(&mut server.conn(), &["LOCK.ACQUIRE k o"]);
}

#[test]
fn the_upgrade_does_not_begin_if_the_users_cannot_be_read() {
    let mut server = TestServer::with(&["--rename-command", "ACL", "users"]);
    let out = upgrade(&server, &new_build(&server));
    assert!(!out.status.success(), "{}", output(&out));
    assert!(
        output(&out).contains("the users cannot be listed"),
        "{}",
        output(&out)
    );
    let drain = server.conn().line("CONFIG GET lock.drain").list()[1].text();
    assert_eq!(drain, "no");
    assert!(server.is_alive());
}

#[test]
fn a_session_hold_ends_with_its_connection() {
    let server = TestServer::start();
    let mut holder = server.conn();
    holder.line("LOCK.ACQUIRE k o SESSION").int();
    let out = upgrade(&server, &new_build(&server));
    assert!(out.status.success(), "{}", output(&out));
    assert!(holder.is_closed());
    let mut c = server.conn();
    wait_for("a free lock", || c.line("EXISTS k").int() == 0);
}

/// A connection that stayed would keep its last command, which the server reads when it lists its clients.
#[test]
fn clients_are_listed_after_an_upgrade_that_leaves_no_module() {
    let server = TestServer::start();
    let mut idle: Vec<Conn> = (0..20).map(|_| server.conn()).collect();
    let calls = ["LOCK.OWNER", "LOCK.HELP", "LATCH.SET l 1", "SEM.SET s 1"];
    for (conn, call) in idle.iter_mut().zip(calls.iter().cycle()) {
        conn.line(call);
    }
    // The old build is gone from the disk.
    let build = new_build(&server);
    let out = upgrade(&server, &build);
    assert!(out.status.success(), "{}", output(&out));
    idle.iter_mut().for_each(|conn| assert!(conn.is_closed()));
    let mut conn = server.conn();
    let mut last = server.conn();
    last.line("LOCK.OWNER");
    std::fs::remove_file(&build).unwrap();
    let out = upgrade(&server, &broken_build(&server));
    assert!(!out.status.success(), "{}", output(&out));
    assert!(
        output(&out).contains("neither build was loaded"),
        "{}",
        output(&out)
    );
    assert!(last.is_closed() && conn.is_closed());
    let mut conn = server.conn();
    for _ in 0..20 {
        conn.line("SET x y");
        let list = conn.line("CLIENT LIST").text();
        assert!(!list.contains("cmd=lock"), "{list}");
    }
    let path = module_path();
    let path = path.to_string_lossy();
    assert_eq!(conn.run(["MODULE", "LOAD", &path]).text(), "OK");
}
