//! Fencing tokens: numbers that only rise, however the former grant ended.
//!
//! A token is the wall clock in microseconds, or the last token plus one if that is higher. The clock alone would
//! repeat after a restart with the clock set back. So the source also reserves a *horizon* ahead of time, as timestamp
//! oracles do: one small key (one for each slot in a cluster) that states "every token up to here may have been handed
//! out". The horizon travels with the data (RDB, AOF, replicas, slot migration), and a process that takes the data over
//! starts above it. It is written in the same transaction as the grant that first needs it, about once in half a
//! [`SPAN_US`], so the last half span of grants is covered even by a copy of the data that missed the newest writes.
//!
//! docs/DESIGN.md goes through the cases (FLUSHALL, promotion, slot migration, clocks).

use std::collections::BTreeMap;

use indexmap::IndexSet;

use crate::lock::name::quoted;
use crate::lock::table::give_back;
use crate::lock::{prefixed, KeyRef, LockError};

/// How far ahead of the clock a horizon reaches: one hour.
pub const SPAN_US: u64 = 3_600_000_000;

/// How many tokens a horizon covers while tokens run ahead of the clock (after a restart, or with the clock set back),
/// where each grant uses one number only. Kept small: in microseconds it is also the shortest distance between the
/// starts of two processes from one horizon without common tokens.
pub const SPAN_TOKENS: u64 = 1 << 14;

/// A token further ahead of the clock than this counts numbers instead of following the clock.
const AHEAD_US: u64 = 1_000_000;

/// A horizon is plausible up to a hundred years ahead of the clock. A clock that was set back, as far as to 1970,
/// leaves true horizons ahead of it, which must be accepted or tokens would repeat. A number beyond that is forged or
/// damaged. A plausible horizon leaves tokens for 128 years (in 2026). (The numbers in a lock's data, which every user
/// of the lock can write, are believed up to [`SPAN_US`] only, or up to the last token.)
pub const PLAUSIBLE_AHEAD_US: u64 = 100 * 366 * 24 * SPAN_US;

/// A fencing token, below 2^53 so that every client language can represent it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// The highest possible token.
    pub const MAX: Token = Token((1 << 53) - 1);

    /// `None` for zero and for numbers of 2^53 and more.
    pub fn new(value: u64) -> Option<Token> {
        (1..=Token::MAX.0).contains(&value).then_some(Token(value))
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The scope of a horizon: the whole server (0), or a slot in a cluster.
pub type Domain = u16;

/// The domain of every key outside a cluster.
pub const ONLY_DOMAIN: Domain = 0;

/// A new token, with what must be written beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minted {
    /// The token of the grant.
    pub token: Token,
    /// A horizon to store before the grant, if the stored one is too close.
    pub horizon: Option<u64>,
}

/// Redisson's counter of a lock is under this name, a colon and the lock's name, see [`prefixed`].
pub const COUNTER: &str = "redisson_lock_token";

/// Why no token can be minted for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoToken {
    /// The token in the lock's data is further ahead than a true one can be.
    TokenAhead,
    /// Redisson's counter of the lock is.
    CounterAhead,
    /// No number is left.
    Exhausted,
}

impl NoToken {
    /// The error of a request for this lock.
    pub(crate) fn at(self, key: KeyRef<'_>) -> LockError {
        match self {
            NoToken::TokenAhead => LockError::TokenAhead(quoted(key.name).into()),
            NoToken::CounterAhead => {
                LockError::CounterAhead(quoted(&prefixed(COUNTER, key.name)).into())
            }
            NoToken::Exhausted => LockError::TokensExhausted,
        }
    }
}

/// The source of tokens of one domain.
#[derive(Debug, Default)]
struct Source {
    /// The last token: no number up to here is handed out again.
    last: u64,
    /// The horizon in the key space as last known, if this process wrote it or has accepted it.
    stored: Option<u64>,
    /// Whether the stored horizon is known: no event since could have changed it.
    known: bool,
    /// Whether a foreign horizon was accepted since the last token.
    took_over: bool,
    /// The first token of this process since it last took over from another: lower ones may belong to the other.
    own_from: Option<u64>,
    /// The implausible horizon that was read last and has not been overwritten since.
    implausible: Option<u64>,
}

impl Source {
    /// The next token, without the numbers of a lock's data.
    fn next(&self, now_us: u64) -> u64 {
        // Another process may have started from the accepted horizon, and all its writes may be lost. It started
        // earlier by the clock, so its tokens are below these.
        let start = match self.took_over {
            true => now_us.saturating_add(SPAN_US),
            false => now_us,
        };
        self.last.saturating_add(1).max(start)
    }

