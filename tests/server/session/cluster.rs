//! Locks that are bound to a connection, in a cluster: released in every slot of the node, and not bound at another
//! node.

use crate::common::cluster::{
    begin_move, lock_scenes, migrate_keys, move_slot, one_node, slot_of, two_nodes,
};
use crate::common::wait_for;
use crate::session::endings::{assert_stats, field, holder, is_free};

#[test]
fn the_end_of_a_connection_in_many_slots() {
    let server = one_node(&[]);
    let (mut alice, mut bob, mut watcher) = (server.conn(), server.conn(), server.conn());
    for number in 0..20 {
        alice
            .line(&format!("LOCK.ACQUIRE k{number} alice SESSION"))
            .int();
    }
    bob.send_line("LOCK.ACQUIRE k3 bob PX 60000 BLOCK 0");
    server.wait_for_waiters(1);
    alice.close();
    assert!(bob.recv().int() > 0);
    for number in (0..20).filter(|number| *number != 3) {
        let key = format!("k{number}");
        wait_for(&key, || is_free(&mut watcher, &key));
    }
    assert_eq!(holder(&mut watcher, "k3").as_deref(), Some("bob"));
    assert_stats(&server, &[("grants_session_ended", 20), ("panics", 0)]);
}

/// The lock moves with its slot. At the target it is not renewed, so its lease ends it; the end of the connection
/// changes nothing on either node.
#[test]
fn a_lock_whose_slot_moves_away_ends_by_its_lease() {
    let _scene = lock_scenes();
    let (source, target) = two_nodes(&["--lock.session-lease", "3000"]);
    let (mut alice, mut here, mut there) = (source.conn(), source.conn(), target.conn());
    let token = alice.line("LOCK.ACQUIRE k alice SESSION").int();
    let slot = slot_of(&mut here, "k");
    move_slot(&source, &target, slot);
    assert_eq!(
        field(&mut there, "k", "token").map(|t| t.int()),
        Some(token)
    );
    assert_eq!(field(&mut there, "k", "session").map(|s| s.int()), Some(0));
    wait_for("nothing bound", || source.stat("session_holds") == 0);
    alice.close();
    there.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    assert!(there.recv().int() > token);
    for node in [&source, &target] {
        assert_stats(node, &[("grants_session_ended", 0), ("panics", 0)]);
    }
}

/// While a slot is migrating, the locks that are still at the source are renewed and released there.
#[test]
fn the_end_of_a_connection_while_a_slot_is_migrating() {
    let _scene = lock_scenes();
    let (source, target) = two_nodes(&["--lock.session-lease", "2000"]);
    let (mut alice, mut here) = (source.conn(), source.conn());
    let slot = slot_of(&mut here, "{k}1");
    alice.line("LOCK.ACQUIRE {k}1 alice SESSION").int();
    alice.line("LOCK.ACQUIRE {k}2 alice SESSION").int();
    begin_move(&source, &target, slot);
    let renewals = source.stat("session_renewals");
    wait_for("renewals", || {
        source.stat("session_renewals") >= renewals + 4
    });
    alice.close();
    wait_for("the release", || source.stat("grants_session_ended") == 2);
    migrate_keys(&source, &target, slot);
    assert_stats(&source, &[("session_holds", 0), ("panics", 0)]);
}
