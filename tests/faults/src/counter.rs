//! What the locks protect: a counter that is read, thought about and written. One checks tokens, one
//! believes everybody; both know how many writes they accepted, so lost updates can be counted.

use std::sync::Mutex;

/// A counter for every key.
#[derive(Default)]
pub struct Counter(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Under the protection of tokens.
    checked: i64,
    highest: i64,
    accepted: i64,
    refused: i64,
    /// Under no protection.
    believed: i64,
    written: i64,
}

/// What somebody has read.
pub struct Read {
    checked: Option<i64>,
    believed: i64,
}

/// What became of the counters.
#[derive(Debug, Default, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Updates {
    /// Accepted by the counters that check tokens.
    pub accepted: i64,
    /// Refused by them.
    pub refused: i64,
    /// Accepted and lost by them.
    pub lost_checked: i64,
    /// Accepted and lost by those that check nothing.
    pub lost_unchecked: i64,
}

impl Counter {
    /// Reads under a token. The reading shows the token as well: else an older holder could write
    /// between a younger one's reading and writing.
    pub fn read(&self, token: i64) -> Read {
        let mut inner = self.0.lock().expect("no panic in between");
        let is_current = token >= inner.highest;
        inner.highest = inner.highest.max(token);
        Read {
            checked: is_current.then_some(inner.checked),
            believed: inner.believed,
        }
    }

    /// Writes one more than was read.
    pub fn write(&self, token: i64, read: &Read) {
        let mut inner = self.0.lock().expect("no panic in between");
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
        let inner = self.0.lock().expect("no panic in between");
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
