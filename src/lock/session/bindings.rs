//! Holds that are bound to a connection: the server renews their leases while the connection lives, and releases them
//! when it closes.
//!
//! A *binding* names a hold (key, mode, owner) and the token of its grant. The key remains the truth: every renewal and
//! release reads the key first. If the grant is not held any more (its lease ran out, a `DEL`, reloaded data), the
//! binding is dropped and nothing is written.
//!
//! A resource whose holds can be bound uses three calls:
//!
//! 1. [`Sessions::bind`] at a grant or a re-entry that asks for `SESSION` (which also moves the binding to the
//!    connection of the request), and [`Sessions::waits`] where such a request is parked;
//! 2. [`Sessions::unbind`] when the hold ends, or its owner gives it a lease of its own;
//! 3. the shell (`module::sessions`) calls back with each binding that [`Sessions::next_ended`] or
//!    [`Sessions::next_renewal`] returns: the resource releases or renews the hold and confirms with
//!    [`Sessions::unbind`] or [`Sessions::renewed`], or puts the binding off while the server refuses writes.
//!
//! All bindings share one index of renewals and one timer. The end of a connection costs the same for any number of
//! holds: they all become the next to release.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use indexmap::{Equivalent, IndexMap};

use crate::lock::grant::tracked::LONGEST_TRACKED;
use crate::lock::name::Secret;
use crate::lock::session::renewals::{Moments, Number, Renewals};
use crate::lock::stats::counters;
use crate::lock::table::give_back;
use crate::lock::wait::limits::{share, CountByUser};
use crate::lock::{
    Acquire, KeyId, KeyRef, Lease, LockError, Mode, Now, OwnerId, Token, UserId, Waiter, WaiterId,
};

/// Of the holds that are bound to a connection, so many of the latest are searched for READ holds of one key, and so
/// many of those are returned.
const LATEST_HOLDS: usize = 1_000;
const LATEST_READERS: usize = 100;

/// The name of a hold.
#[derive(Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its mode; a permit of a semaphore is exclusive.
    pub mode: Mode,
    /// Its key.
    pub key: KeyId,
    /// The owner.
    pub owner: OwnerId,
}

/// The borrowed name of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BoundRef<'a> {
    /// Its mode; a permit of a semaphore is exclusive.
    pub mode: Mode,
    /// Its key.
    pub key: KeyRef<'a>,
    /// The owner.
    pub owner: &'a [u8],
}

impl<'a> BoundRef<'a> {
    /// The name of a hold of a lock.
    pub fn lock(mode: Mode, key: KeyRef<'a>, owner: &'a [u8]) -> BoundRef<'a> {
        BoundRef { mode, key, owner }
    }

    /// The name of a permit of a semaphore.
    pub fn permit(key: KeyRef<'a>, id: &'a [u8]) -> BoundRef<'a> {
        BoundRef::lock(Mode::Exclusive, key, id)
    }
}

impl Bound {
    /// The borrowed form.
    pub fn as_ref(&self) -> BoundRef<'_> {
        BoundRef::lock(self.mode, self.key.as_ref(), &self.owner)
    }
}

// Both forms must hash alike.
impl Hash for Bound {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl Equivalent<Rc<Bound>> for BoundRef<'_> {
    fn equivalent(&self, bound: &Rc<Bound>) -> bool {
        *self == bound.as_ref().as_ref()
    }
}

#[derive(Debug)]
struct Binding {
    what: Rc<Bound>,
    client: u64,
    user: UserId,
    token: Token,
    /// The moments of the next renewal.
    moments: Moments,
}

/// The bindings of one connection.
#[derive(Debug, Default)]
struct Session {
    holds: BTreeSet<Number>,
    /// The user of the latest hold.
    user: UserId,
    /// The latest parked request of the connection: it ends before the holds are released.
    waits: Option<WaiterId>,
}

/// Holds that are to be bound when they are granted, or when their reply is written. They have their room in the
/// limit from the moment at which they are asked for.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ToBind {
    /// Those of the user that asks.
    pub own: usize,
    /// Those of all users.
    pub all: usize,
    /// Those of the user's own requests that the new one replaces.
    pub replaced: usize,
}

