//! The counters of tickets of a server that was not restarted: each ticket is counted in one end, and the replies and
//! messages agree with the counters.
//!
//! Of a ticket at a latch only the outcome is recorded: 0 is always a message, 1 may be the reply.

use crate::history::{Answer, Ask, History, Outcome, TicketCounters, Word};

use super::{Findings, Rule};

/// All of a history of one server.
pub fn check(history: &History, findings: &mut Findings) {
    for counters in &history.counters {
        let text = sum(counters).or_else(|| known(counters, history));
        findings.violations_of(Rule::Counters, text);
    }
}

/// The law of `INFO lock`; no ticket waits when all clients have ended.
fn sum(counters: &TicketCounters) -> Option<String> {
    let ends = [
        counters.granted,
        counters.timed_out,
        counters.withdrawn,
        counters.taken_over,
        counters.failed,
        counters.unheard,
    ];
    let ended: u64 = ends.iter().sum();
    let is_right = counters.queued == ended + counters.waiting && counters.waiting == 0;
    (!is_right).then(|| format!("tickets do not add up: {counters:?}"))
}

/// Compares the counters with the replies and messages. A request that was lost may have been executed or not.
fn known(counters: &TicketCounters, history: &History) -> Option<String> {
    let asks = |is: fn(&Ask) -> bool| history.asks.iter().filter(|ask| is(ask)).count() as u64;
    let words = |is: fn(&Word) -> bool| {
        let words = history.messages.iter().map(|message| &message.word);
        words.filter(|word| is(word)).count() as u64
    };
    let at_latches = history.latches.iter().filter(|op| op.ticket);
    let late = at_latches
        .clone()
        .filter(|op| op.outcome == Outcome::Number(0));
    let (late, at_latches) = (late.count() as u64, at_latches.count() as u64);
    let queued = asks(|ask| ask.answer == Answer::Queued);
    let lost = asks(|ask| ask.answer == Answer::Lost);
    // A ticket whose `BLOCK` ran out ends by a newer request, or by its grant, if its owner asks again soon.
    let granted = words(|word| matches!(word, Word::Granted(_)));
    let ran_out =
        counters.timed_out + counters.taken_over + counters.granted.saturating_sub(granted);
    let wrong = match () {
        () if counters.queued < queued + late => "fewer tickets than QUEUED",
        () if counters.queued > queued + lost + at_latches => "more tickets than QUEUED",
        () if counters.granted < granted => "fewer grants than messages",
        () if ran_out < words(|word| *word == Word::Timeout) + late => {
            "fewer time-outs than messages"
        }
        () if counters.failed < words(|word| matches!(word, Word::Failed(_))) => {
            "fewer failures than messages"
        }
        () => return None,
    };
    Some(format!(
        "{wrong}: {counters:?}; {queued} queued, {lost} lost, {at_latches} at latches"
    ))
}
