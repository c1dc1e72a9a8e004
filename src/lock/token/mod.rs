//! Fencing tokens: numbers that only ever rise, whatever ended the grant before.
//!
//! A token is the wall clock in microseconds, or the last token plus one where that is higher. The
//! clock alone would repeat after a restart with the clock set back, so the source also reserves a
//! *horizon* ahead of time, as timestamp oracles do: one small key (one per slot in a cluster) that
//! says "every token up to here may have been handed out". It travels with the data (RDB, AOF,
//! replicas, slot migration), and whoever takes over starts above it. The horizon is written in the
//! same transaction as the grant that first needs it, about once in half a [`SPAN_US`], so the last
//! half span of grants is covered even by a copy of the data that missed the newest writes.
//!
//! docs/DESIGN.md walks through the cases (FLUSHALL, promotion, unload, clocks) one by one.

use std::collections::BTreeMap;

use indexmap::IndexSet;

use crate::lock::table::give_back;
use crate::lock::LockError;

/// How far ahead of the clock a horizon reaches: one hour.
pub const SPAN_US: u64 = 3_600_000_000;

/// How many tokens a horizon covers while tokens run ahead of the clock (after a restart, or with
/// the clock set back) and each grant is worth only one. Small: in microseconds it is also how soon
/// after each other two processes may start from one horizon without meeting.
pub const SPAN_TOKENS: u64 = 1 << 14;

/// Ahead of the clock by more than this, a token is counted, not timed.
const AHEAD_US: u64 = 1_000_000;

/// The one rule for every number that is read from a key (a horizon, a lock's `#token`, Redisson's
/// counter): it is plausible up to a hundred years ahead of the clock. A clock that was set back, as far as
/// to 1970, leaves true numbers ahead of it, which must be believed or tokens would repeat. A number
/// beyond is forged or damaged. A plausible number leaves tokens for 128 years (in 2026).
pub const PLAUSIBLE_AHEAD_US: u64 = 100 * 366 * 24 * SPAN_US;

/// A fencing token, below 2^53 so that every client language can hold it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// The highest token there is.
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

/// Whose horizon: the whole server's, or one slot's in a cluster.
pub type Domain = u16;

/// What a freshly minted token needs written beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minted {
    /// The token of the grant.
    pub token: Token,
    /// A horizon to store before the grant, where the stored one is too near.
    pub horizon: Option<u64>,
}

/// Where the tokens of one domain come from.
#[derive(Debug, Default)]
struct Source {
    /// No token of this domain up to here is handed out again.
    last: u64,
    /// The horizon that stands in the key space, as far as this process knows, if it is its own or
    /// has been taken over.
    stored: Option<u64>,
    /// Whether nothing has happened since that could have changed it.
    known: bool,
    /// A foreign horizon was taken over since the last token.
    took_over: bool,
    /// The first token of this process since it last took over from another: what is below may be another's.
    own_from: Option<u64>,
    /// The implausible horizon that was found last and has not been written over since.
    implausible: Option<u64>,
}

impl Source {
    /// The next token, if no lock pushes it up.
    fn next(&self, now_us: u64) -> u64 {
        // Another process may have started from the horizon that was taken over, and all that it
        // wrote may be lost. By the clock it started earlier, so its tokens are below these.
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

    fn is_plausible(&self, number: u64, now_us: u64) -> bool {
        number <= self.last || number <= now_us.saturating_add(PLAUSIBLE_AHEAD_US)
    }

    /// The higher of the two numbers that a lock's data has.
    fn highest(&self, seen: u64, counter: u64, now_us: u64) -> Result<u64, LockError> {
        if !self.is_plausible(seen, now_us) {
            return Err(LockError::TokenAhead);
        }
        if !self.is_plausible(counter, now_us) {
            return Err(LockError::CounterAhead);
        }
        Ok(seen.max(counter))
    }
}

/// The source of tokens of one server process.
///
/// In a cluster each slot has its own: a key never leaves its slot, and no slot pushes up another's.
#[derive(Debug, Default)]
pub struct Tokens {
    /// Mostly a single one: an ordered map finds it without hashing.
    sources: BTreeMap<Domain, Source>,
    /// The domains whose horizon was deleted with everything else and is to be stored again.
    lost: IndexSet<Domain>,
    /// Whether the key of the last horizon that was asked for holds something else: then nothing is granted.
    is_foreign: bool,
}

impl Tokens {
    fn source(&mut self, domain: Domain) -> &mut Source {
        self.sources.entry(domain).or_default()
    }

    /// Whether the stored horizon of this domain is known; if not, the shell reads the key and
    /// calls [`Tokens::learn`] before it asks for a token.
    pub fn knows(&self, domain: Domain) -> bool {
        self.sources.get(&domain).is_some_and(|source| source.known)
    }