counters! {
    /// The counters of bindings.
    SessionStats
    /// Leases of bound holds that the server renewed.
    session_renewals,
    /// Bound holds that had ended unnoticed: the lease ran out, or the key was deleted.
    session_losses,
}

/// The bindings of one server.
#[derive(Debug, Default)]
pub struct Sessions {
    /// The statistics.
    pub(in crate::lock) stats: SessionStats,
    /// The rule in force, set by the shell from the settings.
    pub(in crate::lock) rule: SessionRule,
    bindings: HashMap<Number, Binding>,
    names: IndexMap<Rc<Bound>, Number, Secret>,
    /// By the server's id of the connection; the server never uses an id twice.
    clients: HashMap<u64, Session>,
    /// The bound holds of each user.
    by_user: CountByUser,
    renewals: Renewals,
    /// The bindings of closed connections of each user, in the order of closing. A number that is no longer in
    /// `bindings` was handled by another event.
    ended: BTreeMap<UserId, VecDeque<BTreeSet<Number>>>,
    /// The user that had the last turn.
    last_ended: UserId,
    /// Those of which the server has refused the release: they are tried again after all others, in turn.
    refused: VecDeque<Number>,
    last: Number,
}

impl Sessions {
    /// The bound hold ended unnoticed.
    pub fn lose(&mut self, what: BoundRef<'_>) {
        let ended = self.unbind(what);
        self.stats.session_losses += u64::from(ended.is_some());
    }

    /// The owner has used its hold by a request with this lease, without asking for a session: a binding ends if the
    /// request names the lease, and stays otherwise. Returns the end of the lease that the hold gets.
    pub(crate) fn lease_end_after_use(
        &mut self,
        what: BoundRef<'_>,
        token: Option<Token>,
        (lease, names_lease): (Lease, bool),
        now: Now,
    ) -> i64 {
        let stays_bound = !names_lease && self.client_of(what, token).is_some();
        match stays_bound {
            true => self.renewed(what, now),
            false => drop(self.unbind(what)),
        }
        self.lease_of(stays_bound, lease).deadline(now)
    }

    /// The same for an acquire by the holder, which may bind the hold under this token. `known`: the token of the key.
    pub(crate) fn lease_end_after_reentry(
        &mut self,
        what: BoundRef<'_>,
        req: &Acquire<'_>,
        (known, token): (Option<Token>, Token),
        now: Now,
    ) -> i64 {
        if !req.session {
            return self.lease_end_after_use(what, known, (req.lease, req.names_lease), now);
        }
        self.bind(what, (req.client, req.user), token, now);
        self.lease().deadline(now)
    }

    /// A first hold was granted: binds it, or ends the binding of a former one.
    pub(crate) fn granted(&mut self, what: BoundRef<'_>, to: &Acquire<'_>, token: Token, now: Now) {
        match to.session {
            true => self.bind(what, (to.client, to.user), token, now),
            false => drop(self.unbind(what)),
        }
    }

    /// The lease of bound holds: that of the rule, or a longer one while more are bound than it allows. (The rule was
    /// changed.)
    pub(crate) fn lease(&self) -> Lease {
        let enough = i64::try_from(self.holds().div_ceil(HOLDS_PER_MS));
        let enough = enough.ok().and_then(Lease::from_ms);
        enough.map_or(self.rule.lease, |lease| lease.max(self.rule.lease))
    }

    /// The end of the lease of a first hold that is granted now.
    pub(crate) fn lease_end(&self, to: &Acquire<'_>, now: Now) -> i64 {
        self.lease_of(to.session, to.lease).deadline(now)
    }

    /// The lease to use: a session has its own.
    pub(crate) fn lease_of(&self, session: bool, asked: Lease) -> Lease {
        match session {
            true => self.lease(),
            false => asked,
        }
    }

