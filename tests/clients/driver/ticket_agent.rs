//! The driver's side of an agent of tickets. The agent carries out any number of orders at a time; each order begins
//! with an id, which the answer repeats. Times are in milliseconds; the agent begins with `ready`.
//!
//! | Order | Answers |
//! |---|---|
//! | `ID acquire KEY OWNER WAIT LEASE` | `ID token N`, `ID nil`, `ID cancelled` |
//! | `ID cancel OTHER` | nothing; the caller of the acquire with the id OTHER gives up |
//! | `ID renew KEY OWNER TOKEN LEASE` | `ID 1`, `ID 0` |
//! | `ID release KEY OWNER TOKEN` | `ID 1`, `ID 0` |
//!
//! The agents of packages, not those of helpers, know more. KEY of `acquire` and `keep` may be several keys with commas
//! between them; the token is that of the first. `acquire`, `keep` and `permit` take options behind LEASE: `mode=read`,
//! `mode=write`, `queue=N`, `replicas=N`, `within=MS` (for the replicas), `note=TEXT`, and of permits `limit=N`,
//! `count=N`.
//!
//! | Order | Answers |
//! |---|---|
//! | `ID keep KEY OWNER WAIT LEASE` | as acquire; the hold is renewed |
//! | `ID keep KEY OWNER WAIT LEASE on-lost=close` | the same; later `ID closed`, when a callback of its loss has closed the client |
//! | `ID keep KEY OWNER WAIT LEASE on-lost=block` | the same; later `ID blocked`, by a callback of its loss, which then blocks |
//! | `ID block-log` | `ID blocks`; later `ID blocked`, by a handler of the log that then blocks |
//! | `ID unblock` | `ID unblocked`; what blocks goes on |
//! | `ID permit KEY OWNER WAIT LEASE` | as acquire, of a semaphore that the agent does not create without `limit`; OWNER is the id |
//! | `ID resume KEY OWNER TOKEN LEASE` | `ID token N`; another object goes on with the hold (`permits=yes`: of a semaphore) |
//! | `ID leave KEY OWNER TOKEN REST` | `ID 1`, `ID 0`; the hold lasts for so long |
//! | `ID lost KEY OWNER TOKEN` | `ID lost`, when the library tells that this hold is lost |
//! | `ID state KEY OWNER TOKEN` | `ID held`, `ID lost`: what the library knows of the hold, without a request |
//! | `ID do KEY OWNER TOKEN WORD...` | `ID did REPLY`; the command ran under the hold |
//! | `ID types KEY OWNER TOKEN` | `ID types NAME=RESULT...`, see below |
//! | `ID odd NAME` | what a call with a wrong argument answers (`calls.rs` has the names); `ID none`: there is no such call |
//! | `ID info KEY` | `ID info nil`, `ID info MODE WAITERS OWNER/TOKEN/NOTE...`: who holds a lock |
//! | `ID info-permits KEY` | `ID info nil`, `ID info PERMITS FREE HELD WAITERS`: of a semaphore |
//! | `ID events KEY` | `ID events WORD...`: what an observer was told of this key: `asked`, `granted`, `refused`, `failed`, `released`, `lost`, `late` |
//! | `ID close` | `ID closed`; the client object is closed |
//! | `ID disconnect` | `ID disconnected`; the program has closed its own client, below the package |
//!
//! With a mode that begins with `double`, the agent has no server, but the package's double of one:
//!
//! | Order | Answers |
//! |---|---|
//! | `ID advance MS` | `ID advanced`; so much time has passed |
//! | `ID break KEY` | `ID broken`; the holds of the lock have ended |
//! | `ID has-replicas N` | `ID has`; so many replicas have each grant |
//!
//! `types` writes a value of each type twice: to the key `own:NAME` as the program's own client does, where it can, and
//! to `do:NAME` by a command under the hold. The result is `ok`, or the kind of the error.
//!
//! Every error that the library raises is answered `ID error TEXT`, by a package `ID error KIND TEXT`, with one of the
//! kinds of the table of errors in `clients/README.md`: `lost`, `unheard`, `closed`, `usage`, `no-semaphore`,
//! `queue-full`, `not-replicated`, or `other`. The arguments of the agent are host, port, the mode of `TicketSubject`,
//! and in a cluster the hash tag of the keys.

use std::collections::HashMap;
use std::process::Command;

use crate::agent::{token_in, Agent};
use crate::TicketSubject;

/// A running agent; dropping it ends the process.
pub struct TicketAgent {
    agent: Agent,
    early: HashMap<String, String>,
}

impl TicketAgent {
    /// Starts an agent, connected to this port.
    pub fn start(subject: &TicketSubject, port: u16) -> TicketAgent {
        TicketAgent::start_with(subject, port, &[])
    }

