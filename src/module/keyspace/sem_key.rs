//! The two keys of a semaphore, through the server's low-level key API: a string with the number of free permits, and a
//! sorted set of the permits that are taken, by their ends.

use redis_module::raw;

use crate::lock::{
    is_braced, may_be_of_a_lock, nth_permit, own_permits, permits_of, slot_of, Count, Held, KeyRef,
    KeyWrite, LockError, Now, OwnPermits, OwnerId, PermitChange, Permits, Resource, SemState,
    SemView, FIRST_END_MS, MOST_ENDED,
};
use crate::module::ffi::api::{api, has};
use crate::module::ffi::api::{Refused, Written};
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::raw_key::{RawKey, NO_TRACE};
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::count_key::CountKey;
use crate::module::keyspace::horizon;
use crate::module::keyspace::key::{Key, OTHER_KIND};
use crate::module::keyspace::replication::Replication;
use crate::module::state::constants::is_cluster;
use crate::module::state::shell;

/// Both keys, open during one callback.
pub struct SemKey<'a> {
    free: CountKey<'a>,
    set_name: OwnedStr,
    /// `None` for an absent key that was opened to read.
    set: Option<RawKey<'a>>,
}

/// Scores are exact up to this number, and no lease ends so late.
const LAST_END_MS: i64 = 1 << 53;

/// Which permits are read.
#[derive(Clone, Copy)]
struct Reading<'r> {
    /// The requesting id, and for how many permits it asks.
    own: Option<(Str<'r>, u8)>,
    undone: &'r [(OwnerId, Option<Held>)],
    wanted: usize,
    now: Now,
}

