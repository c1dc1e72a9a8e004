//! Permissions for Redisson's scripts run natively: `LOCK.REDISSON` allows nothing that `EVAL` would refuse.
//!
//! The same user makes the same calls on two servers, one with the setting and one without. On the first one the user
//! is also allowed `LOCK.REDISSON`.

use crate::commands::acl::has_categories;
use crate::common::redisson::{self, *};
use crate::common::{Bystander, TestServer};
use crate::redisson::native::{call, calls, native, Side};

/// Data for which the scripts write, publish, or only read.
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
    // An existing user is kept, with the new rules.
    assert_eq!(side.caller.line("AUTH u any").text(), "OK");
}

/// Normalises the server's text for a refused command, which changed with 7.2; the module's is the former one.
fn without_the_name(reply: String) -> String {
    let core = "NOPERM User u has no permissions";
    reply.replace(core, "NOPERM this user has no permissions")
}

/// Runs every script on every data as a user with these rules. Returns the number of native runs.
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
        // A selector that allows what the other rules do not.
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
        // Rules for the command that was sent.
        ("+@all ~* &* -eval", 0),
        ("+@all ~* &* -@scripting", 0),
        // Rules for nothing but the command that was sent.
        ("+eval ~* &*", 0),
        // Rules for keys: the server checks all of them.
        ("+@all &*", 0),
        ("+@all ~x* &*", 0),
        ("+@all %R~* &*", 0),
        ("+@all %W~* &*", 0),
    ] {
        assert_eq!(compare(&mut native, &mut lua, rules), natively, "{rules}");
    }
    for rules in [
        // A rule for the lock alone, without the channel, which is a key as well.
        "+@all ~k &*",
        // Rules for the channel.
        "+@all ~* resetchannels",
        "+@all ~* &other",
        // A selector that allows the command on other keys, or forbids it.
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
    // Each of these rules is enough, if the server has categories for a module's commands.
    let mut grants = vec!["+lock.redisson"];
    if has_categories(&side.server) {
        grants.extend(["+@scripting", "+@write"]);
    }
    for grant in grants {
        become_user(&mut side, &format!("{bare} {grant}"));
        side.conn.line("DEL k");
        assert!(side.caller.run(&acquire).is_nil(), "{grant}");
    }
    // Without the setting none of these rules is needed.
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
    // The permission for EVAL is a different one.
    let acquire = call("EVAL", &redisson::text(ACQUIRE), "1 k 600000 u:1");
    assert!(side.caller.run(&acquire).is_nil());
}

#[test]
fn a_user_limited_to_some_databases_can_run_scripts_there() {
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
