//! Forged histories of tickets, small ones written by hand, and simulated ones whose requests wait by tickets, with the
//! forgeries of parked requests and others: see `forged`.

use crate::history::{
    Answer, Ask, Call, Fault, History, Kind, Look, Message, Op, Outcome, Seen, Subscription,
    TicketCounters, Word, MS,
};

use super::forged::{forge, simulated};
use super::verdict::{accepted, breaks, breaks_among_others, mark};
use super::{check, Rule};

/// A history of key 0, in milliseconds. Process 1 sends all requests with `NOTIFY`; the tag of a request is its owner
/// times ten and its number.
#[derive(Default)]
struct Story(History);

const CHANNEL: &str = "answers:1.0";
const PORT: u16 = 6379;

fn granted(token: i64) -> Word {
    Word::Granted(vec![token])
}

impl Story {
    /// With a subscription from 1 ms on that the server ends never.
    fn subscribed() -> Story {
        Story::default().subscribes(0, 1, 90_000, 90_001)
    }

    fn subscribes(mut self, sent: u64, from: u64, alive: u64, to: u64) -> Story {
        self.0.subscriptions.push(Subscription {
            client: 1,
            port: PORT,
            channel: CHANNEL.into(),
            sent: sent * MS,
            from: from * MS,
            alive: alive * MS,
            to: to * MS,
            is_ended_by_server: true,
        });
        self
    }

    /// A request with a lease of 100 ms.
    fn asks_for(mut self, keys: &[u32], tag: u64, sent: u64, block: u32, answer: Answer) -> Story {
        self.0.asks.push(Ask {
            client: 1,
            owner: tag / 10,
            keys: keys.to_vec(),
            kind: Kind::Exclusive,
            lease: 100,
            block,
            port: PORT,
            channel: CHANNEL.into(),
            tag,
            sent: sent * MS,
            done: (sent + 1) * MS,
            answer,
        });
        self
    }

    fn asks(self, tag: u64, sent: u64, answer: Answer) -> Story {
        self.asks_for(&[0], tag, sent, 0, answer)
    }

    fn queues(self, tag: u64, sent: u64) -> Story {
        self.asks(tag, sent, Answer::Queued)
    }

    /// With a limit.
    fn queues_for(self, tag: u64, sent: u64, block: u32) -> Story {
        self.asks_for(&[0], tag, sent, block, Answer::Queued)
    }

    fn hears(mut self, tag: u64, at: u64, word: Word) -> Story {
        self.0.messages.push(Message {
            client: 1,
            port: PORT,
            channel: CHANNEL.into(),
            tag,
            word,
            at: at * MS,
        });
        self
    }

    fn op(mut self, owner: u64, at: (u64, u64), call: Call, outcome: Outcome) -> Story {
        self.0.ops.push(Op {
            client: owner as u32,
            owner,
            key: 0,
            call,
            sent: at.0 * MS,
            done: at.1 * MS,
            outcome,
        });
        self
    }

    /// A parked request.
    fn takes(self, owner: u64, at: (u64, u64), token: i64) -> Story {
        let call = Call::acquire(100, Some(0), false);
        self.op(owner, at, call, Outcome::Granted(token))
    }

    fn renews(self, owner: u64, sent: u64, number: i64) -> Story {
        let call = Call::renew(100, None);
        self.op(owner, (sent, sent + 1), call, Outcome::Number(number))
    }

    fn releases(self, owner: u64, sent: u64, outcome: Outcome) -> Story {
        let call = Call::release(true, None);
        self.op(owner, (sent, sent + 1), call, outcome)
    }

    fn seen(mut self, owner: u64, at: u64) -> Story {
        let (key, at) = (0, at * MS);
        self.0.seen.push(Seen { key, owner, at });
        self
    }

    /// A reading of the keys that owner 1 holds.
    fn looks(mut self, at: u64, keys: &[u32]) -> Story {
        self.0.looks.push(Look {
            from: at * MS,
            to: at * MS + 1,
            holders: keys.iter().map(|key| (*key, 1)).collect(),
        });
        self
    }

    fn fault(mut self, fault: Fault, from: u64, to: u64) -> Story {
        self.0.marks.push(mark(fault, None, from, to));
        self
    }

    fn counts(mut self, counters: TicketCounters) -> Story {
        self.0.counters.push(counters);
        self
    }

    #[track_caller]
    fn breaks(&self, rule: Rule) {
        breaks(&self.0, rule);
    }