impl<'a> SemKey<'a> {
    /// Opens both to read and write.
    ///
    /// # Errors
    /// If another semaphore has a set of this name; in a cluster, if the second is in another slot than the first, or
    /// may be on another node because the slot moves.
    pub fn open(ctx: Ctx<'a>, name: Str<'a>) -> Result<SemKey<'a>, LockError> {
        let set_name = OwnedStr::new(&permits_of(name.bytes()));
        SemKey::open_with(ctx, name, set_name)
    }

    /// [`SemKey::open`] with the second key's name made already.
    ///
    /// # Errors
    /// Those of [`SemKey::open`].
    pub fn open_with(
        ctx: Ctx<'a>,
        name: Str<'a>,
        set_name: OwnedStr,
    ) -> Result<SemKey<'a>, LockError> {
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;
        let key = SemKey::open_both(CountKey::open(ctx, name), set_name, mode)?;
        if is_cluster() && !key.is_whole() {
            return Err(LockError::TryAgain);
        }
        Ok(key)
    }

    /// Opens both to read.
    ///
    /// # Errors
    /// If another semaphore has a set of this name; in a cluster, if the second is in another slot than the first.
    pub fn open_read(ctx: Ctx<'a>, name: Str<'a>) -> Result<SemKey<'a>, LockError> {
        let set_name = OwnedStr::new(&permits_of(name.bytes()));
        let free = CountKey::open_read(ctx, name);
        SemKey::open_both(free, set_name, raw::REDISMODULE_READ)
    }

    fn open_both(
        free: CountKey<'a>,
        set_name: OwnedStr,
        mode: u32,
    ) -> Result<SemKey<'a>, LockError> {
        if is_braced(free.name().bytes()) {
            return Err(LockError::Braced);
        }
        if is_cluster() && slot_of(set_name.as_str().bytes()) != slot_of(free.name().bytes()) {
            return Err(LockError::PermitsElsewhere);
        }
        let set = RawKey::open(free.ctx(), set_name.as_str(), mode);
        Ok(SemKey {
            free,
            set_name,
            set,
        })
    }

    /// Whether the set is on this node. While a slot moves key by key, an absent set may be on the other node: then
    /// there are permits that this node cannot see. The server redirects commands by the keys that they name; for a key
    /// that no command names, it is probed.
    fn is_whole(&self) -> bool {
        let may_be_elsewhere = self.set.as_ref().is_none_or(RawKey::is_empty)
            && !matches!(self.free.read(), Count::Absent);
        !may_be_elsewhere || self.free.ctx().probe_write_detached(self.set_name.as_str())
    }

    /// The view for a decision that needs no token: about the permits of the id `own`, if there is one, of which the
    /// request asks for so many.
    pub fn plain_view(&self, own: Option<(Str<'_>, u8)>, now: Now) -> SemView<'a> {
        let key = self.id();
        let (undone, wanted) = shell::with(|shell| {
            let shared = &shell.locks.shared;
            let undone = shared.in_flight.undone_owners(key);
            (
                undone,
                shared
                    .waiters
                    .permits_wanted(key, own.map_or(0, |own| own.1)),
            )
        });
        let undone = undone.into_iter().map(|id| {
            let held = Held::of(&self.own(OwnedStr::new(&id).as_str(), 1, now));
            (id, held)
        });
        let undone: Vec<_> = undone.collect();
        let reading = Reading {
            own,
            undone: &undone,
            wanted,
            now,
        };
        let state = self.read(reading);
        SemView {
            key,
            state,
            domain: horizon::domain_of(self.free.name()),
            may_grant: None,
            undone,
            has_subscriber: false,
        }
    }

    /// The state, and the number of permits whose end has passed.
    pub fn counted_view(&self, now: Now) -> (SemState, usize) {
        let state = self.read(Reading {
            own: None,
            undone: &[],
            wanted: 0,
            now,
        });
        let SemState::There(mut permits) = state else {
            return (state, 0);
        };
        permits.ended.clear();
        permits.next_end_ms = self.set.as_ref().and_then(|set| first_end(set, now));
        let over = self.count_over(now);
        (SemState::There(permits), over)
    }

    /// The number of permits whose end has passed: the server counts them without a walk.
    fn count_over(&self, now: Now) -> usize {
        let until = OwnedStr::of_number(now.wall_ms);
        let all = OwnedStr::new(b"-inf");
        let words = [self.set_name.as_str(), all.as_str(), until.as_str()];
        let reply = Reply::of(self.ctx(), c"ZCOUNT", How::AsModule, &words);
        let count = reply.and_then(|reply| reply.whole().number());
        count
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(0)
    }

    fn read(&self, reading: Reading<'_>) -> SemState {
        let free = match self.free.read() {
            Count::OtherString => return SemState::OtherString,
            Count::OtherType => return SemState::OtherType,
            Count::Is(free, end) if end.is_none_or(|end| end > reading.now.wall_ms) => free,
            // A set that a former semaphore of this name has left is deleted when one is made; no other set is.
            Count::Is(..) | Count::Absent => {
                return match last_end(self.set.as_ref()) {
                    Some(_) => SemState::Absent,
                    None => SemState::OtherSet,
                }
            }
        };
        let mut permits = Permits {
            free,
            ..Permits::default()
        };
        let Some(set) = &self.set else {
            return SemState::There(permits);
        };
        let (kind, taken) = (set.kind(), set.len());
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY => return SemState::There(permits),
            raw::REDISMODULE_KEYTYPE_ZSET => {}
            _ => return SemState::OtherSet,
        }
        permits.taken = taken;
        let own = reading
            .own
            .map(|(id, asked)| self.own(id, asked, reading.now));
        permits.own = own.unwrap_or_default();
        match read_ends(set, &mut permits, reading) {
            Some(()) => SemState::There(permits),
            None => SemState::OtherSet,
        }
    }

    /// The entries of this id, of which a request asks for so many.
    fn own(&self, id: Str<'_>, asked: u8, now: Now) -> OwnPermits {
        let taken = self.set.as_ref().map_or(0, RawKey::len);
        own_permits((asked, taken), now, |number| match number {
            1 => self.end_of(id),
            number => self.end_of(OwnedStr::new(&nth_permit(id.bytes(), number)).as_str()),
        })
    }

    /// The end of the permit with this entry, in milliseconds of the wall clock; `None` if it is not in the set.
    fn end_of(&self, entry: Str<'_>) -> Option<i64> {
        let end_ms = self.set.as_ref()?.score(entry)?;
        Some(end_ms as i64)
    }

    fn write_both(&mut self, change: &PermitChange, replication: Replication<'_>) -> Written {
        self.remove(&change.removed, replication)?;
        if let Some(free) = change.free {
            self.free.set(free, change.clear, replication)?;
        }
        self.set_ends(&change.set, replication)?;
        if !change.removed.is_empty() || !change.set.is_empty() {
            self.signal();
        }
        Ok(())
    }

    /// Corrects the number of free permits after a refused write: a permit that was not added to the set is free, and
    /// one that was not removed is taken. So no permit is lost, and none exists twice.
    #[cold]
    fn count_again(&mut self, change: &PermitChange, replication: Replication<'_>) {
        let Count::Is(now, _) = self.free.read() else {
            return;
        };
        let is_there = |id: &OwnerId| self.end_of(OwnedStr::new(id).as_str()).is_some();
        let is_set = |id: &OwnerId| change.set.iter().any(|(other, _)| other == id);
        let left = change
            .removed
            .iter()
            .filter(|id| !is_set(id) && is_there(id));
        let taken_still = left.count() as i64;
        let not_taken = change.set.iter().filter(|(id, _)| !is_there(id)).count() as i64;
        let free = change.free.unwrap_or(now) + not_taken - taken_still;
        let is_first = change.removed.is_empty() && change.free != Some(now);
        if free != now && !is_first && !fault::is_on("refused-permit-is-lost") {
            // If the server refuses this too, it accepts no write at all, and nothing more can be done.
            let _ = self.free.set(free, false, replication);
        }
        self.signal();
    }

    fn signal(&self) {
        self.free.ctx().signal_modified(self.set_name.as_str());
    }

    /// Deletes the set that a former semaphore of this name has left.
    fn clear(&mut self, replication: Replication<'_>) -> Written {
        let Some(set) = self.set.as_mut().filter(|set| !set.is_empty()) else {
            return Ok(());
        };
        set.delete_any()?;
        replication.del(self.set_name.as_str());
        self.signal();
        Ok(())
    }

    fn remove(&mut self, ids: &[OwnerId], replication: Replication<'_>) -> Written {
        if ids.is_empty() {
            return Ok(());
        }
        let set = self.set.as_mut().ok_or(Refused("RedisModule_OpenKey"))?;
        let ids: Vec<OwnedStr> = ids.iter().map(|id| OwnedStr::new(id)).collect();
        let mut words = vec![self.set_name.as_str()];
        let removed = ids.iter().try_for_each(|id| {
            set.remove_element(id.as_str())?;
            words.push(id.as_str());
            Ok(())
        });
        if words.len() > 1 {
            replication.zrem(&words);
        }
        removed
    }

    fn set_ends(&mut self, permits: &[(OwnerId, i64)], replication: Replication<'_>) -> Written {
        if permits.is_empty() {
            return Ok(());
        }
        let set = self.set.as_mut().ok_or(Refused("RedisModule_OpenKey"))?;
        let permits: Vec<(OwnedStr, OwnedStr, i64)> = permits
            .iter()
            .map(|(id, end_ms)| (OwnedStr::new(id), OwnedStr::of_number(*end_ms), *end_ms))
            .collect();
        let mut words = vec![self.set_name.as_str()];
        let added = permits.iter().try_for_each(|(id, digits, end_ms)| {
            set.set_score(id.as_str(), *end_ms as f64)?;
            words.extend([digits.as_str(), id.as_str()]);
            Ok(())
        });
        if words.len() > 1 {
            if !fault::is_on("permit-not-replicated") {
                replication.zadd(&words);
            }
            self.share_ttl(replication)?;
        }
        added
    }

    /// Gives the set the end of the string's TTL, or none, as Redisson's scripts do.
    fn share_ttl(&mut self, replication: Replication<'_>) -> Written {
        let end_ms = self.free.end_ms();
        let Some(set) = self.set.as_mut().filter(|set| set.end_ms() != end_ms) else {
            return Ok(());
        };
        let at = end_ms.unwrap_or(raw::REDISMODULE_NO_EXPIRE.into());
        set.expire_at(at)?;
        match end_ms {
            Some(end_ms) => replication.pexpireat(self.set_name.as_str(), end_ms),
            None => replication.persist(self.set_name.as_str()),
        }
        Ok(())
    }
}

