//! All benchmarks of waiting: hand-offs of one lock and of thousands, the cost of waiters that give up, their memory,
//! and the delay after the end of a lease.

use std::io;

use crate::pictures::HAND_OFF;
use crate::report::Section;
use crate::{cancel, handoff, lease_end, many_locks, memory};

/// Measures all of them; a full run draws a picture of the hand-offs.
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
