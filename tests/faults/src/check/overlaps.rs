//! A figure, not a rule: the holders of a key that a loss has made one too many. Without a loss Porcupine refuses the
//! history.

use crate::history::Kind;

use super::holds::{Hold, SLACK};

/// The holds of one key, sorted by the time of their receipt.
pub fn count(holds: &[Hold]) -> u64 {
    // At most one, the readers, or the permits, as long as nothing is lost: so each hold is compared with few others.
    let mut current: Vec<&Hold> = Vec::new();
    let mut overlaps = 0;
    for hold in holds {
        current.retain(|earlier| earlier.surely_until > hold.received + SLACK);
        if hold.surely_until <= hold.received + SLACK {
            continue;
        }
        overlaps += match hold.kind {
            Kind::Permit(limit) => {
                // A repeated request may give the permit of an id another token: it is still one permit.
                current.retain(|earlier| earlier.owner != hold.owner);
                u64::from(current.len() >= limit as usize)
            }
            _ => current.iter().filter(|other| excludes(other, hold)).count() as u64,
        };
        current.push(hold);
    }
    overlaps
}

/// An owner may hold both WRITE and READ.
fn excludes(one: &Hold, other: &Hold) -> bool {
    let is_same = one.owner == other.owner && one.kind != other.kind;
    !is_same && one.kind.excludes(other.kind)
}
