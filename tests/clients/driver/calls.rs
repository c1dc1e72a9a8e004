//! What the calls of a package mean, told by orders alone: each scenario runs above a server and above the package's
//! own double of one, so that a double cannot lie.

use redis_lock_harness::replica::follow;
use redis_lock_harness::{wait_for, TestServer};

use crate::agent::token_in;
use crate::ticket_agent::TicketAgent;
use crate::TicketSubject;

/// Longer than any test, in milliseconds.
const LONG: u32 = 600_000;

/// A lease, or a rest of one, whose end a test waits for.
const SHORT: u32 = 3_000;

/// A lease whose loss a renewal tells soon, and that a busy machine renews in time.
const RENEWED: u32 = 9_000;

/// A wait that ends without a grant, and in which a busy server answers.
const BRIEF: u32 = 1_000;

/// A package with an agent, above a server or above its double.
struct World {
    /// None: the double, in the agent.
    server: Option<TestServer>,
    agent: TicketAgent,
}

impl World {
    fn start(subject: &TicketSubject) -> World {
        let server = match subject.mode.starts_with("double") {
            true => None,
            false => Some(TestServer::start()),
        };
        let port = server.as_ref().map_or(0, |server| server.port);
        let agent = TicketAgent::start(subject, port);
        World { server, agent }
    }

    /// What this order is granted: its token.
    fn granted(&mut self, order: &str) -> i64 {
        token_in(&self.agent.ask(order))
    }

    /// A lock of this owner, which is renewed.
    fn keep(&mut self, key: &str, owner: &str, options: &str) -> i64 {
        self.granted(format!("keep {key} {owner} 10000 {LONG} {options}").trim_end())
    }

    fn assert(&mut self, order: &str, answer: &str) {
        assert_eq!(self.agent.ask(order), answer, "{order}");
    }

    fn release(&mut self, key: &str, owner: &str, token: i64) {
        assert_eq!(self.agent.release(key, owner, token), "1", "{key} {owner}");
    }

    /// Begins a wait of this order; its id is its owner, its key is what is asked for.
    fn wait(&mut self, kind: &str, key: &str, owner: &str, options: &str) {
        let order = format!("{kind} {key} {owner} {LONG} {LONG} {options}");
        self.agent.order(owner, order.trim_end());
    }

    /// Waits until so many wait for a lock.
    fn until_waiting(&mut self, key: &str, count: usize) {
        let expected = count.to_string();
        wait_for("the waits", || {
            let info = self.agent.ask(&format!("info {key}"));
            info.split(' ').nth(2).unwrap_or("0") == expected
        });
    }

    /// The same for a semaphore.
    fn until_permits(&mut self, key: &str, expected: &str) {
        wait_for(expected, || {
            self.agent.ask(&format!("info-permits {key}")) == format!("info {expected}")
        });
    }

    /// The token of a wait that has begun.
    fn granted_to(&mut self, owner: &str) -> i64 {
        token_in(&self.agent.answer_to(owner))
    }

    /// None has been granted to this owner.
    fn still_waits(&mut self, owner: &str) {
        assert_eq!(self.agent.so_far(owner), None, "{owner}");
    }

    /// Moves the clock of a double, which is also that of its clients. The clock of a server moves by itself: a test
    /// waits for the event that it expects.
    fn pass(&mut self, ms: u32) {
        if self.server.is_none() {
            self.assert(&format!("advance {ms}"), "advanced");
        }
    }

    /// An operator ends the holds of a lock.
    fn take_away(&mut self, key: &str) {
        match &self.server {
            Some(server) => assert_eq!(server.conn().line(&format!("LOCK.BREAK {key}")).int(), 1),
            None => self.assert(&format!("break {key}"), "broken"),
        }
    }
}

