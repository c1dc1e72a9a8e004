//! The start of the tasks that renew holds.
//!
//! A task for each hold, woken from another thread to start and again to end, costs more than the two requests of an
//! uncontended lock. So a hold has a task from the moment when its first request is due ([`SHORT`], or a third of a
//! lease that is shorter). Until then it has an entry in one table, and one task waits for the first of the entries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::{sleep_until, Instant};

use crate::lock::renewal::{keep, Hold, SHORT};
use crate::moment::now;
use crate::net::caller::Caller;
use crate::outcome::LostReason;
use crate::runtime::{self, locked, Task};

/// What renews a hold.
#[derive(Default)]
pub(crate) struct Renewal(Mutex<State>);

#[derive(Default)]
enum State {
    /// Nothing, before the guard is made and after its end.
    #[default]
    None,
    /// Its task is not started yet: its entry in [`TO_START`].
    ToStart(Entry),
    /// A task of its own.
    Started(Task),
}

/// When the task is due, and a number that keeps the entries of one moment apart.
type Entry = (Instant, u64);

struct ToStart {
    holds: BTreeMap<Entry, Arc<Hold>>,
    /// The number of the latest entry.
    number: u64,
    /// When the task that starts the others wakes. None: there is no such task.
    wakes_at: Option<Instant>,
}

static TO_START: Mutex<ToStart> = Mutex::new(ToStart {
    holds: BTreeMap::new(),
    number: 0,
    wakes_at: None,
});

/// Wakes that task before its time.
static SOONER: Notify = Notify::const_new();

fn to_start() -> MutexGuard<'static, ToStart> {
    locked(&TO_START)
}

/// Renews the hold until [`end`]. A hold that is bound to a connection is renewed on that connection.
pub(crate) fn renew(hold: &Arc<Hold>, bound: Option<Caller>) {
    #[cfg(feature = "testing")]
    if let Some(double) = hold.claim.server.double() {
        double.renews(hold);
    }
    if bound.is_some() {
        *hold.renewal.state() = State::Started(runtime::spawn(keep(hold.clone(), bound)));
        return;
    }
    let last = hold.notice.confirmed();
    let due = last.sent.steady + SHORT.min(last.lease / 3);
    let mut to_start = to_start();
    to_start.number += 1;
    let entry = (due, to_start.number);
    *hold.renewal.state() = State::ToStart(entry);
    to_start.holds.insert(entry, hold.clone());
    match to_start.wakes_at {
        Some(wakes_at) if wakes_at <= due => {}
        Some(_) => SOONER.notify_one(),
        None => {
            to_start.wakes_at = Some(due);
            drop(to_start);
            runtime::spawn(start_each(LoseAll));
        }
    }
}

/// Ends the renewal of a hold.
pub(crate) fn end(hold: &Hold) {
    let ended = std::mem::take(&mut *hold.renewal.state());
    match ended {
        State::None => {}
        State::ToStart(entry) => drop(to_start().holds.remove(&entry)),
        State::Started(task) => task.end(),
    }
}

impl Renewal {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

/// Owned by the task that starts the others. If that ends by a defect, the drop reports the loss of all holds that it
/// would have started.
struct LoseAll;

impl Drop for LoseAll {
    fn drop(&mut self) {
        let mut to_start = to_start();
        to_start.wakes_at = None;
        for hold in std::mem::take(&mut to_start.holds).into_values() {
            hold.notice.lose(LostReason::Unconfirmed);
        }
    }
}

/// Starts each task at its moment, until there is none to start.
async fn start_each(lose_all: LoseAll) {
    loop {
        let next = {
            let mut to_start = to_start();
            let next = to_start.holds.keys().next().map(|(due, _)| *due);
            if next.is_none_or(|next| next > now()) {
                to_start.wakes_at = next;
                next
            } else {
                let due = to_start.holds.pop_first();
                drop(to_start);
                due.iter().for_each(|(_, hold)| start(hold));
                continue;
            }
        };
        let Some(next) = next else {
            // The next hold starts another task of this kind, whose holds are not this one's to report as lost.
            return std::mem::forget(lose_all);
        };
        tokio::select! {
            () = sleep_until(next) => {}
            () = SOONER.notified() => {}
        }
    }
}

/// The first request of a hold is due.
fn start(hold: &Arc<Hold>) {
    let mut state = hold.renewal.state();
    // It may have ended meanwhile.
    if matches!(*state, State::ToStart(_)) {
        *state = State::Started(runtime::spawn(keep(hold.clone(), None)));
    }
}
