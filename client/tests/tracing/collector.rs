//! A subscriber that keeps what it is told.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
static SPANS: Mutex<BTreeMap<u64, Told>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A span or an event: of an event, the name is its message.
#[derive(Debug, Clone)]
pub struct Told {
    pub name: String,
    pub level: Level,
    pub fields: BTreeMap<&'static str, String>,
    /// The span in which it was told.
    pub span: Option<Box<Told>>,
}

impl Told {
    fn of(metadata: &Metadata<'_>) -> Told {
        Told {
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
pub fn events(key: &str) -> Vec<Told> {
    let told = lock(&TOLD);
    let about = |told: &&Told| told.fields.get("key").is_some_and(|of| of == key);
    told.iter().filter(about).cloned().collect()
}

/// The first event of this name about a key.
pub fn event(key: &str, name: &str) -> Option<Told> {
    events(key).into_iter().find(|told| told.name == name)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap()
}

pub struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redis_lock"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut told = Told::of(span.metadata());
        span.record(&mut Fields(&mut told));
        lock(&SPANS).insert(id, told);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(told) = lock(&SPANS).get_mut(&span.into_u64()) {
            values.record(&mut Fields(told));
        }
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::of(event.metadata());
        event.record(&mut Fields(&mut told));
        let span = ENTERED.with_borrow(|entered| entered.last().copied());
        told.span = span.and_then(|id| lock(&SPANS).get(&id).cloned().map(Box::new));
        lock(&TOLD).push(told);
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, _span: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }
}

struct Fields<'a>(&'a mut Told);

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
