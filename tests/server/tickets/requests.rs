//! The requests that take `NOTIFY`: their words, permissions and limits, the contexts in which they are sent, and each
//! kind of resource.

use crate::common::{Bystander, Conn, TestServer};
use crate::tickets::scene::{
    assert_held, assert_queued, granted, leave, message, request, subscriber, Scene,
};

/// Every command that takes `NOTIFY`, up to its options.
const COMMANDS: [&str; 4] = [
    "LOCK.ACQUIRE k bob",
    "LOCK.MACQUIRE 2 k l bob",
    "SEM.ACQUIRE s bob",
    "LATCH.WAIT g",
];

// Words.

#[test]
fn syntax_errors_leave_no_trace() {
    let mut scene = Scene::new();
    let bystander = Bystander::of(&scene.server, "k");
    for command in COMMANDS {
        for options in [
            "NOTIFY ch t",
            "BLOCK 0 NOTIFY ch",
            "BLOCK 0 NOTIFY",
            "BLOCK 0 NOTIFY ch t NOTIFY ch t",
            "NOTIFY ch t BLOCK 0 NOTIFY ch u",
            "BLOCK 0 NOTIFY ch t u",
        ] {
            let line = format!("{command} {options}");
            assert_eq!(
                scene.alice.line(&line).error(),
                "ERR syntax error",
                "{line}"
            );
        }
        let (longest, long) = ("c".repeat(256), "c".repeat(257));
        let line = format!("{command} BLOCK 0 NOTIFY {long} t");
        let error = scene.alice.line(&line).error();
        assert_eq!(
            error, "ERR the channel is longer than 256 bytes",
            "{command}"
        );
        let line = format!("{command} BLOCK 0 NOTIFY ch {}", "t".repeat(65));
        let error = scene.alice.line(&line).error();
        assert_eq!(error, "ERR the tag is longer than 64 bytes", "{command}");
        let line = format!("{command} BLOCK 0 NOTIFY {longest} {}", "t".repeat(64));
        let error = scene.alice.line(&line).error();
        assert!(error.starts_with("NOSUBSCRIBER"), "{error}");
    }
    bystander.saw_nothing("refused requests");
    scene.assert_no_message();
    scene.assert_stats(&[("tickets_queued", 0)]);
}

#[test]
fn the_options_come_in_any_order_and_case() {
    let mut scene = Scene::new();
    scene.ask("LOCK.ACQUIRE k bob notify ch one block 0 ONCE px 60000");
    scene.ask("LOCK.MACQUIRE 2 k l carol Notify ch two PX 60000 Block 0");
    scene.release("alice");
    granted(&scene.heard(), "one");
    scene.release("bob");
    assert!(scene.heard().ends_with(" two"));
}

// Permissions.

#[test]
fn a_user_needs_permission_for_the_channel() {
    let mut scene = Scene::new();
    let mut ear = subscriber(&scene.server, "ch:bob");
    for (rules, may) in [
        ("resetchannels", false),
        ("resetchannels &other", false),
        ("resetchannels &ch:*", true),
        ("allchannels", true),
    ] {
        let mut conn = user(&scene.server, rules);
        for line in [
            "LOCK.ACQUIRE k bob PX 60000 BLOCK 0 NOTIFY ch:bob t",
            "LOCK.MACQUIRE 2 k l carol PX 60000 BLOCK 0 NOTIFY ch:bob t",
        ] {
            if may {
                assert_queued(&mut conn, line);
            } else {
                let error = conn.line(line).error();
                assert_eq!(
                    error,
                    "NOPERM NOTIFY needs permission to publish to the channel"
                );
            }
        }
        // Without NOTIFY the channel does not matter.
        assert!(conn.line("LOCK.ACQUIRE k dave").is_nil(), "{rules}");
        conn.line("LOCK.RELEASE k carol");
    }
    scene.release("alice");
    granted(&message(&mut ear), "t");
}

/// The permission is asked before the subscribers, of which the user learns nothing.
#[test]
fn a_user_without_permission_does_not_learn_of_subscribers() {
    let server = TestServer::start();
    let error = user(&server, "resetchannels").line(&request("bob")).error();
    assert!(error.starts_with("NOPERM"), "{error}");
}

