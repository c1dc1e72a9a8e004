//! The decisions of the table, without connections.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use tokio::sync::oneshot::Receiver;
use tokio::time::Instant;

use super::message::Message;
use super::table::{Table, MAX_IDLE};
use super::ticket::{Answer, Ask, Beat, Outcome, Step};
use crate::error::Error;
use crate::moment::Moment;

type Tickets = Table<(), &'static str>;

struct Scene {
    table: Tickets,
    now: Instant,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            table: Table::default(),
            now: Instant::now(),
        }
    }

    fn file(&mut self) -> (u64, Receiver<Outcome>) {
        self.table.file(None, (), || b"c".to_vec(), self.now)
    }

    /// The next request; none when nothing is due.
    fn ask(&mut self) -> Option<Ask<()>> {
        match self.table.next(None, self.now) {
            Step::Ask(ask) => Some(ask),
            Step::Done => None,
            Step::Pause(_) => panic!("a pause"),
        }
    }

    fn answer(&mut self, ask: &Ask<()>, answer: Answer) -> bool {
        self.table.answered(ask, answer, self.now)
    }

    fn message(&mut self, id: u64, message: Message) {
        self.table.message(id, message, self.now);
    }

    /// A subscribed line with these tickets, all queued.
    fn queued(count: usize) -> (Scene, Vec<(u64, Receiver<Outcome>)>) {
        let mut scene = Scene::new();
        let tickets: Vec<_> = (0..count).map(|_| scene.file()).collect();
        let first = scene.ask().unwrap();
        assert!(scene.answer(&first, Answer::NoSubscriber));
        scene.table.subscribed(None, "a", 1);
        for _ in 0..count {
            let ask = scene.ask().unwrap();
            assert!(!scene.answer(&ask, Answer::Queued("a".into())));
        }
        assert!(scene.ask().is_none());
        (scene, tickets)
    }
}

fn failed(code: &str) -> Message {
    Message::Failed(code.into())
}

#[test]
fn a_line_without_a_subscription_sends_one_request_at_a_time() {
    let mut scene = Scene::new();
    let _tickets = (scene.file(), scene.file());
    let ask = scene.ask().unwrap();
    assert!(ask.is_alone);
    assert!(scene.answer(&ask, Answer::NoSubscriber));
    scene.table.subscribed(None, "a", 1);
    for id in 1..=2 {
        let ask = scene.ask().unwrap();
        assert_eq!((ask.id, ask.is_alone), (id, false));
    }
}

#[test]
fn a_message_before_the_reply_ends_the_ticket() {
    let (mut scene, mut tickets) = Scene::queued(1);
    let (id, outcome) = &mut tickets[0];
    assert!(scene.table.ask_again(*id).is_none());
    let ask = scene.ask().unwrap();
    scene.message(*id, Message::Granted);
    assert!(matches!(outcome.try_recv().unwrap(), Outcome::Announced));
    let until = scene.now + Duration::from_secs(1);
    assert_eq!(scene.table.under_way_until(*id, until), Some(until));
    scene.answer(&ask, Answer::Queued("a".into()));
    assert_eq!(scene.table.under_way_until(*id, until), None);
    assert!(scene.ask().is_none());
}

#[test]
fn a_timeout_before_the_reply_counts_once_the_request_is_queued() {
    let (mut scene, mut tickets) = Scene::queued(2);
    for (id, _) in &tickets {
        scene.table.ask_again(*id);
    }
    let (first, second) = (scene.ask().unwrap(), scene.ask().unwrap());
    scene.message(first.id, Message::TimedOut);
    scene.message(second.id, Message::TimedOut);
    assert!(tickets[0].1.try_recv().is_err());
    scene.answer(&first, Answer::Queued("a".into()));
    let outcome = tickets[0].1.try_recv().unwrap();
    assert!(matches!(outcome, Outcome::TimedOut));
    scene.answer(&second, Answer::Granted(vec![7], Moment::now()));
    let outcome = tickets[1].1.try_recv().unwrap();
    assert!(matches!(outcome, Outcome::Granted(tokens, _) if tokens == [7]));
}

#[test]
fn all_queued_tickets_are_asked_again_in_their_order_after_a_break() {
    let (mut scene, mut tickets) = Scene::queued(5);
    scene.message(3, Message::Granted);
    assert!(tickets[2].1.try_recv().is_ok());
    assert_eq!(scene.table.closed(1), [None]);
    assert_eq!(scene.table.closed(1), [], "once");
    let ask = scene.ask().unwrap();
    assert!(ask.is_alone && ask.id == 1);
    assert!(scene.answer(&ask, Answer::NoSubscriber));
    scene.table.subscribed(None, "a", 2);
    let order: Vec<_> = std::iter::from_fn(|| scene.ask().map(|ask| ask.id)).collect();
    assert_eq!(order, [1, 2, 4, 5]);
}

