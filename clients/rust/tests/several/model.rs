//! A simulation that tests the arithmetic of RedLock (`src/red/rule.rs`) with random histories: servers that grant,
//! expire leases and restart without their data, clocks with different rates, late and lost messages; clients that open
//! rounds, renew and release. Two clients may never hold at the same time.
//!
//! Times are microseconds of one true clock, which no server and no client can read.

#[path = "../../src/red/rule.rs"]
mod rule;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rule::{is_out_of_reach, quorum, round_patience, validity, Tally, Verdict};

const LEASE_US: u64 = 10_000_000;
const LEASE: Duration = Duration::from_micros(LEASE_US);
/// The largest error of a clock's rate, in millionths: twice that is just below the hundredth in `drift`.
const RATE_OFF: u64 = 4_500;
const CLIENTS: usize = 3;
const END_US: u64 = 60 * LEASE_US;

/// The conditions of a simulation.
#[derive(Clone, Copy)]
struct Conditions {
    servers: usize,
    startup_delay_us: u64,
    /// The largest difference of the servers' wall clocks, from which their tokens are made.
    clocks_apart_us: u64,
}

const FAIR: Conditions = Conditions {
    servers: 3,
    startup_delay_us: LEASE_US,
    clocks_apart_us: 0,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Restart(usize),
    /// A client's next step: to open a round, or to release.
    Wake(usize, u64),
    /// The timeout of a round.
    RoundEnds(usize, u64),
    Request(usize, usize, u64, Ask),
    Reply(usize, usize, u64, Option<u64>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    Acquire(u64),
    Renew(u64, u64),
    Release(u64),
}

struct Server {
    rate_off: i64,
    clock_off: u64,
    /// Owner, token, and the end of the lease.
    hold: Option<(u64, u64, u64)>,
    silent_until: u64,
    last_token: u64,
}

#[derive(Default)]
struct Client {
    rate_off: i64,
    owner: u64,
    round: u64,
    opened: u64,
    tokens: Vec<Option<u64>>,
    answers: Vec<Option<bool>>,
    /// The end of its validity, in true time.
    holds_until: u64,
}

#[derive(Default, Debug)]
struct Seen {
    grants: usize,
    renewals: usize,
    two_holders: usize,
    late_writer_passed: usize,
    holder_refused: usize,
    single_number_fell: usize,
}

struct Simulation {
    conditions: Conditions,
    now: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    servers: Vec<Server>,
    clients: Vec<Client>,
    random: u64,
    owners: u64,
    /// The highest token that the protected resource has seen, for each server.
    fence: BTreeMap<usize, u64>,
    highest_single: u64,
    seen: Seen,
}

impl Simulation {
    fn new(conditions: Conditions, seed: u64) -> Simulation {
        let mut simulation = Simulation {
            conditions,
            now: 0,
            agenda: BinaryHeap::new(),
            sequence: 0,
            servers: Vec::new(),
            clients: Vec::new(),
            random: seed,
            owners: 0,
            fence: BTreeMap::new(),
            highest_single: 0,
            seen: Seen::default(),
        };
        for server in 0..conditions.servers {
            let (rate_off, clock_off) = (
                simulation.rate(),
                simulation.below(conditions.clocks_apart_us + 1),
            );
            simulation.servers.push(Server {
                rate_off,
                clock_off,
                hold: None,
                silent_until: 0,
                last_token: 0,
            });
            let first = simulation.below(4 * LEASE_US);
            simulation.plan(first, Event::Restart(server));
        }
        for client in 0..CLIENTS {
            let rate_off = simulation.rate();
            simulation.clients.push(Client {
                rate_off,
                ..Client::default()
            });
            simulation.plan(0, Event::Wake(client, 0));
        }
        simulation
    }

    /// Steele and others' SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    fn rate(&mut self) -> i64 {
        i64::try_from(self.below(2 * RATE_OFF + 1)).unwrap() - i64::try_from(RATE_OFF).unwrap()
    }

    fn plan(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.agenda
            .push(Reverse((self.now + after, self.sequence, event)));
    }

    /// Delivers a message: usually soon, sometimes late, sometimes never.
    fn send(&mut self, event: Event) {
        let late = match self.below(20) {
            0 => return,
            1..=3 => LEASE_US / 4,
            4 => LEASE_US * 3 / 2,
            _ => 2_000,
        };
        let late = self.below(late);
        self.plan(late, event);
    }

    fn run(mut self) -> Seen {
        while let Some(Reverse((at, _, event))) = self.agenda.pop() {
            if at > END_US {
                break;
            }
            self.now = at;
            match event {
                Event::Restart(server) => self.restart(server),
                Event::Wake(client, round) => self.wake(client, round),
                Event::RoundEnds(client, round) => self.round_ends(client, round),
                Event::Request(server, client, round, ask) => {
                    let token = self.serve(server, ask);
                    self.send(Event::Reply(server, client, round, token));
                }
                Event::Reply(server, client, round, token) => {
                    self.hear(server, client, round, token);
                }
            }
        }
        self.seen
    }

    /// A server restarts without its data; its tokens still rise.
    fn restart(&mut self, place: usize) {
        let now = self.now;
        let delay = self.conditions.startup_delay_us;
        let server = &mut self.servers[place];
        server.hold = None;
        server.silent_until = now + true_span(delay, server.rate_off);
        let next = LEASE_US / 2 + self.below(6 * LEASE_US);
        self.plan(next, Event::Restart(place));
    }

    fn serve(&mut self, place: usize, ask: Ask) -> Option<u64> {
        let now = self.now;
        let server = &mut self.servers[place];
        server.hold = server.hold.filter(|(_, _, end)| *end > now);
        let end = now + true_span(LEASE_US, server.rate_off);
        match (ask, server.hold) {
            (Ask::Acquire(owner), None) if now >= server.silent_until => {
                server.last_token = (server.last_token + 1).max(now + server.clock_off);
                server.hold = Some((owner, server.last_token, end));
            }
            (Ask::Acquire(owner), Some((holder, token, _))) if holder == owner => {
                server.hold = Some((owner, token, end));
            }
            (Ask::Renew(owner, token), Some((holder, held, _)))
                if (holder, held) == (owner, token) =>
            {
                server.hold = Some((owner, token, end));
            }
            (Ask::Release(owner), Some((holder, _, _))) if holder == owner => {
                server.hold = None;
                return None;
            }
            _ => return None,
        }
        server.hold.map(|(_, token, _)| token)
    }

    /// A client opens a round, to acquire or to renew, or releases.
    fn wake(&mut self, place: usize, round: u64) {
        if self.clients[place].round != round {
            return;
        }
        let holds = self.clients[place].holds_until > self.now;
        if holds && self.below(3) == 0 {
            self.give_back(place);
            return;
        }
        let servers = self.conditions.servers;
        if !holds {
            self.owners += 1;
            self.clients[place].owner = self.owners;
            self.clients[place].tokens = vec![None; servers];
        }
        let now = self.now;
        let client = &mut self.clients[place];
        client.round += 1;
        client.opened = now;
        client.answers = vec![None; servers];
        let (round, owner, tokens) = (client.round, client.owner, client.tokens.clone());
        for (server, token) in tokens.into_iter().enumerate() {
            let ask = token.map_or(Ask::Acquire(owner), |token| Ask::Renew(owner, token));
            self.send(Event::Request(server, place, round, ask));
        }
        let patience = micros(round_patience(LEASE));
        self.plan(patience, Event::RoundEnds(place, round));
    }

    fn hear(&mut self, server: usize, place: usize, round: u64, token: Option<u64>) {
        let client = &mut self.clients[place];
        if client.round != round || client.opened == 0 {
            return;
        }
        client.tokens[server] = token;
        client.answers[server] = Some(token.is_some());
        let mut tally = Tally::of(client.answers.len());
        for answer in client.answers.iter().flatten() {
            tally.count(*answer);
        }
        let until = client.opened + true_span(micros(validity(LEASE)), client.rate_off);
        if tally.verdict() == Verdict::Held && self.now < until && client.holds_until < until {
            self.hold(place, until);
        }
    }

    fn hold(&mut self, place: usize, until: u64) {
        let now = self.now;
        let others = self.clients.iter().enumerate();
        let address_like =
            others.filter(|(other, client)| *other != place && client.holds_until > now);
        self.seen.two_holders += address_like.count();
        let is_renewal = self.clients[place].holds_until > now;
        self.clients[place].holds_until = until;
        if is_renewal {
            self.seen.renewals += 1;
        } else {
            self.seen.grants += 1;
            self.write(place);
        }
    }

    /// A new holder writes to the resource; then all former holders try a late write.
    fn write(&mut self, place: usize) {
        let now = self.now;
        let tokens = self.clients[place].tokens.clone();
        if !self.passes(&tokens) {
            self.seen.holder_refused += 1;
        }
        for (server, token) in tokens.iter().enumerate() {
            let Some(token) = token else { continue };
            let seen = self.fence.entry(server).or_default();
            *seen = (*seen).max(*token);
        }
        let single = tokens.iter().flatten().copied().max().unwrap_or_default();
        if single < self.highest_single {
            self.seen.single_number_fell += 1;
        }
        self.highest_single = self.highest_single.max(single);
        let late = self.clients.iter().enumerate().filter(|(other, client)| {
            *other != place && client.holds_until != 0 && client.holds_until <= now
        });
        let late = late.filter(|(_, client)| client.was_majority() && self.passes(&client.tokens));
        self.seen.late_writer_passed += late.count();
    }

    fn passes(&self, tokens: &[Option<u64>]) -> bool {
        tokens.iter().enumerate().all(|(server, token)| {
            token.is_none_or(|token| self.fence.get(&server).is_none_or(|seen| token >= *seen))
        })
    }

    fn round_ends(&mut self, place: usize, round: u64) {
        let now = self.now;
        let client = &mut self.clients[place];
        if client.round != round {
            return;
        }
        if client.holds_until <= now {
            self.give_back(place);
            return;
        }
        let refusals = client
            .answers
            .iter()
            .filter(|answer| **answer == Some(false));
        if is_out_of_reach(client.answers.len(), refusals.count()) {
            self.give_back(place);
            return;
        }
        // Sometimes a client sleeps through its lease.
        let third = micros(validity(LEASE)) / 3;
        let sleep = if self.below(8) == 0 { 2 * LEASE_US } else { 0 };
        self.plan(third + sleep, Event::Wake(place, round));
    }

    fn give_back(&mut self, place: usize) {
        let now = self.now;
        let servers = self.conditions.servers;
        let client = &mut self.clients[place];
        client.holds_until = client.holds_until.min(now);
        client.round += 1;
        let (round, owner) = (client.round, client.owner);
        for server in 0..servers {
            self.send(Event::Request(server, place, round, Ask::Release(owner)));
        }
        self.clients[place].opened = 0;
        let pause = self.below(LEASE_US / 20);
        self.plan(pause, Event::Wake(place, round));
    }
}

