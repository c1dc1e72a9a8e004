//! The commands of semaphores and latches.

use crate::lock::tests::transcripts::{said, Session, Words};
use crate::lock::Answer;

impl Session {
    pub(super) fn semaphore_command(&mut self, words: &Words<'_>) -> Option<String> {
        let (kind, command) = words.at(0).split_once('.')?;
        Some(match kind {
            "sem" => self.sem(command, words),
            _ => self.latch(command, words),
        })
    }

    fn sem(&mut self, command: &str, words: &Words<'_>) -> String {
        let key = words.at(1);
        let sim = &mut self.sim;
        match command {
            "set" => {
                let permits = words.at(2).parse().unwrap();
                let set = sim.sem_set(key, permits, words.condition());
                said(set, |set| set.map_or("nil".into(), |all| all.to_string()))
            }
            "acquire" => {
                let id = words.at(2);
                let conn = self.conn(words.option("conn").unwrap_or(id));
                let limit = words.number("limit").map(|limit| limit as u32);
                let how = (words.terms(), words.wait(), limit);
                let answer = self.sim.sem_acquire(key, id, conn, how);
                said(answer, |answer| self.answered(answer))
            }
            "release" => said(sim.sem_release(key, words.at(2)), |done| {
                if done {
                    "released"
                } else {
                    "not held"
                }
            }),
            "renew" => said(sim.sem_renew(key, words.at(2), words.terms()), |done| {
                if done {
                    "renewed"
                } else {
                    "lost"
                }
            }),
            _ => self.sem_info(key),
        }
    }

    fn latch(&mut self, command: &str, words: &Words<'_>) -> String {
        let key = words.at(1);
        match command {
            "set" => {
                let count = words.at(2).parse().unwrap();
                let set = self.sim.latch_set(key, count, words.condition());
                said(set, |set| {
                    set.map_or("nil".into(), |count| count.to_string())
                })
            }
            "down" => {
                let by = words.0.get(2).map_or(1, |by| by.parse().unwrap());
                said(self.sim.latch_down(key, by), |left| left.to_string())
            }
            _ => {
                let conn = self.conn(words.at(2));
                let waited = self.sim.latch_wait(key, conn, words.wait());
                said(waited, |waited| match waited {
                    Answer::Granted(()) => "open",
                    Answer::Refused => "closed",
                    Answer::Waits(id) => self.waits(id),
                })
            }
        }
    }
}
