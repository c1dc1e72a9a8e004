//! The endings of waits: the request under test waits behind a holder, and another client behind it.

use crate::common::wait_for;
use crate::options_by_endings::cell::{failed, Cell, Outcome, HOLDER, OWNER};
use crate::options_by_endings::endings;
use crate::options_by_endings::forms::{Form, Kind, FINAL};

fn any(_: &Form) -> bool {
    true
}

fn is_parked(form: &Form) -> bool {
    !form.is_ticket
}

fn is_ticket(form: &Form) -> bool {
    form.is_ticket
}

fn has_only_a_tag(form: &Form) -> bool {
    form.is_ticket && !form.has_owner()
}

/// A latch has no owners: none withdraws or takes over.
fn has_owner(form: &Form) -> bool {
    form.has_owner()
}

/// Only locks can be requested one at a time and many at a time.
fn is_lock(form: &Form) -> bool {
    matches!(form.kind, Kind::Lock | Kind::Many)
}

/// `LOCK.BREAK ... TO` grants exclusive locks.
fn is_exclusive(form: &Form) -> bool {
    is_lock(form) && !form.has_mode()
}

endings! {
    /// The holder gives it back.
    granted, any, [
        "waits_granted", "tickets_granted", "sem_waits_granted", "latch_waits_opened",
        "grants_released", "sem_grants_released",
    ];
    /// The end of its `BLOCK`.
    timed_out, any, [
        "waits_timed_out", "sem_waits_timed_out", "latch_waits_timed_out", "tickets_timed_out",
    ];
    /// The owner asks again after the end of its `BLOCK`, and continues at its place.
    timed_out_and_asked_again, has_owner, ["waits_taken_over", "sem_waits_taken_over", "tickets_taken_over"];
    /// The owner asks again after the end of its `BLOCK`, when it is free.
    timed_out_and_asked_again_when_free, has_owner, ["waits_granted", "sem_waits_granted", "tickets_granted"];
    /// A release of its owner.
    released, has_owner, ["waits_withdrawn", "sem_waits_withdrawn", "tickets_withdrawn"];
    /// A release of its owner through the other command for locks.
    released_by_the_other_command, is_lock, ["waits_withdrawn", "tickets_withdrawn"];
    /// Its owner gives the acquisition up.
    given_up, has_owner, ["waits_withdrawn", "sem_waits_withdrawn", "tickets_withdrawn"];
    /// A newer request of its owner by the same command.
    taken_over, has_owner, ["waits_taken_over", "sem_waits_taken_over", "tickets_taken_over"];
    /// A newer ticket for a latch, of the same channel and tag.
    taken_over_by_its_tag, has_only_a_tag, ["tickets_taken_over"];
    /// A newer request of its owner by the other command for locks.
    taken_over_by_the_other_command, is_lock, ["waits_taken_over", "tickets_taken_over"];
    /// A newer request of its owner of the other sort: a ticket takes a parked request over, or is taken over by one.
    taken_over_by_the_other_sort, has_owner, ["waits_taken_over", "sem_waits_taken_over", "tickets_taken_over"];
    /// `LOCK.BREAK ... PURGE`.
    purged, any, [
        "waits_failed", "sem_waits_failed", "latch_waits_failed", "tickets_failed", "grants_broken",
    ];
    /// `LOCK.BREAK ... PURGE USER`.
    purged_by_user, any, ["waits_failed", "sem_waits_failed", "latch_waits_failed", "tickets_failed"];
    /// `LOCK.BREAK ... TO` another owner, which then releases.
    broken_to_another, is_exclusive, ["waits_granted", "tickets_granted"];
    /// `LOCK.BREAK ... TO` the owner that waits.
    broken_to_its_owner, is_exclusive, ["waits_withdrawn", "tickets_withdrawn"];
    /// The key becomes one of another type.
    wrong_type, any, ["waits_failed", "sem_waits_failed", "latch_waits_failed", "tickets_failed"];
    /// The lease of the holder ends.
    expired, any, [
        "waits_granted", "sem_waits_granted", "latch_waits_opened", "tickets_granted",
        "grants_expired", "sem_grants_expired",
    ];
    /// The holder's key is deleted, with those beside it.
    deleted, any, ["waits_granted", "sem_waits_granted", "latch_waits_opened", "grants_lost", "sem_grants_lost"];
    /// The holder's key is renamed.
    renamed, any, ["waits_granted", "sem_waits_granted", "latch_waits_opened"];
    /// `FLUSHALL`
    flushed, any, ["waits_granted", "sem_waits_granted", "latch_waits_opened", "grants_lost", "sem_grants_lost"];
    /// `SWAPDB`
    swapped, any, ["waits_granted", "sem_waits_granted", "latch_waits_opened"];
    /// The channel loses its subscriber, and the holder gives it back.
    unsubscribed_and_passed_over, is_ticket, ["tickets_unheard"];
    /// The channel has no subscriber for `lock.queue-grace`.
    unsubscribed, is_ticket, ["tickets_unheard"];
    /// The connection ends. A ticket stays, if it is not bound.
    disconnected, any, [
        "waits_disconnected", "sem_waits_disconnected", "latch_waits_disconnected", "tickets_failed",
    ];
    /// `CLIENT UNBLOCK ... TIMEOUT`
    unblocked, is_parked, ["waits_unblocked", "sem_waits_unblocked", "latch_waits_unblocked"];
    /// `CLIENT UNBLOCK ... ERROR`
    unblocked_with_an_error, is_parked, [
        "waits_disconnected", "sem_waits_disconnected", "latch_waits_disconnected",
    ];
    /// `CLIENT KILL` in the tick of its grant.
    killed_in_the_tick_of_its_grant, any, ["grants_undone", "sem_grants_undone"];
    /// Its user may not take the key any more.
    no_permission, has_owner, ["waits_failed", "sem_waits_failed", "tickets_failed"];
    /// Its user is deleted.
    user_deleted, any, ["waits_disconnected", "sem_waits_disconnected", "latch_waits_disconnected", "tickets_failed"];
    /// The server becomes a replica.
    demoted, any, ["waits_disconnected", "sem_waits_disconnected", "latch_waits_disconnected", "tickets_failed"];
    /// The data is loaded again.
    reloaded, any, ["waits_granted", "sem_waits_granted", "latch_waits_opened", "tickets_granted"];
    /// A script gives it back for the holder.
    given_by_a_script, any, ["waits_granted", "sem_waits_granted", "latch_waits_opened", "tickets_granted"];
    /// A script deletes the holder's key, and then runs into an error.
    given_by_a_script_that_fails, any, ["waits_granted", "sem_waits_granted", "latch_waits_opened", "tickets_granted"];
}

