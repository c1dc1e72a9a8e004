//! A subscriber that records events and spans.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use redis_lock_harness::patience;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static EVENTS: Mutex<Vec<Recorded>> = Mutex::new(Vec::new());
static SPANS: Mutex<BTreeMap<u64, Recorded>> = Mutex::new(BTreeMap::new());
static IS_BLOCKED: Mutex<bool> = Mutex::new(false);
static CHANGE: Condvar = Condvar::new();
/// The key whose loss blocks the subscriber.
pub const BLOCKING: &str = "blocking";
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A span or an event; the name of an event is its message.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub name: String,
    pub level: Level,
    pub fields: BTreeMap<&'static str, String>,
    /// The enclosing span.
    pub span: Option<Box<Recorded>>,
}

impl Recorded {
    fn of(metadata: &Metadata<'_>) -> Recorded {
        Recorded {
            name: metadata.name().to_string(),
            level: *metadata.level(),
            fields: BTreeMap::new(),
            span: None,
        }
    }

    /// A field, which it must have.
    pub fn field(&self, name: &str) -> &str {
        let field = self.fields.get(name);
        field.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

/// The events about a key by now.
pub fn events(key: &str) -> Vec<Recorded> {
    let recorded = lock(&EVENTS);
    let about = |recorded: &&Recorded| recorded.fields.get("key").is_some_and(|of| of == key);
    recorded.iter().filter(about).cloned().collect()
}

/// The first event of this name about a key.
pub fn event(key: &str, name: &str) -> Option<Recorded> {
    events(key)
        .into_iter()
        .find(|recorded| recorded.name == name)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap()
}

/// Whether the loss of the lock on [`BLOCKING`] blocks the subscriber.
pub fn is_blocked() -> bool {
    *lock(&IS_BLOCKED)
}

pub fn unblock() {
    *lock(&IS_BLOCKED) = false;
    CHANGE.notify_all();
}

pub struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redis_lock"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut recorded = Recorded::of(span.metadata());
        span.record(&mut Fields(&mut recorded));
        lock(&SPANS).insert(id, recorded);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(recorded) = lock(&SPANS).get_mut(&span.into_u64()) {
            values.record(&mut Fields(recorded));
        }
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut recorded = Recorded::of(event.metadata());
        event.record(&mut Fields(&mut recorded));
        let span = ENTERED.with_borrow(|entered| entered.last().copied());
        recorded.span = span.and_then(|id| lock(&SPANS).get(&id).cloned().map(Box::new));
        let is_blocking = recorded.name == "lost" && recorded.field("key") == BLOCKING;
        if is_blocking {
            *lock(&IS_BLOCKED) = true;
            let blocked =
                CHANGE.wait_timeout_while(lock(&IS_BLOCKED), patience(), |blocked| *blocked);
            drop(blocked.unwrap());
        }
        lock(&EVENTS).push(recorded);
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, _span: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }
}

struct Fields<'a>(&'a mut Recorded);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.fields.insert(field.name(), value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.0.name = value,
            name => drop(self.0.fields.insert(name, value)),
        }
    }
}
