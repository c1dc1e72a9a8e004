//! The ways in which a client loses a lock to another one.

use crate::Conn;

/// The ways to lose the lock `k`, each by commands of another client. `TAKEN`: another owner has it then.
pub const LOSSES: [(&str, &[&str]); 8] = [
    ("broken", &["LOCK.BREAK k"]),
    (
        "broken to another owner",
        &["LOCK.BREAK k TO TAKEN PX 600000"],
    ),
    ("deleted", &["DEL k"]),
    ("expired", &["PEXPIRE k 0"]),
    (
        "deleted and taken",
        &["DEL k", "LOCK.ACQUIRE k TAKEN PX 600000"],
    ),
    (
        "taken to write",
        &["DEL k", "LOCK.ACQUIRE k TAKEN WRITE PX 600000"],
    ),
    ("overwritten by a string", &["SET k text"]),
    ("overwritten by a list", &["DEL k", "RPUSH k element"]),
];

/// Carries these commands of [`LOSSES`] out, in one step.
pub fn lose(conn: &mut Conn, commands: &[&str]) {
    let lines = [&["MULTI"], commands, &["EXEC"]].concat();
    conn.send_lines(&lines);
    lines.iter().for_each(|_| drop(conn.recv()));
}

/// Asserts that the owner that took `k` holds it still, and frees `k`.
pub fn restore(conn: &mut Conn, commands: &[&str], context: &str) {
    if commands.iter().any(|line| line.contains("TAKEN")) {
        let holders = conn.line("LOCK.INFO k").field("holders").expect("holders");
        let owner = holders.list()[0].field("owner").expect("an owner");
        assert_eq!(owner.text(), "TAKEN", "{context}");
    }
    conn.line("DEL k {k}:rwlock_token");
}
