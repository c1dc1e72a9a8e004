//! Whether a fault lies in a span of time, by binary search.

use std::collections::HashMap;

use crate::history::{Fault, Mark, Nanos};

/// The marks of a history by the rules that they excuse.
pub struct Marks {
    exclusion: Windows,
    order: Windows,
    any: Windows,
}

impl Marks {
    pub fn of(marks: &[Mark]) -> Marks {
        let those = |of: fn(Fault) -> bool| Windows::of(marks.iter().filter(|m| of(m.fault)));
        Marks {
            exclusion: those(Fault::breaks_exclusion),
            order: those(Fault::breaks_order),
            any: those(|_| true),
        }
    }

    pub fn excuse_overlap(&self, key: u32, from: Nanos, to: Nanos) -> bool {
        self.exclusion.meet(key, from, to)
    }

    pub fn excuse_order(&self, key: u32, from: Nanos, to: Nanos) -> bool {
        self.order.meet(key, from, to)
    }

    /// The begin of the first fault that is not over by then; `MAX`: there is none.
    pub fn next(&self, key: u32, by: Nanos) -> Nanos {
        self.any.next_begin(key, by)
    }

    /// The end of the last fault that had begun by then.
    pub fn healed(&self, key: u32, by: Nanos) -> Nanos {
        self.any.last_end(key, by)
    }
}

/// Spans of time, of all keys (`None`) and of single ones; each list is sorted by begin and holds the latest end so far
/// with each entry.
#[derive(Default)]
struct Windows(HashMap<Option<u32>, Vec<(Nanos, Nanos)>>);

impl Windows {
    fn of<'a>(marks: impl Iterator<Item = &'a Mark>) -> Windows {
        let mut windows = Windows::default();
        for mark in marks {
            let list = windows.0.entry(mark.key).or_default();
            list.push((mark.from, mark.to));
        }
        for list in windows.0.values_mut() {
            list.sort_unstable();
            let mut latest = 0;
            for (_, to) in list {
                latest = latest.max(*to);
                *to = latest;
            }
        }
        windows
    }

    fn last_end(&self, key: u32, by: Nanos) -> Nanos {
        let of = |key| {
            let list: &Vec<_> = self.0.get(&key)?;
            let begun = list.partition_point(|(from, _)| *from <= by);
            list[..begun].last().map(|(_, to)| *to)
        };
        of(None).max(of(Some(key))).unwrap_or(0)
    }

    fn next_begin(&self, key: u32, by: Nanos) -> Nanos {
        let of = |key| {
            let list: &Vec<_> = self.0.get(&key)?;
            let over = list.partition_point(|(_, latest)| *latest < by);
            list.get(over).map(|(from, _)| *from)
        };
        let all = [of(None), of(Some(key))];
        all.into_iter().flatten().min().unwrap_or(Nanos::MAX)
    }

    fn meet(&self, key: u32, from: Nanos, to: Nanos) -> bool {
        self.last_end(key, to) >= from.max(1)
    }
}