    #[track_caller]
    fn is_fine(&self) {
        accepted(&self.0);
    }
}

#[test]
fn a_ticket_that_is_granted_by_message_is_valid() {
    let story = || Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    story().is_fine();
    story()
        .renews(1, 41, 1)
        .releases(1, 50, Outcome::Number(1))
        .is_fine();
    // The message is read before the reply.
    let story = Story::subscribed().asks(11, 5, Answer::Lost);
    story.hears(11, 5, granted(7)).is_fine();
}

#[test]
fn a_granted_ticket_excludes_other_holders() {
    let story = || Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    let both = story().takes(2, (10, 60), 8);
    both.breaks(Rule::Exclusion);
    let after = story().releases(1, 50, Outcome::Number(1));
    after.takes(2, (10, 60), 8).is_fine();
    let two = story().queues(21, 6).hears(21, 60, granted(8));
    two.breaks(Rule::Exclusion);
}

#[test]
fn a_token_in_a_message_rises() {
    let story = Story::subscribed().takes(2, (0, 2), 8);
    let story = story.releases(2, 3, Outcome::Number(1));
    story
        .queues(11, 5)
        .hears(11, 40, granted(7))
        .breaks(Rule::Tokens);
}

#[test]
fn one_queue_serves_tickets_and_parked_requests() {
    let ticket_first = |tokens: [i64; 2]| {
        let story = Story::subscribed().queues(11, 5).seen(1, 10);
        let story = story.hears(11, 200, granted(tokens[0]));
        story.takes(2, (20, 300), tokens[1])
    };
    ticket_first([7, 8]).is_fine();
    ticket_first([8, 7]).breaks(Rule::Order);
    let parked_first = |tokens: [i64; 2]| {
        let story = Story::subscribed()
            .takes(2, (5, 200), tokens[0])
            .seen(2, 10);
        story.queues(11, 20).hears(11, 300, granted(tokens[1]))
    };
    parked_first([7, 8]).is_fine();
    parked_first([8, 7]).breaks(Rule::Order);
}

/// The ticket of owner 1 is seen, its subscriber is lost at 30, its next request is queued at this time; owner 2
/// asks and is granted in this time.
fn returned(again: u64, passed: (u64, u64)) -> Story {
    let story = Story::default().subscribes(0, 1, 30, 35);
    let story = story.subscribes(40, 41, 90_000, 90_001);
    let story = story.queues(11, 5).seen(1, 10).queues(12, again);
    let passes = story.takes(2, passed, 7);
    passes.hears(12, 400, granted(8))
}

#[test]
fn a_passed_over_ticket_keeps_its_place_until_its_owner_asks_again() {
    // While it has no subscriber, or no request since.
    returned(45, (25, 36)).is_fine();
    returned(45, (44, 47)).is_fine();
    // Before the subscriber was lost, and after the request was queued.
    returned(45, (12, 29)).breaks(Rule::Order);
    returned(45, (50, 60)).breaks(Rule::Order);
    // After the lease, which began with a message that was lost, or after the grace, it waits at the end.
    returned(140, (150, 160)).is_fine();
    let taken = returned(45, (50, 60)).fault(Fault::Taken, 40, 42);
    taken.is_fine();
    let restarted = returned(45, (50, 60)).fault(Fault::Crash, 40, 42);
    restarted.is_fine();
}

#[test]
fn a_grant_whose_message_was_lost_may_be_older_than_the_request_that_shows_it() {
    // Owner 1 is away from 30 to 46; owner 2 learns of its grant at 51.
    let story = |first: u64, lost: bool| {
        let story = Story::default().subscribes(0, 1, 30, 35);
        let story = story.subscribes(40, 41, 90_000, 90_001);
        let story = story.queues(11, 5).seen(1, 10).queues(12, 45);
        let story = match lost {
            true => story.queues(21, first),
            false => story,
        };
        let story = story.asks(22, 50, Answer::Granted(vec![7]));
        story.hears(12, 400, granted(8))
    };
    story(20, true).is_fine();
    story(48, true).breaks(Rule::Order);
    story(0, false).breaks(Rule::Order);
}