/// The caller's permissions covered the script.
#[test]
fn inside_a_script_the_channel_is_not_checked() {
    let mut scene = Scene::new();
    let mut conn = user(&scene.server, "resetchannels");
    let script =
        "return redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 'BLOCK', '0', 'NOTIFY', 'ch', 't')";
    assert_eq!(conn.run(["EVAL", script, "1", "k"]).text(), "QUEUED");
    scene.release("alice");
    granted(&scene.heard(), "t");
}

fn user(server: &TestServer, rules: &str) -> Conn {
    let line = format!("ACL SETUSER app reset on nopass +@all ~* {rules}");
    assert_eq!(server.conn().line(&line).text(), "OK");
    let mut conn = server.conn();
    assert_eq!(conn.line("AUTH app any").text(), "OK");
    conn
}

// Limits.

#[test]
fn max_tickets_limits_their_places_and_not_those_of_parked_requests() {
    let mut scene = Scene::with(&[
        "--lock.max-tickets",
        "3",
        "--lock.max-waiters",
        "1",
        "--lock.max-waiters-per-key",
        "1",
    ]);
    scene.queue("bob");
    scene.ask("LOCK.MACQUIRE 2 k l carol PX 60000 BLOCK 0 NOTIFY ch carol");
    scene.assert_stats(&[("tickets", 2), ("ticket_places", 3)]);
    let refused = scene.alice.line(&request("dave")).error();
    assert!(refused.starts_with("LOCKBUSY"), "{refused}");
    let made = scene.alice.line("LATCH.SET g 1");
    assert_eq!(made.int(), 1);
    let refused = scene.alice.line("LATCH.WAIT g BLOCK 0 NOTIFY ch g").error();
    assert!(refused.starts_with("LOCKBUSY"), "{refused}");
    // A parked request finds room, the next one none.
    let _dave = scene.park("dave");
    let refused = scene.alice.line("LOCK.ACQUIRE k erin BLOCK 0").error();
    assert!(refused.starts_with("LOCKBUSY"), "{refused}");
    // The places that exist may be continued.
    scene.queue("bob");
    scene.release("alice");
    scene.assert_granted("bob");
    scene.queue("erin");
}

#[test]
fn a_limit_of_zero_turns_notify_off_for_new_requests() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.alice.line("CONFIG SET lock.max-tickets 0");
    for owner in ["bob", "carol"] {
        let error = scene.alice.line(&request(owner)).error();
        assert_eq!(error, "ERR NOTIFY is turned off, see lock.max-tickets");
    }
    let free = scene
        .alice
        .line("LOCK.ACQUIRE free bob BLOCK 0 NOTIFY ch t");
    assert!(free.error().starts_with("ERR NOTIFY is turned off"));
    scene.release("alice");
    scene.assert_granted("bob");
    scene.alice.line("CONFIG SET lock.max-tickets 1");
    scene.queue("carol");
}

// Contexts.

#[test]
fn in_a_transaction_it_is_queued_and_the_message_follows_exec() {
    let mut scene = Scene::new();
    scene.alice.send_lines(&[
        "MULTI",
        &request("bob"),
        "LOCK.ACQUIRE k carol BLOCK 0",
        "LOCK.RELEASE k alice",
        &request("dave"),
        "EXEC",
    ]);
    assert_eq!(scene.alice.recv().text(), "OK");
    (0..4).for_each(|_| assert_eq!(scene.alice.recv().text(), "QUEUED"));
    let replies = scene.alice.recv().list();
    assert_eq!(replies[0].text(), "QUEUED");
    assert!(
        replies[1].is_nil(),
        "a parked request is not possible there"
    );
    assert_eq!(replies[2].int(), 1);
    assert_eq!(replies[3].text(), "QUEUED");
    scene.assert_granted("bob");
    scene.release("bob");
    scene.assert_granted("dave");
}