#[test]
fn a_reply_from_before_a_break_is_asked_for_again() {
    let (mut scene, tickets) = Scene::queued(1);
    scene.table.ask_again(tickets[0].0);
    let ask = scene.ask().unwrap();
    scene.table.closed(1);
    scene.answer(&ask, Answer::Queued("a".into()));
    assert!(!scene.table.is_queued(1) && scene.table.may_be_there(1));
    assert_eq!(scene.ask().unwrap().id, 1);
}

#[test]
fn a_subscription_at_another_node_makes_all_tickets_due() {
    let (mut scene, _tickets) = Scene::queued(2);
    scene.table.ask_again(1);
    let ask = scene.ask().unwrap();
    // The subscribed node has failed, and the request has found another.
    assert!(
        !scene.answer(&ask, Answer::NoSubscriber),
        "not known at once"
    );
    let ask = scene.ask().unwrap();
    assert!(ask.is_alone);
    assert!(scene.answer(&ask, Answer::NoSubscriber));
    scene.table.subscribed(None, "b", 2);
    for id in 1..=2 {
        let ask = scene.ask().unwrap();
        assert_eq!(ask.id, id);
        scene.answer(&ask, Answer::Queued("b".into()));
    }
    assert!(scene.table.is_queued(1) && scene.table.is_queued(2));
}

#[test]
fn a_channel_that_the_server_ends_is_subscribed_again() {
    let (mut scene, _tickets) = Scene::queued(1);
    assert_eq!(scene.table.channel_ended(1, b"other"), None);
    assert_eq!(scene.table.channel_ended(2, b"c"), None);
    assert_eq!(scene.table.channel_ended(1, b"c"), Some(None));
    assert!(scene.ask().unwrap().is_alone);
}

#[test]
fn a_queued_request_needs_a_subscription_also_where_the_server_does_not_ask_for_one() {
    let mut scene = Scene::new();
    let _ticket = scene.file();
    let ask = scene.ask().unwrap();
    assert!(scene.answer(&ask, Answer::Queued("a".into())));
    assert!(!scene.table.is_queued(1));
}

#[test]
fn failures_pause_the_line_and_lose_no_ticket() {
    let mut scene = Scene::new();
    let _tickets = (scene.file(), scene.file());
    let later = || Answer::Later {
        unanswered_until: None,
    };
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let ask = scene.ask().unwrap();
        assert_eq!(ask.id, 1);
        scene.answer(&ask, later());
        let Step::Pause(until) = scene.table.next(None, scene.now) else {
            panic!("no pause");
        };
        pauses.push((until - scene.now).as_millis());
        scene.now = until;
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 500, 500]);
}

#[test]
fn a_request_without_a_reply_may_still_be_served() {
    let mut scene = Scene::new();
    let (id, _outcome) = scene.file();
    assert!(!scene.table.may_be_there(id));
    let ask = scene.ask().unwrap();
    let until = Some(scene.now + Duration::from_secs(5));
    scene.answer(
        &ask,
        Answer::Later {
            unanswered_until: until,
        },
    );
    assert!(scene.table.may_be_there(id));
    assert_eq!(scene.table.under_way_until(id, scene.now), until);
}

#[test]
fn a_grant_that_nothing_has_read_yet_may_be_there() {
    let mut scene = Scene::new();
    let (id, _outcome) = scene.file();
    let ask = scene.ask().unwrap();
    scene.answer(&ask, Answer::Granted(vec![7], Moment::now()));
    assert!(scene.table.may_be_there(id));
    let (id, _outcome) = scene.file();
    let ask = scene.ask().unwrap();
    scene.message(id, Message::Granted);
    scene.answer(&ask, Answer::Queued("a".into()));
    assert!(scene.table.may_be_there(id));
}

#[test]
fn a_server_without_tickets_sends_all_due_waits_to_parking() {
    let mut scene = Scene::new();
    let mut tickets = [scene.file(), scene.file()];
    let ask = scene.ask().unwrap();
    scene.answer(&ask, Answer::Unsupported);
    scene.table.park(None, "evidence", false, scene.now);
    for (_, outcome) in &mut tickets {
        assert!(matches!(outcome.try_recv().unwrap(), Outcome::Park));
    }
    assert_eq!(scene.table.parking(None, scene.now), Some(&"evidence"));
    scene.table.end_parking(None);
    assert_eq!(scene.table.parking(None, scene.now), None);
}

