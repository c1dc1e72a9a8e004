//! Permits: no more are surely held than there are.

use crate::history::{Kind, Nanos};

use super::holds::{Hold, SLACK};
use super::marks::Marks;
use super::{Findings, Rule};

/// The holds of one key, sorted by the time of their receipt.
pub fn check(holds: &[Hold], marks: &Marks, findings: &mut Findings) {
    let mut current: Vec<&Hold> = Vec::new();
    for hold in holds {
        let Kind::Permit(limit) = hold.kind else {
            return;
        };
        current.retain(|earlier| earlier.surely_until > hold.received + SLACK);
        if hold.surely_until <= hold.received + SLACK {
            continue;
        }
        // A repeated request may give the permit of an id another token: it is still one permit.
        current.retain(|earlier| earlier.owner != hold.owner);
        current.push(hold);
        if current.len() <= limit as usize {
            continue;
        }
        let asked = current.iter().map(|hold| hold.asked).min();
        if marks.excuse_overlap(hold.key, asked.unwrap_or(Nanos::MAX), hold.received) {
            findings.overlaps += 1;
        } else {
            let held = current.len();
            findings.violation(
                Rule::Permits,
                format!("{held} permits of {limit} held: {current:?}"),
            );
        }
    }
}