impl<'a> Key<'a> for SemKey<'a> {
    fn ctx(&self) -> Ctx<'a> {
        self.free.ctx()
    }

    fn name(&self) -> Str<'a> {
        self.free.name()
    }

    fn id(&self) -> KeyRef<'a> {
        self.free.id().of(Resource::Semaphore)
    }

    fn write(&mut self, change: &KeyWrite, replication: Replication<'_>) -> Written {
        let KeyWrite::Permits(change) = change else {
            return Err(OTHER_KIND);
        };
        if change.clear {
            self.clear(replication)?;
        }
        let written = self.write_both(change, replication);
        if written.is_err() {
            self.count_again(change, replication);
        }
        written
    }
}

/// Whether this key has a set of permits whose last end has not passed: then the key is a semaphore's. (False as well
/// if the set may be on another node.)
pub fn has_permits(ctx: Ctx<'_>, name: Str<'_>) -> bool {
    let set_name = permits_of(name.bytes());
    if is_cluster() && slot_of(&set_name) != slot_of(name.bytes()) {
        return false;
    }
    let set_name = OwnedStr::new(&set_name);
    // No command names this key, so its absence must not count as a key-space miss. Redis 7.0 counts every read: there
    // it is opened to write.
    let mode = match has!(RedisModule_GetOpenKeyModesAll) {
        true => raw::REDISMODULE_READ | NO_TRACE,
        false => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
    };
    let set = RawKey::open(ctx, set_name.as_str(), mode);
    let last_end = last_end(set.as_ref());
    last_end.is_some_and(|end| end > 0 && end > ctx.now().wall_ms)
}

