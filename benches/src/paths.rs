//! The paths whose instructions are counted, and the state of the server meanwhile.

/// An owner like Redisson's.
pub const OWNER: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";

/// Another owner.
pub const OTHER: &str = "0c5e6c5a-9d5c-4b43-bd0b-5e3f6a0a5f10:7";

/// The channel of tickets.
pub const CHANNEL: &str = "tickets";

/// The state of the server while its scenarios are counted, one after the other.
pub struct Setting {
    /// The name in the table.
    pub name: &'static str,
    /// Options of the server.
    pub options: &'static [&'static str],
    /// Whether the module is loaded.
    pub with_module: bool,
    /// Whether a replica was connected before.
    pub had_replica: bool,
    /// Sent once, at first; `load` and a SHA1 loads that script of Redisson's; a command that starts with `waiter: ` is
    /// sent on a connection of its own, and stays without a reply.
    pub before: &'static [&'static str],
    /// The counted paths.
    pub scenarios: &'static [Scenario],
}

/// Commands counted together; `{k}` is the lock's name (`{keys 10}`: this number of its own), `{o}` its owner, `{p}`
/// another owner. A command that starts with `waiter: ` is sent on a connection of its own, after a PING; a later
/// command causes its reply. In a scenario named `ticket`,
/// that connection is subscribed to [`CHANNEL`].
pub struct Scenario {
    /// The name in the table.
    pub name: &'static str,
    /// Sent for every lock first, not counted.
    pub setup: &'static [&'static str],
    /// Counted.
    pub counted: &'static [&'static str],
}

/// The lease is longer than a table takes, also on a busy machine: a lock whose lease has ended costs less to release.
const ACQUIRE: &str = "LOCK.ACQUIRE {k} {o} PX 90000";
const QUEUED: &str =
    "LOCK.ACQUIRE {k} {p} PX 90000 BLOCK 0 NOTIFY tickets 3d7d6a0e-7c55-4f0c-9d1e-0a5b8f6c2e11";
const RELEASE: &str = "LOCK.RELEASE {k} {o}";

/// Acquire and release, and the commands that a Redisson client sends after an unlock.
const TAKE: &str = "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 {k} 90000 {o}";
const GIVE: &str = "EVALSHA 6866459238a13a701d42f4971f12d9f3a50e2442 3 {k} redisson_lock__channel:{{k}} \
                    redisson_unlock_latch:{{k}}:6a1f0c3d9b2e47588e1c5d7f90ab34e2 0 90000 {o} PUBLISH 16000";
/// The same of a reader and of a writer.
const READ_TAKE: &str = "EVALSHA 95553a6ff11176c18e71344e89d116b06fd6f753 2 {k} \
                         {{k}}:{o}:rwlock_timeout 90000 {o} {o}:write";
const READ_GIVE: &str = "EVALSHA 6e1b10e11ac0a3ed8e902562ecd32ce01b553039 5 {k} redisson_rwlock:{{k}} \
                         {{k}}:{o}:rwlock_timeout {{k}} redisson_unlock_latch:{{k}}:6a1f0c3d9b2e47588e1c5d7f90ab34e2 \
                         0 {o} PUBLISH 16000";
const WRITE_TAKE: &str = "EVALSHA 6306ba3bf1f563b284bed52d305fce615c6664d9 1 {k} 90000 {o}:write";
const WRITE_GIVE: &str = "EVALSHA 21f5fb0f8ddfa9be5c3e0c9757c128796add75c6 3 {k} redisson_rwlock:{{k}} \
                          redisson_unlock_latch:{{k}}:6a1f0c3d9b2e47588e1c5d7f90ab34e2 1 90000 {o}:write PUBLISH 16000";
const DEL_LATCH: &str = "DEL redisson_unlock_latch:{{k}}:6a1f0c3d9b2e47588e1c5d7f90ab34e2";

/// Commands that need no state before and leave none behind, or that which the next one needs.
const fn plain(name: &'static str, counted: &'static [&'static str]) -> Scenario {
    after(name, &[], counted)
}

const fn after(
    name: &'static str,
    setup: &'static [&'static str],
    counted: &'static [&'static str],
) -> Scenario {
    Scenario {
        name,
        setup,
        counted,
    }
}

