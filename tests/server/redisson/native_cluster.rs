//! Redisson's scripts run natively in a cluster: redirections of calls, and the channels of their messages.

use crate::common::cluster::{
    begin_move, end_move, migrate_keys, one_node, slot_of, two_nodes, wait_until_served,
};
use crate::common::redisson::{ACQUIRE, RENEW, UNLOCK};
use crate::common::replica::{ReplicationStream, PROMPT_MASTER};
use crate::common::{Conn, Reply, TestServer};
use crate::redisson::native_effects::{acquire, eval, plain};

fn redirections(c: &mut Conn) -> Vec<String> {
    let two_slots = eval(UNLOCK, "3 k c other 0 600000 u:1 PUBLISH 13500");
    let calls = [
        acquire("u:1"),
        two_slots,
        eval(RENEW, "2 k other 600000 u:1 u:2"),
    ];
    let mut errors = Vec::new();
    for call in calls {
        let reply = c.run(call);
        errors.push(if reply.is_error() {
            reply.error()
        } else {
            "ok".into()
        });
    }
    errors
}

#[test]
fn a_cluster_redirects_and_refuses_as_it_does_with_eval() {
    let node = one_node(&[]);
    let mut c = node.conn();
    let mut answers = Vec::new();
    for setting in ["no", "yes"] {
        c.line(&format!("CONFIG SET lock.redisson-scripts {setting}"));
        c.line("DEL k");
        let served = redirections(&mut c);
        assert!(served[1].starts_with("CROSSSLOT "), "{served:?}");
        let slot = c.line("CLUSTER KEYSLOT k").int();
        c.line("DEL k");
        c.line(&format!("CLUSTER DELSLOTS {slot}"));
        let mut gone = redirections(&mut c);
        assert!(gone[0].starts_with("CLUSTERDOWN "), "{gone:?}");
        // With keys in two slots, the first of which is not served, there are two reasons to refuse.
        for both in gone.drain(1..) {
            let is_reason = both.starts_with("CLUSTERDOWN ") || both.starts_with("CROSSSLOT ");
            assert!(is_reason, "{both}");
        }
        c.line(&format!("CLUSTER ADDSLOTS {slot}"));
        wait_until_served(&node);
        answers.push((served, gone));
    }
    assert_eq!(answers[0], answers[1]);
    // Both kinds of message, from a node of a cluster.
    let mut listener = node.conn();
    listener.line("SSUBSCRIBE {k}c");
    listener.line("SUBSCRIBE {k}c");
    for publisher in ["SPUBLISH", "PUBLISH"] {
        c.run(acquire("u:1"));
        let rest = format!("3 k {{k}}c {{k}}latch:{publisher} 0 600000 u:1 {publisher} 13500");
        assert_eq!(c.run(eval(UNLOCK, &rest)).int(), 1);
    }
    assert_eq!(listener.recv().list()[0].text(), "smessage");
    assert_eq!(listener.recv().list()[0].text(), "message");
    assert!(node.stat("redisson_rlock") >= 4);
}

#[test]
fn in_a_cluster_no_message_is_replicated() {
    let [lua, native] = ["no", "yes"].map(|setting| {
        let options = [&PROMPT_MASTER[..], &["--lock.redisson-scripts", setting]].concat();
        let node = one_node(&options);
        let mut stream = ReplicationStream::attach(&node);
        let mut c = node.conn();
        for publisher in ["SPUBLISH", "PUBLISH"] {
            c.run(acquire("u:1"));
            let rest = format!("3 k {{k}}c {{k}}latch:{publisher} 0 600000 u:1 {publisher} 13500");
            assert_eq!(c.run(eval(UNLOCK, &rest)).int(), 1);
        }
        plain(stream.until_now(&node))
    });
    assert_eq!(native, lua);
    let is_message =
        |command: &String| command.starts_with("PUBLISH") || command.starts_with("SPUBLISH");
    assert!(!lua.iter().any(is_message), "{lua:?}");
}

/// The reply, without the port of the node that the caller is redirected to.
fn response(reply: &Reply) -> String {
    match reply {
        reply if reply.is_error() => {
            let error = reply.error();
            error
                .rsplit_once(':')
                .map_or(error.clone(), |(response, _)| response.into())
        }
        reply if reply.maybe_int().is_some_and(|left| left > 1) => "refused".into(),
        reply => format!("{reply:?}"),
    }
}

/// The replies of both nodes while the slot of the lock moves from one to the other.
fn replies_during_the_move(source: &TestServer, target: &TestServer) -> Vec<String> {
    let (mut here, mut there) = (source.conn(), target.conn());
    let slot = slot_of(&mut here, "{k}");
    let mut responses = Vec::new();
    let mut ask = |conn: &mut Conn, asking: bool, call: Vec<String>| {
        if asking {
            conn.line("ASKING");
        }
        responses.push(response(&conn.run(call)));
    };
    let on = |lock: &str, owner: &str| eval(RENEW, &format!("1 {lock} 600000 {owner}"));
    let take = |lock: &str| eval(ACQUIRE, &format!("1 {lock} 600000 u:1"));
    let give = |lock: &str| {
        eval(
            UNLOCK,
            &format!("3 {lock} {{k}}c {{k}}latch 0 600000 u:1 PUBLISH 13500"),
        )
    };
    ask(&mut there, false, take("{k}held"));
    ask(&mut here, false, take("{k}held"));
    begin_move(source, target, slot);
    for lock in ["{k}held", "{k}free"] {
        ask(&mut here, false, take(lock));
        ask(&mut here, false, on(lock, "u:1"));
        ask(&mut here, false, give(lock));
        ask(&mut there, false, take(lock));
    }
    ask(&mut there, true, take("{k}free"));
    ask(&mut there, true, take("{k}free"));
    ask(&mut there, true, give("{k}free"));
    migrate_keys(source, target, slot);
    end_move(source, target, slot);
    wait_until_served(target);
    ask(&mut here, false, take("{k}held"));
    for _ in 0..4 {
        ask(&mut there, false, give("{k}held"));
        there.line("DEL {k}latch");
    }
    responses
}

#[test]
fn a_migrating_slot_is_answered_for_as_with_eval() {
    let [lua, native] = ["no", "yes"].map(|setting| {
        let (source, target) = two_nodes(&["--lock.redisson-scripts", setting]);
        let answers = replies_during_the_move(&source, &target);
        let natively = source.stat("redisson_rlock") + target.stat("redisson_rlock");
        assert_eq!(natively > 0, setting == "yes");
        answers
    });
    assert_eq!(native, lua);
    for word in ["MOVED", "ASK", "TRYAGAIN"] {
        assert!(
            lua.iter().any(|response| response.starts_with(word)),
            "{word}: {lua:?}"
        );
    }
}
