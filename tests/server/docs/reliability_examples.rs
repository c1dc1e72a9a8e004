//! The examples of docs/RELIABILITY.md, run verbatim: a holder that was suspended beyond its lease resumes after its
//! successor has written.

use crate::common::{Conn, TestServer};

/// The code blocks of this language, in order.
fn examples(language: &str) -> Vec<String> {
    let text = include_str!("../../../docs/RELIABILITY.md");
    let fence = format!("```{language}\n");
    text.split(&fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_string())
        .collect()
}

/// The tokens of a holder that writes too late, and of its successor.
fn late_and_current(server: &TestServer) -> (i64, i64) {
    let mut conn = server.conn();
    let late = conn.line("LOCK.ACQUIRE k alice PX 20").int();
    let current = conn.line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0").int();
    assert_eq!(conn.line("LOCK.RENEW k alice").int(), 0);
    (late, current)
}

#[test]
fn the_sql_refuses_a_late_holder() {
    let server = TestServer::start();
    let (late, current) = late_and_current(&server);
    let [table, update, fences, fence] = examples("sql").try_into().unwrap();
    let db = rusqlite::Connection::open_in_memory().unwrap();
    db.execute_batch(&table).unwrap();
    db.execute_batch(&fences).unwrap();
    db.execute("INSERT INTO invoice (id, state) VALUES (42, 'new')", [])
        .unwrap();
    let write = |token: i64, state: &str| {
        let values = rusqlite::named_params! {":id": 42, ":state": state, ":token": token};
        db.execute(&update, values).unwrap()
    };
    let begin = |token: i64| {
        let values = rusqlite::named_params! {":lock": "k", ":token": token};
        db.execute(&fence, values).unwrap()
    };
    // In time, the first holder may write; so may its successor, more than once.
    for (token, state) in [(late, "alice's"), (current, "bob's"), (current, "bob's")] {
        assert_eq!((write(token, state), begin(token)), (1, 1));
    }
    assert_eq!((write(late, "late"), begin(late)), (0, 0));
    let state: String = db
        .query_row("SELECT state FROM invoice WHERE id = 42", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(state, "bob's");
}

#[test]
fn the_script_refuses_a_late_holder() {
    let server = TestServer::start();
    let (late, current) = late_and_current(&server);
    let [script] = examples("lua").try_into().unwrap();
    let mut conn = server.conn();
    let write = |conn: &mut Conn, token: i64, value: &str| {
        let token = token.to_string();
        let words = [
            "EVAL",
            &script,
            "2",
            "invoice:42",
            "fence:42",
            &token,
            value,
        ];
        conn.run(words).int()
    };
    for (token, value) in [(late, "alice's"), (current, "bob's"), (current, "bob's")] {
        assert_eq!(write(&mut conn, token, value), 1);
    }
    assert_eq!(write(&mut conn, late, "late"), 0);
    assert_eq!(conn.line("GET invoice:42").text(), "bob's");
    // The largest possible tokens are compared exactly.
    let highest = (1 << 53) - 1;
    assert_eq!(write(&mut conn, highest, "last"), 1);
    assert_eq!(write(&mut conn, highest - 1, "late"), 0);
}
