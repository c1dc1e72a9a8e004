//! The readers of a lock of `RReadWriteLock`, whose timeouts say how long the hash has to live.

use super::read_write::is_plain_count;

/// One reader: its field and its hold count.
pub type Reader = (Box<[u8]>, i64);

/// More holds are left to Lua: each is a key to look at.
const MOST_HOLDS: i64 = 200;

/// The fields of a hash, as they are read one by one.
#[derive(Debug, Default)]
pub struct Readers {
    readers: Vec<Reader>,
    is_odd: bool,
}

impl Readers {
    /// One field and its value.
    pub fn field(&mut self, field: &[u8], value: &[u8]) {
        if field == b"mode" {
            return;
        }
        match is_plain_count(value) {
            Some(count) => self.readers.push((field.into(), count)),
            None => self.is_odd = true,
        }
    }

    /// Who is left when this owner has one hold less, in the order of the hash; `None` where a count is none,
    /// or there are very many.
    pub fn without_one(mut self, owner: &[u8]) -> Option<Vec<Reader>> {
        for (reader, count) in &mut self.readers {
            *count -= i64::from(**reader == *owner);
        }
        let holds: i64 = self.readers.iter().map(|(_, count)| count).sum();
        (!self.is_odd && holds <= MOST_HOLDS).then_some(self.readers)
    }
}

/// The key of a reader's hold: what all timeouts begin with, the reader, and its number.
pub fn timeout_of(prefix: &[u8], reader: &[u8], number: i64) -> Vec<u8> {
    let mut name = [prefix, b":", reader, b":rwlock_timeout:"].concat();
    name.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    name
}

/// The key of one reader's own hold: what its timeouts begin with, and the number.
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
    fn a_hold_less_is_a_timeout_less_to_look_at() {
        let left = readers(&[("mode", "read"), ("a", "1"), ("b", "2")]).without_one(b"b");
        let expected: Vec<Reader> = vec![(b"a"[..].into(), 1), (b"b"[..].into(), 1)];
        assert_eq!(left, Some(expected));
    }

    #[test]
    fn odd_counts_and_very_many_are_left_to_lua() {
        assert_eq!(readers(&[("a", "1"), ("b", "1e1")]).without_one(b"a"), None);
        let many: Vec<String> = (0..3).map(|n| format!("r{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (&name[..], "100")).collect();
        assert_eq!(readers(&many).without_one(b"a"), None);
    }

    #[test]
    fn timeouts_are_named_as_redisson_names_them() {
        assert_eq!(timeout_of(b"{k}", b"u:1", 2), b"{k}:u:1:rwlock_timeout:2");
        assert_eq!(
            own_timeout(b"{k}:u:1:rwlock_timeout", 1),
            b"{k}:u:1:rwlock_timeout:1"
        );
    }
}