const PAIR: Scenario = plain("pair: acquire, release", &[ACQUIRE, RELEASE]);
const DEFAULT_PAIR: Scenario = plain(
    "pair: the same, the default lease",
    &["LOCK.ACQUIRE {k} {o}", RELEASE],
);
const SET_DEL: Scenario = plain(
    "pair: SET NX PX, DEL",
    &["SET {k} {o} NX PX 90000", "DEL {k}"],
);

/// Every path of every command; each leaves the locks as the next one needs them.
const EVERY_COMMAND: &[Scenario] = &[
    PAIR,
    DEFAULT_PAIR,
    plain("acquire: free", &[ACQUIRE]),
    plain("acquire: re-entrant", &[ACQUIRE]),
    plain(
        "acquire ONCE: held already",
        &["LOCK.ACQUIRE {k} {o} PX 20000 ONCE"],
    ),
    plain("acquire: refused", &["LOCK.ACQUIRE {k} {p} PX 90000"]),
    plain(
        "acquire WITHHOLDER: refused",
        &["LOCK.ACQUIRE {k} {p} PX 90000 WITHHOLDER"],
    ),
    plain("renew", &["LOCK.RENEW {k} {o} PX 90000"]),
    plain("renew: not the holder", &["LOCK.RENEW {k} {p} PX 90000"]),
    plain("info", &["LOCK.INFO {k}"]),
    plain("release: one hold of two", &[RELEASE]),
    plain("release: not the holder", &["LOCK.RELEASE {k} {p}"]),
    plain("release: the last hold", &[RELEASE]),
    plain("release: no holder", &[RELEASE]),
    after("break", &[ACQUIRE], &["LOCK.BREAK {k}"]),
    plain("owner", &["LOCK.OWNER"]),
    plain("help", &["LOCK.HELP"]),
    plain("PING", &["PING"]),
    SET_DEL,
    plain(
        "hand-off: acquire, PING, park, release, release",
        &[
            ACQUIRE,
            "waiter: LOCK.ACQUIRE {k} {p} PX 90000 BLOCK 0",
            RELEASE,
            "LOCK.RELEASE {k} {p}",
        ],
    ),
    plain(
        "its peer: PING, BLPOP, RPUSH",
        &["waiter: BLPOP {k} 0", "RPUSH {k} x"],
    ),
    after("ticket: QUEUED", &[ACQUIRE], &[QUEUED]),
    plain("ticket: release with hand-off", &[RELEASE]),
    plain("ticket: release", &["LOCK.RELEASE {k} {p}"]),
    after(
        "ticket: QUEUED, release with hand-off, release",
        &[ACQUIRE],
        &[QUEUED, RELEASE, "LOCK.RELEASE {k} {p}"],
    ),
    plain(
        "ticket: acquire, QUEUED, release, release, one at a time",
        &[
            ACQUIRE,
            QUEUED,
            "heard: LOCK.RELEASE {k} {o}",
            "LOCK.RELEASE {k} {p}",
        ],
    ),
];

/// A write that only the holder may make, and the ways to it without the module. The locks stay held under the token 7.
const FENCED: &[Scenario] = &[
    after(
        "SET under a fence: LOCK.IF",
        &["HSET {k} {o} 1 #token t7"],
        &["LOCK.IF {k} 7 SET {k}:data value"],
    ),
    plain("its peer: SET, unchecked", &["SET {k}:data value"]),
    plain(
        "its peer: WATCH, HGET, MULTI, SET, EXEC",
        &[
            "WATCH {k}",
            "HGET {k} #token",
            "MULTI",
            "SET {k}:data value",
            "EXEC",
        ],
    ),
    plain(
        "its peer: EVAL that compares",
        &["EVAL return(redis.call('HGET',KEYS[1],'#token')==ARGV[1])and(redis.call('SET',KEYS[2],ARGV[2])) 2 {k} {k}:data t7 value"],
    ),
];

