//! Every command of every kind of resource on the keys of every other kind, with and without a TTL: none of them
//! changes a key that is not of its kind.

use crate::common::{Conn, TestServer};

/// The commands that make a key, and whether commands of locks, of semaphores and of latches may change it. A number
/// may be used as a semaphore or as a latch, unless permits are taken.
const KEYS: [(&[&str], [bool; 3]); 9] = [
    (&["LOCK.ACQUIRE k o PX 600000 NOTE x"], [true, false, false]),
    (&["LOCK.ACQUIRE k o PX 600000 READ"], [true, false, false]),
    (&["LOCK.ACQUIRE k o PX 600000 WRITE"], [true, false, false]),
    (&["HSET k u:1 1 #token t7 #later x"], [true, false, false]),
    (
        &["SEM.SET k 3", "SEM.ACQUIRE k id PX 600000"],
        [false, true, false],
    ),
    (&["SEM.SET k 3"], [false, true, true]),
    (&["LATCH.SET k 3"], [false, true, true]),
    (&["SET k text"], [false, false, false]),
    (&["RPUSH k 1 2"], [false, false, false]),
];

const COMMANDS: [(&[&str], usize); 3] = [
    (
        &[
            "LOCK.ACQUIRE k o",
            "LOCK.ACQUIRE k p ONCE NOTE y",
            "LOCK.ACQUIRE k o READ",
            "LOCK.ACQUIRE k o WRITE",
            "LOCK.MACQUIRE 2 j k o",
            "LOCK.RENEW k o",
            "LOCK.RENEW k o READ",
            "LOCK.MRENEW 2 j k o",
            "LOCK.RELEASE k o",
            "LOCK.RELEASE k o ALL",
            "LOCK.RELEASE k o WRITE",
            "LOCK.RELEASE k o FINAL 1",
            "LOCK.MRELEASE 2 j k o",
            "LOCK.BREAK k TOKEN 7",
            "LOCK.BREAK k TOKEN 7 TO o",
            "LOCK.BREAK k",
            "LOCK.BREAK k PURGE",
            "LOCK.BREAK k PURGE USER default",
            "LOCK.BREAK k TO o",
            "LOCK.IF k 7 SET k x",
            "LOCK.INFO k",
            "LOCK.SCAN 0",
        ],
        0,
    ),
    (
        &[
            "SEM.SET k 5",
            "SEM.SET k 5 NX",
            "SEM.ACQUIRE k o",
            "SEM.ACQUIRE k o LIMIT 3",
            "SEM.RENEW k o",
            "SEM.RELEASE k o",
            "SEM.RELEASE k o FINAL 1",
            "SEM.INFO k",
        ],
        1,
    ),
    (
        &[
            "LATCH.SET k 5",
            "LATCH.SET k 0",
            "LATCH.DOWN k",
            "LATCH.DOWN k 9",
            "LATCH.WAIT k",
        ],
        2,
    ),
];

fn content(c: &mut Conn) -> Vec<Vec<u8>> {
    let keys = [
        "k",
        "{k}:timeout",
        "{k}:rwlock_token",
        "{k}:o:rwlock_timeout:1",
    ];
    let of = |key: &&str| {
        let dump = c.line(&format!("DUMP {key}"));
        let dump = (!dump.is_nil()).then(|| dump.bytes());
        let end = c.line(&format!("PEXPIRETIME {key}")).int();
        [dump.unwrap_or_default(), end.to_string().into_bytes()]
    };
    keys.iter().flat_map(of).collect()
}

fn no_command_changes_a_key_of_another_kind(setting: &str) {
    let server = TestServer::with(&["--lock.string-holders", setting]);
    let mut c = server.conn();
    for (made_by, may_change) in KEYS {
        for ttl in [false, true] {
            // A lock of another library, which its library alone may end, but for LOCK.BREAK.
            let is_string_lock = ttl && setting == "yes" && made_by == ["SET k text"];
            for (commands, kind) in COMMANDS {
                if may_change[kind] || is_string_lock {
                    continue;
                }
                c.line("FLUSHALL");
                for line in made_by {
                    assert!(!c.line(line).is_error(), "{line}");
                }
                c.line(if ttl { "PEXPIRE k 600000" } else { "PERSIST k" });
                let before = content(&mut c);
                for command in commands {
                    let reply = c.line(command);
                    let after = content(&mut c);
                    assert_eq!(
                        after, before,
                        "{made_by:?}, TTL {ttl}: {command}: {reply:?}"
                    );
                }
            }
        }
    }
    server.check_counters();
}

#[test]
fn no_command_changes_a_key_of_another_kind_without_string_holders() {
    no_command_changes_a_key_of_another_kind("no");
}

#[test]
fn no_command_changes_a_key_of_another_kind_with_string_holders() {
    no_command_changes_a_key_of_another_kind("yes");
}