#[test]
fn a_ticket_that_timed_out_keeps_its_place_until_its_owner_asks_again() {
    let story = |passed| {
        let story = Story::subscribed().queues_for(11, 5, 20).seen(1, 10);
        let story = story.hears(11, 26, Word::Timeout).queues(12, 50);
        let passes = story.takes(2, passed, 7);
        passes.hears(12, 400, granted(8))
    };
    story((15, 40)).is_fine();
    // The server counts in milliseconds of its own clock: the wait until 25 may end a millisecond earlier.
    story((15, 24)).is_fine();
    story((15, 23)).breaks(Rule::Order);
    story((60, 70)).breaks(Rule::Order);
}

#[test]
fn a_request_that_takes_a_ticket_over_keeps_its_place() {
    let story = |passed, token| {
        let story = Story::subscribed().queues(11, 5).seen(1, 10).queues(12, 30);
        let passes = story.takes(2, passed, token);
        passes.hears(12, 400, granted(8))
    };
    story((25, 500), 9).is_fine();
    story((25, 35), 7).breaks(Rule::Order);
}

#[test]
fn a_ticket_that_is_granted_twice_is_found() {
    let story = || Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    story().hears(11, 45, granted(7)).breaks(Rule::Tickets);
    story().hears(11, 300, Word::Timeout).breaks(Rule::Tickets);
    // The replica of a primary passes its messages on; they are the same.
    let from_replica = |word| {
        let mut twice = story().hears(11, 45, word);
        twice.0.messages[1].port = PORT + 1;
        twice
    };
    from_replica(granted(7)).is_fine();
    from_replica(granted(8)).breaks(Rule::Tickets);
    let at_once = Story::subscribed().asks(11, 5, Answer::Granted(vec![7]));
    at_once.hears(11, 40, granted(7)).breaks(Rule::Tickets);
    // By two requests of one owner: the second was queued although the first was granted.
    let again = || {
        let story = story().queues(12, 30);
        story.releases(1, 60, Outcome::Number(1))
    };
    again().breaks(Rule::Tickets);
    again().fault(Fault::Taken, 20, 25).is_fine();
    let over = Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    over.queues(12, 150).hears(12, 160, granted(8)).is_fine();
}

#[test]
fn a_silent_ticket_is_found() {
    let story = || Story::subscribed().takes(2, (8_000, 9_000), 9);
    story().queues(11, 5).breaks(Rule::Silence);
    story()
        .queues(11, 5)
        .releases(1, 400, Outcome::Nil)
        .is_fine();
    let died = story().queues(11, 5);
    died.op(1, (50, 50), Call::Close, Outcome::Nil).is_fine();
    // A refused release withdraws nothing.
    let refused = Outcome::Error("NOREPLICAS".into());
    story()
        .queues(11, 5)
        .releases(1, 400, refused)
        .breaks(Rule::Silence);
}

#[test]
fn a_late_outcome_of_a_ticket_is_found() {
    let story = |at| {
        let story = Story::subscribed().queues_for(11, 5, 100);
        story.hears(11, at, Word::Timeout)
    };
    story(106).is_fine();
    story(2_200).breaks(Rule::Silence);
    story(2_200).fault(Fault::Trouble, 50, 1_000).is_fine();
    // The next request ends a wait that had no message; it comes at once, not seconds later.
    let story = |again| {
        let story = Story::subscribed().queues_for(11, 5, 100);
        story.queues(12, again).hears(12, again + 9, granted(7))
    };
    story(50).is_fine();
    story(2_200).breaks(Rule::Silence);
    let mut late = Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    late.0.asks[0].done = 2_100 * MS;
    late.breaks(Rule::Silence);
}

#[test]
fn a_granted_message_of_an_owner_that_holds_nothing_is_found() {
    let story = || Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    story().renews(1, 50, 0).breaks(Rule::Held);
    story().releases(1, 50, Outcome::Nil).breaks(Rule::Held);
    // The lease may be over, or a fault has taken the lock.
    story().renews(1, 110, 0).is_fine();
    let taken = || story().renews(1, 50, 0);
    taken().fault(Fault::Taken, 20, 30).is_fine();
    taken().fault(Fault::Failover, 20, 30).is_fine();
    taken().fault(Fault::Crash, 20, 30).breaks(Rule::Held);
    // A renewal makes the lease certain anew.
    let renewed = story().renews(1, 90, 1);
    renewed.renews(1, 150, 0).breaks(Rule::Held);
    // The owner gave up before it had read the message: the release was told which of the two came first.
    let gave_up = || Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    gave_up().releases(1, 30, Outcome::Number(1)).is_fine();
    gave_up()
        .releases(1, 30, Outcome::Nil)
        .breaks(Rule::Tickets);
}