#[test]
fn subscriptions_that_do_not_help_send_waits_to_parking_for_a_while() {
    let mut scene = Scene::new();
    let _ticket = scene.file();
    for number in 1..=3 {
        let ask = scene.ask().unwrap();
        assert!(scene.answer(&ask, Answer::NoSubscriber));
        assert!(scene.table.may_subscribe(None));
        scene.table.subscribed(None, "a", number);
        let ask = scene.ask().unwrap();
        assert!(!scene.answer(&ask, Answer::NoSubscriber));
    }
    assert!(!scene.table.may_subscribe(None));
    scene.table.park(None, "evidence", true, scene.now);
    assert!(scene.table.parking(None, scene.now).is_some());
    let later = scene.now + Duration::from_secs(31);
    assert!(scene.table.parking(None, later).is_none());
}

#[test]
fn a_full_server_parks_one_wait_and_a_drained_one_none() {
    let (mut scene, mut tickets) = Scene::queued(2);
    scene.message(1, failed("DRAINED"));
    scene.now += Duration::from_millis(20);
    let ask = scene.ask().unwrap();
    scene.answer(&ask, Answer::Busy);
    scene.now += Duration::from_secs(1);
    let ask = scene.ask().unwrap();
    scene.answer(&ask, Answer::Queued("a".into()));
    assert!(scene.table.is_queued(1));
    scene.table.ask_again(2);
    let ask = scene.ask().unwrap();
    scene.answer(&ask, Answer::Busy);
    assert!(matches!(tickets[1].1.try_recv().unwrap(), Outcome::Park));
    assert!(tickets[0].1.try_recv().is_err());
}

#[test]
fn a_failure_ends_the_wait_unless_it_passes() {
    let (mut scene, mut tickets) = Scene::queued(2);
    scene.message(1, failed("LOCKBROKEN"));
    scene.message(2, failed("UNBLOCKED"));
    let outcome = tickets[0].1.try_recv().unwrap();
    assert!(matches!(outcome, Outcome::Refused(code) if code == "LOCKBROKEN"));
    assert!(tickets[1].1.try_recv().is_err());
    scene.now += Duration::from_millis(20);
    let ask = scene.ask().unwrap();
    scene.answer(&ask, Answer::Failed(Error::config("no")));
    assert!(matches!(
        tickets[1].1.try_recv().unwrap(),
        Outcome::Failed(_)
    ));
}

#[test]
fn a_ticket_that_is_asked_for_again_keeps_its_turn() {
    let (mut scene, mut tickets) = Scene::queued(2);
    scene.message(1, Message::TimedOut);
    assert!(matches!(
        tickets[0].1.try_recv().unwrap(),
        Outcome::TimedOut
    ));
    assert!(!scene.table.may_be_there(1));
    scene.table.ask_again(2);
    let mut renewed = scene.table.ask_again(1).unwrap();
    assert_eq!(scene.ask().unwrap().id, 1);
    scene.message(1, Message::Granted);
    assert!(matches!(renewed.try_recv().unwrap(), Outcome::Announced));
}

#[test]
fn a_removed_ticket_is_not_asked_for_and_takes_no_message() {
    let (mut scene, _tickets) = Scene::queued(2);
    scene.table.remove(1, scene.now);
    scene.message(1, Message::Granted);
    scene.table.closed(1);
    assert_eq!(scene.ask().unwrap().id, 2);
    assert!(scene.ask().is_none());
}

#[test]
fn an_idle_subscription_is_closed_and_a_used_one_is_probed() {
    let (mut scene, _tickets) = Scene::queued(1);
    assert_eq!(
        scene.table.beat(1, scene.now),
        Beat::Probe(b"c".to_vec(), Vec::new())
    );
    scene.table.remove(1, scene.now);
    assert!(!scene.table.is_used(1));
    assert_eq!(scene.table.beat(1, scene.now), Beat::Rest);
    assert_eq!(scene.table.beat(1, scene.now + MAX_IDLE), Beat::Close);
    assert_eq!(scene.table.beat(2, scene.now), Beat::Close);
}

#[test]
fn an_idle_channel_beside_a_used_one_is_given_up() {
    let (mut scene, _tickets) = Scene::queued(1);
    let (other, _outcome) = scene.table.file(Some(7), (), || b"x".to_vec(), scene.now);
    scene.table.subscribed(Some(7), "a", 1);
    scene.table.remove(other, scene.now);
    let later = scene.now + MAX_IDLE;
    let expected = Beat::Probe(b"c".to_vec(), vec![b"x".to_vec()]);
    assert_eq!(scene.table.beat(1, later), expected);
    assert_eq!(scene.table.channel_ended(1, b"x"), None, "forgotten");
}

#[test]
fn a_line_has_one_worker() {
    let mut scene = Scene::new();
    let _ticket = scene.file();
    assert!(scene.table.begin_work(None).is_some());
    assert!(scene.table.begin_work(None).is_none());
    let ask = scene.ask().unwrap();
    assert!(scene.ask().is_none(), "the worker ends");
    scene.answer(&ask, Answer::NoSubscriber);
    assert!(scene.table.begin_work(None).is_some());
}
