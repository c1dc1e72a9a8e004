//! The attribution of events to changes, in the orders in which both can arrive.

use std::time::{Duration, Instant, SystemTime};

use redis_lock_client::{Holder, KeyEvent, LockInfo, Waiter};

use super::history::{Heard, History, Look};

const SECOND: Duration = Duration::from_secs(1);

/// A history, its clock and the lines so far.
struct Scene {
    history: History,
    now: Instant,
    is_settled: bool,
}

impl Scene {
    /// A lock in this state, on a server that sends events.
    fn of(state: &str) -> Scene {
        let mut scene = Scene {
            history: History::new(false),
            now: Instant::now(),
            is_settled: true,
        };
        scene.look("", state);
        scene.history.expects_events = true;
        scene
    }

    /// The lines of a look after these events: `event owner`.
    fn look(&mut self, events: &str, state: &str) -> Vec<String> {
        self.look_at(events, lock(state), false)
    }

    fn look_at(&mut self, events: &str, seen: LockInfo, after_gap: bool) -> Vec<String> {
        let lines = self.entries(events, seen, after_gap).into_iter();
        let line = |line: super::Entry| {
            let owner = line
                .owner
                .map(|owner| String::from_utf8_lossy(&owner).into_owned());
            let words = [Some(line.event.to_string()), owner, line.cause];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        lines.map(line).collect()
    }

    fn entries(&mut self, events: &str, seen: LockInfo, after_gap: bool) -> Vec<super::Entry> {
        let heard: Vec<Heard> = events.split_whitespace().map(heard).collect();
        self.now += Duration::from_millis(10);
        let look = Look {
            heard: &heard,
            seen,
            is_settled: self.is_settled,
            now: self.now,
            after_gap,
        };
        self.history.step(look)
    }
}

fn heard(name: &str) -> Heard {
    let name = match name {
        "acquire" | "release" | "expire" | "lost" | "wait" => format!("lock.{name}"),
        "dropped" => return (SystemTime::now(), KeyEvent::Dropped),
        other => other.into(),
    };
    (SystemTime::now(), KeyEvent::Named(name))
}

/// A lock from `holder:token < waiter waiter`.
fn lock(state: &str) -> LockInfo {
    let (holders, queue) = state.split_once('<').unwrap_or((state, ""));
    let mut info = LockInfo::default();
    for word in holders.split_whitespace() {
        let (owner, token) = word.split_once(':').expect("a token");
        let mut holder = Holder::default();
        holder.owner = owner.into();
        holder.token = token.parse().ok();
        holder.holds = 1;
        holder.lease = Some(SECOND * 30);
        holder.held = Some(SECOND);
        info.holders.push(holder);
    }
    for owner in queue.split_whitespace() {
        let mut waiter = Waiter::default();
        waiter.owner = owner.into();
        waiter.waited = SECOND * 10;
        info.queue.push(waiter);
    }
    info.waiters = info.queue.len() as u64;
    info
}

#[test]
fn a_change_waits_for_its_event_and_is_one_line() {
    let mut scene = Scene::of("a:1 < b");
    assert!(scene.look("", "b:2").is_empty());
    assert!(scene.history.due().is_some());
    assert_eq!(scene.look("release", "b:2"), ["release a"]);
    assert_eq!(scene.look("acquire", "b:2"), ["hand-off b"]);
    assert_eq!(scene.history.due(), None);
    assert!(scene.look("", "b:2").is_empty());
}

#[test]
fn a_waiter_that_came_and_was_granted_between_two_looks_was_handed_the_lock() {
    let mut scene = Scene::of("a:1");
    assert_eq!(
        scene.look("wait release acquire", "b:2"),
        ["release a", "hand-off b"]
    );
    assert_eq!(
        scene.look("release acquire", "c:3"),
        ["release b", "acquire c"]
    );
}

#[test]
fn a_change_without_an_event_is_listed_when_none_can_be_expected() {
    let mut scene = Scene::of("a:1");
    assert!(scene.look("del", "c:0").is_empty());
    scene.now += SECOND;
    assert_eq!(scene.look("", "c:0"), ["end a del", "acquire c"]);
    let mut scene = Scene::of("a:1 < b");
    scene.history.expects_events = false;
    assert_eq!(scene.look("", "b:2"), ["end a", "hand-off b"]);
    assert_eq!(scene.look("expired", ""), ["expire b expired"]);
}

#[test]
fn holds_between_two_looks_have_no_owner() {
    let mut scene = Scene::of("a:1");
    let lines = scene.look("release acquire release acquire", "c:3");
    assert_eq!(lines, ["release a", "acquire", "release", "acquire c"]);
    assert_eq!(
        scene.look("release acquire release", ""),
        ["release c", "acquire", "release"]
    );
    let mut scene = Scene::of("a:1");
    assert_eq!(
        scene.look("release acquire", "a:2"),
        ["release a", "acquire a"]
    );
}

#[test]
fn while_events_come_faster_than_looks_no_owner_is_named() {
    let mut scene = Scene::of("a:1");
    scene.is_settled = false;
    assert_eq!(scene.look("release acquire", "c:3"), ["release", "acquire"]);
    scene.is_settled = true;
    assert_eq!(scene.look("release acquire", "c:3"), ["release", "acquire"]);
    assert_eq!(scene.look("release", ""), ["release c"]);
}

#[test]
fn what_explains_a_loss_may_come_before_or_after_it() {
    let mut scene = Scene::of("a:1");
    assert_eq!(scene.look("lost del", ""), ["lost a del"]);
    let mut scene = Scene::of("a:1");
    assert!(scene.look("evicted", "").is_empty());
    assert_eq!(scene.look("lost", ""), ["lost a evicted"]);
    assert_eq!(scene.look("acquire", "b:2"), ["acquire b"]);
    assert_eq!(scene.look("lost", ""), ["lost b"]);
}

#[test]
fn the_reader_whose_lease_is_the_shortest_expires() {
    let mut scene = Scene::of("a:1 b:1 c:1");
    let mut seen = lock("a:1 b:1 c:1");
    seen.holders[1].lease = Some(SECOND);
    scene.look_at("", seen, false);
    assert_eq!(scene.look("expire", "a:1 c:1"), ["expire b"]);
}

#[test]
fn a_change_during_a_lost_connection_says_so() {
    let mut scene = Scene::of("a:1 < b");
    let lines = scene.look_at("", lock("b:2"), true);
    assert_eq!(lines, ["end a not connected", "hand-off b not connected"]);
}

#[test]
fn waiters_come_and_go_also_where_the_list_is_cut() {
    let mut scene = Scene::of("a:1");
    assert_eq!(scene.look("wait", "a:1 < b c"), ["wait b", "wait c"]);
    assert_eq!(scene.look("", "a:1 < c"), ["leave b"]);
    let cut = |state: &str| {
        let mut info = lock(state);
        info.waiters += 5;
        info
    };
    let mut scene = Scene::of("a:1");
    scene.look_at("", cut("a:1 < b c"), false);
    // d has moved up into the list; then e has come before it.
    assert_eq!(scene.look_at("", cut("a:1 < c d"), false), ["leave b"]);
    assert!(scene.look_at("", cut("a:1 < c"), false).is_empty());
}

#[test]
fn a_waiter_whose_limit_was_over_left_for_that() {
    let mut scene = Scene::of("a:1");
    let mut seen = lock("a:1 < b c");
    seen.queue[0].left = Some(Duration::from_millis(50));
    seen.queue[1].left = Some(SECOND * 30);
    scene.look_at("wait wait", seen, false);
    let lines = scene.look("", "a:1");
    assert_eq!(lines, ["leave b the limit of the wait was over", "leave c"]);
}

#[test]
fn dropped_events_are_a_line() {
    let mut scene = Scene::of("a:1");
    assert_eq!(scene.look("dropped release", ""), ["missed", "release a"]);
}

#[test]
fn the_wait_of_a_waiter_that_left_lasted_until_the_look_or_its_limit() {
    let mut scene = Scene::of("a:1");
    let mut waiting = lock("a:1 < b c");
    waiting.queue[0].left = Some(SECOND);
    scene.look_at("", waiting, false);
    scene.now += SECOND * 4;
    let left = scene.entries("", lock("a:1"), false);
    let waited: Vec<_> = left.iter().filter_map(|line| line.waited).collect();
    let until_the_look = SECOND * 14 + Duration::from_millis(10);
    assert_eq!(waited, [SECOND * 11, until_the_look]);
}

#[test]
fn a_renewal_moves_the_end_of_the_lease_by_the_clock_of_the_server() {
    let mut scene = Scene::of("a:1");
    scene.history = History::new(true);
    scene.look("", "a:1");
    let at = |held: u64, lease: u64| {
        let mut info = lock("a:1");
        info.holders[0].held = Some(Duration::from_millis(held));
        info.holders[0].lease = Some(Duration::from_millis(lease));
        info
    };
    // However late the replies are.
    assert!(scene.look_at("", at(6_000, 25_000), false).is_empty());
    assert_eq!(scene.look_at("", at(6_001, 30_000), false), ["renew a"]);
}
