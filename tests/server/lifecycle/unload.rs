//! `MODULE UNLOAD` is refused: the server would follow pointers to what is gone.

use crate::common::scene::{has_timer_or_parked, wait_until_at_rest, Scene};
use crate::common::{module_path, Reply, TestServer};
use crate::lifecycle::settings::own_lines;

fn refusals(server: &TestServer) -> usize {
    let lines = own_lines(&server.log());
    let refused = |line: &&String| line.starts_with("not unloaded: ") && line.contains("PACKAGES");
    lines.iter().filter(refused).count()
}

#[test]
fn the_module_stays_with_all_that_it_has() {
    let mut scene = Scene::new();
    // The server itself refuses while a client is parked.
    assert!(has_timer_or_parked(&mut scene.alice));
    assert!(scene.bob.is_silent());
    scene.alice.line("LOCK.RELEASE k alice");
    let token = scene.assert_bob_is_granted();
    wait_until_at_rest(&mut scene.alice);
    let before = refusals(&scene.server);
    assert!(scene.alice.line("MODULE UNLOAD lock").is_error());
    assert_eq!(refusals(&scene.server), before + 1);
    scene.assert_held("bob", token);
    assert_eq!(scene.bob.line("LOCK.RELEASE k bob").int(), 1);
}

/// Also in the event of the load, where no command of the module may have been sent. In a transaction it would not be
/// known what follows.
#[test]
fn it_stays_from_the_end_of_its_load_on() {
    let mut server = TestServer::without_module(&[]);
    let mut c = server.conn();
    // A link, because the path may have a space, which ends a word of a line.
    let link = server.dir().join("lock.so");
    std::os::unix::fs::symlink(module_path(), &link).unwrap();
    let load = format!("MODULE LOAD {}", link.display());
    c.send_lines(&["MULTI", &load, "MODULE UNLOAD lock", "EXEC"]);
    let replies: Vec<_> = (0..4).map(|_| c.recv()).collect();
    assert!(replies[3].list().iter().all(Reply::is_error), "{replies:?}");
    assert!(server
        .log()
        .contains("not loaded: load the module outside of MULTI"));
    c.send_lines(&[&load, "MODULE UNLOAD lock"]);
    assert_eq!(c.recv().text(), "OK");
    assert!(c.recv().is_error());
    assert!(!c.line("LOCK.OWNER").is_error());
    assert_eq!(refusals(&server), 1);
    assert!(server.is_alive());
}
