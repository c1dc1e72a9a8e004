//! Exclusion: no two owners surely hold a lock at the same time.

use super::holds::{Hold, SLACK};
use super::marks::Marks;
use super::{Findings, Rule};

/// The holds of one key, sorted by the time of their receipt.
pub fn check(holds: &[Hold], marks: &Marks, findings: &mut Findings) {
    // At most one, or the readers, as long as no rule is broken: so each hold is compared with few others.
    let mut current: Vec<&Hold> = Vec::new();
    for hold in holds {
        current.retain(|earlier| earlier.surely_until > hold.received + SLACK);
        if hold.surely_until <= hold.received + SLACK {
            continue;
        }
        let in_the_way = |other: &&&Hold| {
            // An owner may hold both WRITE and READ.
            let is_same = other.owner == hold.owner && other.kind != hold.kind;
            other.kind.excludes(hold.kind) && !is_same
        };
        for earlier in current.iter().filter(in_the_way) {
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
