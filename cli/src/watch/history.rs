//! The history of one lock: what the events that the server announces, and the states read after them, say together.
//!
//! An event has a name and no owner; a state has owners and tokens, and not what happened before it. So each event is
//! followed by a look at the state, and what has changed between two looks is attributed to the events between them.
//! The owner of a hold that began and ended between two looks is not known, nor are the owners while events come faster
//! than looks.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

use redis_lock_client::{Holder, KeyEvent, LockInfo, Mode, Waiter};

use super::entry::Entry;

/// How long a change waits for its event, where the server sends events: some come at the end of a tick.
const EVENT_DELAY: Duration = Duration::from_millis(300);
/// Differences of ends of leases below this are those of the clocks' resolution.
const RESOLUTION: Duration = Duration::from_millis(5);
/// The same where the server has not recorded the beginning of the hold, and the time is that of this process.
const OWN_RESOLUTION: Duration = Duration::from_millis(100);
/// Upper bound of the names of events that explain an end.
const MAX_EVIDENCE: usize = 8;

/// An event and the time of its arrival.
pub type Heard = (SystemTime, KeyEvent);

/// What is known of a lock.
#[derive(Debug, Default)]
pub struct History {
    /// Whether the server announces the grants and ends of holds.
    pub expects_events: bool,
    /// Whether renewals are listed.
    renewals: bool,
    /// The state as far as it has been listed.
    known: LockInfo,
    read: Option<Instant>,
    /// Since when a change waits for its event.
    late: Option<Instant>,
    /// Whether a hold has ended and the lock has not been free or held since.
    is_freed: bool,
    /// The other events of the key since the last end of a hold.
    evidence: Vec<String>,
}

/// A look at the lock, and what came before it.
pub struct Look<'a> {
    pub heard: &'a [Heard],
    pub seen: LockInfo,
    /// Whether the state is that after these events, and no other grant or end came before it.
    pub is_settled: bool,
    pub now: Instant,
    /// Whether the connection was lost since the last look.
    pub after_gap: bool,
}

/// The differences between two states that no line explains yet.
struct Open {
    gone: Vec<Holder>,
    new: Vec<Holder>,
    /// Grants among the events that are still to be attributed.
    grants: usize,
    /// Whether a request began to wait after the last look.
    has_new_wait: bool,
}

impl History {
    pub fn new(renewals: bool) -> History {
        History {
            renewals,
            ..History::default()
        }
    }

    /// Whether a state has been read.
    pub fn is_begun(&self) -> bool {
        self.read.is_some()
    }

    /// The moment at which the state must be read again although no event came.
    pub fn due(&self) -> Option<Instant> {
        self.late.map(|since| since + EVENT_DELAY)
    }

    /// The lines for a look.
    pub fn step(&mut self, look: Look) -> Vec<Entry> {
        if self.read.is_none() {
            let lines = state(&look.seen);
            self.adopt(look.seen, look.now);
            return lines;
        }
        let elapsed = self.read.map_or(Duration::ZERO, |read| {
            look.now.saturating_duration_since(read)
        });
        let mut open = self.differences(&look);
        let granted = match look.is_settled {
            true => open.new.clone(),
            false => look.seen.holders.clone(),
        };
        self.collect_evidence(look.heard);
        let mut lines = self.arrivals(&look, elapsed);
        for (time, event) in look.heard {
            if let Some(line) = self.attribute(event, &mut open, &look.seen, elapsed) {
                lines.push(Entry {
                    time: *time,
                    ..line
                });
            }
        }
        let is_late = self
            .late
            .is_some_and(|since| look.now >= since + EVENT_DELAY);
        let waits = self.expects_events && !look.after_gap && !is_late;
        if open.is_empty() {
            self.late = None;
        } else if waits {
            self.late = self.late.or(Some(look.now));
        } else {
            self.late = None;
            lines.extend(self.unannounced(&mut open, &look, elapsed));
            self.is_freed = false;
        }
        let is_unnamed = |line: &Entry| line.event == "acquire" && line.owner.is_none();
        let cause = match look.after_gap {
            true => Some("not connected"),
            false => lines.iter().any(is_unnamed).then_some("perhaps granted"),
        };
        lines.extend(self.leaves(&look.seen, &granted, cause, elapsed));
        lines.extend(self.holds(&look.seen, elapsed));
        for line in &mut lines {
            line.waiters = Some(look.seen.waiters);
        }
        lines.sort_by_key(|line| line.time);
        if self.late.is_none() {
            self.evidence.clear();
        }
        self.is_freed &= !look.seen.holders.is_empty();
        self.adopt_but(look.seen, open, look.now);
        lines
    }

