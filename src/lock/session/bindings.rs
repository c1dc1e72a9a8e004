//! Holds that are bound to a connection: while it lives the server itself keeps their lease, and when it
//! ends they are released.
//!
//! A *binding* names a hold (what kind, key, owner) and the token of its grant. The key stays the truth:
//! a binding is a note of what is to be done, and whoever does it reads the key first. If that grant is
//! not held any more (its lease ran out, a `DEL`, a restart of the data), the binding is dropped and
//! nothing is written.
//!
//! Whoever grants something that may be bound needs three calls:
//!
//! 1. [`Sessions::bind`] at a grant or a re-entry that asks for `SESSION` (it also moves the binding to the
//!    connection that asks), and [`Sessions::waits`] where such a request is parked;
//! 2. [`Sessions::unbind`] when the hold ends, or its owner gives it a lease of its own;
//! 3. and is called back by the shell (`module::sessions`) with each binding that [`Sessions::next_ended`] or
//!    [`Sessions::next_renewal`] answers: there it has its hold released or renewed, says so with
//!    [`Sessions::unbind`] or [`Sessions::renewed`], or puts it off when the server refuses writes.
//!
//! However many holds are bound, there is one index of renewals and one timer, and the end of a connection
//! costs the same: its holds become the next to be released, all at once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use indexmap::{Equivalent, IndexMap};

use crate::lock::name::Secret;
use crate::lock::table::give_back;
use crate::lock::{KeyId, KeyRef, Lease, Mode, Now, OwnerId, Token, WaiterId};

/// A lease is renewed when so much of it has passed.
const RENEWALS_PER_LEASE: u64 = 3;

/// What kind of thing is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BoundKind {
    /// A lock, held in this mode.
    Lock(Mode),
    /// A permit of a semaphore.
    Permit,
}

/// The name of a hold.
#[derive(Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its kind.
    pub kind: BoundKind,
    /// Its key.
    pub key: KeyId,
    /// Who holds.
    pub owner: OwnerId,
}

/// The borrowed name of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BoundRef<'a> {
    /// Its kind.
    pub kind: BoundKind,
    /// Its key.
    pub key: KeyRef<'a>,
    /// Who holds.
    pub owner: &'a [u8],
}

impl<'a> BoundRef<'a> {
    /// A lock.
    pub fn lock(mode: Mode, key: KeyRef<'a>, owner: &'a [u8]) -> BoundRef<'a> {
        let kind = BoundKind::Lock(mode);
        BoundRef { kind, key, owner }
    }

    /// A permit of a semaphore.
    pub fn permit(key: KeyRef<'a>, id: &'a [u8]) -> BoundRef<'a> {
        BoundRef {
            kind: BoundKind::Permit,
            key,
            owner: id,
        }
    }
}

impl Bound {
    /// The borrowed form.
    pub fn as_ref(&self) -> BoundRef<'_> {
        BoundRef {
            kind: self.kind,
            key: self.key.as_ref(),
            owner: &self.owner,
        }
    }
}

// Both forms hash alike, as the names of keys do.
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

/// The rule, from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRule {
    /// `lock.session-lease`.
    pub lease: Lease,
    /// False while the module is drained: nothing new is bound. What is bound stays so.
    pub open: bool,
}

impl Default for SessionRule {
    fn default() -> SessionRule {
        SessionRule {
            lease: Lease::TEN_SECONDS,
            open: true,
        }
    }
}

/// The order in which bindings were made.
type Number = u64;

#[derive(Debug)]
struct Binding {
    what: Rc<Bound>,
    client: u64,
    token: Token,
    /// When its lease is to be renewed, on the monotonic clock: an entry of `renewals`.
    due_ms: u64,
}

/// What is bound to one connection.
#[derive(Debug, Default)]
struct Session {
    holds: BTreeSet<Number>,
    /// Its latest parked request: that goes before the holds do.
    waits: Option<WaiterId>,
}

