//! A key space of hashes and strings with TTLs, and how the shell reads and writes a lock in it.

use std::collections::BTreeMap;

use crate::lock::{
    is_read_write, note_field, permits_of, timeout_name, timeout_prefix, token_name, write_field,
    HashReader, KeyState, Mode, Now, OwnerId, ReadDepth, ReadWrite, Reader, RwFields, RwWrite,
    Token, TokenRecord,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Hash(BTreeMap<String, String>),
    Text(String),
    /// A sorted set of ids by the ends of their permits.
    Permits(BTreeMap<String, i64>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyspace {
    keys: BTreeMap<String, (Value, Option<i64>)>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn timeout_key(key: &str, owner: &[u8], number: u32) -> String {
    text(&timeout_name(
        &timeout_prefix(key.as_bytes(), owner),
        number,
    ))
}

pub fn token_record_name(key: &str) -> String {
    text(&token_name(key.as_bytes()))
}

fn permits_name(key: &str) -> String {
    text(&permits_of(key.as_bytes()))
}

fn field_of(mode: Mode, owner: &[u8]) -> String {
    match mode {
        Mode::Write => text(&write_field(owner)),
        _ => text(owner),
    }
}

impl Keyspace {
    /// Deletes the keys that have expired, among those that `is_meant` names. Returns their names.
    pub fn expire(&mut self, now: Now, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let mut expired = Vec::new();
        self.keys.retain(|name, (_, end)| {
            let is_over = is_meant(name) && end.is_some_and(|end| end <= now.wall_ms);
            expired.extend(is_over.then(|| name.clone()));
            !is_over
        });
        expired
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &(Value, Option<i64>))> {
        self.keys.iter()
    }

    pub fn names(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    pub fn contains(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// True if there was such a key.
    pub fn remove(&mut self, key: &str) -> bool {
        self.keys.remove(key).is_some()
    }

    pub fn clear(&mut self) {
        self.keys.clear();
    }

    pub fn hash(&mut self, key: &str) -> &mut BTreeMap<String, String> {
        let empty = || (Value::Hash(BTreeMap::new()), None);
        match &mut self.keys.entry(key.into()).or_insert_with(empty).0 {
            Value::Hash(fields) => fields,
            Value::Text(_) | Value::Permits(_) => panic!("{key} is no hash"),
        }
    }

    pub fn fields(&self, key: &str) -> BTreeMap<String, String> {
        match self.keys.get(key) {
            Some((Value::Hash(fields), _)) => fields.clone(),
            _ => BTreeMap::new(),
        }
    }

    pub fn end(&self, key: &str) -> Option<i64> {
        self.keys.get(key)?.1
    }

    pub fn set_end(&mut self, key: &str, end_ms: i64) {
        self.set_ttl(key, Some(end_ms));
    }

    pub fn set_ttl(&mut self, key: &str, end_ms: Option<i64>) {
        if let Some((_, end)) = self.keys.get_mut(key) {
            *end = end_ms;
        }
    }

    pub fn set(&mut self, key: String, value: &str, end_ms: Option<i64>) {
        self.keys.insert(key, (Value::Text(value.into()), end_ms));
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.keys.get(key) {
            Some((Value::Text(text), _)) => Some(text),
            _ => None,
        }
    }

    /// The ends of a semaphore's permits by their ids.
    pub fn permits(&self, key: &str) -> BTreeMap<String, i64> {
        match self.keys.get(&permits_name(key)) {
            Some((Value::Permits(permits), _)) => permits.clone(),
            _ => BTreeMap::new(),
        }
    }

    pub fn set_permits(&mut self, key: &str, permits: BTreeMap<String, i64>) {
        let name = permits_name(key);
        match permits.is_empty() {
            true => drop(self.keys.remove(&name)),
            false => drop(self.keys.insert(name, (Value::Permits(permits), None))),
        }
    }

    // ---- reading, as the shell does ----

    /// The fields of these owners are read by their names.
    pub fn read(&self, key: &str, owners: &[&str], depth: ReadDepth, now: Now) -> KeyState {
        let Some((value, end)) = self.keys.get(key) else {
            return KeyState::Absent;
        };
        let Value::Hash(fields) = value else {
            return KeyState::OtherType;
        };
        let mode = fields.get("mode");
        if !mode.is_some_and(|mode| is_read_write(mode.as_bytes())) {
            let mut reader = HashReader::default();
            for (field, value) in fields {
                reader.field(field.as_bytes(), value.as_bytes());
            }
            return reader.finish(*end);
        }
        let lock = self.read_shared(key, owners, depth, now);
        match lock.filter(|lock| lock.is_plausible(now)) {
            Some(lock) => KeyState::ReadWrite(Box::new(lock)),
            None => KeyState::OtherHash,
        }
    }

    fn read_shared(
        &self,
        key: &str,
        owners: &[&str],
        depth: ReadDepth,
        now: Now,
    ) -> Option<ReadWrite> {
        let fields = self.fields(key);
        let mut all = RwFields::default();
        for (field, value) in &fields {
            all.field(field.as_bytes(), value.as_bytes());
        }
        let readers = std::mem::take(&mut all.readers);
        let token_record = self.token_record(key, now);
        let mut lock = ReadWrite {
            writer: all.finish()?,
            deadline_ms: self.end(key),
            is_whole: true,
            is_cut: false,
            is_in_doubt: false,
            token_record,
            readers: [].into_iter().collect(),
        };
        let recorded = lock
            .token_record
            .as_ref()
            .and_then(|token_record| token_record.writer.clone());
        let depth = match depth {
            ReadDepth::All => ReadDepth::All,
            _ if lock.writer.is_some() || lock.deadline_ms.is_none() => ReadDepth::Two,
            ReadDepth::Holder => {
                let ends = |(name, count): &(OwnerId, u32)| {
                    let is_own = owners.iter().any(|owner| name[..] == *owner.as_bytes());
                    let ends = (1..=*count).map(|n| self.end_of(&timeout_key(key, name, n)));
                    is_own && ends.max() > Some(now.wall_ms)
                };
                match readers.iter().any(ends) {
                    true => ReadDepth::Two,
                    false => ReadDepth::Own,
                }
            }
            depth => depth,
        };
        let (mut living, mut all_ends) = (0, Vec::new());
        for (name, count) in readers {
            let by_name = owners.iter().any(|owner| name[..] == *owner.as_bytes())
                || (lock.writer.is_none() && recorded.as_ref() == Some(&name));
            let is_enough = match depth {
                ReadDepth::Own => true,
                ReadDepth::Two | ReadDepth::Holder => living >= 2 && lock.writer.is_none(),
                ReadDepth::All => false,
            };
            if !by_name && is_enough {
                lock.is_whole = false;
                continue;
            }
            let ends = |number| self.end_of(&timeout_key(key, &name, number));
            let is_deep = depth == ReadDepth::All || (by_name && depth != ReadDepth::Own);
            let in_order: Vec<_> = std::iter::once(1)
                .chain((2..=count).rev())
                .map(ends)
                .collect();
            let last = in_order.len() - 1;
            let living_at = in_order.iter().position(|end| *end > now.wall_ms);
            let seen = living_at.filter(|at| !is_deep && *at < last);
            let until_ms = *in_order[..=seen.unwrap_or(last)].iter().max().unwrap();
            all_ends.push(*in_order.iter().max().unwrap());
            let reader = Reader {
                count,
                first_ms: in_order[0],
                until_ms,
                owner: name,
            };
            living += usize::from(!by_name && reader.until_ms > now.wall_ms);
            lock.readers.push(reader);
        }
        if depth == ReadDepth::Two && lock.is_whole {
            let seen = lock.readers.iter().cloned().zip(all_ends);
            lock.readers = seen
                .map(|(reader, until_ms)| Reader { until_ms, ..reader })
                .collect();
        }
        Some(lock)
    }

    fn end_of(&self, key: &str) -> i64 {
        let found = self.keys.get(key);
        found.map_or(0, |(_, end)| end.unwrap_or(i64::MAX))
    }

    fn token_record(&self, key: &str, now: Now) -> Option<TokenRecord> {
        let (value, end) = self.keys.get(&token_record_name(key))?;
        let Value::Text(value) = value else {
            return None;
        };
        let lives = end.is_none_or(|end| end > now.wall_ms);
        TokenRecord::parse(value.as_bytes(), *end).filter(|_| lives)
    }

    // ---- writing, as the shell does ----

    /// A grant of an exclusive lock.
    pub fn take(&mut self, key: &str, owner: &[u8], token: Token, deadline_ms: i64) {
        self.keys.remove(key);
        let fields = self.hash(key);
        fields.insert(text(owner), "1".into());
        fields.insert("#token".into(), format!("t{}", token.get()));
        self.set_end(key, deadline_ms);
    }

    pub fn note(&mut self, key: &str, owner: &[u8], note: &[u8]) {
        self.hash(key).insert(text(&note_field(owner)), text(note));
    }

    /// A change of the hold of an exclusive lock: the count (before and after), the token, the deadline.
    pub fn adjust(
        &mut self,
        key: &str,
        owner: &[u8],
        (count, token, deadline_ms): (Option<(u32, u32)>, Option<Token>, Option<i64>),
    ) {
        let fields = self.hash(key);
        if let Some((_, count)) = count {
            fields.insert(text(owner), count.to_string());
        }
        if let Some(token) = token {
            fields.insert("#token".into(), format!("t{}", token.get()));
        }
        if deadline_ms.is_some() {
            self.set_ttl(key, deadline_ms);
        }
    }

    /// Makes the change of a read-write lock. Returns the commands that would make it.
    pub fn write_shared(&mut self, key: &str, change: &RwWrite) -> Vec<String> {
        match change {
            RwWrite::Clear => {
                assert!(self.keys.remove(key).is_some(), "cleared nothing");
                vec![format!("del {key}")]
            }
            RwWrite::Begin(mode, owner) => {
                let field = field_of(*mode, owner);
                let fields = self.hash(key);
                fields.insert("mode".into(), mode.name().into());
                fields.insert(field.clone(), "1".into());
                vec![format!("hset {key} mode {} {field} 1", mode.name())]
            }
            RwWrite::Mode(mode) => {
                self.hash(key).insert("mode".into(), mode.name().into());
                vec![format!("hset {key} mode {}", mode.name())]
            }
            RwWrite::Count(mode, owner, (_, count)) => {
                let field = field_of(*mode, owner);
                self.hash(key).insert(field.clone(), count.to_string());
                vec![format!("hset {key} {field} {count}")]
            }
            RwWrite::Drop(mode, owner) => {
                let field = field_of(*mode, owner);
                let dropped = self.hash(key).remove(&field);
                assert!(dropped.is_some(), "{key} has no {field}");
                vec![format!("hdel {key} {field}")]
            }
            RwWrite::Timeouts(owner, (from, to), end_ms) => (*from..=*to)
                .map(|number| {
                    let name = timeout_key(key, owner, number);
                    self.set(name.clone(), "1", Some(*end_ms));
                    format!("set {name} 1 @{end_ms}")
                })
                .collect(),
            RwWrite::DropTimeouts(owner, (from, to)) => (*from..=*to)
                .map(|number| timeout_key(key, owner, number))
                .filter(|name| self.keys.remove(name).is_some())
                .map(|name| format!("del {name}"))
                .collect(),
            RwWrite::Lease(end_ms) => {
                assert!(self.keys.contains_key(key), "a lease of nothing");
                self.set_end(key, *end_ms);
                vec![format!("pexpireat {key} @{end_ms}")]
            }
            RwWrite::TokenRecord(token_record) => {
                let name = token_record_name(key);
                self.set(
                    name.clone(),
                    &text(&token_record.value()),
                    token_record.deadline_ms,
                );
                let end_ms = token_record.deadline_ms.unwrap();
                vec![format!(
                    "set {name} {} @{end_ms}",
                    text(&token_record.value())
                )]
            }
            RwWrite::TokenRecordLease(end_ms) => {
                self.set_end(&token_record_name(key), *end_ms);
                vec![format!("pexpireat {} @{end_ms}", token_record_name(key))]
            }
            RwWrite::DropTokenRecord => {
                let name = token_record_name(key);
                // An absent key has no event.
                let dropped = self.keys.remove(&name);
                dropped.map(|_| format!("del {name}")).into_iter().collect()
            }
        }
    }
}
