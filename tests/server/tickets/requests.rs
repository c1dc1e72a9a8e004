//! The requests that take `NOTIFY`: their words, permissions and limits, and the contexts in which they are sent.

use crate::common::{Bystander, Conn, TestServer};
use crate::tickets::scene::{assert_queued, granted, message, request, subscribe, Scene};

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
        for (options, error) in [
            ("NOTIFY ch t", "NOTIFY needs BLOCK"),
            (
                "BLOCK 0 NOTIFY ch",
                "a value is missing after the channel of NOTIFY",
            ),
            ("BLOCK 0 NOTIFY", "a value is missing after NOTIFY"),
            ("BLOCK 0 NOTIFY ch t NOTIFY ch t", "more than one NOTIFY"),
            ("NOTIFY ch t BLOCK 0 NOTIFY ch u", "more than one NOTIFY"),
            ("BLOCK 0 NOTIFY ch t u", "unknown option 'u', expected "),
        ] {
            let line = format!("{command} {options}");
            let reply = scene.alice.line(&line).error();
            let error = format!("ERR syntax error: {error}");
            assert!(reply.starts_with(&error), "{line}: {reply}");
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
    let mut subscriber = subscribe(&scene.server, "ch:bob");
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
                    "NOPERM NOTIFY needs permission to run PUBLISH on the channel"
                );
            }
        }
        // A script has the permissions of its caller.
        let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'bob', 'NOTIFY', 'ch:bob', 't', 'BLOCK', 0)";
        let reply = conn.run(["EVAL", script, "1", "k"]);
        assert_eq!(reply.is_error(), !may, "{rules}: {reply:?}");
        // Without NOTIFY the channel does not matter.
        assert!(conn.line("LOCK.ACQUIRE k dave").is_nil(), "{rules}");
        conn.line("LOCK.RELEASE k carol");
    }
    scene.release("alice");
    granted(&message(&mut subscriber), "t");
}

/// The permission is asked before the subscribers, of which the user learns nothing.
#[test]
fn a_user_without_permission_does_not_learn_of_subscribers() {
    let server = TestServer::start();
    let error = user(&server, "resetchannels").line(&request("bob")).error();
    assert!(error.starts_with("NOPERM"), "{error}");
}

/// The caller's permissions covered the script.
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
        assert_eq!(
            error,
            "ERR NOTIFY is turned off, CONFIG SET lock.max-tickets 100000 turns it on"
        );
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