    fn needs_horizon(&self, next: u64, now_us: u64) -> bool {
        let ahead = next > now_us.saturating_add(AHEAD_US);
        let margin = if ahead { SPAN_TOKENS } else { SPAN_US } / 2;
        next.saturating_add(margin) > self.stored.unwrap_or(0)
    }

    fn reserve(&mut self, now_us: u64) -> u64 {
        let ahead = now_us.saturating_add(SPAN_US);
        let reserved = ahead.max(self.last + SPAN_TOKENS).min(Token::MAX.0);
        (self.stored, self.known) = (Some(reserved), true);
        self.implausible = None;
        reserved
    }

    /// Whether a horizon may be true.
    fn is_plausible(&self, number: u64, now_us: u64) -> bool {
        number <= self.last || number <= now_us.saturating_add(PLAUSIBLE_AHEAD_US)
    }

    /// Whether a number in a lock's data may be true. Those of this data's servers are not above the accepted horizon;
    /// those of another server are an hour ahead of its clock at most, unless that was set back.
    fn believes(&self, number: u64, now_us: u64) -> bool {
        number <= self.last || !is_far_ahead(number, now_us)
    }

    /// The higher of the two numbers in a lock's data.
    fn highest(&self, seen: u64, counter: u64, now_us: u64) -> Result<u64, NoToken> {
        if !self.believes(seen, now_us) {
            return Err(NoToken::TokenAhead);
        }
        if !self.believes(counter, now_us) {
            return Err(NoToken::CounterAhead);
        }
        Ok(seen.max(counter))
    }
}

/// Whether a number in a lock's data is believed only because of a horizon, which the shell reads first.
pub(crate) fn is_far_ahead(number: u64, now_us: u64) -> bool {
    number > now_us.saturating_add(SPAN_US)
}

/// The token sources of one server process.
///
/// In a cluster each slot has its own: a key never leaves its slot, and no slot raises the tokens of another.
#[derive(Debug, Default)]
pub struct Tokens {
    /// Usually a single source: an ordered map finds it without hashing.
    sources: BTreeMap<Domain, Source>,
    /// The domains whose horizon was deleted and is to be stored again.
    lost: IndexSet<Domain>,
    /// Whether the last horizon key that was read holds something other than a string: then no lock is granted.
    is_foreign: bool,
}

impl Tokens {
    fn source(&mut self, domain: Domain) -> &mut Source {
        self.sources.entry(domain).or_default()
    }

    /// Whether the stored horizon of this domain is known. If not, the shell reads the key and calls [`Tokens::learn`]
    /// before it asks for a token.
    pub fn knows(&self, domain: Domain) -> bool {
        self.sources.get(&domain).is_some_and(|source| source.known)
    }

    /// Records whether a horizon key holds something other than a string.
    pub fn set_foreign(&mut self, is_foreign: bool) {
        self.is_foreign = is_foreign;
    }

    /// The error for a grant when no token can be made safe.
    pub fn no_grant(&self) -> LockError {
        match self.is_foreign {
            true => LockError::HorizonForeign,
            false => LockError::TryAgain,
        }
    }

    /// Marks the horizon as unknown, because it could not be written or its key may have changed unnoticed: it is read
    /// again before the next token.
    pub fn doubt(&mut self, domain: Domain) {
        self.source(domain).known = false;
    }

    /// Accepts the content of the horizon key (0 when it is absent or unreadable). A horizon that this process did not
    /// write is a reservation of another process, and tokens start above it. An implausible one counts as absent, so
    /// that the next grant overwrites it. Returns whether the key holds an implausible number that it did not hold
    /// before.
    pub fn learn(&mut self, domain: Domain, horizon: u64, now_us: u64) -> bool {
        let source = self.source(domain);
        let implausible = (!source.is_plausible(horizon, now_us)).then_some(horizon);
        let is_news = implausible.is_some() && source.implausible != implausible;
        let horizon = if implausible.is_some() { 0 } else { horizon };
        if source.stored != Some(horizon) {
            source.last = source.last.max(horizon);
            source.stored = Some(horizon);
            source.took_over |= horizon > 0;
            source.own_from = None;
        }
        (source.known, source.implausible) = (true, implausible);
        is_news
    }

    /// Marks every horizon as unknown (data loaded, a promotion): it is read again, and written again if it is gone. If
    /// the horizon of this process is found, no other process took over in between, and tokens continue. The last token
    /// is never forgotten.
    pub fn forget(&mut self) {
        for source in self.sources.values_mut() {
            source.known = false;
        }
        self.lost = IndexSet::default();
    }