/// Holds of the other kinds; each leaves the locks as the next one needs them.
const OTHER_KINDS: &[Scenario] = &[
    plain("acquire: free", &[ACQUIRE]),
    plain("release: the last hold", &[RELEASE]),
    plain("READ: free", &["LOCK.ACQUIRE {k} {o} READ PX 90000"]),
    plain(
        "READ: beside a reader",
        &["LOCK.ACQUIRE {k} {p} READ PX 90000"],
    ),
    plain(
        "READ: released, a reader stays",
        &["LOCK.RELEASE {k} {p} READ"],
    ),
    plain(
        "WRITE: upgrade of the only reader",
        &["LOCK.ACQUIRE {k} {o} WRITE PX 90000"],
    ),
    plain(
        "WRITE: released, its reader stays",
        &["LOCK.RELEASE {k} {o} WRITE"],
    ),
    plain("READ: renewed", &["LOCK.RENEW {k} {o} PX 90000"]),
    plain("READ: the last one released", &["LOCK.RELEASE {k} {o}"]),
    plain("WRITE: free", &["LOCK.ACQUIRE {k} {o} WRITE PX 90000"]),
    plain("WRITE: released", &["LOCK.RELEASE {k} {o}"]),
    plain(
        "READ pair: acquire, release",
        &["LOCK.ACQUIRE {k} {o} READ PX 90000", RELEASE],
    ),
    plain(
        "WRITE pair: acquire, release",
        &["LOCK.ACQUIRE {k} {o} WRITE PX 90000", RELEASE],
    ),
    plain(
        "many: 1 key, acquire",
        &["LOCK.MACQUIRE {keys 1} {o} PX 90000"],
    ),
    plain("many: 1 key, renew", &["LOCK.MRENEW {keys 1} {o} PX 90000"]),
    plain("many: 1 key, release", &["LOCK.MRELEASE {keys 1} {o}"]),
    plain(
        "many: 10 keys, acquire",
        &["LOCK.MACQUIRE {keys 10} {o} PX 90000"],
    ),
    plain(
        "many: 10 keys, refused",
        &["LOCK.MACQUIRE {keys 10} {p} PX 90000"],
    ),
    plain(
        "many: 10 keys, renew",
        &["LOCK.MRENEW {keys 10} {o} PX 90000"],
    ),
    plain("many: 10 keys, release", &["LOCK.MRELEASE {keys 10} {o}"]),
    plain(
        "many: 100 keys, acquire",
        &["LOCK.MACQUIRE {keys 100} {o} PX 90000"],
    ),
    plain("many: 100 keys, release", &["LOCK.MRELEASE {keys 100} {o}"]),
    plain("SESSION: free", &["LOCK.ACQUIRE {k} {o} SESSION"]),
    plain("SESSION: released", &[RELEASE]),
    plain(
        "permit: the first of a new semaphore",
        &["SEM.ACQUIRE sem:{k} {o} LIMIT 10 PX 90000"],
    ),
    plain(
        "permit: one more",
        &["SEM.ACQUIRE sem:{k} {p} LIMIT 10 PX 90000"],
    ),
    plain("permit: renewed", &["SEM.RENEW sem:{k} {p} PX 90000"]),
    plain("permit: released", &["SEM.RELEASE sem:{k} {p}"]),
    plain("latch: set", &["LATCH.SET latch:{k} 2"]),
    plain("latch: counted down", &["LATCH.DOWN latch:{k}"]),
    plain("latch: opened", &["LATCH.DOWN latch:{k}"]),
    plain("latch: waited for, open", &["LATCH.WAIT latch:{k}"]),
];

const HOT: &[Scenario] = &[
    PAIR,
    DEFAULT_PAIR,
    plain("acquire: free", &[ACQUIRE]),
    plain("acquire: re-entrant", &[ACQUIRE]),
    plain("renew", &["LOCK.RENEW {k} {o} PX 90000"]),
    plain("release: one hold of two", &[RELEASE]),
    plain("release: the last hold", &[RELEASE]),
    SET_DEL,
];

/// Always the same key: the number of other keys in its bucket of the server's table is random, and makes more of a
/// difference than the module.
const OTHERS: &[Scenario] = &[
    plain("SET", &["SET other {o}"]),
    plain("GET", &["GET other"]),
    plain("SET, DEL", &["SET other {o}", "DEL other"]),
    plain(
        "MSET of ten keys",
        &["MSET o0 {o} o1 {o} o2 {o} o3 {o} o4 {o} o5 {o} o6 {o} o7 {o} o8 {o} o9 {o}"],
    ),
];