fn granted(cell: &mut Cell<'_>) {
    cell.queue();
    cell.give_and_pass_on();
}

fn timed_out(cell: &mut Cell<'_>) {
    cell.take();
    cell.ask("1");
    cell.expect(Outcome::TimedOut);
    cell.next_asks();
    cell.give();
}

/// The places are kept for long while this runs.
fn with_long_grace(cell: &mut Cell<'_>, body: impl FnOnce(&mut Cell<'_>)) {
    cell.run("CONFIG SET lock.queue-grace 60000");
    body(cell);
    cell.run("CONFIG SET lock.queue-grace 2");
}

fn timed_out_and_asked_again(cell: &mut Cell<'_>) {
    cell.take();
    with_long_grace(cell, |cell| {
        cell.ask("1");
        cell.expect(Outcome::TimedOut);
        cell.next_asks();
        cell.ask("0");
    });
    cell.give_and_pass_on();
}

fn timed_out_and_asked_again_when_free(cell: &mut Cell<'_>) {
    cell.take();
    with_long_grace(cell, |cell| {
        cell.ask("1");
        cell.expect(Outcome::TimedOut);
        cell.give();
        cell.ask_for_free();
    });
    cell.next_asks();
    cell.release();
}

fn released(cell: &mut Cell<'_>) {
    cell.queue();
    let line = cell.releasing(OWNER);
    cell.run(&line);
    cell.expect(Outcome::Withdrawn);
    cell.wait_for_waits(1);
    cell.give();
}

