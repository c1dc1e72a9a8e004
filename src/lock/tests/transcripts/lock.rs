//! The commands of locks.

use crate::lock::tests::sim::Terms;
use crate::lock::tests::transcripts::{said, Session, Words};
use crate::lock::{Answer, Mode, Released, WaiterId};

impl Session {
    pub(super) fn lock_command(&mut self, words: &Words<'_>) -> Option<String> {
        Some(match words.at(0) {
            "acquire" => self.acquire(words, Mode::Exclusive),
            "read" => self.acquire(words, Mode::Read),
            "write" => self.acquire(words, Mode::Write),
            "macquire" | "mrelease" | "mrenew" => self.many(words),
            "break" if words.option("to").is_some() => self.break_to(words),
            "release" | "renew" | "break" => self.end_or_renew(words),
            "if" => self.fence(words),
            _ => return None,
        })
    }

    fn acquire(&mut self, words: &Words<'_>, mode: Mode) -> String {
        let (key, owner) = (words.at(1), words.at(2));
        let conn = self.conn(words.option("conn").unwrap_or(owner));
        let how = (mode, words.terms(), words.wait(), words.has("once"));
        let answer = self.sim.acquire(key, owner, conn, how);
        said(answer, |answer| self.answered(answer))
    }

    fn break_to(&mut self, words: &Words<'_>) -> String {
        let token = words.option("token").map(|name| self.token(name));
        let (key, owner) = (words.at(1), words.option("to").unwrap());
        let conn = self.conn(words.option("conn").unwrap_or(owner));
        self.sim.breaks = Some(token);
        let how = (Mode::Exclusive, words.terms(), words.wait(), true);
        let answer = self.sim.acquire(key, owner, conn, how);
        said(answer, |answer| self.answered(answer))
    }

    /// How a waiter waits.
    pub(super) fn waits(&self, id: WaiterId) -> &'static str {
        let sim = &self.sim;
        match sim.parked.contains_key(&id) || sim.granted.contains_key(&id) {
            true => "parked",
            false => "queued",
        }
    }

    pub(super) fn answered(&mut self, answer: Answer) -> String {
        match answer {
            Answer::Granted(token) => format!("granted {}", self.name(token)),
            Answer::Refused => "refused".into(),
            Answer::Waits(id) => self.waits(id).into(),
        }
    }

    /// The words between the command and its options are the keys and, last, the owner.
    fn many(&mut self, words: &Words<'_>) -> String {
        let is_name = |word: &&&str| {
            !word.contains('=') && !["once", "all", "read", "write", "session"].contains(*word)
        };
        let names: Vec<&str> = words.0[1..].iter().take_while(is_name).copied().collect();
        let (owner, keys) = names.split_last().unwrap();
        match words.at(0) {
            "macquire" => {
                let conn = self.conn(words.option("conn").unwrap_or(owner));
                let mode = words.mode().unwrap_or(Mode::Exclusive);
                let terms = match words.has("session") {
                    true => Terms::Session,
                    false => Terms::Named(words.lease()),
                };
                let how = (mode, terms, words.wait(), words.has("once"));
                let answer = self.sim.acquire_many(keys, owner, conn, how);
                said(answer, |answer| match answer {
                    Answer::Granted(tokens) => format!("granted {}", self.names(&tokens)),
                    Answer::Refused => "refused".into(),
                    Answer::Waits(id) => self.waits(id).into(),
                })
            }
            "mrelease" => {
                let released = self.sim.release_many(keys, owner, words.has("all"));
                said(released, |count| format!("dropped {count}"))
            }
            _ => {
                let renewed = self.sim.renew_many(keys, owner, words.lease());
                said(renewed, |count| format!("renewed {count}"))
            }
        }
    }

    fn end_or_renew(&mut self, words: &Words<'_>) -> String {
        let token = words.option("token").map(|name| self.token(name));
        let (key, sim) = (words.at(1), &mut self.sim);
        match words.at(0) {
            "release" => {
                let how = (words.mode(), words.has("all"), token);
                said(
                    sim.release(key, words.at(2), how),
                    |released| match released {
                        Released::Freed => "freed",
                        Released::StillHeld => "still held",
                        Released::NotHeld => "not held",
                    },
                )
            }
            "renew" => {
                let how = (words.mode(), words.terms(), token);
                let renewed = sim.renew(key, words.at(2), how);
                said(renewed, |renewed| if renewed { "renewed" } else { "lost" })
            }
            _ => {
                let broken = sim.break_lock(key, token, words.has("purge"));
                said(broken, |broken| if broken { "broken" } else { "not held" })
            }
        }
    }

    fn fence(&mut self, words: &Words<'_>) -> String {
        let token = words.option("token").map(|name| self.token(name));
        match self
            .sim
            .passes_fence(words.at(1), token.unwrap_or_default())
        {
            true => "held under it".into(),
            false => "fenced".into(),
        }
    }
}
