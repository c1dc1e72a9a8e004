//! What `INFO lock` and `LOCK.SCAN` show of the waiters.

use crate::lock::name::{Each, Resource};
use crate::lock::table::step_below;
use crate::lock::wait::places::At;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, Now};

/// The waits of this moment for one kind of resource.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Parked requests.
    pub parked: usize,
    /// Places of parked requests: one on several keys has one at each.
    pub places: usize,
    /// Keys with waiters.
    pub keys: usize,
    /// Empty places kept for their owners.
    pub kept: usize,
    /// Parked requests whose `BLOCK` ran out and whose place is kept: they are in no counter of ends yet.
    pub kept_waits: usize,
    /// The same of tickets.
    pub kept_tickets: usize,
    /// The arrival of the oldest request, in milliseconds of the monotonic clock.
    pub since_ms: Option<u64>,
    /// The same of the requests without a note: a candidate of an election waits for as long as another leads.
    pub since_ms_without_note: Option<u64>,
}

impl Gauges {
    /// How long the oldest request has waited, in milliseconds; 0 without waiters.
    pub fn oldest_ms(&self, now: Now) -> u64 {
        waited_ms(self.since_ms, now)
    }

    /// The same of the requests without a note.
    pub fn oldest_ms_without_note(&self, now: Now) -> u64 {
        waited_ms(self.since_ms_without_note, now)
    }
}

fn waited_ms(since_ms: Option<u64>, now: Now) -> u64 {
    let since_ms = since_ms.unwrap_or(now.mono_ms);
    now.mono_ms.saturating_sub(since_ms)
}

fn keep_older(oldest: &mut Option<u64>, since_ms: u64) {
    *oldest = Some(oldest.map_or(since_ms, |older| older.min(since_ms)));
}

impl Waiters {
    /// Waiters on this server.
    pub fn live(&self) -> usize {
        self.places.requests()
    }

    /// Tickets on this server.
    pub fn tickets(&self) -> usize {
        self.places.tickets
    }

    /// Places of tickets.
    pub fn ticket_places(&self) -> usize {
        self.places.used().tickets
    }

    /// What the fullest user has, in percent of what it may have, for `INFO lock`: one of 100 is refused more. O(N) in
    /// the users with places.
    pub fn percents_used(&self) -> [(&'static str, u64); 3] {
        let mut fullest = [
            ("places_used_percent", 0),
            ("tickets_used_percent", 0),
            ("wait_bytes_used_percent", 0),
        ];
        for user in self.places.users() {
            let percents = self.limits.percents_used(self.used_by(user));
            for ((_, highest), percent) in fullest.iter_mut().zip(percents) {
                *highest = percent.max(*highest);
            }
        }
        fullest
    }

    /// The gauges of each kind of resource. O(N) in the places.
    pub fn gauges(&self) -> Each<Gauges> {
        let mut all: Each<Gauges> = Each::default();
        for (place, has_note) in self.places.iter() {
            match &place.at {
                At::Live(waiter) => {
                    let gauges = &mut all[waiter.resource];
                    let is_parked = usize::from(waiter.ticket.is_none());
                    gauges.parked += is_parked;
                    gauges.places += is_parked;
                    keep_older(&mut gauges.since_ms, waiter.since_ms);
                    if !has_note {
                        keep_older(&mut gauges.since_ms_without_note, waiter.since_ms);
                    }
                }
                At::Empty(kept) => {
                    let gauges = &mut all[place.key.as_ref().resource];
                    gauges.kept += 1;
                    if let Some(one) = kept.timed_out {
                        gauges.kept_tickets += usize::from(one.is_ticket);
                        gauges.kept_waits += usize::from(!one.is_ticket);
                    }
                }
            }
        }
        for many in self.many.values() {
            let first = many.places.first().and_then(|(_, place)| self.at(*place));
            if first.is_some_and(|(_, waiter)| waiter.ticket.is_none()) {
                all[Resource::Lock].parked -= many.places.len() - 1;
            }
        }
        for (key, waited) in &self.waited {
            let has_waiters = waited.queue.live() > 0;
            all[key.as_ref().resource].keys += usize::from(has_waiters);
        }
        all
    }

    /// The counters and gauges of tickets for `INFO lock`.
    pub fn ticket_fields(&self, gauges: &Each<Gauges>) -> Vec<(&'static str, u64)> {
        let kept = Resource::ALL.map(|resource| gauges[resource].kept_tickets as u64);
        let stats = &self.ticket_stats;
        vec![
            ("tickets", self.tickets() as u64),
            ("ticket_places", self.ticket_places() as u64),
            ("tickets_kept", kept.iter().sum()),
            ("tickets_queued", stats.waits_parked),
            ("tickets_granted", stats.waits_granted),
            ("tickets_timed_out", stats.waits_timed_out),
            ("tickets_withdrawn", stats.waits_withdrawn),
            ("tickets_taken_over", stats.waits_taken_over),
            ("tickets_failed", stats.waits_failed),
            ("tickets_unheard", self.tickets_unheard),
        ]
    }

    /// The counters and the gauge of windows for `INFO lock`.
    pub(crate) fn window_fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let open = [("windows_open", self.windows.open() as u64)];
        open.into_iter().chain(self.windows.stats.fields())
    }

    /// A step through the keys with waiters, of every kind and database, downwards from this cursor (0: start). Returns
    /// the next cursor (0: end) and the keys of the step.
    pub fn keys_below(&self, cursor: u64, count: usize) -> (u64, impl Iterator<Item = KeyRef<'_>>) {
        let below = match usize::try_from(cursor) {
            Ok(cursor) if cursor > 0 => cursor,
            _ => usize::MAX,
        };
        let range = step_below(below, self.waited.len(), count);
        let start = range.start;
        let step = self.waited.get_range(range).into_iter().flatten();
        let waited = step.filter(|(_, waited)| waited.queue.live() > 0);
        (start as u64, waited.map(|(key, _)| key.as_ref()))
    }
}