#[test]
fn scripts_and_functions_are_answered_a_status_and_the_message_follows() {
    let mut scene = Scene::new();
    let script =
        "return redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 'BLOCK', '0', 'NOTIFY', 'ch', 'bob').ok";
    assert_eq!(scene.alice.run(["EVAL", script, "1", "k"]).text(), "QUEUED");
    let library = "#!lua name=l\nredis.register_function('f', function(keys, args)
        return redis.call('LOCK.ACQUIRE', keys[1], args[1], 'BLOCK', '0', 'NOTIFY', 'ch', args[1]) end)
        redis.register_function('g', function(keys, args)
        return redis.call('LOCK.RELEASE', keys[1], args[1]) end)";
    scene.alice.run(["FUNCTION", "LOAD", library]);
    assert_eq!(scene.alice.line("FCALL f 1 k carol").text(), "QUEUED");
    scene.assert_no_message();
    assert_eq!(scene.alice.line("FCALL g 1 k alice").int(), 1);
    scene.assert_granted("bob");
    assert_eq!(scene.alice.line("FCALL g 1 k bob").int(), 1);
    scene.assert_granted("carol");
}

/// The whole life of a ticket in one script: the message is on its way before the script ends.
#[test]
fn a_script_may_ask_and_release_at_once() {
    let mut scene = Scene::new();
    let script = "redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 'BLOCK', '0', 'NOTIFY', 'ch', 'bob') \
        redis.call('LOCK.RELEASE', KEYS[1], 'alice') \
        return redis.call('HGET', KEYS[1], 'bob')";
    assert_eq!(scene.alice.run(["EVAL", script, "1", "k"]).text(), "1");
    scene.assert_granted("bob");
}

#[test]
fn the_connection_that_asked_is_free_for_other_work_and_may_close() {
    let mut scene = Scene::new();
    let mut bob = scene.server.conn();
    assert_queued(&mut bob, &request("bob"));
    assert_eq!(bob.line("PING").text(), "PONG");
    bob.close();
    scene.release("alice");
    scene.assert_granted("bob");
}

// Resources.

#[test]
fn macquire_is_granted_the_tokens_in_the_order_of_its_keys() {
    let mut scene = Scene::new();
    scene.alice.line("LOCK.ACQUIRE l alice PX 60000");
    scene.ask("LOCK.MACQUIRE 3 m l k bob PX 60000 BLOCK 0 NOTIFY ch b");
    scene.release("alice");
    scene.assert_no_message();
    assert_eq!(scene.alice.line("EXISTS k m").int(), 0);
    assert_eq!(scene.alice.line("LOCK.RELEASE l alice").int(), 1);
    let message = scene.heard();
    let words: Vec<_> = message.split(' ').collect();
    assert_eq!((words[0], words[2]), ("granted", "b"), "{message}");
    let tokens: Vec<i64> = words[1]
        .split(',')
        .map(|token| token.parse().unwrap())
        .collect();
    for (key, token) in ["m", "l", "k"].iter().zip(&tokens) {
        assert!(*token > scene.first);
        assert_held(&mut scene.alice, key, "bob", *token);
    }
    assert_eq!(tokens.len(), 3);
    scene.assert_no_message();
    scene.assert_stats(&[("tickets_granted", 1), ("ticket_places", 0)]);
}

#[test]
fn macquire_that_is_not_heard_holds_no_key_back() {
    let mut scene = Scene::with(&["--lock.queue-grace", "60000"]);
    let gone = subscriber(&scene.server, "gone");
    scene.ask("LOCK.MACQUIRE 2 k l bob PX 60000 BLOCK 0 NOTIFY gone b");
    scene.ask("LOCK.MACQUIRE 2 l k carol PX 60000 BLOCK 0 NOTIFY ch c");
    leave(&scene.server, gone, "gone");
    scene.release("alice");
    assert!(scene.heard().ends_with(" c"));
    assert_eq!(scene.alice.line("LOCK.MRELEASE 2 k l carol").int(), 2);
    assert!(scene.alice.line("LOCK.ACQUIRE l dave").int() > 0);
    scene.assert_stats(&[("tickets_unheard", 1), ("tickets_granted", 1)]);
}

