//! The readers of one lock. A few are searched in a list; many are found by name, so that the cost of each reader stays
//! the same when a thousand are granted together.

use std::collections::HashMap;

use crate::lock::{Now, OwnerId};

/// The READ holds of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// The owner: the hash field.
    pub owner: OwnerId,
    /// The number of its holds, at least 1.
    pub count: u32,
    /// The end of its first timeout in Unix milliseconds; 0 if it does not exist.
    pub first_ms: i64,
    /// The latest end of the timeouts that were read; `i64::MAX` if the TTL was removed by other means.
    pub until_ms: i64,
}

/// Up to this number readers are searched in a list.
const FEW: usize = 16;

/// The readers that were read, in no defined order.
#[derive(Debug, Clone, Default)]
pub struct Readers {
    list: Vec<Reader>,
    /// The index of each reader in the list, once there are many.
    places: Option<HashMap<OwnerId, usize>>,
    /// No lease ends before this moment, in Unix milliseconds; 0: not known.
    soonest_ms: i64,
}

impl Readers {
    /// Each reader, expired or not.
    pub fn iter(&self) -> impl Iterator<Item = &Reader> {
        self.list.iter()
    }

    /// The number of readers.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no reader.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The reader of this name, expired or not.
    pub fn get(&self, owner: &[u8]) -> Option<&Reader> {
        self.list.get(self.place(owner)?)
    }

    /// As [`Readers::get`], mutable.
    pub fn get_mut(&mut self, owner: &[u8]) -> Option<&mut Reader> {
        self.soonest_ms = 0;
        let place = self.place(owner)?;
        self.list.get_mut(place)
    }

    /// Adds a reader, whose name must be new.
    pub fn push(&mut self, reader: Reader) {
        self.soonest_ms = match self.list.is_empty() {
            true => reader.until_ms,
            false => self.soonest_ms.min(reader.until_ms),
        };
        if let Some(places) = &mut self.places {
            places.insert(reader.owner.clone(), self.list.len());
        }
        self.list.push(reader);
        if self.places.is_none() && self.list.len() > FEW {
            let owners = self.list.iter().map(|reader| reader.owner.clone());
            self.places = Some(owners.zip(0..).collect());
        }
    }

    /// Removes the reader of this name.
    pub fn remove(&mut self, owner: &[u8]) -> Option<Reader> {
        let place = self.place(owner)?;
        let gone = self.list.swap_remove(place);
        if let Some(places) = &mut self.places {
            places.remove(owner);
            if let Some(moved) = self.list.get(place) {
                places.insert(moved.owner.clone(), place);
            }
        }
        Some(gone)
    }

    /// Removes every reader.
    pub fn take_all(&mut self) -> Vec<Reader> {
        std::mem::take(self).list
    }

    /// Removes the readers whose leases are over. Returns their owners.
    pub fn take_expired(&mut self, now: Now) -> Vec<OwnerId> {
        if self.soonest_ms > now.wall_ms {
            return Vec::new();
        }
        let (dead, living) = self
            .take_all()
            .into_iter()
            .partition::<Vec<_>, _>(|reader| reader.until_ms <= now.wall_ms);
        self.extend(living);
        dead.into_iter().map(|reader| reader.owner).collect()
    }

    fn place(&self, owner: &[u8]) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(owner).copied(),
            None => self
                .list
                .iter()
                .position(|reader| reader.owner[..] == *owner),
        }
    }
}

impl Extend<Reader> for Readers {
    fn extend<T: IntoIterator<Item = Reader>>(&mut self, readers: T) {
        for reader in readers {
            self.push(reader);
        }
    }
}

impl FromIterator<Reader> for Readers {
    fn from_iter<T: IntoIterator<Item = Reader>>(readers: T) -> Readers {
        let mut all = Readers::default();
        all.extend(readers);
        all
    }
}

impl PartialEq for Readers {
    fn eq(&self, other: &Readers) -> bool {
        self.list == other.list
    }
}

impl Eq for Readers {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn reader(number: usize) -> Reader {
        let until_ms = number as i64;
        Reader {
            owner: OwnerId::from_slice(number.to_string().as_bytes()),
            count: 1,
            first_ms: until_ms,
            until_ms,
        }
    }

    fn at(wall_ms: i64) -> Now {
        Now {
            wall_ms,
            wall_sub_us: 0,
            mono_ms: 0,
        }
    }

    #[test]
    fn few_and_many_readers_give_the_same_results() {
        for count in [1, FEW, FEW + 1, 10 * FEW] {
            let mut readers: Readers = (1..=count).map(reader).collect();
            let name = |number: usize| number.to_string().into_bytes();
            for number in (1..=count).step_by(2) {
                assert_eq!(readers.remove(&name(number)), Some(reader(number)));
                assert_eq!(readers.remove(&name(number)), None);
            }
            assert_eq!(readers.len(), count / 2);
            for number in 1..=count {
                let left = (number % 2 == 0).then(|| reader(number));
                assert_eq!(readers.get(&name(number)), left.as_ref());
            }
        }
    }

    #[test]
    fn readers_are_removed_at_their_deadline_not_earlier() {
        let mut readers: Readers = (5..45).map(reader).collect();
        assert_eq!(readers.take_expired(at(4)).len(), 0);
        assert_eq!(readers.take_expired(at(6)).len(), 2);
        readers.get_mut(b"40").unwrap().until_ms = 6;
        assert_eq!(
            readers.take_expired(at(6))[..],
            [OwnerId::from_slice(b"40")]
        );
        readers.push(reader(3));
        assert_eq!(readers.take_expired(at(6))[..], [OwnerId::from_slice(b"3")]);
        assert!(readers.get(b"7").is_some() && readers.get(b"6").is_none());
    }
}