fn released_by_the_other_command(cell: &mut Cell<'_>) {
    cell.queue();
    let line = match cell.form.kind {
        Kind::Lock => format!("LOCK.MRELEASE 1 $K {OWNER}"),
        _ => format!("LOCK.RELEASE $L {OWNER}"),
    };
    cell.run(&line);
    cell.expect(Outcome::Withdrawn);
    cell.wait_for_waits(1);
    cell.give();
}

fn given_up(cell: &mut Cell<'_>) {
    cell.queue();
    cell.run("CONFIG SET lock.final-time 60000");
    let line = format!("{} FINAL {FINAL}", cell.releasing(OWNER));
    assert_eq!(cell.run(&line).int(), 1, "{line}");
    cell.run("CONFIG SET lock.final-time 1");
    cell.expect(Outcome::Withdrawn);
    cell.wait_for_waits(1);
    if cell.form.has("SEQ") {
        // A late request keeps no place.
        let line = cell.request(cell.form.kind, "0");
        let mut late = cell.table.server.conn();
        let reply = late.line(&line);
        let is_nil = reply.is_nil() || reply.list()[0].is_nil();
        assert!(is_nil, "{line}: {reply:?}");
    }
    cell.run("CONFIG SET lock.max-finals 0");
    cell.give();
    wait_for("no final numbers", || cell.table.server.stat("finals") == 0);
    cell.run("CONFIG SET lock.max-finals 100000");
}

