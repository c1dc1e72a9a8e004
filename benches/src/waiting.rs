//! Everything about waiting: how a lock is handed on, to one or among thousands, what waiters cost
//! that give up, what memory they take, and how soon a lease that ends is noticed.

use std::io;

use crate::pictures::HAND_OFF;
use crate::report::Section;
use crate::{cancel, handoff, lease_end, many_locks, memory};

/// Measures all of it; in full, the hand-offs have a picture.
pub fn sections(quick: bool) -> io::Result<Vec<Section>> {
    let hand_offs = handoff::measure(quick)?;
    let image = (!quick).then_some(HAND_OFF);
    Ok(vec![
        handoff::section(&hand_offs, image),
        many_locks::section(quick)?,
        cancel::section(quick)?,
        memory::section(quick)?,
        lease_end::section(quick)?,
    ])
}