/// First come, first served; who asks without waiting does not overtake.
pub fn owners_wait_in_their_order(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let mut token = world.keep("k", "first", "");
    let owners = ["b", "c", "d"];
    for (i, owner) in owners.iter().enumerate() {
        world.wait("acquire", "k", owner, "");
        world.until_waiting("k", i + 1);
    }
    world.assert(&format!("acquire k z {BRIEF} {LONG}"), "nil");
    let mut former = "first";
    for owner in owners {
        world.release("k", former, token);
        let next = world.granted_to(owner);
        assert!(next > token, "tokens rise");
        world.assert(&format!("state k {owner} {next}"), "held");
        (former, token) = (owner, next);
    }
    world.release("k", former, token);
    world.assert(&format!("release k {former} {token}"), "0");
    world.assert("info k", "info nil");
}

/// Readers share a lock and a token; none of them overtakes a writer that waits; a lock of another kind is refused.
pub fn readers_and_a_writer(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let token = world.keep("k", "r1", "mode=read");
    assert_eq!(world.keep("k", "r2", "mode=read"), token);
    let info = world.agent.ask("info k");
    let holders = [format!("r1/{token}/"), format!("r2/{token}/")];
    assert!(
        info.starts_with("info read 0 ") && holders.iter().all(|one| info.contains(one)),
        "{info}"
    );
    world
        .agent
        .fails(&format!("acquire k z {BRIEF} {LONG}"), "other", "LOCKTYPE");
    let permit = format!("permit k z {BRIEF} {LONG} limit=1");
    world.agent.fails(&permit, "other", "WRONGTYPE");
    world.wait("acquire", "k", "w", "mode=write");
    world.until_waiting("k", 1);
    world.wait("acquire", "k", "r3", "mode=read");
    world.until_waiting("k", 2);
    world.release("k", "r1", token);
    world.still_waits("w");
    world.release("k", "r2", token);
    let written = world.granted_to("w");
    assert!(written > token);
    world.assert("info k", &format!("info write 1 w/{written}/"));
    world.still_waits("r3");
    world.release("k", "w", written);
    let read = world.granted_to("r3");
    assert!(read > written);
    world.release("k", "r3", read);
    world.assert("info k", "info nil");
}

/// Several permits are granted in one step, all or none, in the order of arrival, and released in one.
pub fn permits_in_one_step(subject: &TicketSubject) {
    let mut world = World::start(subject);
    world
        .agent
        .fails(&format!("permit s p {BRIEF} {LONG}"), "no-semaphore", "s");
    world.assert("info-permits s", "info nil");
    let three = world.granted(&format!("permit s three 10000 {LONG} limit=4 count=3"));
    world.assert("info-permits s", "info 4 1 3 0");
    world.assert(&format!("permit s z {BRIEF} {LONG} count=2"), "nil");
    world.wait("permit", "s", "two", "count=2");
    world.until_permits("s", "4 1 3 1");
    world.wait("permit", "s", "one", "");
    world.until_permits("s", "4 1 3 2");
    world.still_waits("one");
    world.release("s", "three", three);
    let (two, one) = (world.granted_to("two"), world.granted_to("one"));
    world.assert("info-permits s", "info 4 1 3 0");
    world
        .agent
        .fails(&format!("acquire s z {BRIEF} {LONG}"), "other", "WRONGTYPE");
    world.release("s", "two", two);
    world.assert("info-permits s", "info 4 3 1 0");
    world.release("s", "one", one);
    let all = world.granted(&format!("permit s all 10000 {LONG} count=4"));
    world.release("s", "all", all);
    world.assert("info-permits s", "info 4 4 0 0");
}

/// Several keys are granted together, and who waits for them is overtaken at none.
pub fn several_keys(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let token = world.keep("b", "holder", "");
    world.wait("keep", "a,b", "both", "");
    world.until_waiting("b", 1);
    world.assert(&format!("acquire a z {BRIEF} {LONG}"), "nil");
    world.wait("acquire", "a", "late", "");
    world.until_waiting("a", 2);
    world.release("b", "holder", token);
    let both = world.granted_to("both");
    world.still_waits("late");
    world.assert(&format!("state a,b both {both}"), "held");
    world.assert(&format!("acquire b z {BRIEF} {LONG}"), "nil");
    world.release("a,b", "both", both);
    let late = world.granted_to("late");
    world.release("a", "late", late);
    for key in ["a", "b"] {
        world.assert(&format!("info {key}"), "info nil");
    }
}

