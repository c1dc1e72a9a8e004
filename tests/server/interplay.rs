//! What the kinds of lock do to each other: READ and WRITE with several keys, with sessions, and with databases
//! that are swapped, in one turn or under one timer.

use crate::common::{Bystander, TestServer};

#[test]
fn a_key_beside_a_lock_is_no_lock() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE warm up");
    for name in [
        "{k}:rwlock_token",
        "{k}:o:rwlock_timeout:1",
        "{k}:p:rwlock_timeout:27",
    ] {
        for line in [
            format!("LOCK.MACQUIRE 2 k {name} o READ"),
            format!("LOCK.MACQUIRE 2 {name} k o WRITE BLOCK 0"),
            format!("LOCK.MRELEASE 2 k {name} o"),
            format!("LOCK.ACQUIRE {name} o"),
            format!("SEM.SET {name} 1"),
            format!("LATCH.SET {name} 1"),
        ] {
            let bystander = Bystander::of(&server, "k");
            let refused = c.line(&line).error();
            let named = "ERR the key is named like one of those beside";
            assert!(refused.starts_with(named), "{line}: {refused}");
            bystander.saw_nothing(&line);
        }
    }
}
