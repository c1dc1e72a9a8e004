//! The state of one owner in its process: the wait by ticket, and then the hold.

use crate::counter::Read;
use crate::history::{now, Answer, Ask, Kind, Nanos, Outcome, Word, MS};

/// The tags of an owner are `owner * TAGS + n`, n from 1 on.
pub const TAGS: u64 = 1000;

/// The percentage of owners that ask once more when their ticket has timed out.
const REPEAT: u8 = 30;

/// The stage of an owner.
pub enum Stage {
    /// A request is to be sent, for the first time or again.
    Ask,
    /// A request was sent.
    Asked,
    /// `QUEUED`.
    Waiting,
    /// Granted: a token for each key.
    Granted(Vec<i64>),
    Renewing,
    /// The lease is renewed, or the owner does without that.
    Holds,
    /// The work lasts until then.
    Works(Nanos),
    /// A release is to be sent: of the hold, or to give up.
    Leave,
    Leaving,
    Done,
}

pub struct Ticket {
    pub owner: u64,
    pub keys: Vec<u32>,
    pub kind: Kind,
    pub lease: u32,
    /// `BLOCK` of the whole wait, in milliseconds; 0: no limit.
    pub block: u32,
    /// When the wait is over.
    pub ends: Option<Nanos>,
    /// When the owner gives up.
    pub gives_up: Option<Nanos>,
    /// When the owner asks again without need.
    pub hurries: Option<Nanos>,
    pub stage: Stage,
    /// The server of the last request.
    pub port: u16,
    pub not_before: Nanos,
    /// The token of a hold of one key.
    pub token: Option<i64>,
    pub read: Option<Read>,
    /// The number of requests so far.
    asked: u64,
    refused: u32,
}

impl Ticket {
    pub fn new(owner: u64, keys: Vec<u32>, kind: Kind, lease: u32) -> Ticket {
        Ticket {
            owner,
            keys,
            kind,
            lease,
            block: 0,
            ends: None,
            gives_up: None,
            hurries: None,
            stage: Stage::Ask,
            port: 0,
            not_before: 0,
            token: None,
            read: None,
            asked: 0,
            refused: 0,
        }
    }

    /// The next request, which waits for the rest of the time.
    pub fn next_ask(&mut self, client: u32, channel: String) -> Ask {
        self.asked += 1;
        let sent = now();
        let rest = |ends: Nanos| (ends.saturating_sub(sent) / MS).max(1) as u32;
        Ask {
            client,
            owner: self.owner,
            keys: self.keys.clone(),
            kind: self.kind,
            lease: self.lease,
            block: self.ends.map_or(0, rest),
            port: self.port,
            channel,
            tag: self.tag(),
            sent,
            done: 0,
            answer: Answer::Lost,
        }
    }

    fn tag(&self) -> u64 {
        self.owner * TAGS + self.asked
    }

    fn waits(&self) -> bool {
        matches!(self.stage, Stage::Ask | Stage::Asked | Stage::Waiting)
    }

    /// Whether the time is over before the next request could be sent.
    pub fn has_ended(&self, at: Nanos) -> bool {
        self.ends.is_some_and(|ends| at > ends) && self.asked > 0
    }

    /// The subscription was lost, or the server is another one now.
    pub fn must_ask_again(&mut self) {
        if self.waits() && self.asked < TAGS - 1 {
            self.stage = Stage::Ask;
        }
    }

    fn granted(&mut self, tokens: &[i64]) {
        self.token = tokens.first().copied().filter(|_| tokens.len() == 1);
        self.stage = Stage::Granted(tokens.to_vec());
    }

    /// A message with a tag of this owner; `goes_on` below `REPEAT`: the owner asks again after a time-out. For a
    /// failure: the key, the server and the code.
    pub fn hear(&mut self, tag: u64, word: &Word, goes_on: u8) -> Option<(u32, u16, Box<str>)> {
        if !self.waits() {
            return None;
        }
        let is_latest = tag == self.tag();
        match word {
            Word::Granted(tokens) => self.granted(tokens),
            Word::Timeout if is_latest => {
                self.stage = match goes_on < REPEAT {
                    true => Stage::Ask,
                    false => Stage::Done,
                };
                self.ends = Some(now() + Nanos::from(self.block.max(1)) * MS);
            }
            Word::Failed(code) if is_latest => {
                self.stage = Stage::Ask;
                return Some((self.keys[0], self.port, code.clone()));
            }
            _ => {}
        }
        None
    }

    /// The reply to a request with this tag.
    pub fn answered(&mut self, tag: u64, answer: &Answer, pause: Nanos) {
        if !matches!(self.stage, Stage::Asked) || tag != self.tag() {
            return;
        }
        match answer {
            Answer::Queued => self.stage = Stage::Waiting,
            Answer::Granted(tokens) => self.granted(tokens),
            Answer::Lost => self.must_ask_again(),
            Answer::Error(_) => {
                self.refused += 1;
                self.not_before = pause;
                // An earlier request may still wait.
                self.stage = match self.refused < 5 && self.asked < TAGS - 1 {
                    true => Stage::Ask,
                    false => Stage::Leave,
                };
            }
        }
    }

    /// The reply to a renewal or a release.
    pub fn replied(&mut self, outcome: &Outcome, pause: Nanos, is_over: bool) {
        self.stage = match (&self.stage, outcome) {
            // The grant answered an earlier request: a later one may wait.
            (Stage::Renewing, Outcome::Number(0)) if self.asked > 1 => Stage::Leave,
            (Stage::Renewing, Outcome::Number(0)) => Stage::Done,
            (Stage::Renewing, _) => Stage::Holds,
            // A refused release is repeated, so that no ticket stays behind.
            (Stage::Leaving, Outcome::Error(_)) if !is_over || self.token.is_none() => {
                self.not_before = pause;
                Stage::Leave
            }
            _ => Stage::Done,
        };
    }
}
