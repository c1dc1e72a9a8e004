//! The endings of holds: the request under test holds it, granted at once or after a wait, and another client waits.

use crate::common::wait_for;
use crate::options_by_endings::cell::{failed, Cell, Outcome, OWNER};
use crate::options_by_endings::endings;
use crate::options_by_endings::forms::{Form, Kind, FINAL};

/// The grant of a latch is no hold.
fn holds(form: &Form) -> bool {
    form.holds()
}

/// Locks: they have `LOCK.BREAK`.
fn is_lock(form: &Form) -> bool {
    matches!(form.kind, Kind::Lock | Kind::Many)
}

/// `LOCK.BREAK ... TO` grants exclusive locks.
fn is_exclusive(form: &Form) -> bool {
    is_lock(form) && !form.has_mode()
}

endings! {
    /// A release of its owner.
    released, holds, ["grants_released", "sem_grants_released"];
    /// Its owner gives the acquisition up.
    given_up, holds, ["grants_released", "sem_grants_released"];
    /// Its owner asks again, and releases all.
    entered_again_and_released, holds, ["grants_released", "sem_grants_released"];
    /// Its owner asks again without any option, and releases.
    entered_again_without_options, holds, ["grants_released", "sem_grants_released"];
    /// A lease that its owner has shortened.
    shortened_and_expired, holds, ["grants_expired", "sem_grants_expired"];
    /// `LOCK.BREAK`
    broken, is_lock, ["grants_broken"];
    /// `LOCK.BREAK ... PURGE`
    purged, is_lock, ["grants_broken"];
    /// `LOCK.BREAK ... TO` another owner.
    broken_to_another, is_exclusive, ["grants_broken"];
    /// The key is deleted, with those beside it.
    deleted, holds, ["grants_lost", "sem_grants_lost"];
    /// The key becomes one of another type.
    wrong_type, holds, ["grants_lost", "sem_grants_lost"];
    /// `FLUSHALL`
    flushed, holds, ["grants_lost", "sem_grants_lost"];
    /// `SWAPDB`
    swapped, holds, ["grants_lost", "sem_grants_lost"];
    /// The connection ends: a bound hold is released, another one stays.
    disconnected, holds, ["grants_session_ended", "sem_grants_session_ended"];
    /// Its user is deleted.
    user_deleted, holds, ["grants_session_ended", "sem_grants_session_ended"];
    /// The server becomes a replica, and a primary again.
    demoted, holds, ["grants_released", "sem_grants_released"];
    /// The data is loaded again.
    reloaded, holds, ["grants_released", "sem_grants_released"];
    /// A script releases it.
    released_by_a_script, holds, ["grants_released", "sem_grants_released"];
    /// Its entry is pushed out of the table of grants.
    pushed_out, holds, ["grants_unwatched", "sem_grants_unwatched"];
}

/// Granted after a wait, with another request behind it.
fn hold(cell: &mut Cell<'_>) {
    cell.queue();
    cell.give();
    cell.expect(Outcome::Granted);
    cell.expect_only_holder(OWNER);
}

/// The same, and once more granted at once: each ending is played for both.
fn both(cell: &mut Cell<'_>, end: impl Fn(&mut Cell<'_>)) {
    hold(cell);
    end(cell);
    cell.pass_on_and_reconnect();
    if cell.form.is_behind_string {
        // Granted at once it is behind nothing.
        return;
    }
    cell.make_semaphore();
    cell.ask_for_free();
    cell.next_asks();
    cell.expect_only_holder(OWNER);
    end(cell);
}

fn release(cell: &mut Cell<'_>, more: &str) {
    let line = format!("{}{more}", cell.releasing(OWNER));
    assert!(cell.run(&line).int() > 0, "{line}");
}

fn released(cell: &mut Cell<'_>) {
    both(cell, |cell| release(cell, ""));
}

fn given_up(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        release(cell, &format!(" FINAL {FINAL}"));
        // A number is final for a millisecond.
        wait_for("no final numbers", || cell.table.server.stat("finals") == 0);
    });
}

/// Drops every hold of the owner.
fn release_all(cell: &mut Cell<'_>) {
    let all = if cell.form.kind == Kind::Semaphore {
        ""
    } else {
        " ALL"
    };
    release(cell, all);
}

fn entered_again_and_released(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        cell.ask_for_free();
        release_all(cell);
    });
}

