//! The readers of an `RReadWriteLock`, whose timeouts determine the lifetime of the hash.

use crate::redisson::scripts::read_write::is_plain_count;

/// One reader: its field and its hold count.
pub type Reader = (Box<[u8]>, i64);

/// The most holds whose timeouts a native unlock reads; each timeout is a key. An unlock of a lock with more holds is
/// left to Lua, for which the limit is lower still (see `steps`).
const MOST_HOLDS: usize = 10_000;

/// The most bytes of the names of these keys together: all of them are made before the first is accessed.
const MOST_BYTES: usize = 8 << 20;

/// The fields of a hash, added one by one.
#[derive(Debug, Default)]
pub struct Readers {
    readers: Vec<Reader>,
    fields: usize,
    is_odd: bool,
}

impl Readers {
    /// Adds one field with its value.
    pub fn field(&mut self, field: &[u8], value: &[u8]) {
        self.fields += 1;
        if field == b"mode" {
            return;
        }
        match is_plain_count(value) {
            Some(count) => self.readers.push((field.into(), count)),
            None => self.is_odd = true,
        }
    }

    /// The number of fields.
    pub fn fields(&self) -> usize {
        self.fields
    }

    /// Whether it is certain already that there is no decision.
    pub fn are_undecidable(&self) -> bool {
        self.is_odd || self.readers.len() > MOST_HOLDS
    }

    /// The readers after one hold of this owner is released, in the order of the hash. `None` if a count is not a
    /// number, or there are too many holds, or the names of their timeouts, which begin with this prefix, are too long.
    pub fn without_one(mut self, owner: &[u8], prefix: &[u8]) -> Option<Vec<Reader>> {
        if self.are_undecidable() {
            return None;
        }
        for (reader, count) in &mut self.readers {
            *count -= i64::from(**reader == *owner);
        }
        let holds: i64 = self.readers.iter().map(|(_, count)| count).sum();
        let bytes = |(reader, count): &Reader| {
            let name = prefix.len() + reader.len() + LONGEST_REST;
            name.saturating_mul(usize::try_from(*count).unwrap_or(0))
        };
        let bytes = self
            .readers
            .iter()
            .map(bytes)
            .fold(0, usize::saturating_add);
        (holds <= MOST_HOLDS as i64 && bytes <= MOST_BYTES).then_some(self.readers)
    }
}

/// The most bytes of a timeout's name besides the common prefix and the reader.
const LONGEST_REST: usize = b"::rwlock_timeout:10000".len();

/// The key of a reader's hold: the common prefix of the timeouts, the reader, and the number of the hold.
pub fn timeout_of(prefix: &[u8], reader: &[u8], number: i64) -> Vec<u8> {
    let mut name = [prefix, b":", reader, b":rwlock_timeout:"].concat();
    name.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    name
}

/// The key of a reader's own hold: the prefix of its timeouts, and the number of the hold.
pub fn own_timeout(prefix: &[u8], number: i64) -> Vec<u8> {
    let mut name = [prefix, b":"].concat();
    name.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(fields: &[(&str, &str)]) -> Readers {
        let mut readers = Readers::default();
        for (field, value) in fields {
            readers.field(field.as_bytes(), value.as_bytes());
        }
        readers
    }

    #[test]
    fn one_hold_less_has_one_timeout_less() {
        let left = readers(&[("mode", "read"), ("a", "1"), ("b", "2")]).without_one(b"b", b"{k}");
        let expected: Vec<Reader> = vec![(b"a"[..].into(), 1), (b"b"[..].into(), 1)];
        assert_eq!(left, Some(expected));
    }

    #[test]
    fn unusual_counts_and_very_many_holds_are_left_to_lua() {
        assert_eq!(
            readers(&[("a", "1"), ("b", "1e1")]).without_one(b"a", b"{k}"),
            None
        );
        let many: Vec<String> = (0..101).map(|n| format!("r{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (&name[..], "100")).collect();
        assert_eq!(readers(&many).without_one(b"a", b"{k}"), None);
        let one = || readers(&[("a", "100")]);
        assert!(one().without_one(b"a", b"{k}").is_some());
        assert_eq!(
            one().without_one(b"a", &[b'k'; 1 << 20]),
            None,
            "long names"
        );
    }

    #[test]
    fn timeout_names_follow_redisson() {
        assert_eq!(timeout_of(b"{k}", b"u:1", 2), b"{k}:u:1:rwlock_timeout:2");
        assert_eq!(
            own_timeout(b"{k}:u:1:rwlock_timeout", 1),
            b"{k}:u:1:rwlock_timeout:1"
        );
    }
}