    /// Whether holds of these keys may be bound: holds are bound at all, and these already for this user, or there is
    /// room for them in the user's share (in percent), beside the holds that are to be bound.
    ///
    /// # Errors
    /// [`LockError::TooManyBound`], [`LockError::LongSession`]
    pub(crate) fn admit<'k>(
        &self,
        keys: impl IntoIterator<Item = KeyRef<'k>>,
        req: &Acquire<'_>,
        (percent, to_bind): (usize, ToBind),
    ) -> Result<(), LockError> {
        let mut new = 0;
        for key in keys {
            let what = BoundRef::lock(req.mode, key, req.owner);
            if what.key.name.len() + what.owner.len() > LONGEST_TRACKED {
                return Err(LockError::LongSession);
            }
            new += usize::from(self.user_of(what) != Some(req.user));
        }
        let needs = new.saturating_sub(to_bind.replaced);
        let own = self.by_user.of(req.user) + to_bind.own;
        let others = self.holds() + to_bind.all - own;
        let left = self.rule.max_holds().saturating_sub(others);
        match needs == 0 || own + needs <= share(left, percent) {
            true => Ok(()),
            false => Err(LockError::TooManyBound),
        }
    }

    /// The number of bound holds.
    pub fn holds(&self) -> usize {
        self.bindings.len()
    }

    /// The most of them, by the settings.
    pub fn max_holds(&self) -> usize {
        self.rule.max_holds()
    }

    /// The users with bound holds.
    pub fn users(&self) -> impl Iterator<Item = UserId> + '_ {
        self.by_user.users()
    }

    /// The number of connections with bound holds.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The open connection to which this hold is bound, if it is the grant with this token.
    pub fn client_of(&self, what: BoundRef<'_>, token: Option<Token>) -> Option<u64> {
        let binding = self.binding(what)?;
        (Some(binding.token) == token && !self.is_over(binding)).then_some(binding.client)
    }

    /// The owners of the latest READ holds at this key that are bound to this connection.
    pub fn readers_of(&self, client: u64, key: KeyRef<'_>) -> Vec<OwnerId> {
        let holds = self.clients.get(&client).map(|session| &session.holds);
        let latest = holds.into_iter().flatten().rev().take(LATEST_HOLDS);
        let bound = latest.filter_map(|number| Some(&self.bindings.get(number)?.what));
        let is_reader = |bound: &&Rc<Bound>| bound.mode == Mode::Read && bound.key.as_ref() == key;
        let owners = bound.filter(is_reader).map(|bound| bound.owner.clone());
        owners.take(LATEST_READERS).collect()
    }

    /// Whether holds of closed connections are still to be released.
    pub fn has_ended(&self) -> bool {
        self.has_fresh_ended() || !self.refused.is_empty()
    }

    /// Whether there are some whose release was not refused.
    pub fn has_fresh_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The hold of this name, if its connection is closed and it is still to be released.
    pub fn ended(&self, what: BoundRef<'_>) -> Option<Rc<Bound>> {
        if !self.has_ended() {
            return None;
        }
        let binding = self.binding(what)?;
        self.is_over(binding).then(|| binding.what.clone())
    }

    /// The token of the grant that is bound under this name.
    pub fn token_of(&self, what: BoundRef<'_>) -> Option<Token> {
        Some(self.binding(what)?.token)
    }

    /// The user that asked for this binding.
    pub fn user_of(&self, what: BoundRef<'_>) -> Option<UserId> {
        Some(self.binding(what)?.user)
    }

    /// Binds a hold to this connection only, for this user.
    pub fn bind(
        &mut self,
        what: BoundRef<'_>,
        (client, user): (u64, UserId),
        token: Token,
        now: Now,
    ) {
        self.unbind(what);
        self.last += 1;
        let bound = Rc::new(Bound {
            mode: what.mode,
            key: what.key.to_id(),
            owner: what.owner.into(),
        });
        let moments = Moments::of(self.lease(), now);
        self.names.insert(bound.clone(), self.last);
        self.renewals.add(user, moments, self.last);
        let session = self.clients.entry(client).or_default();
        session.user = user;
        session.holds.insert(self.last);
        let binding = Binding {
            what: bound,
            client,
            user,
            token,
            moments,
        };
        self.by_user.add(user);
        self.bindings.insert(self.last, binding);
    }

    /// Ends a binding: the hold has ended, or has a lease of its own now. Returns the token that was bound.
    pub fn unbind(&mut self, what: BoundRef<'_>) -> Option<Token> {
        let number = self.names.swap_remove(&what)?;
        self.forget(number).map(|binding| binding.token)
    }

    /// As [`Sessions::unbind`], if it is the grant with this token.
    pub fn unbind_grant(&mut self, what: BoundRef<'_>, token: Token) {
        if self.token_of(what) == Some(token) {
            self.unbind(what);
        }
    }

    /// Records that a connection with holds has parked this request, or that the request is granted and in flight. (A
    /// connection without holds needs no record: it gets no hold while it is parked. A ticket does not end with the
    /// connection.)
    pub fn waits(&mut self, waiter: &Waiter) {
        if waiter.ticket.is_some() {
            return;
        }
        if let Some(session) = self.clients.get_mut(&waiter.client) {
            session.waits = Some(waiter.id);
        }
    }

    /// The latest request that this connection has parked, if it has holds. The request may have ended.
    pub fn waiter_of(&self, client: u64) -> Option<WaiterId> {
        self.clients.get(&client)?.waits
    }

    /// The connection is closed: its holds are to be released. Returns whether there are any.
    pub fn end(&mut self, client: u64) -> bool {
        let Some(session) = self.clients.remove(&client) else {
            return false;
        };
        let ended = self.ended.entry(session.user).or_default();
        ended.push_back(session.holds);
        give_back(&mut self.clients);
        true
    }

    /// The next hold to release. The caller unbinds it or puts it off.
    pub fn next_ended(&mut self) -> Option<Rc<Bound>> {
        loop {
            let fresh = self.pop_ended();
            let number = fresh.or_else(|| self.refused.pop_front())?;
            if let Some(binding) = self.bindings.get(&number) {
                return Some(binding.what.clone());
            }
        }
    }

    /// The next of a closed connection of the next user.
    fn pop_ended(&mut self) -> Option<Number> {
        let behind = (Excluded(self.last_ended), Unbounded);
        let next = self.ended.range(behind).next();
        let user = *next.or_else(|| self.ended.first_key_value())?.0;
        self.last_ended = user;
        let of_user = self.ended.get_mut(&user)?;
        let number = of_user.front_mut().and_then(BTreeSet::pop_first);
        if of_user.front().is_some_and(BTreeSet::is_empty) {
            of_user.pop_front();
        }
        if of_user.is_empty() {
            self.ended.remove(&user);
        }
        number
    }

    /// These holds cannot be released at the moment; they are returned again after all others.
    pub fn put_off_ended(&mut self, refused: &[Rc<Bound>]) {
        let numbers = refused.iter().filter_map(|what| self.names.get(what));
        self.refused.extend(numbers);
    }

    /// The next hold whose lease is to be renewed; `only_urgent`: only while any renewal is urgent. The caller calls
    /// [`Sessions::renewed`], unbinds it or puts it off.
    pub fn next_renewal(&mut self, now: Now, only_urgent: bool) -> Option<Rc<Bound>> {
        loop {
            let number = self.renewals.pop(now, only_urgent)?;
            let binding = self.bindings.get(&number);
            if let Some(binding) = binding.filter(|binding| !self.is_over(binding)) {
                return Some(binding.what.clone());
            }
        }
    }

    /// The lease was set to that of the session: the next renewal is due after a third of it, or earlier if it was.
    pub fn renewed(&mut self, what: BoundRef<'_>, now: Now) {
        let Some(number) = self.names.get(&what) else {
            return;
        };
        let moments = Moments::of(self.lease(), now);
        if let Some(binding) = self.bindings.get_mut(number) {
            self.renewals.remove(binding.user, binding.moments, *number);
            binding.moments = moments;
            self.renewals.add(binding.user, moments, *number);
        }
    }

    /// The lease cannot be renewed at the moment; the next attempt is in `ms` milliseconds.
    pub fn put_off_renewal(&mut self, what: BoundRef<'_>, now: Now, ms: u64) {
        let number = self.names.get(&what);
        if let Some((number, binding)) = number.and_then(|n| Some((n, self.bindings.get(n)?))) {
            self.renewals.refuse(binding.moments, *number, now, ms);
        }
    }

    /// Milliseconds until the next hold is to be renewed or released; `None`: no hold is bound.
    pub fn next_due(&self, now: Now) -> Option<u64> {
        if self.has_ended() {
            return Some(0);
        }
        self.renewals.next_due(now)
    }

    /// Drops the bindings of this database (`None`: of all). The holds are gone, or end by their leases.
    pub fn clear(&mut self, db: Option<i32>) {
        if db.is_none() {
            *self = Sessions {
                rule: self.rule,
                last: self.last,
                stats: std::mem::take(&mut self.stats),
                ..Sessions::default()
            };
        } else {
            self.forget_all(|key| db == Some(key.db));
        }
    }

    /// Drops the bindings of these keys.
    pub fn forget_all(&mut self, is_gone: impl Fn(KeyRef<'_>) -> bool) {
        let names = self.names.keys();
        let gone: Vec<Rc<Bound>> = names
            .filter(|what| is_gone(what.key.as_ref()))
            .cloned()
            .collect();
        for what in gone {
            self.unbind(what.as_ref().as_ref());
        }
    }

    /// Exchanges the databases of the bindings, after `SWAPDB`.
    pub fn swap(&mut self, first: i32, second: i32) {
        let is_moved =
            |binding: &&mut Binding| [first, second].contains(&binding.what.key.as_ref().db);
        let mut moved = Vec::new();
        for binding in self.bindings.values_mut().filter(is_moved) {
            let what = Rc::new(Bound {
                mode: binding.what.mode,
                key: binding.what.key.swapped(first, second),
                owner: binding.what.owner.clone(),
            });
            let former = std::mem::replace(&mut binding.what, what.clone());
            if let Some(number) = self.names.swap_remove(&former.as_ref().as_ref()) {
                moved.push((what, number));
            }
        }
        self.names.extend(moved);
    }

    /// Whether the connection is closed: the binding is among the `ended`.
    fn is_over(&self, binding: &Binding) -> bool {
        !self.clients.contains_key(&binding.client)
    }

    fn binding(&self, what: BoundRef<'_>) -> Option<&Binding> {
        self.bindings.get(self.names.get(&what)?)
    }

    /// Rebuilds the indexes from the bindings. Called after a caught bug, which may have interrupted any change.
    pub fn reindex(&mut self) {
        let (mut renewals, mut by_user) = (Renewals::default(), CountByUser::default());
        let mut ended: BTreeMap<UserId, VecDeque<BTreeSet<Number>>> = BTreeMap::new();
        for (number, binding) in &self.bindings {
            renewals.add(binding.user, binding.moments, *number);
            by_user.add(binding.user);
            if self.is_over(binding) {
                let holds = BTreeSet::from([*number]);
                ended.entry(binding.user).or_default().push_back(holds);
            }
        }
        (self.renewals, self.by_user, self.ended) = (renewals, by_user, ended);
        self.refused.clear();
    }

    /// Removes a binding from every table but `names` (and `ended`, where unknown numbers are skipped).
    fn forget(&mut self, number: Number) -> Option<Binding> {
        let binding = self.bindings.remove(&number)?;
        self.renewals.remove(binding.user, binding.moments, number);
        self.by_user.remove(binding.user);
        if let Some(session) = self.clients.get_mut(&binding.client) {
            session.holds.remove(&number);
            if session.holds.is_empty() {
                self.clients.remove(&binding.client);
                give_back(&mut self.clients);
            }
        }
        if self.bindings.is_empty() {
            (self.ended, self.refused) = Default::default();
        }
        give_back(&mut self.bindings);
        give_back(&mut self.names);
        Some(binding)
    }
}

/// The most bound holds for each millisecond of their lease: 50,000 with a lease of ten seconds. So a renewal may take
/// 33 microseconds in a tick in which all are urgent; it takes 5 to 22.
pub(super) const HOLDS_PER_MS: usize = 5;

/// The rule for sessions, from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRule {
    /// `lock.session-lease`.
    pub lease: Lease,
}

impl SessionRule {
    /// The most holds that are bound or wait to be when a request asks for `SESSION`. What waits already is bound in
    /// any case.
    pub fn max_holds(&self) -> usize {
        let lease_ms = usize::try_from(self.lease.ms()).unwrap_or(0);
        lease_ms.saturating_mul(HOLDS_PER_MS)
    }
}

impl Default for SessionRule {
    fn default() -> SessionRule {
        SessionRule {
            lease: Lease::TEN_SECONDS,
        }
    }
}
