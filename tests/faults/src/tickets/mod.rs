//! A process that waits by tickets: one connection for commands, one that subscribes to a channel of its own, and
//! several waits at a time over the two.
//!
//! It follows the steps for clients in docs/COMMANDS.md: subscribes first, files a tag before it sends a request,
//! takes the outcome from the message, renews before it works, asks again for each open ticket after each new
//! subscription, and gives up by a release. Sometimes it hangs, dies with its open tickets, subscribes again late, asks
//! without a subscription, or asks again without need.

pub mod link;
mod ticket;

use std::time::{Duration, Instant};

use crate::client::{Family, World};
use crate::history::{now, Answer, Ask, Call, History, Kind, Message, Nanos, Op, Outcome, MS};
use crate::request::{answer, many_outcomes, outcome, push, push_ask, push_many};
use crate::wire::Reply;

use link::{parse, Event, Link};
use ticket::{Stage, Ticket, TAGS};

/// The number of waits of a process at a time.
const WAITS: usize = 4;

/// The largest number of keys of a request.
const MOST: usize = 3;

/// The pause before a refused request is sent again.
const PAUSE: Nanos = 2 * MS;

/// A request without a reply.
enum Sent {
    Ask(Ask),
    /// A renewal or a release: the time of its sending, its owner and keys.
    Other(Call, Nanos, u64, Vec<u32>),
}

/// Works until the run is stopped; returns its records.
pub fn work(id: u32, world: &World, seed: u64) -> History {
    let mut process = Process {
        id,
        world,
        rng: fastrand::Rng::with_seed(seed),
        links: Vec::new(),
        tickets: Vec::new(),
        owners: u64::from(id) * 1_000_000_000,
        life: 0,
        deaf_until: 0,
        history: History::default(),
    };
    process.run();
    process.close();
    process.history
}

struct Process<'a> {
    id: u32,
    world: &'a World<'a>,
    rng: fastrand::Rng,
    /// One for each server.
    links: Vec<Link<Sent>>,
    tickets: Vec<Ticket>,
    owners: u64,
    /// How often the process has died: each life has channels of its own.
    life: u32,
    /// The process subscribes again from then on.
    deaf_until: Nanos,
    history: History,
}