/// The bindings of one server.
#[derive(Debug, Default)]
pub struct Sessions {
    /// The rule in force, set by the shell from the settings.
    pub rule: SessionRule,
    bindings: HashMap<Number, Binding>,
    names: IndexMap<Rc<Bound>, Number, Secret>,
    /// By the server's id of the connection; it gives none twice.
    clients: HashMap<u64, Session>,
    renewals: BTreeSet<(u64, Number)>,
    /// What connections that have gone had bound, in the order of their ends. A number that is no longer in
    /// `bindings` has been dealt with otherwise.
    ended: VecDeque<BTreeSet<Number>>,
    last: Number,
}

impl Sessions {
    /// How many holds are bound to a connection.
    pub fn holds(&self) -> usize {
        self.bindings.len()
    }

    /// How many connections have holds bound to them.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The living connection that this hold is bound to, if it is the grant with this token.
    pub fn client_of(&self, what: BoundRef<'_>, token: Option<Token>) -> Option<u64> {
        let binding = self.binding(what)?;
        (Some(binding.token) == token && !self.is_over(binding)).then_some(binding.client)
    }

    /// Whether holds are still to be released whose connections have gone.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The hold of this name, if its connection has gone and it is still to be released.
    pub fn ended(&self, what: BoundRef<'_>) -> Option<Rc<Bound>> {
        if self.ended.is_empty() {
            return None;
        }
        let binding = self.binding(what)?;
        self.is_over(binding).then(|| binding.what.clone())
    }

    /// The token of the grant that is bound under this name.
    pub fn token_of(&self, what: BoundRef<'_>) -> Option<Token> {
        Some(self.binding(what)?.token)
    }

    /// Binds a hold to this connection, and to no other any more.
    pub fn bind(&mut self, what: BoundRef<'_>, client: u64, token: Token, now: Now) {
        self.unbind(what);
        self.last += 1;
        let bound = Rc::new(Bound {
            kind: what.kind,
            key: what.key.to_id(),
            owner: what.owner.into(),
        });
        let due_ms = self.next_due_ms(now);
        self.names.insert(bound.clone(), self.last);
        self.renewals.insert((due_ms, self.last));
        self.clients
            .entry(client)
            .or_default()
            .holds
            .insert(self.last);
        let binding = Binding {
            what: bound,
            client,
            token,
            due_ms,
        };
        self.bindings.insert(self.last, binding);
    }

    /// The hold has ended, or has a lease of its own now. Answers the token that was bound.
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

    /// A connection with holds has parked this request, or the request is granted and on its way to it. (One
    /// without holds is of no interest: it gets none while it is parked.)
    pub fn waits(&mut self, client: u64, waiter: WaiterId) {
        if let Some(session) = self.clients.get_mut(&client) {
            session.waits = Some(waiter);
        }
    }

    /// The latest request that this connection has parked, as far as it matters here. It may be over.
    pub fn waiter_of(&self, client: u64) -> Option<WaiterId> {
        self.clients.get(&client)?.waits
    }

    /// The connection has gone: what is bound to it is to be released. Answers whether there is anything.
    pub fn end(&mut self, client: u64) -> bool {
        let Some(session) = self.clients.remove(&client) else {
            return false;
        };
        self.ended.push_back(session.holds);
        give_back(&mut self.clients);
        true
    }

    /// The next hold that is to be released. The caller unbinds it or puts it off.
    pub fn next_ended(&mut self) -> Option<Rc<Bound>> {
        while let Some(holds) = self.ended.front_mut() {
            while let Some(number) = holds.pop_first() {
                if let Some(binding) = self.bindings.get(&number) {
                    return Some(binding.what.clone());
                }
            }
            self.ended.pop_front();
        }
        None
    }

    /// These cannot be released just now; they come again, behind all others.
    pub fn put_off_ended(&mut self, refused: &[Rc<Bound>]) {
        let numbers = refused.iter().filter_map(|what| self.names.get(what));
        let numbers: BTreeSet<Number> = numbers.copied().collect();
        if !numbers.is_empty() {
            self.ended.push_back(numbers);
        }
    }

