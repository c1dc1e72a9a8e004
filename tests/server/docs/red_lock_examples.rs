//! The SQL of docs/REDLOCK.md, run verbatim, with tokens of servers whose clocks differ.

use rusqlite::{named_params, Connection};

/// The code blocks in SQL, in order.
fn examples() -> Vec<&'static str> {
    let text = include_str!("../../../docs/REDLOCK.md");
    let blocks = text.split("```sql\n").skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// Whether the resource accepts a write with these tokens.
fn writes(db: &mut Connection, tokens: &[(&str, i64)]) -> bool {
    let fence = examples()[1];
    let transaction = db.transaction().unwrap();
    for (server, token) in tokens {
        let values = named_params! {":lock": "k", ":server": server, ":token": token};
        if transaction.execute(fence, values).unwrap() == 0 {
            return false;
        }
    }
    transaction.commit().is_ok()
}

#[test]
fn the_sql_refuses_every_earlier_majority_and_no_later_one() {
    let mut db = Connection::open_in_memory().unwrap();
    db.execute_batch(examples()[0]).unwrap();
    let alice = [("a", 900), ("b", 5)];
    let bob = [("b", 6), ("c", 10)];
    let carol = [("a", 901), ("c", 11)];
    assert!(writes(&mut db, &alice) && writes(&mut db, &alice));
    // Although his highest token is below hers.
    assert!(writes(&mut db, &bob) && writes(&mut db, &bob));
    assert!(!writes(&mut db, &alice));
    assert!(writes(&mut db, &carol));
    assert!(!writes(&mut db, &alice) && !writes(&mut db, &bob));
    // The refused write has changed nothing.
    assert!(writes(&mut db, &carol));
}
