//! The three tables.

use std::time::Duration;

use super::{Ended, Figures, HandOffs, Left, TITLES};
use crate::cells::{count, short, with_spread};
use crate::report::Section;
use crate::stats::quantile;

const MB: f64 = 1e6;

/// A section's title, its text, its columns and its notes.
type Frame = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const MEMORY: Frame = (
    TITLES[0],
    "Tickets that wait, and the requests that make them.",
    &[
        "tickets",
        "used_memory each, bytes",
        "with a time limit",
        "resident each, bytes",
        "enqueued/s",
        "server CPU us",
        "client busy %",
        "longest PING ms",
        "its server CPU ms",
    ],
    &[
        "Memory above that of the same server before the first lock, of tickets without a time limit (`BLOCK 0`) and \
         with one. Owners and tags have 36 bytes; all tickets have one channel. One connection sends all requests, \
         500 in a write, with two writes in flight.",
        "[Memory](#memory) has a parked client beside a ticket. 10,000 parked clients also need 10,000 connections.",
        "The longest PING: another connection sends one every 0.2 ms, and waits for the reply. Other work of the \
         machine makes it longer, but not the time for which the server had a core meanwhile (its server CPU; the \
         kernel counts it in steps of up to 4 ms). While tickets are enqueued, a PING also waits for the requests of \
         one read.",
    ],
);

const HAND_OFF: Frame = (
    TITLES[1],
    "The time from a holder's release to the next owner's message, by the number of tickets that wait.",
    &[
        "waiters, and the mechanism",
        "p50 us",
        "p99 us",
        "max us",
        "to BLPOP",
        "server CPU us",
        "samples",
    ],
    &[
        "One lock; one connection sends the releases, another is subscribed. Timed from the moment before the \
         release is written to the moment after the message was read, in one client thread (epoll). The former \
         holder then asks again, so that the queue keeps its length; the next release comes when the server has been \
         idle for 100 us. Server CPU is that of a whole cycle.",
        "BLPOP and the parked client: one waiter, as in [Hand-off](#hand-off).",
    ],
);

const ENDS: Frame = (
    TITLES[2],
    "All tickets end at once: their common deadline passes, the keys are broken with `PURGE`, or the only \
     subscriber closes its connection and the keys are released.",
    &[
        "end, and tickets",
        "ms to the last",
        "ms to its message",
        "server CPU us each",
        "longest PING ms",
        "its server CPU ms",
        "longest tick ms",
        "used_memory left, MB",
        "after PURGE",
        "resident left, MB",
        "after PURGE",
    ],
    &[
        "To the last: from the deadline, or from the sending of the first command, until the server has no ticket \
         left. The breaks and the releases of several keys are sent one after the other. To its message: until the \
         subscriber has read the last message; it reads all the time and has no `client-output-buffer-limit`. A dead \
         subscriber gets none.",
        "The longest PING, as above, until the last kept place is gone. The longest tick is the server's own figure by \
         the clock, `eventloop_duration_max` of `INFO debug`, which Redis 7.0 does not have.",
        "Left: memory above that of the same server before the first lock, after `FLUSHALL`, with no client but the \
         one that reads it; then after `MEMORY PURGE`.",
    ],
);

pub fn sections(figures: &[Figures], peers: &[(&str, HandOffs)]) -> Vec<Section> {
    let many = figures.iter().filter(|one| one.case.many);
    vec![
        section(MEMORY, many.map(Figures::memory_row).collect()),
        section(HAND_OFF, hand_offs(figures, peers)),
        section(ENDS, figures.iter().flat_map(Figures::end_rows).collect()),
    ]
}

fn section((title, text, columns, notes): Frame, rows: Vec<Vec<String>>) -> Section {
    let strings = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
    Section {
        title: title.into(),
        text: text.into(),
        columns: strings(columns),
        rows,
        remarks: Vec::new(),
        notes: strings(notes),
        image: None,
    }
}

impl Figures {
    fn name(&self) -> String {
        match self.case.keys {
            1 => format!("{} on one key", count(self.case.tickets)),
            keys => format!("{} over {} keys", count(self.case.tickets), count(keys)),
        }
    }

    fn memory_row(&self) -> Vec<String> {
        vec![
            self.name(),
            spread(&self.memory, |it| it.used),
            self.limited.map_or_else(String::new, |it| short(it.used)),
            spread(&self.memory, |it| it.resident),
            spread(&self.enqueued, |it| it.per_s),
            spread(&self.enqueued, |it| it.cpu_us),
            spread(&self.enqueued, |it| it.client_busy * 100.0),
            spread(&self.enqueued, |it| it.stall.ping.as_secs_f64() * 1e3),
            spread(&self.enqueued, |it| it.stall.cpu.as_secs_f64() * 1e3),
        ]
    }

    fn end_rows(&self) -> Vec<Vec<String>> {
        let row = |(end, ended, left): &(super::End, Ended, Left)| {
            vec![
                format!("{}: {}", end.name(), self.name()),
                ms(Some(ended.took)),
                ms(ended.heard),
                short(ended.cpu_us),
                ms(Some(ended.stall.ping)),
                ms(Some(ended.stall.cpu)),
                ms(ended.tick),
                format!("{:.2}", left.memory.used / MB),
                format!("{:.2}", left.purged.used / MB),
                short(left.memory.resident / MB),
                short(left.purged.resident / MB),
            ]
        };
        self.ends.iter().map(row).collect()
    }
}

fn spread<T>(rounds: &[T], figure: fn(&T) -> f64) -> String {
    with_spread(&rounds.iter().map(figure).collect::<Vec<_>>())
}

fn ms(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".into(), |time| short(time.as_secs_f64() * 1e3))
}

fn hand_offs(figures: &[Figures], peers: &[(&str, HandOffs)]) -> Vec<Vec<String>> {
    let median = |all: &HandOffs| quantile(&all.medians, 0.5).unwrap_or(f64::NAN);
    let blpop = peers.first().map_or(f64::NAN, |(_, all)| median(all));
    let row = |name: String, all: &HandOffs| {
        let part = |part| quantile(&all.times, part).map_or_else(String::new, short);
        vec![
            name,
            with_spread(&all.medians),
            part(0.99),
            part(1.0),
            short(median(all) / blpop),
            with_spread(&all.cpu),
            count(all.times.len()),
        ]
    };
    let peers = peers
        .iter()
        .map(|(name, all)| row(format!("1 {name}"), all));
    let tickets = figures.iter().filter(|one| one.case.keys == 1);
    let tickets = tickets.map(|one| (format!("{} as tickets", count(one.case.tickets)), one));
    peers
        .chain(tickets.map(|(name, one)| row(name, &one.hand_offs)))
        .collect()
}