    fn adopt(&mut self, seen: LockInfo, now: Instant) {
        self.known = seen;
        self.read = Some(now);
    }

    /// Takes over the state, except for what waits for its event.
    fn adopt_but(&mut self, mut seen: LockInfo, open: Open, now: Instant) {
        let waiting = |holder: &Holder| {
            let queue = self.known.queue.iter();
            queue
                .into_iter()
                .find(|waiter| waiter.owner == holder.owner)
                .cloned()
        };
        let granted: Vec<Waiter> = open.new.iter().filter_map(waiting).collect();
        let new = by_owner(&open.new);
        seen.holders
            .retain(|holder| !new.contains_key(&holder.owner[..]));
        if seen.holders.is_empty() && !open.gone.is_empty() {
            seen.mode = self.known.mode;
        }
        seen.holders.extend(open.gone);
        for waiter in granted {
            if seen.queue.iter().all(|other| other.owner != waiter.owner) {
                seen.queue.push(waiter);
            }
        }
        self.adopt(seen, now);
    }

    fn differences(&self, look: &Look) -> Open {
        let is_same_mode = self.known.mode == look.seen.mode;
        let without = |holders: &[Holder], others: &[Holder]| -> Vec<Holder> {
            let others = by_owner(others);
            let is_there = |holder: &Holder| {
                let other = others.get(&holder.owner[..]);
                is_same_mode && other.is_some_and(|other| is_same(holder, other))
            };
            let rest = holders.iter().filter(|holder| !is_there(holder));
            rest.cloned().collect()
        };
        let (known, now) = match look.is_settled {
            true => (&self.known.holders[..], &look.seen.holders[..]),
            // Attributed to these events, the changes could be those of later ones.
            false => (&[][..], &[][..]),
        };
        let is = |event: &KeyEvent, name: &str| *event == KeyEvent::Named(name.into());
        let grants = look
            .heard
            .iter()
            .filter(|(_, event)| is(event, "lock.acquire"));
        Open {
            gone: without(known, now),
            new: without(now, known),
            grants: grants.count(),
            has_new_wait: look.heard.iter().any(|(_, event)| is(event, "lock.wait")),
        }
    }

    /// Keeps the names of the events that are none of the module's: they tell why a hold has ended.
    fn collect_evidence(&mut self, heard: &[Heard]) {
        for (_, event) in heard {
            let name = match event {
                KeyEvent::Named(name) if !name.starts_with("lock.") => name.as_str(),
                KeyEvent::Freed => "release message",
                _ => continue,
            };
            let is_new = self.evidence.iter().all(|other| other != name);
            if is_new && self.evidence.len() < MAX_EVIDENCE {
                self.evidence.push(name.into());
            }
        }
    }

    /// The line for an event of the server.
    fn attribute(
        &mut self,
        event: &KeyEvent,
        open: &mut Open,
        seen: &LockInfo,
        elapsed: Duration,
    ) -> Option<Entry> {
        let name = match event {
            KeyEvent::Named(name) => name.as_str(),
            KeyEvent::Dropped => return Some(Entry::new("missed")),
            _ => return None,
        };
        let event = match name {
            "lock.acquire" => {
                self.expects_events = true;
                return Some(self.grant(open, seen, elapsed));
            }
            "lock.release" => "release",
            "lock.break" => "break",
            "lock.expire" => "expire",
            "lock.lost" => "lost",
            _ => return None,
        };
        self.expects_events = true;
        let line = self.end(event, open, seen, elapsed);
        let cause =
            (event == "lost" && !self.evidence.is_empty()).then(|| self.evidence.join(", "));
        Some(Entry { cause, ..line })
    }

    /// The grant of an event: the last grants are those of the present holders.
    fn grant(&mut self, open: &mut Open, seen: &LockInfo, elapsed: Duration) -> Entry {
        let is_past = open.grants > open.new.len();
        open.grants = open.grants.saturating_sub(1);
        let is_freed = std::mem::take(&mut self.is_freed);
        if is_past || open.new.is_empty() {
            return Entry::new("acquire");
        }
        let holder = open.new.remove(0);
        let reads = open.gone.iter().position(|gone| gone.owner == holder.owner);
        match reads {
            Some(place) if self.known.mode == Mode::Read && seen.mode == Mode::Write => {
                open.gone.remove(place);
                Entry::of_holder("upgrade", seen.mode, &holder)
            }
            _ => self.granted(&holder, seen.mode, is_freed, open.has_new_wait, elapsed),
        }
    }