/// Each way to wait: the order, the key, the options of who holds it and of who waits.
const WAYS: [(&str, &str, &str, &str); 5] = [
    ("acquire", "k", "", ""),
    ("acquire", "r", "mode=write", "mode=read"),
    ("acquire", "w", "mode=read", "mode=write"),
    ("permit", "s", "limit=1", ""),
    ("acquire", "a,b", "", ""),
];

/// Who finds as many waits as it allows is refused at once; one more waits; what is free is granted.
pub fn a_queue_that_stays_short(subject: &TicketSubject) {
    let mut world = World::start(subject);
    for (order, key, held, options) in WAYS {
        let asked = format!("{order} {key} holder 10000 {LONG} {held} queue=0");
        let token = world.granted(&asked);
        let refused = |queue| format!("{order} {key} z {LONG} {LONG} {options} queue={queue}");
        world.agent.fails(&refused(0), "queue-full", "");
        world.wait(order, key, key, &format!("{options} queue=1"));
        match order {
            "permit" => world.until_permits(key, "1 0 1 1"),
            _ => world.until_waiting(&key[..1], 1),
        }
        world.agent.fails(&refused(1), "queue-full", "");
        world.release(key, "holder", token);
        let token = world.granted_to(key);
        world.release(key, key, token);
    }
}

/// A grant that too few replicas have is none, and is given up before the error; both numbers are in it.
pub fn grants_that_replicas_have(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let replica = world.server.as_ref().map(|server| {
        let replica = TestServer::start();
        follow(&replica, server);
        replica
    });
    if replica.is_none() {
        world.assert("has-replicas 1", "has");
    }
    for (order, key, held, options) in WAYS {
        let one = |owner: &str, more: &str| {
            format!("{order} {key} {owner} {LONG} {LONG} {more} replicas=1 within={LONG}")
        };
        let two = |owner| format!("{order} {key} {owner} {LONG} {LONG} {options} replicas=2");
        let token = world.granted(&one("holder", held));
        world.agent.order("waiter", &two("waiter"));
        match order {
            "permit" => world.until_permits(key, "1 0 1 1"),
            _ => world.until_waiting(&key[..1], 1),
        }
        world.release(key, "holder", token);
        let answer = world.agent.answer_to("waiter");
        let says = answer.strip_prefix("error not-replicated ");
        // On a busy machine not even one has it in time.
        let has_both = says.is_some_and(|text| text.contains('2') && text.contains(['0', '1']));
        assert!(has_both, "{key}: {answer}");
        // It is free.
        let token = world.granted(&one("next", options));
        world.release(key, "next", token);
        world.agent.fails(&two("again"), "not-replicated", "");
        match order {
            "permit" => world.assert("info-permits s", "info 1 1 0 0"),
            _ => world.assert(&format!("info {}", &key[..1]), "info nil"),
        }
    }
}

/// Who holds a lock, with its note; the answer is the same to everyone.
pub fn who_holds_it(subject: &TicketSubject) {
    let mut world = World::start(subject);
    world.assert("info k", "info nil");
    let token = world.keep("k", "a", "note=job-7");
    world.assert("info k", &format!("info exclusive 0 a/{token}/job-7"));
    world.wait("acquire", "k", "b", "note=job-8");
    world.until_waiting("k", 1);
    world.assert("info k", &format!("info exclusive 1 a/{token}/job-7"));
    world.release("k", "a", token);
    let token = world.granted_to("b");
    world.assert("info k", &format!("info exclusive 0 b/{token}/job-8"));
    world.release("k", "b", token);
    world.assert("info k", "info nil");
}

