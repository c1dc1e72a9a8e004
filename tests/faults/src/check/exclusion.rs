//! Nobody holds a lock while another surely does.

use super::holds::{Hold, SLACK};
use super::marks::Marks;
use super::{Findings, Rule};

/// The holds of one key, sorted by when they were received.
pub fn check(holds: &[Hold], marks: &Marks, findings: &mut Findings) {
    // At most one, as long as all is well: so each hold looks at one other.
    let mut current: Vec<&Hold> = Vec::new();
    for hold in holds {
        current.retain(|earlier| earlier.surely_until > hold.received + SLACK);
        if hold.surely_until <= hold.received + SLACK {
            continue;
        }
        for earlier in &current {
            let asked = earlier.asked.min(hold.asked);
            if marks.excuse_overlap(hold.key, asked, hold.received) {
                findings.overlaps += 1;
            } else {
                findings.violation(
                    Rule::Exclusion,
                    format!("two held key {}: {earlier:?} and {hold:?}", hold.key),
                );
            }
        }
        current.push(hold);
    }
}
