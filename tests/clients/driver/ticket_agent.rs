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
//! Every error that the library raises is answered `ID error TEXT`. The arguments of the agent are host, port, the mode
//! of `TicketSubject`, and in a cluster the hash tag of the keys.

use std::collections::HashMap;

use crate::agent::Agent;
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
        let token = answer.strip_prefix("token ").and_then(|t| t.parse().ok());
        let token = token.unwrap_or_else(|| panic!("{owner}: not a token: {answer}"));
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

    /// The same, if it has arrived.
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