impl Client {
    /// Whether its tokens, which it would send with a late write, are still those of a majority.
    fn was_majority(&self) -> bool {
        let mut tally = Tally::of(self.tokens.len());
        self.tokens
            .iter()
            .for_each(|token| tally.count(token.is_some()));
        tally.verdict() == Verdict::Held
    }
}

/// The true length of a span by a clock with this rate.
fn true_span(span: u64, rate_off: i64) -> u64 {
    let rate = u64::try_from(1_000_000 + rate_off).unwrap();
    u64::try_from(u128::from(span) * 1_000_000 / u128::from(rate)).unwrap()
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap()
}

/// The sum of many histories under these conditions.
fn run_histories(conditions: Conditions) -> Seen {
    let mut sum = Seen::default();
    for seed in 0..400 {
        let seen = Simulation::new(conditions, seed).run();
        sum.grants += seen.grants;
        sum.renewals += seen.renewals;
        sum.two_holders += seen.two_holders;
        sum.late_writer_passed += seen.late_writer_passed;
        sum.holder_refused += seen.holder_refused;
        sum.single_number_fell += seen.single_number_fell;
    }
    sum
}

#[test]
fn there_is_at_most_one_holder_under_the_premises() {
    for servers in [3, 4, 5] {
        let seen = run_histories(Conditions { servers, ..FAIR });
        assert_eq!(seen.two_holders, 0, "{servers} servers: {seen:?}");
        assert!(seen.grants > 500 && seen.renewals > 500, "{seen:?}");
    }
}