fn entered_again_without_options(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        let mode = if cell.form.has("READ") { " READ" } else { "" };
        let mode = if cell.form.has("WRITE") {
            " WRITE"
        } else {
            mode
        };
        let line = format!("{}{mode}", cell.asking(cell.form.kind, OWNER));
        let reply = cell.run(&line);
        assert!(!reply.is_nil() && !reply.is_error(), "{line}: {reply:?}");
        release_all(cell);
    });
}

fn shortened_and_expired(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        let line = match cell.form.kind {
            Kind::Lock => format!("LOCK.RENEW $K {OWNER} PX 1"),
            Kind::Many => format!("LOCK.MRENEW 2 $K $L {OWNER} PX 1"),
            _ => format!("SEM.RENEW $K {OWNER} PX 1"),
        };
        assert!(cell.run(&line).int() > 0, "{line}");
    });
}

fn broken(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        assert_eq!(cell.run("LOCK.BREAK $K").int(), 1);
        cell.end_second(|cell| assert_eq!(cell.run("LOCK.BREAK $L").int(), 1));
    });
}

fn purged(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        assert_eq!(cell.run("LOCK.BREAK $K PURGE").int(), 1);
        cell.expect_next(failed("LOCKBROKEN"));
        cell.end_second(|cell| assert_eq!(cell.run("LOCK.BREAK $L PURGE").int(), 1));
    });
}

fn broken_to_another(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        assert!(cell.run("LOCK.BREAK $K TO another").int() > 0);
        cell.expect_only_holder("another");
        assert_eq!(cell.run("LOCK.RELEASE $K another").int(), 1);
        cell.end_second(|cell| assert_eq!(cell.run("LOCK.BREAK $L").int(), 1));
    });
}

fn deleted(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        let line = format!("DEL $K $L {}", cell.beside());
        cell.run(&line);
        cell.make_semaphore();
    });
}

fn wrong_type(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        let line = format!("DEL $K $L {}", cell.beside());
        cell.run_at_once(&[&line, "RPUSH $K x"]);
        cell.expect_next(failed("WRONGTYPE"));
        cell.run("DEL $K");
    });
}

fn flushed(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        cell.run("FLUSHALL");
        cell.make_semaphore();
    });
}

fn swapped(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        cell.run("SWAPDB 0 1");
        cell.make_semaphore();
        cell.run_at_once(&["SELECT 1", "FLUSHDB", "SELECT 0"]);
    });
}

/// Ends the hold if the end of its connection has not.
fn release_unbound(cell: &mut Cell<'_>) {
    if !cell.form.is_bound() {
        release(cell, "");
    }
}

fn disconnected(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        let other = cell.table.server.conn();
        std::mem::replace(&mut cell.asker, other).close();
        cell.wait_until_gone();
        release_unbound(cell);
    });
}

fn user_deleted(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        assert_eq!(cell.run("ACL DELUSER tester").int(), 1);
        assert!(cell.asker.is_closed());
        cell.wait_until_gone();
        release_unbound(cell);
    });
}

fn demoted(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        cell.run("REPLICAOF 127.0.0.1 1");
        cell.expect_next(failed("UNBLOCKED"));
        cell.run("REPLICAOF NO ONE");
        release(cell, "");
    });
}

fn reloaded(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        assert_eq!(cell.run("DEBUG RELOAD").text(), "OK");
        release(cell, "");
    });
}

fn released_by_a_script(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        let words = cell.releasing(OWNER);
        let words: Vec<String> = words.split(' ').map(|word| format!("'{word}'")).collect();
        let script = format!("return redis.call({})", words.join(","));
        assert!(cell.run_script(&script).int() > 0, "{script}");
    });
}

fn pushed_out(cell: &mut Cell<'_>) {
    both(cell, |cell| {
        cell.run("CONFIG SET lock.max-tracked 1");
        for line in [
            "LOCK.ACQUIRE pushing x",
            "LOCK.ACQUIRE pushing-too x",
            "LOCK.RELEASE pushing x",
            "LOCK.RELEASE pushing-too x",
            "SEM.ACQUIRE pushing x LIMIT 2",
            "SEM.ACQUIRE pushing y LIMIT 2",
            "SEM.RELEASE pushing x",
            "SEM.RELEASE pushing y",
            "DEL pushing",
            "CONFIG SET lock.max-tracked 10000",
        ] {
            assert!(!cell.run(line).is_error(), "{line}");
        }
        release(cell, "");
    });
}
