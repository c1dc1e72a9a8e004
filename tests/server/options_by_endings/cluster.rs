//! The ending by a slot that moves to another node: every form at once, because a move takes long.

use crate::common::cluster::{move_slot, moves_atomically, slot_of, two_nodes, AtomicMove};
use crate::common::TestServer;
use crate::options_by_endings::cell::{failed, Table, TAG};

fn check(move_slot: impl FnOnce(&TestServer, &TestServer, i64)) {
    let options = [
        "--lock.queue-grace",
        "2",
        "--lock.free-after",
        "0",
        "--lock.string-holders",
        "yes",
    ];
    let (source, target) = two_nodes(&options);
    let mut table = Table::of_cluster(source);
    let forms = table.forms();
    let mut waiting = Vec::new();
    for form in &forms {
        let mut cell = table.cell(form);
        cell.queue();
        waiting.push((form, cell.leave()));
    }
    let slot = slot_of(&mut table.admin, TAG);
    move_slot(&table.server, &target, slot);
    for (form, clients) in &mut waiting {
        // The server has ended the subscription before: the message of a ticket reaches no client.
        if !form.is_ticket {
            clients.expect_reply(form, failed("MOVED"));
        }
        clients.expect_next(form, failed("MOVED"));
    }
    // A ticket may also be found unheard, after the server has ended its subscription and before the slot is gone.
    let tickets = forms.iter().filter(|form| form.is_ticket).count();
    table.server.wait_for_stat("tickets", 0);
    let ended = ["tickets_failed", "tickets_unheard"].map(|name| table.server.stat(name));
    assert_eq!(ended.iter().sum::<u64>(), tickets as u64, "{ended:?}");
    drop(waiting);
    let mut there = target.conn();
    for key in there.line("KEYS {*").list() {
        there.run([&b"DEL"[..], &key.bytes()]);
    }
    for (node, conn) in [(&table.server, &mut table.admin), (&target, &mut there)] {
        let rest = node.is_at_rest(conn);
        assert!(rest.is_ok(), "{}", rest.unwrap_err());
    }
}

#[test]
fn slot_moved() {
    check(move_slot);
}

#[test]
fn slot_moved_atomically() {
    if moves_atomically(&TestServer::start()) {
        check(|source, target, slot| AtomicMove::begin(source, target, slot).wait_until_done());
    }
}
