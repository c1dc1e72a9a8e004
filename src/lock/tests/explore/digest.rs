//! The identity of a state: the `Debug` text of the case (core, simulated server and naive model) in a normal form,
//! hashed to 128 bits. A field that is added to the core is part of it without further work.
//!
//! Two states with the same normal form have the same future, because the core only compares the numbers that are
//! changed here with each other or with the present moment:
//!
//! * A moment becomes its distance from now. Moments of the past keep only their order: each of them is over.
//! * Tokens and horizons, numbers of places, requests, grants, bindings and tags are counted up and never used twice:
//!   each becomes its rank among the numbers of its kind in the state.
//! * A slot is the address of a place, so it becomes the rank of that place. The free slots are dropped.
//! * Of ids of connections that have closed, only the order stays: a closed connection does not return.
//! * Tables that are iterated in no defined order are sorted. Tables that only find places again are dropped.
//! * What no decision reads is dropped ([`is_dropped`]): statistics, the sources of such numbers, settings, the log of
//!   effects. The sums of the statistics are checked before, in every step.
//!
//! The horizon lies an hour ahead, and a run lets less than a second pass: so only its order counts.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use crate::lock::tests::sim::CONNS;

/// The moment at which every run begins, in milliseconds of the monotonic clock: higher than any other number of the
/// state that is no moment, and lower than every moment of the wall clock.
pub const BEGIN_MS: u64 = 5_000_000_000;

/// Fields that no decision depends on, by their structures.
const DROPPED: [(&str, &[&str]); 16] = [
    ("Locks", &["last_waiter_id"]),
    ("Waiters", &["last_seq", "firsts", "tickets_unheard"]),
    ("Waiter", &["since_ms"]),
    ("Kept", &["since_ms", "timed_out"]),
    ("GrantInFlight", &["since_ms"]),
    ("PermitInFlight", &["since_ms"]),
    ("Place", &["timed_out"]),
    ("Sessions", &["last"]),
    ("TrackedGrant", &["since_ms", "client"]),
    ("TrackedGrants", &["hand"]),
    ("Permit", &["since_ms"]),
    ("Chunk", &["free"]),
    ("Sim", &["now", "closed", "out"]),
    (
        "Model",
        &[
            "wall_ms",
            "mono_ms",
            "grants",
            "grant_number",
            "arrivals",
            "firsts",
            "numbers",
        ],
    ),
    ("Windows", &["begun", "taken"]),
    (
        "Case",
        &[
            "before",
            "past",
            "least_clock_ms",
            "tags",
            "highest_write",
            "latest",
        ],
    ),
];

/// Types that no decision depends on, or that do not change in a run.
const DROPPED_TYPES: [&str; 11] = [
    "Stats",
    "WaitStats",
    "SessionStats",
    "WindowStats",
    "Histogram",
    "Ends",
    "Settings",
    "Limits",
    "Grace",
    "WindowRule",
    "SlotTable",
];

fn is_dropped(structure: &str, field: &str, value: &Node<'_>) -> bool {
    let of_structure = DROPPED.iter().find(|(name, _)| *name == structure);
    of_structure.is_some_and(|(_, fields)| fields.contains(&field))
        || DROPPED_TYPES.contains(&value.head)
        || value.head == "Secret"
        // The model counts bindings; the core has them in a table of this name.
        || field == "bindings" && value.open.is_none()
}

/// Tables without a defined order.
const UNORDERED: [&str; 6] = [
    "clients",
    "bindings",
    "by_waiter",
    "many",
    "by_name",
    "by_key",
];

/// A value in a `Debug` text.
#[derive(Debug, Default)]
struct Node<'a> {
    /// A name, a number or a string.
    head: &'a str,
    /// The opening bracket, if the value has parts.
    open: Option<char>,
    parts: Vec<(Option<Node<'a>>, Node<'a>)>,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn skip_blanks(&mut self) {
        while self.peek() == b' ' {
            self.at += 1;
        }
    }

    fn head(&mut self) -> &'a str {
        let start = self.at;
        if self.peek() == b'"' {
            self.at += 1;
            while self.peek() != b'"' {
                self.at += 1 + usize::from(self.peek() == b'\\');
            }
            self.at += 1;
        } else {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
            while is_word(self.peek()) {
                self.at += 1;
            }
        }
        &self.text[start..self.at]
    }

    fn value(&mut self) -> Node<'a> {
        let head = self.head();
        let before = self.at;
        self.skip_blanks();
        let close = match self.peek() {
            b'{' => b'}',
            b'(' => b')',
            b'[' => b']',
            _ => {
                self.at = before;
                return Node {
                    head,
                    ..Node::default()
                };
            }
        };
        let open = Some(char::from(self.peek()));
        self.at += 1;
        let mut parts = Vec::new();
        loop {
            self.skip_blanks();
            if self.peek() == close {
                self.at += 1;
                return Node { head, open, parts };
            }
            let first = self.value();
            let part = match self.peek() {
                b':' => {
                    self.at += 1;
                    self.skip_blanks();
                    (Some(first), self.value())
                }
                _ => (None, first),
            };
            assert!(self.at < self.text.len(), "not a value: {}", self.text);
            parts.push(part);
            if self.peek() == b',' {
                self.at += 1;
            }
        }
    }
}