#[test]
fn macquire_fails_at_one_key_and_leaves_the_other_queues() {
    let mut scene = Scene::new();
    scene.ask("LOCK.MACQUIRE 2 k l bob BLOCK 0 NOTIFY ch bob");
    scene.queue("carol");
    scene.alice.line("SET l string");
    assert_eq!(scene.heard(), "failed WRONGTYPE bob");
    assert_eq!(scene.owners(), ["carol"]);
    scene.ask("LOCK.MACQUIRE 2 k m dave BLOCK 30 NOTIFY ch dave");
    assert_eq!(scene.heard(), "timeout dave");
    scene.ask("LOCK.MACQUIRE 2 k m dave BLOCK 0 NOTIFY ch dave");
    assert_eq!(scene.alice.line("LOCK.MRELEASE 2 k m dave").int(), 0);
    scene.assert_stats(&[
        ("tickets", 1),
        ("tickets_withdrawn", 1),
        ("ticket_places", 1),
    ]);
    scene.release("alice");
    scene.assert_granted("carol");
    scene.assert_no_message();
}

#[test]
fn permits_are_granted_to_tickets_and_parked_requests_in_order() {
    let mut scene = Scene::new();
    let c = &mut scene.alice;
    assert!(c.line("SEM.ACQUIRE s a LIMIT 2 PX 60000").int() > 0);
    assert!(c.line("SEM.ACQUIRE s b LIMIT 2 PX 60000").int() > 0);
    assert_queued(c, "SEM.ACQUIRE s c LIMIT 2 PX 60000 BLOCK 0 NOTIFY ch c");
    let mut d = scene.server.conn();
    d.send_line("SEM.ACQUIRE s d PX 60000 BLOCK 0");
    crate::common::wait_for("a parked request", || scene.server.stat("sem_waiters") == 1);
    for id in ["e", "f", "g"] {
        scene.ask(&format!(
            "SEM.ACQUIRE s {id} PX 60000 BLOCK 0 NOTIFY ch {id}"
        ));
    }
    assert_eq!(scene.alice.line("SEM.RELEASE s a").int(), 1);
    let first = granted(&scene.heard(), "c");
    assert!(d.is_silent());
    assert_eq!(scene.alice.line("SEM.RELEASE s b").int(), 1);
    assert!(d.recv().int() > first);
    // Two more at once.
    scene.alice.line("SEM.SET s 4");
    let tokens = ["e", "f"].map(|id| granted(&scene.heard(), id));
    assert!(first < tokens[0] && tokens[0] < tokens[1]);
    assert!(!scene.alice.line("ZSCORE {s}:timeout f").is_nil());
    scene.assert_no_message();
    assert!(scene.alice.line("SEM.RELEASE s g").is_nil());
    scene.assert_stats(&[
        ("tickets", 0),
        ("tickets_granted", 3),
        ("tickets_withdrawn", 1),
        ("sem_waits_granted", 1),
    ]);
}

#[test]
fn the_end_of_a_permits_lease_and_the_end_of_its_session_grant_tickets() {
    let mut scene = Scene::new();
    let mut holder = scene.server.conn();
    holder.line("SEM.ACQUIRE s a LIMIT 1 SESSION");
    scene.ask("SEM.ACQUIRE s b PX 50 BLOCK 0 NOTIFY ch b");
    scene.ask("SEM.ACQUIRE s c PX 60000 BLOCK 0 NOTIFY ch c");
    holder.close();
    let first = granted(&scene.heard(), "b");
    assert!(granted(&scene.heard(), "c") > first);
}

#[test]
fn a_semaphore_passes_over_a_ticket_that_is_not_heard() {
    let mut scene = Scene::new();
    let gone = subscriber(&scene.server, "gone");
    scene.alice.line("SEM.ACQUIRE s a LIMIT 1 PX 60000");
    scene.ask("SEM.ACQUIRE s b PX 60000 BLOCK 0 NOTIFY gone b");
    scene.ask("SEM.ACQUIRE s c PX 60000 BLOCK 0 NOTIFY ch c");
    leave(&scene.server, gone, "gone");
    assert_eq!(scene.alice.line("SEM.RELEASE s a").int(), 1);
    granted(&scene.heard(), "c");
    scene.assert_stats(&[("tickets_unheard", 1), ("tickets_granted", 1)]);
}

