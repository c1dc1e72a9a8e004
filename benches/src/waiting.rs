//! Everything about waiting: how a lock is handed on, to one or among thousands, what waiters cost
//! that give up, what memory they take, and how soon a lease that ends is noticed.

use std::io;
use std::path::Path;

use crate::report::Section;
use crate::{cancel, handoff, lease_end, many_locks, memory, plots};

/// Measures all of it; in full, it draws the picture of the hand-offs into this directory.
pub fn sections(quick: bool, docs: &Path) -> io::Result<Vec<Section>> {
    let hand_offs = handoff::measure(quick)?;
    let image = (!quick).then_some("handoff.svg");
    if let Some(image) = image {
        plots::hand_offs(&docs.join(image), &handoff::lines(&hand_offs))?;
    }
    Ok(vec![
        handoff::section(&hand_offs, image),
        many_locks::section(quick)?,
        cancel::section(quick)?,
        memory::section(quick)?,
        lease_end::section(quick)?,
    ])
}