impl Process<'_> {
    fn run(&mut self) {
        let mut drain_until = None;
        loop {
            if self.world.is_over() {
                let until = *drain_until.get_or_insert_with(|| Instant::now() + self.world.drain);
                if self.tickets.is_empty() || Instant::now() > until {
                    return;
                }
            } else if self.tickets.len() < WAITS {
                let mut ticket = self.new_ticket();
                let pace = self.world.habits.pace;
                if pace > 0 {
                    ticket.not_before = now() + self.rng.u64(..2 * pace) * MS;
                }
                self.tickets.push(ticket);
            }
            let mut events = Vec::new();
            self.links
                .iter_mut()
                .for_each(|link| link.poll(&mut events));
            let is_idle = events.is_empty();
            events.into_iter().for_each(|event| self.handle(event));
            for mut ticket in std::mem::take(&mut self.tickets) {
                self.step(&mut ticket);
                if !matches!(ticket.stage, Stage::Done) {
                    self.tickets.push(ticket);
                }
            }
            if is_idle {
                std::thread::sleep(Duration::from_millis(self.world.beat()));
            }
            self.fail();
        }
    }

    /// Hangs or dies, seldom.
    fn fail(&mut self) {
        match self.rng.u32(..3000) {
            0 => {
                let nap = self.rng.u64(50..600);
                self.world.sleep(nap);
            }
            1 if !self.world.is_over() => {
                for ticket in std::mem::take(&mut self.tickets) {
                    let at = now();
                    self.note(&ticket.keys, ticket.owner, Call::Close, at, &[Outcome::Nil]);
                }
                self.close();
                self.life += 1;
            }
            _ => {}
        }
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    fn new_ticket(&mut self) -> Ticket {
        let habits = self.world.habits;
        self.owners += 1;
        let count = self.world.keys.len() as u32;
        let mut keys = vec![self.rng.u32(..count)];
        let is_lock = |key: u32| (habits.family)(key) == Family::Lock;
        if is_lock(keys[0]) && self.chance(habits.many_tickets) {
            let mut all: Vec<u32> = (0..count).filter(|key| is_lock(*key)).collect();
            self.rng.shuffle(&mut all);
            all.truncate(self.rng.usize(2..=MOST));
            keys = all;
        }
        let kind = (habits.family)(keys[0]).kind(&mut self.rng);
        // With a lease longer than most waits the judges know of more holds that they are not over.
        let lease = match self.rng.bool() {
            true => self.rng.u32(habits.lease.clone()),
            false => self.rng.u32(300..800),
        };
        let mut ticket = Ticket::new(self.owners, keys, kind, lease);
        self.choose_wait(&mut ticket);
        ticket
    }

    /// Sets the length of the wait, and the times at which its owner gives up or asks again.
    fn choose_wait(&mut self, ticket: &mut Ticket) {
        let habits = self.world.habits;
        ticket.block = match self.chance(habits.patient) {
            true => 0,
            false => self.rng.u32(habits.wait.clone()),
        };
        let soon = now() + self.rng.u64(..u64::from(habits.wait.end)) * MS;
        ticket.ends = (ticket.block > 0).then(|| now() + Nanos::from(ticket.block) * MS);
        ticket.gives_up = self.chance(10).then_some(soon);
        ticket.hurries = self.chance(habits.hurries).then_some(soon / 2 + now() / 2);
    }

    /// The channel of requests for this key. In a cluster it is in the slot of the key.
    fn channel(&self, key: u32) -> String {
        let (id, life) = (self.id, self.life);
        let name = &self.world.keys[key as usize];
        match self.world.route.is_cluster() {
            true if name.contains('{') => format!("{name}answers:{id}.{life}"),
            true => format!("{{{name}}}answers:{id}.{life}"),
            false => format!("answers:{id}.{life}"),
        }
    }

    /// The link to the server of this key now.
    fn link(&mut self, key: u32) -> &mut Link<Sent> {
        self.link_to(self.world.route.port(&self.world.keys[key as usize]))
    }

    fn link_to(&mut self, port: u16) -> &mut Link<Sent> {
        let known = self.links.iter().position(|link| link.port == port);
        let at = known.unwrap_or_else(|| {
            let is_cluster = self.world.route.is_cluster();
            self.links.push(Link::new(self.id, port, is_cluster));
            self.links.len() - 1
        });
        &mut self.links[at]
    }

    /// Tells the route that the server of this key may be another one.
    fn learn(&self, key: u32, port: u16, code: Option<&str>) {
        let name = &self.world.keys[key as usize];
        self.world.route.learn(name, port, code);
    }

    fn handle(&mut self, event: Event<Sent>) {
        match event {
            Event::Message {
                port,
                channel,
                text,
            } => self.handle_message(port, channel, &text),
            Event::Reply(Sent::Ask(ask), reply) => self.handle_answer(ask, reply.as_ref()),
            Event::Reply(Sent::Other(call, sent, owner, keys), reply) => {
                self.handle_reply(call, sent, owner, &keys, reply.as_ref());
            }
            Event::Ended(subscription) => {
                for at in 0..self.tickets.len() {
                    let (key, port) = (self.tickets[at].keys[0], self.tickets[at].port);
                    if port == subscription.port && self.channel(key) == subscription.channel {
                        self.tickets[at].must_ask_again();
                        self.learn(key, port, None);
                    }
                }
                self.history.subscriptions.push(subscription);
                if self.chance(20) && !self.world.is_over() {
                    self.deaf_until = now() + self.rng.u64(10..200) * MS;
                }
            }
            Event::Refused(code) => {
                let waiting: Vec<_> = self.tickets.iter().map(|t| (t.keys[0], t.port)).collect();
                for (key, port) in waiting {
                    self.learn(key, port, Some(&code));
                }
            }
        }
    }

    fn handle_message(&mut self, port: u16, channel: String, text: &str) {
        let at = now();
        let Some((word, tag)) = parse(text) else {
            return;
        };
        let goes_on = self.rng.u8(..100);
        let mut owner = self.tickets.iter_mut().filter(|t| t.owner == tag / TAGS);
        let failed = owner.next().and_then(|t| t.hear(tag, &word, goes_on));
        if let Some((key, port, code)) = failed {
            self.learn(key, port, Some(&code));
        }
        self.history.messages.push(Message {
            client: self.id,
            port,
            channel,
            tag,
            word,
            at,
        });
    }

    fn handle_answer(&mut self, mut ask: Ask, reply: Option<&Reply>) {
        ask.answer = reply.map_or(Answer::Lost, answer);
        ask.done = now();
        let mut owner = self.tickets.iter_mut().filter(|t| t.owner == ask.owner);
        if let Some(ticket) = owner.next() {
            ticket.answered(ask.tag, &ask.answer, now() + PAUSE);
        }
        match &ask.answer {
            Answer::Error(code) => self.learn(ask.keys[0], ask.port, Some(code)),
            Answer::Lost => self.learn(ask.keys[0], ask.port, None),
            _ => {}
        }
        self.history.asks.push(ask);
    }

    fn handle_reply(
        &mut self,
        call: Call,
        sent: Nanos,
        owner: u64,
        keys: &[u32],
        reply: Option<&Reply>,
    ) {
        let outcomes = match (reply, keys) {
            (None, _) => vec![Outcome::Lost],
            (Some(reply), [_]) => vec![outcome(call, reply)],
            (Some(reply), _) => many_outcomes(call, keys.len(), reply),
        };
        self.note(keys, owner, call, sent, &outcomes);
        let (over, pause) = (self.world.is_over(), now() + PAUSE);
        let mut tickets = self.tickets.iter_mut();
        let Some(ticket) = tickets.find(|t| t.owner == owner) else {
            return;
        };
        ticket.replied(&outcomes[0], pause, over);
        let (key, port) = (ticket.keys[0], ticket.port);
        match &outcomes[0] {
            Outcome::Error(code) => self.learn(key, port, Some(code)),
            Outcome::Lost => self.learn(key, port, None),
            _ => {}
        }
    }

    /// Records a request, with one outcome for each key or one for all.
    fn note(&mut self, keys: &[u32], owner: u64, call: Call, sent: Nanos, outcomes: &[Outcome]) {
        let done = now();
        for (key, outcome) in keys.iter().zip(outcomes.iter().cycle()) {
            self.history.ops.push(Op {
                client: self.id,
                owner,
                key: *key,
                call,
                sent,
                done,
                outcome: outcome.clone(),
            });
        }
    }

    /// The next action of the owner of this ticket.
    fn step(&mut self, ticket: &mut Ticket) {
        let at = now();
        if at < ticket.not_before {
            return;
        }
        let key = ticket.keys[0];
        let port = self.world.route.port(&self.world.keys[key as usize]);
        let is_over = |until: Option<Nanos>| until.is_some_and(|until| at > until);
        match &ticket.stage {
            Stage::Ask if ticket.has_ended(at) => ticket.stage = Stage::Leave,
            Stage::Ask => self.ask(ticket),
            Stage::Asked | Stage::Waiting if port != ticket.port => ticket.must_ask_again(),
            Stage::Waiting if is_over(ticket.gives_up) && !self.world.is_over() => {
                ticket.stage = Stage::Leave;
            }
            Stage::Waiting if is_over(ticket.hurries) => {
                ticket.hurries = None;
                ticket.must_ask_again();
            }
            Stage::Granted(tokens) => {
                let token = (tokens.len() == 1).then(|| tokens[0]);
                let (kind, lease) = (ticket.kind, ticket.lease);
                match self.chance(80) {
                    true => self.send(ticket, Call::Renew { kind, lease, token }),
                    false => ticket.stage = Stage::Holds,
                }
            }
            Stage::Holds => self.begin_work(ticket, at),
            Stage::Works(until) if at >= *until => self.end_work(ticket),
            Stage::Leave => {
                let (kind, all, token) = (ticket.kind, true, None);
                self.send(ticket, Call::Release { kind, all, token });
            }
            _ => {}
        }
    }

    /// Subscribes, then sends the request: first, or again for the rest of the wait.
    fn ask(&mut self, ticket: &mut Ticket) {
        let key = ticket.keys[0];
        let channel = self.channel(key);
        // A request without a subscription, which the server refuses.
        let is_deaf = self.chance(2);
        let is_late = now() < self.deaf_until;
        let link = self.link(key);
        if !is_deaf && !link.is_subscribed(&channel) {
            if is_late {
                return;
            }
            let (port, is_open) = (link.port, link.subscribe(&channel));
            if !is_open {
                self.learn(key, port, None);
                ticket.not_before = now() + PAUSE;
            }
            return;
        }
        ticket.port = link.port;
        let ask = ticket.next_ask(self.id, channel);
        let names = names(self.world, &ticket.keys);
        // The route may name another server by now.
        let sent = self.link_to(ask.port).send(Sent::Ask(ask.clone()), |wire| {
            push_ask(wire, &names, &ask);
        });
        match sent {
            true => ticket.stage = Stage::Asked,
            false => ticket.not_before = now() + PAUSE,
        }
    }

    /// Sends a renewal or a release.
    fn send(&mut self, ticket: &mut Ticket, call: Call) {
        let (owner, keys) = (ticket.owner, ticket.keys.clone());
        let names = names(self.world, &keys);
        let request = Sent::Other(call, now(), owner, keys.clone());
        let link = self.link(keys[0]);
        let port = link.port;
        let is_sent = link.send(request, |wire| match names[..] {
            [name] => push(wire, name, owner, call),
            _ => push_many(wire, &names, owner, call),
        });
        if is_sent {
            ticket.port = port;
            ticket.stage = match call {
                Call::Renew { .. } => Stage::Renewing,
                _ => Stage::Leaving,
            };
        } else {
            self.learn(keys[0], port, None);
            ticket.not_before = now() + PAUSE;
        }
    }

    fn begin_work(&mut self, ticket: &mut Ticket, at: Nanos) {
        // Readers only read, permits protect nothing, and requests for several keys have several tokens.
        let writes = matches!(ticket.kind, Kind::Exclusive | Kind::Write);
        if let (true, [key], Some(token)) = (writes, &ticket.keys[..], ticket.token) {
            ticket.read = Some(self.world.counters[*key as usize].read(token));
        }
        let nap = match self.chance(self.world.habits.sleeps) {
            true => self
                .rng
                .u64(u64::from(ticket.lease / 2)..3 * u64::from(ticket.lease)),
            false => self.rng.u64(..4),
        };
        ticket.stage = Stage::Works(at + nap * MS);
    }

    fn end_work(&mut self, ticket: &mut Ticket) {
        if let (Some(read), Some(token)) = (ticket.read.take(), ticket.token) {
            self.world.counters[ticket.keys[0] as usize].write(token, &read);
        }
        ticket.stage = match self.chance(self.world.habits.forgets) {
            true => Stage::Done,
            false => Stage::Leave,
        };
    }

    /// Closes all connections.
    fn close(&mut self) {
        for link in std::mem::take(&mut self.links) {
            let (subscriptions, unanswered) = link.close();
            self.history.subscriptions.extend(subscriptions);
            for request in unanswered {
                match request {
                    Sent::Ask(ask) => self.handle_answer(ask, None),
                    Sent::Other(call, sent, owner, keys) => {
                        self.note(&keys, owner, call, sent, &[Outcome::Lost]);
                    }
                }
            }
        }
    }
}

fn names<'a>(world: &World<'a>, keys: &[u32]) -> Vec<&'a str> {
    keys.iter()
        .map(|key| world.keys[*key as usize].as_str())
        .collect()
}