    /// Starts an agent that is connected to the cluster of this node, for keys with this hash tag (`{a}`).
    pub fn start_in_cluster(subject: &TicketSubject, port: u16, tag: &str) -> TicketAgent {
        TicketAgent::start_with(subject, port, &[tag])
    }

    /// Starts an agent by a program that was made of [`Agent::program`].
    pub fn start_by(subject: &TicketSubject, program: Command, port: u16) -> TicketAgent {
        let agent = Agent::start_by(program, subject.client, port, &[subject.mode]);
        TicketAgent {
            agent,
            early: HashMap::new(),
        }
    }

    fn start_with(subject: &TicketSubject, port: u16, further: &[&str]) -> TicketAgent {
        let arguments = [&[subject.mode], further].concat();
        TicketAgent {
            agent: Agent::start_as(subject.client, port, &arguments),
            early: HashMap::new(),
        }
    }

    /// Begins a wait for `key`, with a lease of a minute; the owner is the order's id.
    pub fn acquire(&mut self, key: &str, owner: &str, wait: u32) {
        self.agent
            .order(&format!("{owner} acquire {key} {owner} {wait} 60000"));
    }

    /// Sends an order of this id without waiting for the answer.
    pub fn order(&mut self, id: &str, order: &str) {
        self.agent.order(&format!("{id} {order}"));
    }

    /// The answer to an order.
    pub fn ask(&mut self, order: &str) -> String {
        self.order("ask", order);
        self.answer_to("ask")
    }

    /// This order is answered by an error of this kind, which names that.
    pub fn fails(&mut self, order: &str, kind: &str, names: &str) {
        let answer = self.ask(order);
        let fits = answer.starts_with(&format!("error {kind} ")) && answer.contains(names);
        assert!(fits, "{order}: {answer}");
    }

    /// Acquires a free lock that is renewed, and returns the token. The owner is `a`.
    pub fn keep(&mut self, key: &str, lease: u32) -> i64 {
        self.take("keep", key, lease)
    }

    /// The same without renewal.
    pub fn hold(&mut self, key: &str, lease: u32) -> i64 {
        self.take("acquire", key, lease)
    }

    fn take(&mut self, order: &str, key: &str, lease: u32) -> i64 {
        token_in(&self.ask(&format!("{order} {key} a 10000 {lease}")))
    }

    /// The same as `keep` by an order of this id, with what a callback of the loss does.
    pub fn keep_and(&mut self, id: &str, key: &str, on_lost: &str) -> i64 {
        self.order(id, &format!("keep {key} a 10000 3000 on-lost={on_lost}"));
        token_in(&self.answer_to(id))
    }

    /// Ends the input, and waits for the end of the program.
    pub fn end(self) {
        self.agent.end();
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: i32) {
        self.agent.signal(signal);
    }

    /// The caller of this owner's acquire gives up.
    pub fn cancel(&mut self, owner: &str) {
        self.agent.order(&format!("cancel cancel {owner}"));
    }

    /// Renews for ten minutes.
    pub fn renew(&mut self, key: &str, owner: &str, token: i64) -> String {
        self.agent
            .order(&format!("renew renew {key} {owner} {token} 600000"));
        self.answer_to("renew")
    }

    pub fn release(&mut self, key: &str, owner: &str, token: i64) -> String {
        self.agent
            .order(&format!("release release {key} {owner} {token}"));
        self.answer_to("release")
    }

    /// The next owner whose acquire is answered, with the answer.
    pub fn next(&mut self) -> (String, String) {
        let early = self.early.keys().next().cloned();
        match early.and_then(|id| self.early.remove_entry(&id)) {
            Some(answer) => answer,
            None => self.read(),
        }
    }

    /// The next owner that is granted a lock, with the token.
    pub fn next_token(&mut self) -> (String, i64) {
        let (owner, answer) = self.next();
        let token = token_in(&answer);
        (owner, token)
    }

    /// The answer to the order with this id.
    pub fn answer_to(&mut self, id: &str) -> String {
        if let Some(answer) = self.early.remove(id) {
            return answer;
        }
        loop {
            let (other, answer) = self.read();
            if other == id {
                return answer;
            }
            self.early.insert(other, answer);
        }
    }

    /// The answer to the order with this id, if it has arrived.
    pub fn so_far(&mut self, id: &str) -> Option<String> {
        while let Some((other, answer)) = self.next_so_far() {
            self.early.insert(other, answer);
        }
        self.early.remove(id)
    }

    /// The next answer, if it has arrived.
    pub fn next_so_far(&mut self) -> Option<(String, String)> {
        self.agent.answer_so_far().map(split)
    }

    fn read(&mut self) -> (String, String) {
        split(self.agent.answer())
    }
}

fn split(line: String) -> (String, String) {
    let (id, answer) = line.split_once(' ').expect("an id and an answer");
    (id.to_string(), answer.to_string())
}