/// What a number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A count, an index, a setting.
    Plain,
    Mono,
    Wall,
    /// A number that is counted up: its name.
    Rank(&'static str),
    Slot,
    Client,
}

/// Where a number stands.
#[derive(Debug, Clone, Copy)]
struct At<'a> {
    field: &'a str,
    head: &'a str,
    open: Option<char>,
    index: usize,
    is_key: bool,
}

/// The number that a value is, and what it means.
fn number(node: &Node<'_>, at: At<'_>) -> Option<(Kind, i128)> {
    if let Some(tag) = tag(node, at) {
        return Some((Kind::Rank("tag"), tag));
    }
    if node.open.is_some() {
        return None;
    }
    if let Some(token) = node
        .head
        .strip_prefix("\"t")
        .or(node.head.strip_prefix('"'))
    {
        let token: i128 = token.strip_suffix('"')?.parse().ok()?;
        return (token > 100_000_000_000_000).then_some((Kind::Rank("token"), token));
    }
    let value = node.head.parse().ok()?;
    Some((by_name(at, value).unwrap_or_else(|| by_size(value)), value))
}

/// A tag is a number in the model, and its digits elsewhere.
fn tag(node: &Node<'_>, at: At<'_>) -> Option<i128> {
    if at.field == "tickets" && at.open == Some('(') {
        return node.head.trim_matches('"').parse().ok();
    }
    if at.field == "tag" && node.open == Some('[') {
        let digit = |part: &(_, Node<'_>)| char::from(part.1.head.parse::<u8>().unwrap());
        return node
            .parts
            .iter()
            .map(digit)
            .collect::<String>()
            .parse()
            .ok();
    }
    (at.field == "tag").then(|| node.head.parse().ok())?
}

fn by_name(at: At<'_>, value: i128) -> Option<Kind> {
    let rank = Kind::Rank;
    let kind = match (at.head, at.field) {
        ("WaiterId", _) => rank("request"),
        ("Slot", _) => Kind::Slot,
        (_, "grant") if value > 0 => rank("grant"),
        (_, "ended") if at.open == Some('(') && at.index == 2 => rank("grant"),
        (_, "ended") if at.open == Some('{') => rank("binding"),
        (_, "bindings") if at.is_key => rank("binding"),
        (_, "names" | "holds") if at.open == Some('{') && !at.is_key => rank("binding"),
        (_, "renewals") if at.index == 1 => rank("binding"),
        ("Session", "number") => rank("binding in the model"),
        (_, "number" | "request") => rank("number"),
        (_, "arrival" | "rank") => rank("arrival"),
        (_, "clients" | "closing" | "client" | "session") => Kind::Client,
        (_, "binds") if at.index == 0 => Kind::Client,
        _ => return None,
    };
    Some(kind)
}

fn by_size(value: i128) -> Kind {
    match value {
        1_000_000_000..10_000_000_000 => Kind::Mono,
        1_000_000_000_000..10_000_000_000_000 => Kind::Wall,
        100_000_000_000_000..1_000_000_000_000_000_000 => Kind::Rank("token"),
        1_000_000_000_000_000_000..9_000_000_000_000_000_000 => Kind::Rank("place"),
        _ => Kind::Plain,
    }
}

/// The numbers of a state.
#[derive(Debug, Default)]
struct Numbers {
    now_mono: i128,
    now_wall: i128,
    by_kind: BTreeMap<Kind, BTreeSet<i128>>,
    /// The number of the place at each slot.
    slots: BTreeMap<i128, i128>,
    /// How often each connection has closed.
    closed: BTreeMap<i128, i128>,
}

impl Numbers {
    fn collect(&mut self, node: &Node<'_>, at: At<'_>) {
        if let Some((kind, value)) = number(node, at) {
            self.by_kind.entry(kind).or_default().insert(value);
            return;
        }
        each_part(node, at, |part, at| self.collect(part, at));
    }

    /// The clocks, the places at the slots, and the connections that have closed.
    fn read(&mut self, node: &Node<'_>) {
        for (key, value) in &node.parts {
            match key.as_ref().map(|key| key.head) {
                Some("now") => {
                    for (key, value) in &value.parts {
                        let moment = value.head.parse().unwrap();
                        match key.as_ref().unwrap().head {
                            "wall_ms" => self.now_wall = moment,
                            "mono_ms" => self.now_mono = moment,
                            _ => {}
                        }
                    }
                }
                Some("closed") if value.open == Some('{') => {
                    for (key, value) in &value.parts {
                        let conn = key.as_ref().unwrap().head.parse().unwrap();
                        self.closed.insert(conn, value.head.parse().unwrap());
                    }
                }
                Some("entries") => self.read_slots(value),
                _ => self.read(value),
            }
        }
    }

    fn read_slots(&mut self, entries: &Node<'_>) {
        for (index, (_, entry)) in entries.parts.iter().enumerate() {
            if entry.head == "Used" {
                let (_, place) = &entry.parts[0];
                let seq = place.parts[0].1.head.parse().unwrap();
                self.slots.insert(index as i128 + 1, seq);
            }
        }
    }

    fn rank(&self, kind: Kind, value: i128) -> usize {
        self.by_kind[&kind].range(..value).count()
    }

    fn moment(&self, kind: Kind, value: i128, now: i128, text: &mut String) {
        let left = value - now;
        let _ = match left < 0 {
            true => write!(
                text,
                "past{}",
                self.by_kind[&kind].range(value..now).count()
            ),
            false => write!(text, "in{left}"),
        };
    }

    fn write_number(&self, kind: Kind, value: i128, text: &mut String) {
        let _ = match kind {
            Kind::Plain => write!(text, "{value}"),
            Kind::Mono => return self.moment(kind, value, self.now_mono, text),
            Kind::Wall => return self.moment(kind, value, self.now_wall, text),
            Kind::Rank(name) => write!(text, "{name}{}", self.rank(kind, value)),
            Kind::Slot => {
                let seq = self.slots.get(&value);
                let rank = seq.map(|seq| self.slots.values().filter(|other| *other < seq).count());
                write!(text, "{rank:?}")
            }
            Kind::Client => {
                let (conn, number) = (value % CONNS as i128, value / CONNS as i128);
                let closed = self.closed.get(&conn).copied().unwrap_or(0);
                match number == closed {
                    true => write!(text, "{conn}"),
                    false => write!(text, "closed{}", self.rank(kind, value)),
                }
            }
        };
    }

    fn write(&self, node: &Node<'_>, at: At<'_>, text: &mut String) {
        if let Some((kind, value)) = number(node, at) {
            return self.write_number(kind, value, text);
        }
        text.push_str(node.head);
        let Some(open) = node.open else { return };
        text.push(open);
        let sorts = at.field == "entries" || UNORDERED.contains(&at.field);
        let mut sorted = Vec::new();
        let mut part_text = String::new();
        each_part(node, at, |part, at| {
            self.write(part, at, &mut part_text);
            if at.is_key {
                part_text.push(':');
                return;
            }
            part_text.push(',');
            match sorts {
                true => sorted.push(std::mem::take(&mut part_text)),
                false => {
                    text.push_str(&part_text);
                    part_text.clear();
                }
            }
        });
        sorted.sort_unstable();
        sorted.iter().for_each(|part| text.push_str(part));
        text.push('.');
    }
}

/// Calls this with every part of a value that counts, keys of maps first.
fn each_part<'a, 'n>(node: &'n Node<'a>, at: At<'a>, mut act: impl FnMut(&'n Node<'a>, At<'a>)) {
    let is_struct = node.open == Some('{') && !node.head.is_empty();
    for (index, (key, value)) in node.parts.iter().enumerate() {
        let inner = At {
            head: node.head,
            open: node.open,
            index,
            is_key: false,
            ..at
        };
        match key {
            Some(key) if is_struct => {
                if !is_dropped(node.head, key.head, value) {
                    let field = key.head;
                    act(value, At { field, ..inner });
                }
            }
            // A secret hash of the name. One lock at most is counted in a scene.
            Some(_) if at.field == "counts" => act(value, inner),
            Some(key) => {
                act(
                    key,
                    At {
                        is_key: true,
                        ..inner
                    },
                );
                act(value, inner);
            }
            None if at.field == "entries" && value.head == "Free" => {}
            None => act(value, inner),
        }
    }
}

const TOP: At<'static> = At {
    field: "",
    head: "",
    open: None,
    index: 0,
    is_key: false,
};

/// The normal form.
pub fn normal_form(debug: &str) -> String {
    let node = Parser { text: debug, at: 0 }.value();
    let mut numbers = Numbers::default();
    numbers.read(&node);
    numbers.collect(&node, TOP);
    let mut text = String::with_capacity(debug.len());
    numbers.write(&node, TOP, &mut text);
    text
}

/// The hash of a state: of its normal form, or with `exact` of its whole text. Then hardly any two histories lead to
/// the same state.
pub fn digest(debug: &str, exact: bool) -> u128 {
    let text = match exact {
        true => debug.to_string(),
        false => normal_form(debug),
    };
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