    /// The beginning of a hold. It is a hand-off when another hold has just ended and its owner waited, or may have: no
    /// request passes a waiter.
    fn granted(
        &self,
        holder: &Holder,
        mode: Mode,
        is_freed: bool,
        has_new_wait: bool,
        elapsed: Duration,
    ) -> Entry {
        let waiter = self
            .known
            .queue
            .iter()
            .find(|waiter| waiter.owner == holder.owner);
        let event = match waiter {
            Some(_) if is_freed => "hand-off",
            None if is_freed && has_new_wait => "hand-off",
            _ => "acquire",
        };
        Entry {
            waited: waiter.map(|waiter| waiter.waited + elapsed),
            held: None,
            ..Entry::of_holder(event, mode, holder)
        }
    }

    /// The end of a hold. Of several the event names none: a lease that ends is the shortest.
    fn end(
        &mut self,
        event: &'static str,
        open: &mut Open,
        seen: &LockInfo,
        elapsed: Duration,
    ) -> Entry {
        self.is_freed = true;
        let gone = open.gone.iter().enumerate();
        let place = match event {
            "expire" => gone.min_by_key(|(_, holder)| holder.lease.unwrap_or(Duration::MAX)),
            _ => gone.min_by_key(|(place, _)| *place),
        };
        let Some(place) = place.map(|(place, _)| place) else {
            return Entry::new(event);
        };
        let holder = open.gone.remove(place);
        let reads = open
            .new
            .iter()
            .position(|new| new.owner == holder.owner && new.token == holder.token);
        match reads {
            Some(place) if self.known.mode == Mode::Write && seen.mode == Mode::Read => {
                let reader = open.new.remove(place);
                Entry::of_holder("downgrade", seen.mode, &reader)
            }
            _ => ended(event, self.known.mode, &holder, elapsed),
        }
    }

    /// The lines for changes that the server did not announce.
    fn unannounced(&self, open: &mut Open, look: &Look, elapsed: Duration) -> Vec<Entry> {
        let mut lines = Vec::new();
        let has = |name: &str| self.evidence.iter().any(|evidence| evidence == name);
        let gap = || look.after_gap.then(|| "not connected".to_string());
        let is_freed = self.is_freed || !open.gone.is_empty();
        for holder in open.gone.drain(..) {
            let event = match () {
                () if has("expired") => "expire",
                () if has("evicted") => "lost",
                () => "end",
            };
            let is_over = holder.lease.is_some_and(|lease| lease <= elapsed);
            let cause = match self.evidence.as_slice() {
                [] if is_over && !look.after_gap => Some("perhaps the lease was over".to_string()),
                [] => None,
                names => Some(names.join(", ")),
            };
            let cause = gap().or(cause);
            lines.push(Entry {
                cause,
                ..ended(event, self.known.mode, &holder, elapsed)
            });
        }
        for holder in open.new.drain(..) {
            lines.push(Entry {
                cause: gap(),
                ..self.granted(&holder, look.seen.mode, is_freed, false, elapsed)
            });
        }
        lines
    }

    /// Waiters that have come. If the list was cut, a waiter that has moved up into it is none of them.
    fn arrivals(&self, look: &Look, elapsed: Duration) -> Vec<Entry> {
        let is_wait = |event: &KeyEvent| *event == KeyEvent::Named("lock.wait".into());
        let mut times = look.heard.iter().filter(|(_, event)| is_wait(event));
        let was_cut = self.known.waiters > self.known.queue.len() as u64;
        let known: HashSet<&[u8]> = self
            .known
            .queue
            .iter()
            .map(|waiter| &waiter.owner[..])
            .collect();
        let new = look.seen.queue.iter().filter(|waiter| {
            let is_recent = waiter.waited <= elapsed + OWN_RESOLUTION;
            !known.contains(&waiter.owner[..]) && (!was_cut || is_recent)
        });
        new.map(|waiter| {
            let line = Entry::of_waiter("wait", waiter);
            let time = times.next().map_or(line.time, |(time, _)| *time);
            Entry { time, ..line }
        })
        .collect()
    }