/// The end of the last permit of a set, 0 for an empty set; `None` if its first and last element show that it is no set
/// of permits.
fn last_end(set: Option<&RawKey<'_>>) -> Option<i64> {
    let Some(set) = set.filter(|set| !set.is_empty()) else {
        return Some(0);
    };
    if set.kind() != raw::REDISMODULE_KEYTYPE_ZSET {
        return None;
    }
    let first = edge(set, false)?;
    let last = match set.len() {
        1 => first,
        _ => edge(set, true)?,
    };
    (first >= FIRST_END_MS && last <= LAST_END_MS).then_some(last)
}

/// The end of the first or of the last permit of a set that is not empty; `None` if its id is longer than one can be.
fn edge(set: &RawKey<'_>, is_last: bool) -> Option<i64> {
    let (from, to) = (f64::NEG_INFINITY, f64::INFINITY);
    // SAFETY: the handle is open, and nothing changes the value meanwhile; the element's reference is ours. (For
    // another type than a sorted set the server refuses the range, which then is at its end.)
    unsafe {
        let set = set.as_ptr();
        let mut score = 0.0;
        match is_last {
            true => api!(RedisModule_ZsetLastInScoreRange)(set, from, to, 0, 0),
            false => api!(RedisModule_ZsetFirstInScoreRange)(set, from, to, 0, 0),
        };
        let element = api!(RedisModule_ZsetRangeCurrentElement)(set, &mut score);
        let element = OwnedStr::from_raw(element);
        api!(RedisModule_ZsetRangeStop)(set);
        let is_permit = |id: &OwnedStr| may_be_of_a_lock(id.as_str().bytes(), &[]);
        element.filter(is_permit).map(|_| score as i64)
    }
}

/// The end of the permit that ends next.
fn first_end(set: &RawKey<'_>, now: Now) -> Option<i64> {
    let (from, to) = (now.wall_ms as f64, f64::INFINITY);
    // SAFETY: the handle is open, and nothing changes the value meanwhile; the element's reference is ours. (For
    // another type than a sorted set the server refuses the range, which then is at its end.)
    unsafe {
        let set = set.as_ptr();
        let mut score = 0.0;
        api!(RedisModule_ZsetFirstInScoreRange)(set, from, to, 1, 0);
        let element = api!(RedisModule_ZsetRangeCurrentElement)(set, &mut score);
        let element = OwnedStr::from_raw(element);
        api!(RedisModule_ZsetRangeStop)(set);
        element.map(|_| score as i64)
    }
}

/// Reads the set in the order of the permits' ends: those that have passed and may be needed, and the next. `None` if
/// the first score is no end of a permit, or an id longer than one can be: then the set is foreign data.
fn read_ends(set: &RawKey<'_>, permits: &mut Permits, reading: Reading<'_>) -> Option<()> {
    let wanted = i64::try_from(reading.wanted).unwrap_or(i64::MAX);
    let needed = usize::try_from(wanted.saturating_sub(permits.free)).unwrap_or(0);
    let needed = needed.min(MOST_ENDED);
    let own = reading.own.map(|(id, _)| id.bytes());
    let (from, to) = (f64::NEG_INFINITY, f64::INFINITY);
    // SAFETY: the handle is open, holds a sorted set, and is not changed during the walk; each element's reference is
    // ours. (For another type the server refuses the range, which then is at its end from the start.)
    unsafe {
        let set = set.as_ptr();
        api!(RedisModule_ZsetFirstInScoreRange)(set, from, to, 0, 0);
        while api!(RedisModule_ZsetRangeEndReached)(set) == 0 {
            let mut score = 0.0;
            let element = api!(RedisModule_ZsetRangeCurrentElement)(set, &mut score);
            let Some(element) = OwnedStr::from_raw(element) else {
                break;
            };
            let (id, end_ms) = (element.as_str().bytes(), score as i64);
            if end_ms < FIRST_END_MS || !may_be_of_a_lock(id, &[]) {
                api!(RedisModule_ZsetRangeStop)(set);
                return None;
            }
            if end_ms > reading.now.wall_ms || permits.ended.len() >= needed {
                permits.next_end_ms = Some(end_ms);
                break;
            }
            if !permits.concerns(id, own, reading.undone) {
                permits.ended.push(OwnerId::from_slice(id));
            }
            api!(RedisModule_ZsetRangeNext)(set);
        }
        api!(RedisModule_ZsetRangeStop)(set);
    }
    Some(())
}
