//! Fencing tokens rise from grant to grant, whatever the faults.

use crate::history::Kind;

use super::holds::Hold;
use super::{Findings, Rule};

/// The holds of one key, sorted by the time of their receipt.
pub fn check(holds: &[Hold], findings: &mut Findings) {
    let mut by_token: Vec<&Hold> = holds.iter().collect();
    by_token.sort_by_key(|hold| (hold.token, hold.received));
    for of_token in by_token.chunk_by(|a, b| a.token == b.token) {
        if !may_share(of_token, holds) {
            let text = format!("one token twice: {:?} and {:?}", of_token[0], of_token[1]);
            findings.violation(Rule::Tokens, text);
        }
    }
    if holds
        .iter()
        .any(|hold| matches!(hold.kind, Kind::Permit(_)))
    {
        // The token of a permit names the grant and does not fence.
        return;
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

/// Whether these holds may share one token. The readers of one phase do. So does a writer that reads as well, with
/// itself, and with readers that join after it has released WRITE and still reads; its own READ hold from before has
/// another one. (It may read without knowing, if the reply was lost.)
fn may_share(of_token: &[&Hold], holds: &[Hold]) -> bool {
    let reads = |hold: &&&Hold| hold.kind == Kind::Read;
    let mut others = of_token.iter().filter(|hold| !reads(hold));
    match (others.next(), others.next()) {
        _ if of_token.len() == 1 => true,
        (None, _) => true,
        (Some(writer), None) => {
            let is_own = |hold: &&Hold| hold.kind == Kind::Read && hold.owner == writer.owner;
            let is_before = |hold: &&Hold| hold.asked < writer.asked;
            let meanwhile = |hold: &&Hold| hold.asked <= writer.may_last();
            let goes_on = |hold: &Hold| hold.may_last() > writer.surely_until;
            let own = || of_token.iter().copied().filter(is_own);
            let is_alone = own().count() + 1 == of_token.len();
            let mut bridges = holds.iter().filter(is_own).filter(meanwhile);
            let may_read = || writer.may_read.is_some_and(|at| at <= writer.may_last());
            !own().any(|hold| is_before(&hold))
                && own().all(|hold| meanwhile(&hold))
                && (is_alone || may_read() || bridges.any(goes_on))
        }
        (Some(_), Some(_)) => false,
    }
}