    /// The next hold whose lease is to be renewed. The caller says [`Sessions::renewed`], unbinds it or puts
    /// it off.
    pub fn next_renewal(&mut self, now: Now) -> Option<Rc<Bound>> {
        loop {
            let (due_ms, number) = *self.renewals.first()?;
            if due_ms > now.mono_ms {
                return None;
            }
            // Gone whatever follows: an entry that stayed would be due for ever.
            self.renewals.pop_first();
            let binding = self.bindings.get(&number);
            if let Some(binding) = binding.filter(|binding| !self.is_over(binding)) {
                return Some(binding.what.clone());
            }
        }
    }

    /// The lease has been set to the session's: it is due again in a third of that, or sooner if it was.
    pub fn renewed(&mut self, what: BoundRef<'_>, now: Now) {
        self.renew_at(what, self.next_due_ms(now));
    }

    /// The lease cannot be renewed just now.
    pub fn put_off_renewal(&mut self, what: BoundRef<'_>, now: Now, ms: u64) {
        self.renew_at(what, now.mono_ms.saturating_add(ms));
    }

    /// Milliseconds until the next hold is to be renewed or released; `None`: nothing is bound.
    pub fn next_due(&self, now: Now) -> Option<u64> {
        if !self.ended.is_empty() {
            return Some(0);
        }
        let (due_ms, _) = self.renewals.first()?;
        Some(due_ms.saturating_sub(now.mono_ms))
    }

    /// Nothing is bound any more in this database (`None`: in all); the holds are gone, or end by their
    /// leases.
    pub fn clear(&mut self, db: Option<i32>) {
        if db.is_none() {
            *self = Sessions {
                rule: self.rule,
                last: self.last,
                ..Sessions::default()
            };
        } else {
            self.forget_all(|key| db == Some(key.db));
        }
    }

    /// Nothing is bound any more at these keys.
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

    /// Two databases have changed places, and the holds in them.
    pub fn swap(&mut self, first: i32, second: i32) {
        for binding in self.bindings.values_mut() {
            binding.what = Rc::new(Bound {
                kind: binding.what.kind,
                key: binding.what.key.swapped(first, second),
                owner: binding.what.owner.clone(),
            });
        }
        let bindings = self.bindings.iter();
        self.names = bindings
            .map(|(number, binding)| (binding.what.clone(), *number))
            .collect();
    }

    /// Whether its connection has gone: it is among the `ended`.
    fn is_over(&self, binding: &Binding) -> bool {
        !self.clients.contains_key(&binding.client)
    }

    fn binding(&self, what: BoundRef<'_>) -> Option<&Binding> {
        self.bindings.get(self.names.get(&what)?)
    }

    /// After a bug: every binding is where it belongs again, whatever was being done with it.
    pub fn reindex(&mut self) {
        let numbers = || self.bindings.iter();
        self.renewals = numbers().map(|(n, binding)| (binding.due_ms, *n)).collect();
        let over = numbers().filter(|(_, binding)| self.is_over(binding));
        let over: BTreeSet<Number> = over.map(|(number, _)| *number).collect();
        self.ended = VecDeque::from_iter(Some(over).filter(|over| !over.is_empty()));
    }

    fn next_due_ms(&self, now: Now) -> u64 {
        let third = self.rule.lease.ms().unsigned_abs() / RENEWALS_PER_LEASE;
        now.mono_ms.saturating_add(third.max(1))
    }

    fn renew_at(&mut self, what: BoundRef<'_>, due_ms: u64) {
        let Some(number) = self.names.get(&what) else {
            return;
        };
        if let Some(binding) = self.bindings.get_mut(number) {
            self.renewals.remove(&(binding.due_ms, *number));
            binding.due_ms = due_ms;
            self.renewals.insert((due_ms, *number));
        }
    }

    /// Takes a binding out of every table but `names` (and `ended`, where it is passed over).
    fn forget(&mut self, number: Number) -> Option<Binding> {
        let binding = self.bindings.remove(&number)?;
        self.renewals.remove(&(binding.due_ms, number));
        if let Some(session) = self.clients.get_mut(&binding.client) {
            session.holds.remove(&number);
            if session.holds.is_empty() {
                self.clients.remove(&binding.client);
                give_back(&mut self.clients);
            }
        }
        if self.bindings.is_empty() {
            self.ended.clear();
        }
        give_back(&mut self.bindings);
        give_back(&mut self.names);
        Some(binding)
    }
}