    /// This server was a replica: its master may have handed out tokens from the very horizon that this process wrote,
    /// so no horizon counts as its own.
    pub fn disown(&mut self) {
        for source in self.sources.values_mut() {
            (source.known, source.stored, source.own_from) = (false, None, None);
        }
        self.lost = IndexSet::default();
    }

    /// Whether this token may be of another process, before this one took over. Then it may be below tokens of that
    /// process that the data has lost.
    pub fn is_inherited(&self, domain: Domain, token: Token) -> bool {
        let source = self.sources.get(&domain);
        let own_from = source.and_then(|source| source.own_from);
        own_from.is_none_or(|own_from| token.0 < own_from)
    }

    /// Records that a horizon was deleted. It is stored again at once: tokens may be ahead of the clock, and a process
    /// that started without a horizon would repeat them.
    pub fn lose(&mut self, domain: Domain) {
        if let Some(source) = self.sources.get_mut(&domain) {
            if source.stored.is_some_and(|horizon| horizon > 0) {
                self.lost.insert(domain);
            }
            (source.known, source.stored) = (false, None);
        }
    }

    /// Records that every horizon was deleted: flushed, or swapped with its database.
    pub fn lose_all(&mut self) {
        for domain in self.sources.keys().copied().collect::<Vec<_>>() {
            self.lose(domain);
        }
    }

    /// Whether horizons are to be stored again.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The next domain whose horizon may have to be stored again.
    pub fn pop_lost(&mut self) -> Option<Domain> {
        let domain = self.lost.pop();
        give_back(&mut self.lost);
        domain
    }

    /// Whether no known horizon of this domain covers the tokens that were handed out.
    pub fn is_uncovered(&self, domain: Domain) -> bool {
        let covers = |source: &Source| source.known && source.stored >= Some(source.last);
        !self.sources.get(&domain).is_some_and(covers)
    }

    /// Reserves tokens ahead. Returns the horizon to store now.
    pub fn reserve(&mut self, domain: Domain, now_us: u64) -> u64 {
        self.source(domain).reserve(now_us)
    }

    /// Records that this horizon could not be stored at the moment.
    pub fn put_off(&mut self, domain: Domain) {
        let source = self.source(domain);
        (source.known, source.stored) = (false, None);
        self.lost.insert(domain);
    }

    /// Accepts a token in a lock's data, perhaps of another server, unless it is too far ahead: later tokens are above
    /// it. Returns whether it is accepted.
    pub fn observe(&mut self, domain: Domain, token: Token, now_us: u64) -> bool {
        let source = self.source(domain);
        let is_believed = source.believes(token.0, now_us);
        if is_believed {
            source.last = source.last.max(token.0);
        }
        is_believed
    }

    /// Whether the next token of this domain will need a new horizon, as far as known before it is minted (a token that
    /// is raised by the lock's own data may still need one).
    pub fn wants_horizon(&mut self, domain: Domain, now_us: u64) -> bool {
        let source = self.source(domain);
        source.needs_horizon(source.next(now_us), now_us)
    }

    /// Checks that a token can be minted now, and `more` after it: a request on several keys checks all before it takes
    /// the first.
    ///
    /// # Errors
    /// As [`Tokens::mint`].
    pub fn can_mint(
        &mut self,
        domain: Domain,
        seen: u64,
        counter: u64,
        now_us: u64,
        more: u64,
    ) -> Result<(), NoToken> {
        let source = self.source(domain);
        let highest = source.highest(seen, counter, now_us)?;
        let next = highest.max(source.next(now_us));
        match Token::new(next.saturating_add(1).saturating_add(more)) {
            Some(_) => Ok(()),
            None => Err(NoToken::Exhausted),
        }
    }

    /// The next token: above every token of this domain, above the numbers in the lock's own data (`seen`: its token
    /// field; `counter`: Redisson's counter), and not behind the clock.
    ///
    /// # Errors
    /// See [`NoToken`].
    pub fn mint(
        &mut self,
        domain: Domain,
        seen: u64,
        counter: u64,
        now_us: u64,
    ) -> Result<Minted, NoToken> {
        let source = self.source(domain);
        let highest = source.highest(seen, counter, now_us)?;
        let next = highest.saturating_add(1).max(source.next(now_us));
        let token = Token::new(next).ok_or(NoToken::Exhausted)?;
        (source.last, source.took_over) = (next, false);
        source.own_from.get_or_insert(next);
        let wanted = source.needs_horizon(next, now_us);
        let horizon = wanted.then(|| source.reserve(now_us));
        if wanted {
            self.lost.swap_remove(&domain);
        }
        Ok(Minted { token, horizon })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