/// A hold goes on in other hands, by its owner and its token, and by nothing else.
pub fn resumed_by_another(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let token = world.keep("k", "job", "");
    let resume = format!("resume k job {token} {LONG}");
    world.assert(&resume, &format!("token {token}"));
    world.assert(&format!("state k job {token}"), "held");
    world.assert(&format!("do k job {token} SET data 1"), "did OK");
    world.release("k", "job", token);
    world.assert("info k", "info nil");
    world.agent.fails(&resume, "lost", "");
    let later = world.keep("k", "job", "");
    world.agent.fails(&resume, "lost", "");
    world.assert("info k", &format!("info exclusive 0 job/{later}/"));
    world.release("k", "job", later);

    let token = world.granted(&format!("permit s job 10000 {LONG} limit=2 count=2"));
    let resume = format!("resume s job {token} {LONG} permits=yes count=2");
    world.assert(&resume, &format!("token {token}"));
    world.assert("info-permits s", "info 2 0 2 0");
    world.release("s", "job", token);
    world.assert("info-permits s", "info 2 2 0 0");
    world.agent.fails(&resume, "lost", "");
}

/// A hold that was left lasts for the given time, without renewal. A hold that is renewed meanwhile stays held.
pub fn left_for_a_while(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let kept = world.granted(&format!("keep kept a 10000 {RENEWED}"));
    let ways = WAYS.map(|(order, key, held, options)| {
        let order = if order == "acquire" { "keep" } else { order };
        let token = world.granted(&format!("{order} {key} a 10000 {LONG} {held}"));
        (order, key, token, options)
    });
    for (order, key, token, options) in ways {
        world.assert(&format!("leave {key} a {token} {SHORT}"), "1");
        world.assert(&format!("state {key} a {token}"), "lost");
        world.assert(&format!("release {key} a {token}"), "0");
        world.wait(order, key, key, options);
    }
    world.pass(SHORT);
    for (_, key, token, _) in ways {
        let next = world.granted_to(key);
        assert!(next > token, "{key}");
        world.release(key, key, next);
    }
    world.pass(LONG);
    world.assert(&format!("state kept a {kept}"), "held");
    world.take_away("kept");
    world.assert(&format!("leave kept a {kept} {SHORT}"), "0");
    world.assert("info kept", "info nil");
}

/// A lease that is not renewed ends, and the holder knows.
pub fn a_lease_that_ends(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let token = world.granted(&format!("acquire k a 10000 {SHORT}"));
    world.wait("acquire", "k", "next", "");
    world.pass(SHORT);
    let next = world.granted_to("next");
    world.assert(&format!("lost k a {token}"), "lost");
    world
        .agent
        .fails(&format!("do k a {token} SET data late"), "lost", "");
    world.assert(&format!("release k a {token}"), "0");
    world.assert(&format!("do k next {next} GET data"), &nothing(subject));
    world.assert("info k", &format!("info exclusive 0 next/{next}/"));
}

/// A loss in each mode: the holder knows, changes nothing any more, and the next one has the lock.
pub fn a_loss_on_demand(subject: &TicketSubject) {
    let mut world = World::start(subject);
    for (order, key, held, options) in WAYS {
        // Permits are not taken away.
        if order == "permit" {
            continue;
        }
        let token = world.granted(&format!("keep {key} a 10000 {RENEWED} {held}"));
        world.wait("acquire", key, key, options);
        world.until_waiting(&key[..1], 1);
        world.take_away(&key[..1]);
        world.assert(&format!("lost {key} a {token}"), "lost");
        world.assert(&format!("state {key} a {token}"), "lost");
        // No command runs under several keys.
        let has_commands = !key.contains(',');
        if has_commands {
            world
                .agent
                .fails(&format!("do {key} a {token} SET data late"), "lost", "");
        }
        world.assert(&format!("release {key} a {token}"), "0");
        let next = world.granted_to(key);
        if has_commands {
            let order = format!("do {key} {key} {next} GET data");
            world.assert(&order, &nothing(subject));
        }
        world.release(key, key, next);
    }
}

/// How an agent shows an absent value.
fn nothing(subject: &TicketSubject) -> String {
    let shown = match subject.client {
        "python-package" => "None",
        "go-package" => "<nil>",
        "rust-package" => "Nil",
        _ => "null",
    };
    format!("did {shown}")
}

