//! Rights to Redisson's scripts run natively: `LOCK.REDISSON` allows nothing that `EVAL` would refuse.
//!
//! The same user makes the same calls on two servers, one with the setting and one without. On the first it
//! may run `LOCK.REDISSON` besides.

use crate::commands::acl::has_categories;
use crate::common::redisson::{self, *};
use crate::common::{Bystander, TestServer};
use crate::redisson::native::{call, calls, native, Side};

/// Data on which the scripts write, publish, or only look.
const DATA: [&[&str]; 4] = [
    &[],
    &["HSET k u:1 1", "PEXPIRE k 300000"],
    &["HSET k u:1 2", "PEXPIRE k 300000", "HSET k2 u:2 1"],
    &["HSET k u:9 1", "PEXPIRE k 300000"],
];

/// Makes the caller a user with these rules.
fn become_user(side: &mut Side, rules: &str) {
    let rules = format!("ACL SETUSER u reset on nopass {rules}");
    assert_eq!(side.conn.line(&rules).text(), "OK", "{rules}");
    // An existing user stays one, with the new rules.
    assert_eq!(side.caller.line("AUTH u any").text(), "OK");
}

/// The server's wording of a refused command changed with 7.2, ours is the first.
fn without_the_name(reply: String) -> String {
    let core = "NOPERM User u has no permissions";
    reply.replace(core, "NOPERM this user has no permissions")
}

/// Every script on every data by a user with these rules. On how many runs were natively done.
fn compare(native: &mut Side, lua: &mut Side, rules: &str) -> u64 {
    become_user(native, &format!("{rules} +lock.redisson"));
    become_user(lua, rules);
    let before = native.server.stat("redisson_rlock");
    for data in DATA {
        for (sha1, rest) in calls() {
            let call = call("EVAL", &redisson::text(sha1), &rest);
            let mut expected = lua.outcome(data, &call);
            let mut outcome = native.outcome(data, &call);
            expected.reply = without_the_name(expected.reply);
            outcome.reply = without_the_name(outcome.reply);
            assert_eq!(outcome, expected, "{rules}: {data:?} {call:?}");
        }
    }
    native.server.stat("redisson_rlock") - before
}

#[test]
fn a_native_script_can_do_no_more_than_the_script() {
    let (mut native, mut lua) = (Side::of(native()), Side::of(TestServer::start()));
    let all = (DATA.len() * calls().len()) as u64;
    for rules in [
        "+@all ~* &*",
        "+@all -@dangerous ~k ~k2 ~c ~latch &c",
        // A selector that may do what the rest may not.
        "+@all -hincrby ~* &* (+hincrby ~k)",
    ] {
        assert_eq!(compare(&mut native, &mut lua, rules), all, "{rules}");
    }
    let inner = [
        "exists", "hexists", "hincrby", "hset", "pexpire", "pttl", "get", "set", "del", "publish",
        "spublish",
    ];
    for command in inner {
        let rules = format!("+@all ~* &* -{command}");
        let natively = compare(&mut native, &mut lua, &rules);
        assert!((1..all).contains(&natively), "{rules}: {natively}");
    }
    for (rules, natively) in [
        // What was sent.
        ("+@all ~* &* -eval", 0),
        ("+@all ~* &* -@scripting", 0),
        // Nothing but what was sent.
        ("+eval ~* &*", 0),
        // The keys: all of them are the server's own business.
        ("+@all &*", 0),
        ("+@all ~x* &*", 0),
        ("+@all %R~* &*", 0),
        ("+@all %W~* &*", 0),
    ] {
        assert_eq!(compare(&mut native, &mut lua, rules), natively, "{rules}");
    }
    for rules in [
        // Only the lock, and not the channel that is a key as well.
        "+@all ~k &*",
        // The channel.
        "+@all ~* resetchannels",
        "+@all ~* &other",
        // A selector that may do it elsewhere, or not do it.
        "+@all -hincrby ~* &* (+hincrby ~k2)",
        "+@all -hincrby ~* &* (+hincrby %R~k)",
        "+eval +@read ~* &* (+@write ~k ~latch) (+publish +spublish &c)",
    ] {
        let natively = compare(&mut native, &mut lua, rules);
        assert!((1..all).contains(&natively), "{rules}: {natively}");
    }
}

#[test]
fn a_user_of_eval_needs_permission_for_the_command_that_it_becomes() {
    let server = native();
    let mut side = Side::of(server);
    let acquire = call("EVAL", &redisson::text(ACQUIRE), "1 k 600000 u:1");
    let bare = "+eval +@read +hincrby +pexpire ~* &*";
    become_user(&mut side, bare);
    let bystander = Bystander::of(&side.server, "k");
    let refused = side.caller.run(&acquire).error();
    assert!(refused.starts_with("NOPERM "), "{refused}");
    assert!(refused.contains("'lock.redisson'"), "{refused}");
    bystander.saw_nothing("a refused script");
    // Any of these is enough, where the server knows the categories of a module's command.
    let mut grants = vec!["+lock.redisson"];
    if has_categories(&side.server) {
        grants.extend(["+@scripting", "+@write"]);
    }
    for grant in grants {
        become_user(&mut side, &format!("{bare} {grant}"));
        side.conn.line("DEL k");
        assert!(side.caller.run(&acquire).is_nil(), "{grant}");
    }
    // Without the setting nothing of it is needed.
    side.conn.line("CONFIG SET lock.redisson-scripts no");
    become_user(&mut side, bare);
    assert!(side.caller.run(&acquire).is_nil());
}

#[test]
fn refusals_are_in_the_acl_log() {
    let mut side = Side::of(native());
    become_user(&mut side, "+@all -evalsha ~* &*");
    let bystander = Bystander::of(&side.server, "k");
    let refused = side.caller.run(call("EVALSHA", ACQUIRE, "1 k 600000 u:1"));
    let expected = "NOPERM this user has no permissions to run the 'evalsha' command";
    assert_eq!(refused.error(), expected);
    bystander.saw_nothing("a refused script");
    let entry = side.conn.line("ACL LOG").list()[0].clone();
    let says = |field: &str| entry.field(field).unwrap().text();
    assert_eq!(says("reason"), "command");
    assert_eq!(says("object"), "evalsha");
    assert_eq!(says("username"), "u");
    // EVAL is another permission.
    let acquire = call("EVAL", &redisson::text(ACQUIRE), "1 k 600000 u:1");
    assert!(side.caller.run(&acquire).is_nil());
}

#[test]
fn a_user_for_some_databases_only_has_its_scripts_run_there() {
    let (mut native, mut lua) = (Side::of(native()), Side::of(TestServer::start()));
    let knows = native.conn.line("ACL SETUSER other reset db=0");
    if knows.is_error() {
        return;
    }
    for rules in [
        "+@all ~* &* db=0",
        "+@all ~* &* db=0 -eval",
        "+@all ~* &* db=1",
    ] {
        compare(&mut native, &mut lua, rules);
    }
}
