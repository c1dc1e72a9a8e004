//! The resource that the locks protect: a counter that is read and, after a pause, written. One kind checks tokens, the
//! other accepts every write; both count accepted writes, so lost updates can be counted.

use std::sync::Mutex;

/// A counter for every key.
#[derive(Default)]
pub struct Counter(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// With a check of tokens.
    checked: i64,
    highest: i64,
    accepted: i64,
    refused: i64,
    /// Without a check.
    believed: i64,
    written: i64,
}

/// The result of reading.
pub struct Read {
    checked: Option<i64>,
    believed: i64,
}

/// The sums of the counters.
#[derive(Debug, Default, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Updates {
    /// Writes accepted by the counters that check tokens.
    pub accepted: i64,
    /// Writes refused by them.
    pub refused: i64,
    /// Updates lost by them although accepted.
    pub lost_checked: i64,
    /// Updates lost by the counters that check nothing.
    pub lost_unchecked: i64,
}

impl Counter {
    /// Reads under a token. The read checks the token as well: otherwise an older holder could write between the read
    /// and the write of a younger one.
    pub fn read(&self, token: i64) -> Read {
        let mut inner = self.0.lock().expect("no panic under the lock");
        let is_current = token >= inner.highest;
        inner.highest = inner.highest.max(token);
        Read {
            checked: is_current.then_some(inner.checked),
            believed: inner.believed,
        }
    }

    /// Writes one more than the value that was read.
    pub fn write(&self, token: i64, read: &Read) {
        let mut inner = self.0.lock().expect("no panic under the lock");
        match read.checked {
            Some(value) if token >= inner.highest => {
                inner.checked = value + 1;
                inner.accepted += 1;
            }
            _ => inner.refused += 1,
        }
        inner.believed = read.believed + 1;
        inner.written += 1;
    }

    /// The sums.
    pub fn updates(&self) -> Updates {
        let inner = self.0.lock().expect("no panic under the lock");
        Updates {
            accepted: inner.accepted,
            refused: inner.refused,
            lost_checked: inner.accepted - inner.checked,
            lost_unchecked: inner.written - inner.believed,
        }
    }
}

impl std::ops::AddAssign for Updates {
    fn add_assign(&mut self, other: Updates) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.lost_checked += other.lost_checked;
        self.lost_unchecked += other.lost_unchecked;
    }
}

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn late_writers_are_refused_or_cost_an_update() {
        let counter = Counter::default();
        let late = counter.read(1);
        let next = counter.read(2);
        counter.write(2, &next);
        counter.write(1, &late);
        let updates = counter.updates();
        assert_eq!((updates.accepted, updates.refused), (1, 1));
        assert_eq!((updates.lost_checked, updates.lost_unchecked), (0, 1));
    }

    #[test]
    fn one_token_for_two_loses_an_update() {
        let counter = Counter::default();
        let (one, two) = (counter.read(1), counter.read(1));
        counter.write(1, &one);
        counter.write(1, &two);
        assert_eq!(counter.updates().lost_checked, 1);
    }
}
