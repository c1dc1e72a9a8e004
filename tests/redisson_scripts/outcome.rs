//! The observable effects of a case on one side.

use std::collections::BTreeSet;

use crate::wire::{printable, strings_of, Bytes};

/// The whole database: every key with its type, deadline and content, sorted.
pub const DUMP: &str = "\
    local dump = {} \
    local keys = redis.call('KEYS', '*') \
    table.sort(keys) \
    for _, key in ipairs(keys) do \
      local kind = redis.call('TYPE', key).ok \
      local content = '' \
      if kind == 'string' then content = redis.call('GET', key) end \
      if kind == 'hash' then \
        content = {} \
        local fields = redis.call('HKEYS', key) \
        table.sort(fields) \
        for _, field in ipairs(fields) do \
          local till = redis.pcall('HPEXPIRETIME', key, 'FIELDS', 1, field) \
          table.insert(content, {field, redis.call('HGET', key, field), till.err and 0 or till}) \
        end \
      end \
      if kind == 'list' then content = redis.call('LRANGE', key, 0, -1) end \
      if kind == 'set' then content = redis.call('SMEMBERS', key) end \
      if kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end \
      if kind == 'stream' then content = redis.call('XRANGE', key, '-', '+') end \
      table.insert(dump, {key, kind, redis.call('PEXPIRETIME', key), content}) \
    end \
    return dump";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    setup: Vec<Bytes>,
    /// The replies of the calls, and of the transaction around them.
    replies: Vec<Bytes>,
    /// How much each call raised the dirty counter.
    pub dirty: Vec<i64>,
    pub dataset: Bytes,
    pub on_replica: Option<Bytes>,
    pub watch: Bytes,
    pub received: Vec<Bytes>,
    pub invalidated: Vec<Bytes>,
}

impl Outcome {
    pub fn of(setup: &[Bytes]) -> Outcome {
        Outcome {
            setup: setup.to_vec(),
            ..Outcome::default()
        }
    }

    /// Takes replies with the dirty counter before, between and after them.
    pub fn take(&mut self, replies: impl Iterator<Item = Result<i64, Bytes>>) {
        let mut counters = Vec::new();
        for reply in replies {
            match reply {
                Ok(counter) => counters.push(counter),
                Err(reply) => self.replies.push(reply),
            }
        }
        self.dirty = counters.windows(2).map(|pair| pair[1] - pair[0]).collect();
    }

    /// The replies by their kind.
    pub fn replies(&self) -> impl Iterator<Item = String> + '_ {
        self.replies.iter().map(|reply| {
            let line = reply.split(|byte| *byte == b'\r').next().unwrap_or(reply);
            let kind = line.split(|byte| *byte == b' ').next().unwrap_or(line);
            printable(if reply.len() > 6 && reply[0] == b':' {
                b":large"
            } else {
                kind
            })
        })
    }

    /// The differences of the other side, line by line.
    pub fn differences(&self, other: &Outcome) -> Vec<String> {
        let (ours, theirs) = (self.parts(), other.parts());
        let differing = ours
            .iter()
            .zip(&theirs)
            .filter(|(ours, theirs)| ours != theirs);
        let lines = differing.flat_map(|((part, lua), (_, other))| {
            [
                format!("{part}, Lua:   {lua:?}"),
                format!("{part}, other: {other:?}"),
            ]
        });
        lines.collect()
    }

    fn parts(&self) -> Vec<(&'static str, Vec<String>)> {
        let all = |many: &[Bytes]| many.iter().map(|one| printable(one)).collect();
        vec![
            ("the state", all(&self.setup)),
            ("replies", all(&self.replies)),
            ("dirty", self.dirty.iter().map(i64::to_string).collect()),
            ("dataset", vec![printable(&self.dataset)]),
            ("replica", all(self.on_replica.as_slice())),
            ("watch", vec![printable(&self.watch)]),
            ("messages", all(&self.received)),
            ("invalidated", all(&self.invalidated)),
        ]
    }
}

/// The dirty counter, if a reply is one of INFO.
pub fn dirty_of(reply: Bytes) -> Result<i64, Bytes> {
    let text = String::from_utf8_lossy(&reply);
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    line.map(|count| count.parse().expect("a number"))
        .ok_or(reply)
}

/// The keys of invalidation messages. The number of keys in a message depends on the ticks of the server.
pub fn invalidated(messages: &[Bytes]) -> Vec<Bytes> {
    let keys = messages.iter().flat_map(|message| strings_of(message));
    let keys: BTreeSet<Bytes> = keys.collect();
    keys.into_iter().collect()
}