#[test]
fn a_message_that_answers_nothing_is_found() {
    let story = || Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    story().hears(99, 40, granted(8)).breaks(Rule::Tickets);
    let mut elsewhere = story();
    elsewhere.0.messages[0].channel = "answers:2.0".into();
    elsewhere.breaks(Rule::Tickets);
    let early = Story::subscribed().queues(11, 50);
    early.hears(11, 40, granted(7)).breaks(Rule::Tickets);
    let many = || Story::subscribed().asks_for(&[0, 1], 11, 5, 0, Answer::Queued);
    let two = Word::Granted(vec![7, 8]);
    many().hears(11, 40, two).is_fine();
    let one = check(&many().hears(11, 40, granted(7)).0);
    assert!(one.count(Rule::Tickets) > 0, "{one:?}");
}

#[test]
fn an_outcome_without_a_reason_is_found() {
    let limited = || Story::subscribed().queues_for(11, 5, 100);
    limited().hears(11, 90, Word::Timeout).breaks(Rule::Tickets);
    let unlimited = Story::subscribed().queues(11, 5);
    unlimited
        .hears(11, 900, Word::Timeout)
        .breaks(Rule::Tickets);
    let failed = |code: &str| limited().hears(11, 90, Word::Failed(code.into()));
    failed("UNBLOCKED").breaks(Rule::Tickets);
    failed("UNBLOCKED").fault(Fault::Handover, 50, 60).is_fine();
    failed("LOCKBROKEN")
        .fault(Fault::Handover, 50, 60)
        .breaks(Rule::Tickets);
    let unknown = Word::Unknown("granted x 11".into());
    limited().hears(11, 90, unknown).breaks(Rule::Tickets);
}

#[test]
fn a_subscription_decides_whether_a_request_is_accepted() {
    let refused = || Answer::Error("NOSUBSCRIBER".into());
    Story::subscribed()
        .asks(11, 5, refused())
        .breaks(Rule::Tickets);
    Story::default().asks(11, 5, refused()).is_fine();
    let lost = || Story::default().subscribes(0, 1, 30, 35);
    lost().asks(11, 32, refused()).is_fine();
    let granted = || Answer::Granted(vec![7]);
    lost().asks(11, 32, granted()).is_fine();
    lost().asks(11, 40, granted()).breaks(Rule::Tickets);
    Story::default()
        .asks(11, 5, granted())
        .breaks(Rule::Tickets);
}

#[test]
fn a_grant_without_a_subscriber_is_found() {
    let story = |granted: u64, again: u64| {
        let story = Story::default().subscribes(0, 1, 30, 35);
        let story = story.subscribes(60, 61, 90_000, 90_001);
        let story = story.queues(11, 5).looks(granted, &[]);
        let story = story.looks(granted + 2, &[0]);
        story.asks(12, again, Answer::Granted(vec![7]))
    };
    story(40, 65).breaks(Rule::Tickets);
    story(20, 65).is_fine();
    story(62, 68).is_fine();
    // Granted by the reply to a request under way.
    story(64, 65).is_fine();
    let restarted = story(40, 65).fault(Fault::Crash, 32, 38);
    restarted.is_fine();
}

#[test]
fn a_ticket_for_several_keys_holds_all_or_none() {
    let story = |at: u64, keys: &[u32]| {
        let story = Story::subscribed().asks_for(&[0, 1], 11, 5, 0, Answer::Queued);
        let story = story.hears(11, 60, Word::Granted(vec![7, 8]));
        story.looks(at, keys)
    };
    story(50, &[0, 1]).is_fine();
    story(50, &[1]).breaks(Rule::AllOrNothing);
}

#[test]
fn tickets_that_are_not_counted_are_found() {
    let story = || {
        let story = Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
        let story = story.queues_for(21, 6, 50).hears(21, 60, Word::Timeout);
        story.queues(31, 7).releases(3, 20, Outcome::Nil)
    };
    let counters = TicketCounters {
        queued: 3,
        granted: 1,
        timed_out: 1,
        withdrawn: 1,
        ..TicketCounters::default()
    };
    story().counts(counters).is_fine();
    let wrong: [fn(&mut TicketCounters); 6] = [
        |c| c.queued += 1,
        |c| (c.queued, c.waiting) = (4, 1),
        |c| (c.queued, c.withdrawn) = (4, 2),
        |c| (c.queued, c.withdrawn) = (2, 0),
        |c| (c.granted, c.unheard) = (0, 1),
        |c| (c.timed_out, c.unheard) = (0, 1),
    ];
    for change in wrong {
        let mut changed = counters;
        change(&mut changed);
        story().counts(changed).breaks(Rule::Counters);
    }
}

