//! Fencing tokens rise from grant to grant, whatever happened.

use super::holds::Hold;
use super::{Findings, Rule};

/// The holds of one key, sorted by when they were received.
pub fn check(holds: &[Hold], findings: &mut Findings) {
    let mut by_token: Vec<&Hold> = holds.iter().collect();
    by_token.sort_by_key(|hold| (hold.token, hold.received));
    for pair in by_token.windows(2) {
        if pair[0].token == pair[1].token {
            let text = format!("one token twice: {:?} and {:?}", pair[0], pair[1]);
            findings.violation(Rule::Tokens, text);
        }
    }
    let mut by_asking: Vec<&Hold> = holds.iter().collect();
    by_asking.sort_by_key(|hold| hold.asked);
    let mut received = holds.iter().peekable();
    let mut highest: Option<&Hold> = None;
    for hold in by_asking {
        while let Some(earlier) = received.next_if(|earlier| earlier.received < hold.asked) {
            highest = highest
                .filter(|highest| highest.token > earlier.token)
                .or(Some(earlier));
        }
        if let Some(highest) = highest.filter(|highest| highest.token > hold.token) {
            let text = format!("a token fell: {highest:?}, then {hold:?}");
            findings.violation(Rule::Tokens, text);
        }
    }
}