/// A server looks up whether keys expire as soon as one key has a lease, with the module or without.
const A_LEASE: &str = "SET leased x PX 900000";

/// Redisson's commands for a lock since 3.44, by SHA1; each leaves the locks as the next one needs them.
const REDISSON: &[Scenario] = &[
    plain("acquire: free", &[TAKE]),
    plain("acquire: re-entrant", &[TAKE]),
    plain(
        "acquire: refused",
        &["EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 {k} 90000 {p}"],
    ),
    plain(
        "renew",
        &["EVALSHA 6a3d31570dc6f4b0bd32bcdc8e75667747c6f635 1 {k} 90000 {o}"],
    ),
    plain("unlock: one hold of two", &[GIVE]),
    plain("DEL of the answer that it leaves", &[DEL_LATCH]),
    plain("unlock: the last hold", &[GIVE]),
    plain("unlock: sent again", &[GIVE]),
    plain("the same DEL", &[DEL_LATCH]),
    plain("unlock: no holder", &[GIVE]),
    plain("pair: acquire, unlock, DEL", &[TAKE, GIVE, DEL_LATCH]),
    plain(
        "READ pair: acquire, unlock, DEL",
        &[READ_TAKE, READ_GIVE, DEL_LATCH],
    ),
    plain(
        "WRITE pair: acquire, unlock, DEL",
        &[WRITE_TAKE, WRITE_GIVE, DEL_LATCH],
    ),
    after(
        "unlock by force",
        &[TAKE],
        &["EVALSHA 605e338249a7a1d40df83b04f7658354f883b41b 2 {k} redisson_lock__channel:{{k}} 0 PUBLISH"],
    ),
];

/// Redisson's scripts that the server loads.
const LOAD_REDISSON: &[&str] = &[
    "load 149c5a8bf18676fd99e9e6e24923bd64d9b62f94",
    "load 6866459238a13a701d42f4971f12d9f3a50e2442",
    "load 6a3d31570dc6f4b0bd32bcdc8e75667747c6f635",
    "load 605e338249a7a1d40df83b04f7658354f883b41b",
    "load 95553a6ff11176c18e71344e89d116b06fd6f753",
    "load 6e1b10e11ac0a3ed8e902562ecd32ce01b553039",
    "load 6306ba3bf1f563b284bed52d305fce615c6664d9",
    "load 21f5fb0f8ddfa9be5c3e0c9757c128796add75c6",
];

/// All paths.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "No replication: no AOF, never a replica",
        options: &[],
        with_module: true,
        had_replica: false,
        before: &[],
        scenarios: EVERY_COMMAND,
    },
    Setting {
        name: "The other kinds of hold, no replication",
        options: &[],
        with_module: true,
        had_replica: false,
        before: &[],
        scenarios: OTHER_KINDS,
    },
    Setting {
        name: "A command that only the holder may run, no replication",
        options: &[],
        with_module: true,
        had_replica: false,
        before: &[],
        scenarios: FENCED,
    },
    Setting {
        name: "A replica that went away: the backlog is kept for it",
        options: &["--repl-diskless-sync-delay", "0"],
        with_module: true,
        had_replica: true,
        before: &[],
        scenarios: HOT,
    },
    Setting {
        name: "AOF, everysec",
        options: &["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"],
        with_module: true,
        had_replica: false,
        before: &[],
        scenarios: HOT,
    },
    Setting {
        name: "Others' commands, without the module",
        options: &[],
        with_module: false,
        had_replica: false,
        before: &[A_LEASE],
        scenarios: OTHERS,
    },
    Setting {
        name: "Others' commands, the module loaded",
        options: &[],
        with_module: true,
        had_replica: false,
        before: &[A_LEASE],
        scenarios: OTHERS,
    },
    Setting {
        name: "Others' commands, while a client waits for another key",
        options: &[],
        with_module: true,
        had_replica: false,
        before: &[
            A_LEASE,
            "LOCK.ACQUIRE parked a PX 900000",
            "waiter: LOCK.ACQUIRE parked b BLOCK 0",
        ],
        scenarios: OTHERS,
    },
    Setting {
        name: "Redisson's scripts, by the server's Lua",
        options: &[],
        with_module: true,
        had_replica: false,
        before: LOAD_REDISSON,
        scenarios: REDISSON,
    },
];