/// The reason why a RedLock refuses such servers.
#[test]
fn servers_without_a_startup_delay_allow_two_holders() {
    let startup_delay_us = 0;
    let seen = run_histories(Conditions {
        startup_delay_us,
        ..FAIR
    });
    assert!(seen.two_holders > 0, "{seen:?}");
}

#[test]
fn tokens_by_server_fence_with_any_clocks() {
    let clocks_apart_us = 1_000 * LEASE_US;
    let seen = run_histories(Conditions {
        clocks_apart_us,
        ..FAIR
    });
    assert_eq!(seen.late_writer_passed, 0, "{seen:?}");
    assert_eq!(seen.holder_refused, 0, "{seen:?}");
}

/// The highest of several servers' tokens rises only as far as their clocks agree.
#[test]
fn the_highest_token_falls_when_clocks_differ() {
    let clocks_apart_us = 1_000 * LEASE_US;
    let seen = run_histories(Conditions {
        clocks_apart_us,
        ..FAIR
    });
    assert!(seen.single_number_fell > 0, "{seen:?}");
}

#[test]
fn two_majorities_share_a_server() {
    for servers in 3..=99 {
        assert!(2 * quorum(servers) > servers);
        assert!(quorum(servers) <= servers.div_ceil(2) + 1);
    }
}

#[test]
fn the_validity_is_shorter_than_the_lease() {
    let second = Duration::from_secs(1);
    assert_eq!(validity(second), Duration::from_millis(988));
    assert_eq!(validity(30 * second), Duration::from_millis(29_698));
    assert_eq!(validity(Duration::from_millis(2)), Duration::ZERO);
}

#[test]
fn a_verdict_is_final() {
    for servers in 3..=7 {
        for votes in 0..1_u32 << servers {
            let (mut tally, mut last) = (Tally::of(servers), Verdict::Open);
            for place in 0..servers {
                tally.count(votes >> place & 1 == 1);
                let verdict = tally.verdict();
                assert!(last == Verdict::Open || verdict == last, "{tally:?}");
                last = verdict;
            }
            let held = votes.count_ones() as usize >= quorum(servers);
            assert_eq!(last == Verdict::Held, held, "{tally:?}");
            assert_ne!(last, Verdict::Open);
        }
    }
}