/// The request under test is taken over by one that another connection sends.
fn taken_over_by(cell: &mut Cell<'_>, line: &str) {
    cell.queue();
    let mut newer = cell.table.server.conn();
    newer.line("AUTH tester any");
    newer.send_line(line);
    match line.contains(" NOTIFY ") {
        true => {
            let reply = newer.recv();
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
        // The older one is answered when the newer one waits.
        false if cell.form.is_ticket => cell.table.server.wait_for_stat("tickets", 0),
        false => {}
    }
    cell.expect(Outcome::Withdrawn);
    cell.wait_for_waits(2);
    let former = std::mem::replace(&mut cell.asker, newer);
    cell.others.push(former);
}

fn taken_over(cell: &mut Cell<'_>) {
    let line = cell.request(cell.form.kind, "0");
    taken_over_by(cell, &line);
    cell.give_and_pass_on();
}

fn taken_over_by_its_tag(cell: &mut Cell<'_>) {
    taken_over(cell);
}

fn taken_over_by_the_other_command(cell: &mut Cell<'_>) {
    let other = match cell.form.kind {
        Kind::Lock => Kind::Many,
        _ => Kind::Lock,
    };
    // `LOCK.MACQUIRE` takes no note, and names no holder.
    let line = cell.request(other, "0").replace(" WITHHOLDER", "");
    let line = match line.split_once(" NOTE ") {
        Some((before, rest)) => {
            let (_, behind) = rest.split_once(' ').unwrap();
            format!("{before} {behind}")
        }
        None => line,
    };
    taken_over_by(cell, &line);
    cell.give();
    if other == Kind::Many {
        // A request for other keys joins their queues at the end; one for a single key has its place there.
        cell.pass_on();
    }
    cell.expect(Outcome::Granted);
    for key in ["$K", "$L"] {
        cell.run(&format!("LOCK.RELEASE {key} {OWNER}"));
    }
}

fn taken_over_by_the_other_sort(cell: &mut Cell<'_>) {
    let line = cell.request(cell.form.kind, "0");
    let line = match line.split_once(" NOTIFY ") {
        Some((before, _)) => before.to_string(),
        None => format!("{line} NOTIFY {{cell}}channel tag"),
    };
    taken_over_by(cell, &line);
    cell.give();
    cell.expect_by(!cell.form.is_ticket, Outcome::Granted);
    cell.release();
}

fn purged(cell: &mut Cell<'_>) {
    cell.queue();
    cell.run("LOCK.BREAK $K PURGE");
    cell.expect(failed("LOCKBROKEN"));
    cell.expect_next(failed("LOCKBROKEN"));
    if matches!(cell.form.kind, Kind::Semaphore | Kind::Latch) {
        cell.give();
    }
}

fn purged_by_user(cell: &mut Cell<'_>) {
    cell.queue();
    assert_eq!(cell.run("LOCK.BREAK $K PURGE USER tester").int(), 1);
    cell.expect(failed("LOCKBROKEN"));
    cell.wait_for_waits(1);
    cell.give();
}

fn broken_to_another(cell: &mut Cell<'_>) {
    cell.queue();
    assert!(cell.run("LOCK.BREAK $K TO another").int() > 0);
    cell.expect_only_holder("another");
    assert_eq!(cell.run("LOCK.RELEASE $K another").int(), 1);
    cell.expect(Outcome::Granted);
    cell.release();
}

fn broken_to_its_owner(cell: &mut Cell<'_>) {
    cell.queue();
    assert!(cell.run(&format!("LOCK.BREAK $K TO {OWNER}")).int() > 0);
    cell.expect(Outcome::Withdrawn);
    cell.wait_for_waits(1);
    cell.expect_only_holder(OWNER);
    assert_eq!(cell.run(&format!("LOCK.RELEASE $K {OWNER}")).int(), 1);
}

fn wrong_type(cell: &mut Cell<'_>) {
    cell.queue();
    let beside = cell.beside();
    cell.run_at_once(&["DEL $K", &format!("DEL {beside}"), "RPUSH $K x"]);
    cell.expect(failed("WRONGTYPE"));
    cell.expect_next(failed("WRONGTYPE"));
    cell.run("DEL $K");
}

fn expired(cell: &mut Cell<'_>) {
    cell.queue();
    let line = match cell.form.kind {
        Kind::Semaphore => format!("SEM.RENEW $K {HOLDER} PX 1"),
        Kind::Lock | Kind::Many if !cell.form.is_behind_string => {
            format!("LOCK.RENEW $K {HOLDER} PX 1")
        }
        _ => "PEXPIRE $K 1".into(),
    };
    assert_eq!(cell.run(&line).int(), 1, "{line}");
    cell.expect(Outcome::Granted);
    cell.release();
}

/// The key is gone, and with it the permits of a semaphore: it is made again.
fn make_again(cell: &mut Cell<'_>) {
    cell.make_semaphore();
    cell.expect(Outcome::Granted);
    cell.release();
}

fn deleted(cell: &mut Cell<'_>) {
    cell.queue();
    let beside = cell.beside();
    cell.run_at_once(&["DEL $K", &format!("DEL {beside}")]);
    make_again(cell);
}

fn renamed(cell: &mut Cell<'_>) {
    cell.queue();
    let beside = cell.beside();
    cell.run_at_once(&["RENAME $K elsewhere", &format!("DEL {beside}")]);
    make_again(cell);
    cell.run("DEL elsewhere");
}

fn flushed(cell: &mut Cell<'_>) {
    cell.queue();
    cell.run("FLUSHALL");
    make_again(cell);
}

fn swapped(cell: &mut Cell<'_>) {
    cell.queue();
    cell.run("SWAPDB 0 1");
    make_again(cell);
    cell.run_at_once(&["SELECT 1", "FLUSHDB", "SELECT 0"]);
}

/// The subscriber leaves, and the server knows it.
fn unsubscribe(cell: &mut Cell<'_>) {
    cell.subscriber.take().unwrap().close();
    wait_for("a channel without subscribers", || {
        cell.run("PUBSUB NUMSUB {cell}channel").list()[1].int() == 0
    });
}

fn unsubscribed_and_passed_over(cell: &mut Cell<'_>) {
    cell.queue();
    unsubscribe(cell);
    cell.give();
}

fn unsubscribed(cell: &mut Cell<'_>) {
    cell.queue();
    unsubscribe(cell);
    cell.wait_for_waits(1);
    cell.give();
}

fn disconnected(cell: &mut Cell<'_>) {
    cell.queue();
    let other = cell.table.server.conn();
    std::mem::replace(&mut cell.asker, other).close();
    if !cell.form.is_ticket {
        cell.wait_for_waits(1);
        return cell.give();
    }
    cell.wait_until_gone();
    cell.give();
    match cell.form.is_bound() {
        true => cell.expect(failed("UNBLOCKED")),
        false => {
            cell.expect(Outcome::Granted);
            cell.release();
        }
    }
}

fn unblocked(cell: &mut Cell<'_>) {
    cell.queue();
    let line = format!("CLIENT UNBLOCK {} TIMEOUT", cell.asker_id);
    assert_eq!(cell.run(&line).int(), 1);
    cell.expect(Outcome::TimedOut);
    cell.wait_for_waits(1);
    cell.give();
}

fn unblocked_with_an_error(cell: &mut Cell<'_>) {
    cell.queue();
    let line = format!("CLIENT UNBLOCK {} ERROR", cell.asker_id);
    assert_eq!(cell.run(&line).int(), 1);
    cell.expect(failed("UNBLOCKED"));
    cell.wait_for_waits(1);
    cell.give();
}

fn killed_in_the_tick_of_its_grant(cell: &mut Cell<'_>) {
    cell.queue();
    let give = cell.giving();
    let kill = format!("CLIENT KILL ID {}", cell.asker_id);
    cell.run_at_once(&[&give, &kill]);
    if !cell.form.is_ticket {
        cell.expect(Outcome::Gone);
    } else if !cell.form.is_bound() {
        // The message is the delivery.
        cell.expect(Outcome::Granted);
        cell.release();
    } else {
        // Granted in the event of the release, and released again with the connection; or, where the key is settled at
        // the end of the tick, not granted.
        let message = cell.message();
        let is_one = message.starts_with("granted ") || message == "failed UNBLOCKED tag";
        assert!(is_one, "{message}");
    }
}

fn no_permission(cell: &mut Cell<'_>) {
    cell.queue();
    cell.run("ACL SETUSER tester -@all");
    cell.give();
    cell.expect(failed("NOPERM"));
}

fn user_deleted(cell: &mut Cell<'_>) {
    cell.queue();
    assert_eq!(cell.run("ACL DELUSER tester").int(), 1);
    match cell.form.is_ticket {
        true => cell.expect(failed("NOPERM")),
        false => cell.expect(Outcome::Gone),
    }
    cell.wait_for_waits(1);
    cell.give();
}

fn demoted(cell: &mut Cell<'_>) {
    cell.queue();
    cell.run("REPLICAOF 127.0.0.1 1");
    cell.expect(failed("UNBLOCKED"));
    cell.expect_next(failed("UNBLOCKED"));
    cell.run("REPLICAOF NO ONE");
    cell.give();
}

fn reloaded(cell: &mut Cell<'_>) {
    cell.queue();
    assert_eq!(cell.run("DEBUG RELOAD").text(), "OK");
    cell.wait_for_waits(2);
    cell.give_and_pass_on();
}

/// The words of a line as the call in a script.
fn call(line: &str) -> String {
    let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
    format!("redis.call({})", words.join(","))
}

fn given_by_a_script(cell: &mut Cell<'_>) {
    cell.queue();
    let script = call(&cell.giving());
    cell.run_script(&script);
    cell.expect(Outcome::Granted);
    cell.release();
}

fn given_by_a_script_that_fails(cell: &mut Cell<'_>) {
    cell.queue();
    let script = format!("{}; redis.call('INCR','$K','x','y')", call(&cell.giving()));
    let reply = cell.run_script(&script);
    assert!(reply.is_error(), "{reply:?}");
    cell.expect(Outcome::Granted);
    cell.release();
}