    /// Waiters that have gone without a grant. If the list is cut, only those before a waiter that is still there. The
    /// moment at which a waiter left is not known: it is before this look, and before the end of the wait's limit.
    fn leaves(
        &self,
        seen: &LockInfo,
        granted: &[Holder],
        cause: Option<&str>,
        elapsed: Duration,
    ) -> Vec<Entry> {
        let is_cut = seen.waiters > seen.queue.len() as u64;
        let there: HashSet<&[u8]> = seen.queue.iter().map(|waiter| &waiter.owner[..]).collect();
        let granted: HashSet<&[u8]> = granted.iter().map(|holder| &holder.owner[..]).collect();
        let waits = |waiter: &Waiter| there.contains(&waiter.owner[..]);
        let last = self.known.queue.iter().rposition(waits);
        let end = match is_cut {
            true => last.unwrap_or_default(),
            false => self.known.queue.len(),
        };
        let gone = self.known.queue.iter().take(end);
        let gone = gone.filter(|waiter| !waits(waiter) && !granted.contains(&waiter.owner[..]));
        let is_over = |waiter: &Waiter| {
            waiter
                .left
                .is_some_and(|left| left <= elapsed + OWN_RESOLUTION)
        };
        gone.map(|waiter| Entry {
            waited: Some(waiter.waited + waiter.left.map_or(elapsed, |left| left.min(elapsed))),
            left: None,
            cause: cause
                .or(is_over(waiter).then_some("the limit of the wait was over"))
                .map(String::from),
            ..Entry::of_waiter("leave", waiter)
        })
        .collect()
    }

    /// Changes of holds that go on.
    fn holds(&self, seen: &LockInfo, elapsed: Duration) -> Vec<Entry> {
        let mut lines = Vec::new();
        if self.known.mode != seen.mode {
            return lines;
        }
        let known = by_owner(&self.known.holders);
        for holder in &seen.holders {
            let known = known
                .get(&holder.owner[..])
                .filter(|known| is_same(known, holder));
            let Some(known) = known else { continue };
            let event = match holder.holds.cmp(&known.holds) {
                std::cmp::Ordering::Greater => "re-entry",
                std::cmp::Ordering::Less => "drop",
                std::cmp::Ordering::Equal
                    if self.renewals && is_renewed(known, holder, elapsed) =>
                {
                    "renew"
                }
                std::cmp::Ordering::Equal => continue,
            };
            lines.push(Entry::of_holder(event, seen.mode, holder));
        }
        lines
    }
}

impl Open {
    fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty()
    }
}

/// The first lines: the state as it is found.
fn state(seen: &LockInfo) -> Vec<Entry> {
    let holders = seen.holders.iter();
    let mut lines: Vec<Entry> = holders
        .map(|holder| Entry::of_holder("held", seen.mode, holder))
        .collect();
    if lines.is_empty() {
        lines.push(Entry::new("free"));
    }
    lines.extend(
        seen.queue
            .iter()
            .map(|waiter| Entry::of_waiter("waiting", waiter)),
    );
    for line in &mut lines {
        line.waiters = Some(seen.waiters);
    }
    lines
}

fn ended(event: &'static str, mode: Mode, holder: &Holder, elapsed: Duration) -> Entry {
    Entry {
        lease: None,
        held: holder.held.map(|held| held + elapsed),
        ..Entry::of_holder(event, mode, holder)
    }
}

fn by_owner(holders: &[Holder]) -> HashMap<&[u8], &Holder> {
    let pairs = holders.iter().map(|holder| (&holder.owner[..], holder));
    pairs.collect()
}

/// Whether both are one hold. (A hold that Redisson took gets a token when the module first changes it.)
fn is_same(one: &Holder, other: &Holder) -> bool {
    let tokens = [one.token, other.token];
    one.owner == other.owner && (tokens.contains(&None) || one.token == other.token)
}

/// Whether the end of the lease has moved.
fn is_renewed(known: &Holder, holder: &Holder, elapsed: Duration) -> bool {
    let (Some(before), Some(after)) = (known.lease, holder.lease) else {
        return known.lease != holder.lease;
    };
    match (known.held, holder.held) {
        (Some(held), Some(holds)) => (holds + after).abs_diff(held + before) > RESOLUTION,
        _ => (after + elapsed).abs_diff(before) > OWN_RESOLUTION,
    }
}