/// The same history, in which half of the requests, or all, wait by tickets.
fn with_tickets(history: &History, rng: &mut fastrand::Rng) -> History {
    let (mut with, all) = (history.clone(), rng.bool());
    with.ops.clear();
    for op in &history.ops {
        let (Call::Acquire { lease, .. }, Outcome::Granted(token)) = (op.call, &op.outcome) else {
            with.ops.push(op.clone());
            continue;
        };
        if !all && op.owner % 2 == 0 {
            with.ops.push(op.clone());
            continue;
        }
        let tag = 10 * op.owner + 1;
        with.asks.push(Ask {
            client: 1,
            owner: op.owner,
            keys: vec![op.key],
            kind: Kind::Exclusive,
            lease,
            block: 0,
            port: PORT,
            channel: CHANNEL.into(),
            tag,
            sent: op.sent,
            done: op.done.min(op.sent + MS),
            answer: Answer::Queued,
        });
        with.messages.push(Message {
            client: 1,
            port: PORT,
            channel: CHANNEL.into(),
            tag,
            word: granted(*token),
            at: op.done,
        });
    }
    let end = history.ops.iter().map(|op| op.done).max().unwrap_or(0) / MS;
    Story(with).subscribes(0, 0, end + 1, end + 2).0
}

/// Forges one record of a ticket so that this rule is broken.
fn forge_ticket(rule: Rule, history: &mut History, rng: &mut fastrand::Rng) {
    let at = rng.usize(..history.messages.len());
    match rule {
        Rule::Silence => {
            // Without the message its client would have sent nothing more.
            let owner = history.messages.remove(at).tag / 10;
            history.ops.retain(|op| op.owner != owner);
        }
        Rule::Tickets => {
            let message = &mut history.messages[at];
            match rng.u8(..3) {
                0 => message.tag += 1,
                1 => message.word = Word::Timeout,
                _ => {
                    let twice = message.clone();
                    history.messages.push(twice);
                }
            }
        }
        Rule::Held => {
            let tickets: Vec<u64> = history.asks.iter().map(|ask| ask.owner).collect();
            let is_release = |op: &&mut Op| matches!(op.call, Call::Release { .. });
            let releases = history.ops.iter_mut().filter(is_release);
            let mut all: Vec<_> = releases.filter(|op| tickets.contains(&op.owner)).collect();
            let at = rng.usize(..all.len());
            all[at].outcome = Outcome::Nil;
        }
        _ => history.counters[0].granted -= 1,
    }
}

#[test]
fn simulated_tickets_pass_and_each_forgery_is_found() {
    let of_all = [
        Rule::Exclusion,
        Rule::Tokens,
        Rule::Order,
        Rule::Leases,
        Rule::Silence,
    ];
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let parked = simulated(&mut rng);
        let mut valid = with_tickets(&parked, &mut rng);
        valid.counters.push(TicketCounters {
            queued: valid.asks.len() as u64,
            granted: valid.asks.len() as u64,
            ..TicketCounters::default()
        });
        assert!(accepted(&valid).ordered > 0, "seed {seed}");
        for rule in of_all {
            let mut forged = parked.clone();
            forge(rule, &mut forged, &mut rng);
            breaks_among_others(&with_tickets(&forged, &mut rng), rule);
        }
        for rule in [Rule::Silence, Rule::Tickets, Rule::Held, Rule::Counters] {
            let mut forged = valid.clone();
            forge_ticket(rule, &mut forged, &mut rng);
            breaks_among_others(&forged, rule);
        }
    }
}

#[test]
fn records_of_tickets_are_read_as_they_were_written() {
    let story = Story::subscribed().queues(11, 5).hears(11, 40, granted(7));
    let failed = Word::Failed("MOVED".into());
    let history = story
        .hears(11, 50, failed)
        .counts(TicketCounters::default())
        .0;
    let path = std::env::temp_dir().join(format!("tickets.{}.jsonl", std::process::id()));
    history.write(&path).expect("a file");
    let read = History::read(&path).expect("the same file");
    std::fs::remove_file(&path).expect("the file");
    assert_eq!(read, history);
}
