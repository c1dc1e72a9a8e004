//! The log of faults: what was broken, for which clients, from when to when.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Which clients a fault hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// All clients of this server.
    Server(usize),
    /// The clients that speak to it through the proxy.
    Path(usize),
    /// The clients whose connection to it is broken while this lasts.
    NoRoom(usize),
    /// The holders of this lock, by server and key.
    Key(String),
    /// All servers and clients: the machine ran nothing of the trial.
    AllServers,
}

#[derive(Debug, Clone)]
struct Event {
    reach: Reach,
    what: &'static str,
    begin: Instant,
    /// None while it lasts.
    end: Option<Instant>,
}

/// How a client is connected.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub is_proxied: bool,
    /// It has few open files: a connection that breaks may be replaced late.
    pub is_scarce: bool,
}

pub type Span = (Instant, Instant);

#[derive(Default)]
pub struct FaultLog(Mutex<Vec<Event>>);

impl FaultLog {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap()
    }

    pub fn begin(&self, reach: Reach, what: &'static str) -> usize {
        let mut events = self.events();
        events.push(Event {
            reach,
            what,
            begin: Instant::now(),
            end: None,
        });
        events.len() - 1
    }

    pub fn end(&self, event: usize) {
        self.events()[event].end = Some(Instant::now());
    }

    /// One that is known when it is over.
    pub fn was(&self, reach: Reach, what: &'static str, (begin, end): Span) {
        let end = Some(end);
        self.events().push(Event {
            reach,
            what,
            begin,
            end,
        });
    }

    /// A server did not answer. It is not noted where a fault of that server explains it.
    pub fn was_slow(&self, server: usize, what: &'static str, span: Span) {
        let reach = Reach::Server(server);
        let is_known = self.events().iter().any(|event| {
            event.reach == reach
                && event.begin <= span.1
                && event.end.is_none_or(|end| end >= span.0)
        });
        if !is_known {
            self.was(reach, what, span);
        }
    }

    /// The spans within this one in which a client of such a link could not speak to the server.
    ///
    /// Where there is no room for new connections, that is so for a connection that was broken before: by another
    /// fault, up to `memory` before this span.
    pub fn blocks(&self, link: Link, server: usize, span: Span, memory: Duration) -> Vec<Span> {
        let events = self.events();
        let is_break = |event: &&Event| match event.reach {
            Reach::Server(of) => of == server,
            Reach::Path(of) => of == server && link.is_proxied,
            Reach::AllServers => true,
            _ => false,
        };
        let breaks: Vec<Span> = spans(events.iter().filter(is_break));
        let no_room = |event: &&Event| event.reach == Reach::NoRoom(server);
        let mut blocks = breaks.clone();
        for (begin, end) in spans(events.iter().filter(no_room)) {
            if breaks
                .iter()
                .any(|(from, to)| *to + memory > begin && *from < end)
            {
                blocks.push((begin, end));
            }
        }
        if link.is_scarce {
            let later = breaks.iter().map(|(begin, end)| (*begin, *end + memory));
            blocks.extend(later.collect::<Vec<_>>());
        }
        blocks.retain(|(begin, end)| *begin < span.1 && *end > span.0);
        blocks
    }

    /// Whether anything disturbed requests to this server within the span.
    pub fn is_disturbed(&self, link: Link, server: usize, span: Span) -> bool {
        let is_near =
            |event: &Event| event.begin < span.1 && event.end.is_none_or(|end| end > span.0);
        self.events().iter().any(|event| {
            is_near(event)
                && match event.reach {
                    Reach::Server(of) | Reach::NoRoom(of) => of == server,
                    Reach::Path(of) => of == server && link.is_proxied,
                    Reach::AllServers => true,
                    Reach::Key(_) => false,
                }
        })
    }

    /// When this lock was taken from its holders.
    pub fn breaks_of(&self, key: &str) -> Vec<Span> {
        let events = self.events();
        spans(
            events
                .iter()
                .filter(|event| matches!(&event.reach, Reach::Key(of) if of == key)),
        )
    }

    /// When the machine ran nothing of the trial for longer than this, within the span.
    pub fn lags(&self, longer: Duration, span: Span) -> Vec<Span> {
        let events = self.events();
        let mut lags = spans(
            events
                .iter()
                .filter(|event| event.reach == Reach::AllServers),
        );
        lags.retain(|(begin, end)| *end - *begin > longer && *begin < span.1 && *end > span.0);
        lags
    }

    /// Number and length of the spans under this name.
    pub fn total(&self, what: &str) -> (usize, Duration) {
        let events = self.events();
        let named = spans(events.iter().filter(|event| event.what == what));
        (
            named.len(),
            named.iter().map(|(begin, end)| *end - *begin).sum(),
        )
    }

    /// What was broken in a span, for a report: moments before its end.
    pub fn told(&self, span: Span) -> String {
        let events = self.events();
        let near = events.iter().filter(|event| {
            event.begin < span.1
                && event
                    .end
                    .is_none_or(|end| end + Duration::from_secs(2) > span.0)
        });
        let line = |event: &Event| {
            let ago = |moment: Instant| span.1.saturating_duration_since(moment).as_secs_f64();
            let end = event
                .end
                .map_or("now".into(), |end| format!("{:.3}", ago(end)));
            format!(
                "    {} ({:?}): from {:.3} to {end} s before",
                event.what,
                event.reach,
                ago(event.begin)
            )
        };
        near.map(line).collect::<Vec<_>>().join("\n")
    }
}

fn spans<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Span> {
    let now = Instant::now();
    events
        .map(|event| (event.begin, event.end.unwrap_or(now)))
        .collect()
}

/// The longest time within a span that none of the blocks covers.
pub fn longest_gap(mut blocks: Vec<Span>, span: Span) -> Duration {
    blocks.sort();
    let (mut covered, mut longest) = (span.0, Duration::ZERO);
    for (begin, end) in blocks {
        longest = longest.max(begin.min(span.1).saturating_duration_since(covered));
        covered = covered.max(end);
    }
    longest.max(span.1.saturating_duration_since(covered))
}