    /// Whether the key of a horizon holds something else than a string.
    pub fn set_foreign(&mut self, is_foreign: bool) {
        self.is_foreign = is_foreign;
    }

    /// Why no token can be minted, where the shell says that none can.
    pub fn no_grant(&self) -> LockError {
        match self.is_foreign {
            true => LockError::HorizonForeign,
            false => LockError::TryAgain,
        }
    }

    /// The horizon could not be written, or its key may have changed unseen: it is read again before the next token.
    pub fn doubt(&mut self, domain: Domain) {
        self.source(domain).known = false;
    }

    /// Takes in what the horizon key holds (0 when it is absent or unreadable). A horizon that
    /// this process did not write is a reservation of another process: start above it. One that is not
    /// plausible counts as absent, so that the next grant writes over it. Answers whether the key holds an
    /// implausible number that it did not hold before.
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

    /// What is stored may have changed (data loaded, a promotion): it is read again, and written
    /// again if it is gone. If our own horizon is found, nobody took over in between, and tokens go
    /// on as they were. The last token itself is never forgotten.
    pub fn forget(&mut self) {
        for source in self.sources.values_mut() {
            source.known = false;
        }
    }

    /// This server followed another, which may have handed out tokens from the very horizon that
    /// this one wrote: none is our own any more.
    pub fn disown(&mut self) {
        for source in self.sources.values_mut() {
            (source.known, source.stored, source.own_from) = (false, None, None);
        }
        self.lost = IndexSet::default();
    }

    /// Whether this token may be of another process, before this one took over. Then it may be below tokens
    /// of that process that this one's data has lost.
    pub fn is_inherited(&self, domain: Domain, token: Token) -> bool {
        let source = self.sources.get(&domain);
        let own_from = source.and_then(|source| source.own_from);
        own_from.is_none_or(|own_from| token.0 < own_from)
    }

    /// A horizon was deleted. It is stored again at once: tokens may be ahead of the clock, and a
    /// process that started without a horizon would fall behind them.
    pub fn lose(&mut self, domain: Domain) {
        if let Some(source) = self.sources.get_mut(&domain) {
            if source.stored.is_some_and(|horizon| horizon > 0) {
                self.lost.insert(domain);
            }
            (source.known, source.stored) = (false, None);
        }
    }

    /// Every horizon was deleted: flushed, or swapped away with its database.
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

    /// Reserves tokens ahead: the horizon that is to be stored now.
    pub fn reserve(&mut self, domain: Domain, now_us: u64) -> u64 {
        self.source(domain).reserve(now_us)
    }

    /// This horizon could not be stored just now.
    pub fn put_off(&mut self, domain: Domain) {
        let source = self.source(domain);
        (source.known, source.stored) = (false, None);
        self.lost.insert(domain);
    }

    /// Nothing is to be stored again: the data was replaced by other data, with its own horizons.
    pub fn forget_lost(&mut self) {
        self.lost = IndexSet::default();
    }

    /// A token that a lock's data shows, perhaps another server's: those to come are above it.
    pub fn observe(&mut self, domain: Domain, token: Token, now_us: u64) {
        let source = self.source(domain);
        if source.is_plausible(token.0, now_us) {
            source.last = source.last.max(token.0);
        }
    }

    /// Whether the next token of this domain will need its horizon written, as far as can be told
    /// before it is minted (a token that this very lock pushes up may still need it).
    pub fn wants_horizon(&mut self, domain: Domain, now_us: u64) -> bool {
        let source = self.source(domain);
        source.needs_horizon(source.next(now_us), now_us)
    }

    /// Whether a token could be minted just now, and so many more after it: a request on many keys asks
    /// for all of them before it takes the first.
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
    ) -> Result<(), LockError> {
        let source = self.source(domain);
        let highest = source.highest(seen, counter, now_us)?;
        let next = highest.max(source.next(now_us));
        match Token::new(next.saturating_add(1).saturating_add(more)) {
            Some(_) => Ok(()),
            None => Err(LockError::TokensExhausted),
        }
    }

    /// The next token: above every token of this domain, above what this very lock's data says it
    /// has seen (`seen`: its token field; `counter`: Redisson's counter), and not behind the clock.
    ///
    /// # Errors
    /// [`LockError::TokenAhead`] or [`LockError::CounterAhead`] when one of the two is not plausible,
    /// [`LockError::TokensExhausted`] when numbers have run out.
    pub fn mint(
        &mut self,
        domain: Domain,
        seen: u64,
        counter: u64,
        now_us: u64,
    ) -> Result<Minted, LockError> {
        let source = self.source(domain);
        let highest = source.highest(seen, counter, now_us)?;
        let next = highest.saturating_add(1).max(source.next(now_us));
        let token = Token::new(next).ok_or(LockError::TokensExhausted)?;
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
