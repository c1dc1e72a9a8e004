//! A wait at a latch by a ticket: one connection for the request, one for the message.

use std::time::{Duration, Instant};

use crate::asking::Exchange;
use crate::client::World;
use crate::history::{now, LatchCall, Outcome, Word};
use crate::request::push_words;
use crate::tickets::link::{parse, Event, Link};
use crate::wire::Reply;

use super::{outcome, words, Generation};

/// The pause after a look at the connections.
const IDLE: Duration = Duration::from_millis(1);

/// The pause before a request is sent again.
const PAUSE_MS: u64 = 2;

/// How long a client waits for the confirmation of a subscription.
const SUBSCRIBING: Duration = Duration::from_secs(2);

/// A client that waits by tickets, one at a time.
pub struct Tickets<'a> {
    id: u32,
    world: &'a World<'a>,
    link: Option<Link<u64>>,
    /// The last tag.
    tag: u64,
    drain_until: Option<Instant>,
}

/// How a request ended.
enum End {
    Known(Outcome),
    /// The connection of the request was lost, or the client died: its ticket may still wait.
    Gone,
    /// The channel has no subscriber any more: no message of the ticket comes.
    Unheard,
}

impl<'a> Tickets<'a> {
    pub fn new(id: u32, world: &'a World<'a>) -> Tickets<'a> {
        Tickets {
            id,
            world,
            link: None,
            tag: u64::from(id) * 1_000_000_000,
            drain_until: None,
        }
    }

    /// Waits at this latch for `block` milliseconds, without limit if 0. Asks again when the subscription was lost;
    /// each request is noted with its own rest of the wait. With a `life`, the client dies after that time.
    pub fn wait(
        &mut self,
        latch: &Generation,
        block: u32,
        life: Option<Duration>,
        mut note: impl FnMut(LatchCall, Exchange),
    ) {
        let start = Instant::now();
        let mut rest = block;
        loop {
            // A late message of an earlier request must not be taken for that of this one.
            self.tag += 1;
            let call = LatchCall::Wait { block: Some(rest) };
            let life = life.map(|life| life.saturating_sub(start.elapsed()));
            if let Some((exchange, end)) = self.ask(latch, call, life) {
                note(call, exchange);
                if matches!(end, End::Known(_)) {
                    return;
                }
            }
            let passed = start.elapsed().as_millis() as u32;
            let is_over = block > 0 && passed >= block;
            if is_over || life.is_some_and(|life| life.is_zero()) || self.world.is_over() {
                return;
            }
            rest = block.saturating_sub(passed);
            self.world.sleep(PAUSE_MS);
        }
    }

    /// Subscribes and sends the request; how it ended. `None`: it was not sent.
    fn ask(
        &mut self,
        latch: &Generation,
        call: LatchCall,
        life: Option<Duration>,
    ) -> Option<(Exchange, End)> {
        let (base, start) = (&latch.base, Instant::now());
        let port = self.world.route.port(base);
        let mut link = match self.link.take() {
            Some(link) if link.port == port => link,
            _ => Link::new(self.id, port, self.world.route.is_cluster()),
        };
        let channel = self.channel(latch);
        if !self.subscribed(&mut link, &channel) {
            self.world.route.learn(base, port, None);
            return None;
        }
        // The subscription takes time: the primary may be another one by now.
        if self.world.route.port(base) != port {
            return None;
        }
        let tag = self.tag;
        let mut request = words(&latch.name, call);
        request.extend(["NOTIFY".into(), channel.clone(), tag.to_string()]);
        let sent = now();
        if !link.send(tag, |wire| push_words(wire, &request)) {
            self.world.route.learn(base, port, None);
            return None;
        }
        let end = loop {
            if let Some(end) = next_end(&mut link, &channel, tag) {
                break end;
            }
            if life.is_some_and(|life| start.elapsed() >= life) {
                break End::Gone;
            }
            if self.is_drained() {
                break End::Known(Outcome::Silent);
            }
            std::thread::sleep(IDLE);
        };
        let outcome = match &end {
            End::Known(outcome) => outcome.clone(),
            End::Gone | End::Unheard => Outcome::Lost,
        };
        match (&end, &outcome) {
            (End::Gone, _) => self.world.route.learn(base, port, None),
            (_, Outcome::Error(code)) => {
                self.world.route.learn(base, port, Some(code));
                self.link = Some(link);
            }
            _ => self.link = Some(link),
        }
        let done = now();
        Some((
            Exchange {
                sent,
                done,
                outcome,
            },
            end,
        ))
    }

    /// The channel of tickets at this latch. In a cluster it is in its slot.
    fn channel(&self, latch: &Generation) -> String {
        let (id, base) = (self.id, &latch.base);
        match self.world.route.is_cluster() {
            true if base.contains('{') => format!("{base}answers:{id}"),
            true => format!("{{{base}}}answers:{id}"),
            false => format!("answers:{id}"),
        }
    }

    /// Subscribes, unless that is done; false: the server does not confirm it.
    fn subscribed(&mut self, link: &mut Link<u64>, channel: &str) -> bool {
        let start = Instant::now();
        while !link.is_subscribed(channel) {
            let mut events = Vec::new();
            let is_refused = !link.subscribe(channel) || {
                link.poll(&mut events);
                events.iter().any(|event| {
                    matches!(event, Event::Refused(_)) || matches!(event, Event::Ended(_))
                })
            };
            if is_refused || start.elapsed() > SUBSCRIBING || self.world.is_over() {
                return false;
            }
            std::thread::sleep(IDLE);
        }
        true
    }

    /// Whether the run has been over for so long that every answer should be there.
    fn is_drained(&mut self) -> bool {
        let drain = self.world.drain;
        self.world.is_over() && {
            let until = self
                .drain_until
                .get_or_insert_with(|| Instant::now() + drain);
            Instant::now() > *until
        }
    }
}

/// Reads the connections; the end of the request with this tag, if it has come.
fn next_end(link: &mut Link<u64>, channel: &str, tag: u64) -> Option<End> {
    let mut events = Vec::new();
    link.poll(&mut events);
    let ends = events.into_iter().map(|event| match event {
        Event::Reply(of, Some(Reply::Text(text))) if of == tag && text == "QUEUED" => None,
        Event::Reply(of, Some(reply)) if of == tag => Some(End::Known(outcome(&reply))),
        Event::Reply(of, None) if of == tag => Some(End::Gone),
        Event::Message { text, .. } => match parse(&text) {
            Some((Word::Granted(open), of)) if of == tag && open == [1] => {
                Some(End::Known(Outcome::Number(1)))
            }
            Some((Word::Timeout, of)) if of == tag => Some(End::Known(Outcome::Number(0))),
            Some((Word::Failed(code), of)) if of == tag => Some(End::Known(Outcome::Error(code))),
            // A message that has no meaning: Porcupine refuses its number.
            Some((_, of)) if of == tag => Some(End::Known(Outcome::Number(-1))),
            _ => None,
        },
        Event::Ended(subscription) if subscription.channel == channel => Some(End::Unheard),
        Event::Reply(..) | Event::Ended(_) | Event::Refused(_) => None,
    });
    ends.flatten().next()
}
