//! The deadlines of places: a binary heap of slots. Each place knows its position, so that it can be taken out from the
//! middle.
//!
//! Deadlines mostly come in their own order (many waits have the same limit), and then an insertion compares once.

use crate::lock::table::give_back;
use crate::lock::wait::arena::{Arena, Slot};
use crate::lock::wait::place::Place;
use crate::lock::wait::request::Seq;

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: Vec<Slot>,
}

impl Deadlines {
    /// The slot with the earliest deadline; of equal ones the place that came first.
    pub fn first(&self) -> Option<Slot> {
        self.heap.first().copied()
    }

    /// Every slot with a deadline, in no defined order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.heap.iter().copied()
    }

    /// The deadline of the place at this slot is new, has changed or is gone.
    pub fn update(&mut self, places: &mut Arena<Place>, slot: Slot) {
        let Some(place) = places.get(slot) else {
            return;
        };
        match (place.due().is_some(), place.in_heap as usize) {
            (false, _) => self.remove(places, slot),
            (true, 0) => {
                self.heap.push(slot);
                self.rise(places, self.heap.len());
            }
            (true, at) => {
                self.rise(places, at);
                let at = places.get(slot).map_or(0, |place| place.in_heap as usize);
                self.sink(places, at);
            }
        }
    }

    /// Takes the slot of a place out.
    pub fn remove(&mut self, places: &mut Arena<Place>, slot: Slot) {
        let at = places.get(slot).map_or(0, |place| place.in_heap as usize);
        if at == 0 {
            return;
        }
        let Some(last) = self.heap.pop() else { return };
        if let Some(place) = places.get_mut(slot) {
            place.in_heap = 0;
        }
        if at <= self.heap.len() {
            self.put(places, at, last);
            self.rise(places, at);
            let at = places.get(last).map_or(0, |place| place.in_heap as usize);
            self.sink(places, at);
        }
        give_back(&mut self.heap);
    }

    fn put(&mut self, places: &mut Arena<Place>, at: usize, slot: Slot) {
        if let Some(entry) = self.heap.get_mut(at - 1) {
            *entry = slot;
        }
        if let Some(place) = places.get_mut(slot) {
            place.in_heap = at as u32;
        }
    }

    fn due(&self, places: &Arena<Place>, at: usize) -> Option<(u64, Seq, Slot)> {
        let slot = *self.heap.get(at.checked_sub(1)?)?;
        let place = places.get(slot)?;
        Some((place.due().unwrap_or(u64::MAX), place.seq, slot))
    }

    /// Moves the entry at this position up to where it belongs.
    fn rise(&mut self, places: &mut Arena<Place>, mut at: usize) {
        let Some(own) = self.due(places, at) else {
            return;
        };
        while let Some(parent) = self.due(places, at / 2).filter(|parent| own < *parent) {
            self.put(places, at, parent.2);
            at /= 2;
        }
        self.put(places, at, own.2);
    }

    /// Moves the entry at this position down to where it belongs.
    fn sink(&mut self, places: &mut Arena<Place>, mut at: usize) {
        let Some(own) = self.due(places, at) else {
            return;
        };
        loop {
            let (left, right) = (self.due(places, 2 * at), self.due(places, 2 * at + 1));
            let Some(child) = left.into_iter().chain(right).min().filter(|it| *it < own) else {
                break;
            };
            let below = if left == Some(child) {
                2 * at
            } else {
                2 * at + 1
            };
            self.put(places, at, child.2);
            at = below;
        }
        self.put(places, at, own.2);
    }
}