/// Commands run under a lock, a read lock too, as the server runs them.
pub fn commands_under_a_lock(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let nothing = nothing(subject);
    for (key, mode) in [("k", ""), ("r", "mode=read"), ("w", "mode=write")] {
        let token = world.keep(key, "a", mode);
        let run = |command| format!("do {key} a {token} {command}");
        world.assert(&run("GET data"), &nothing);
        world.assert(&run("SET data 1 XX"), &nothing);
        world.assert(&run("SET data 1 NX"), "did OK");
        world.assert(&run("SET data 2 NX"), &nothing);
        world.assert(&run("INCR data"), "did 2");
        world.assert(&run("GET data"), "did 2");
        world.assert(&run("SET data text XX"), "did OK");
        world
            .agent
            .fails(&run("INCR data"), "other", "not an integer");
        world.agent.fails(&run("NOSUCH data"), "other", "");
        world.assert(&run("SET more 1"), "did OK");
        world.assert(&run("DEL data more none"), "did 2");
        world.assert(&run("DEL data"), "did 0");
        world.assert(&format!("state {key} a {token}"), "held");
        world.release(key, "a", token);
    }
}

/// Arguments that are out of range, or that what is acquired does not have. Not each language can write all of them.
const ODD: [&str; 23] = [
    "lease-zero",
    "lease-negative",
    "lease-short",
    "lease-huge",
    "wait-negative",
    "margin-negative",
    "margin-large",
    "hold-zero",
    "note-long",
    "note-read",
    "note-permit",
    "owner-empty",
    "owner-reserved",
    "owner-read",
    "permits-zero",
    "permits-huge",
    "permits-lock",
    "permit-lease-zero",
    "permit-owner-empty",
    "session-permit",
    "renew-zero",
    "renew-negative",
    "renew-huge",
];

/// Nothing is sent of an argument that is out of range: it is a wrong use.
pub fn an_odd_argument_is_a_wrong_use(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let token = world.granted(&format!("acquire k a 10000 {LONG}"));
    let mut refused = 0;
    let mut wrong = vec![];
    for odd in ODD {
        let answer = world.agent.ask(&format!("odd {odd}"));
        if answer.starts_with("error usage ") {
            refused += 1;
        } else if answer != "none" {
            wrong.push(format!("{odd}: {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(refused >= 12, "{refused}");
    world.assert("info odd", "info nil");
    world.assert(&format!("state k a {token}"), "held");
    if let Some(server) = world.server {
        assert_eq!(server.stat("grants"), 1);
    }
}

/// The observer gets each event of an acquisition and of its hold once.
pub fn what_an_observer_is_told(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let token = world.keep("k", "a", "");
    world.assert(&format!("acquire k b {BRIEF} {LONG}"), "nil");
    world.agent.fails(
        &format!("acquire k c {LONG} {LONG} queue=0"),
        "queue-full",
        "",
    );
    world.release("k", "a", token);
    let told = "events asked granted asked refused asked failed released";
    world.assert("events k", told);
    world.agent.fails(
        &format!("acquire k a {LONG} {LONG} replicas=1"),
        "not-replicated",
        "",
    );
    world.assert("events k", &format!("{told} asked failed"));

    let token = world.granted(&format!("keep taken a 10000 {RENEWED}"));
    world.take_away("taken");
    world.assert(&format!("lost taken a {token}"), "lost");
    world.assert(&format!("release taken a {token}"), "0");
    wait_for("the loss", || {
        world.agent.ask("events taken") == "events asked granted lost"
    });

    let token = world.keep("left", "a", "");
    world.assert(&format!("leave left a {token} {LONG}"), "1");
    world.assert("events left", "events asked granted released");
}

/// The caller gives up: its wait is withdrawn.
pub fn a_cancelled_wait(subject: &TicketSubject) {
    let mut world = World::start(subject);
    let token = world.keep("k", "a", "");
    for (i, owner) in ["b", "c"].iter().enumerate() {
        world.wait("acquire", "k", owner, "");
        world.until_waiting("k", i + 1);
    }
    world.agent.cancel("b");
    assert_eq!(world.agent.answer_to("b"), "cancelled");
    world.until_waiting("k", 1);
    world.release("k", "a", token);
    world.granted_to("c");
}