#[test]
fn an_opened_latch_grants_one_to_every_ticket_heard_or_not() {
    let mut scene = Scene::new();
    let gone = subscriber(&scene.server, "gone");
    scene.alice.line("LATCH.SET g 1");
    scene.ask("LATCH.WAIT g BLOCK 0 NOTIFY ch one");
    scene.ask("LATCH.WAIT g BLOCK 0 NOTIFY gone two");
    scene.ask("LATCH.WAIT g BLOCK 0 NOTIFY ch three");
    scene.ask("LATCH.WAIT g BLOCK 20 NOTIFY ch late");
    assert_eq!(scene.heard(), "timeout late");
    leave(&scene.server, gone, "gone");
    assert_eq!(scene.alice.line("LATCH.DOWN g").int(), 0);
    assert_eq!(scene.heard(), "granted 1 one");
    assert_eq!(scene.heard(), "granted 1 three");
    scene.assert_no_message();
    scene.assert_stats(&[
        ("tickets_granted", 3),
        ("tickets_unheard", 0),
        ("tickets", 0),
    ]);
}

#[test]
fn readers_are_granted_together_and_a_writer_after_them() {
    let mut scene = Scene::new();
    let mut other = subscriber(&scene.server, "other");
    scene.alice.line("LOCK.RELEASE k alice");
    scene.alice.line("LOCK.ACQUIRE k w WRITE PX 60000");
    for line in [
        "LOCK.ACQUIRE k r1 READ PX 60000 BLOCK 0 NOTIFY ch r1",
        "LOCK.ACQUIRE k r2 READ PX 60000 BLOCK 0 NOTIFY ch r2",
        "LOCK.ACQUIRE k r3 READ PX 60000 BLOCK 0 NOTIFY other r3",
        "LOCK.ACQUIRE k w2 WRITE PX 60000 BLOCK 0 NOTIFY ch w2",
        "LOCK.ACQUIRE k r4 READ PX 60000 BLOCK 0 NOTIFY ch r4",
    ] {
        scene.ask(line);
    }
    assert_eq!(scene.alice.line("LOCK.RELEASE k w WRITE").int(), 1);
    let token = granted(&scene.heard(), "r1");
    assert_eq!(granted(&scene.heard(), "r2"), token);
    assert_eq!(granted(&message(&mut other), "r3"), token);
    scene.assert_no_message();
    for reader in ["r1", "r2", "r3"] {
        assert_eq!(
            scene
                .alice
                .line(&format!("LOCK.RELEASE k {reader} READ"))
                .int(),
            1
        );
    }
    let next = granted(&scene.heard(), "w2");
    assert!(next > token);
    assert_eq!(scene.alice.line("LOCK.RELEASE k w2 WRITE").int(), 1);
    assert!(granted(&scene.heard(), "r4") > next);
}

#[test]
fn a_reader_that_is_not_heard_does_not_keep_the_others_out() {
    let mut scene = Scene::new();
    scene.release("alice");
    scene.alice.line("LOCK.ACQUIRE k w WRITE PX 60000");
    let gone = subscriber(&scene.server, "gone");
    scene.ask("LOCK.ACQUIRE k r1 READ PX 60000 BLOCK 0 NOTIFY gone r1");
    scene.ask("LOCK.ACQUIRE k r2 READ PX 60000 BLOCK 0 NOTIFY ch r2");
    scene.ask("LOCK.ACQUIRE k r3 READ PX 60000 BLOCK 0 NOTIFY gone r3");
    scene.ask("LOCK.ACQUIRE k r4 READ PX 60000 BLOCK 0 NOTIFY ch r4");
    leave(&scene.server, gone, "gone");
    assert_eq!(scene.alice.line("LOCK.RELEASE k w WRITE").int(), 1);
    let token = granted(&scene.heard(), "r2");
    assert_eq!(granted(&scene.heard(), "r4"), token);
    scene.assert_stats(&[("tickets_unheard", 2), ("tickets_granted", 2)]);
}
