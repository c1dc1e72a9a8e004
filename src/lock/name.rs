//! The name of a resource on one server: its kind, a database number and the bytes of a key. A lock, a semaphore and a
//! latch may have waiters under the same bytes.
//!
//! Every table of the core is keyed by [`KeyId`]. A look-up needs only a borrowed [`KeyRef`], so the common case (no
//! waiter, no tracked grant) allocates nothing.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::{Index, IndexMut};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use indexmap::{Equivalent, IndexMap, IndexSet};
use smallvec::SmallVec;

use crate::lock::slot::{semaphore_of, PERMITS};
use crate::lock::UserId;

/// The most bytes of names, of a key or of keys beside it, that one decision reads or writes: it writes as many to the
/// replicas, also where the command was short.
const MOST_NAME_BYTES: usize = 64 << 10;

/// So many names of so many bytes, or as many as have [`MOST_NAME_BYTES`] together. (Perhaps none.)
pub fn of_names(most: usize, bytes: usize) -> usize {
    most.min(MOST_NAME_BYTES / bytes.max(1))
}

/// A client's bytes as text for one line of the protocol or of the log: the first `most`, other than printable ASCII
/// escaped, and dots if there are more.
pub fn shown(bytes: &[u8], most: usize) -> String {
    let (start, dots) = cut(bytes, most);
    format!("{}{dots}", start.escape_ascii())
}

/// A name in a reply.
pub(crate) fn quoted(name: &[u8]) -> String {
    let (start, dots) = cut(name, 64);
    format!("\"{}\"{dots}", start.escape_ascii())
}

fn cut(bytes: &[u8], most: usize) -> (&[u8], &'static str) {
    match bytes.get(..most) {
        Some(start) if bytes.len() > most => (start, "..."),
        _ => (bytes, ""),
    }
}

/// An owner of one user in one database: its requests wait for each other's holds. The same name of another user, or in
/// another database, is another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct UserOwner<'a> {
    pub db: i32,
    pub user: UserId,
    pub owner: &'a [u8],
}

/// An owned name, shared by the tables: one pointer in each, and one allocation in all if the name is short.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(Rc<Name>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    resource: Resource,
    db: i32,
    bytes: SmallVec<[u8; 40]>,
}

/// The numbers of names in memory, by a part of their hash. Static, so that a name leaves it wherever it is dropped.
static IN_MEMORY: [AtomicU32; 1 << 14] = [const { AtomicU32::new(0) }; 1 << 14];

/// Whether the tables of the core may have this name, or that of a semaphore whose permits it is. A filter before the
/// look-ups, which costs some thirty instructions: false for nearly every name that no table has.
#[inline]
pub fn may_be_in_memory(name: &[u8]) -> bool {
    in_memory(name).load(Ordering::Relaxed) > 0 || name.ends_with(PERMITS)
}

#[inline]
#[allow(clippy::indexing_slicing)] // A remainder.
fn in_memory(name: &[u8]) -> &'static AtomicU32 {
    // No secret: a client that finds names with the same hash makes only these look-ups slower.
    const HASH: ahash::RandomState = ahash::RandomState::with_seeds(1, 2, 3, 4);
    &IN_MEMORY[HASH.hash_one(name) as usize % IN_MEMORY.len()]
}

impl Drop for Name {
    fn drop(&mut self) {
        in_memory(&self.bytes).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A table by resource.
pub type KeyMap<V> = IndexMap<KeyId, V, Secret>;

/// A table by owner and resource.
pub type OwnerMap<V> = IndexMap<OwnerAt, V, Secret>;

/// Owners at one key.
pub type OwnerSet = IndexSet<Rc<[u8]>, Secret>;

/// The hash of these tables. Clients choose the names, so it has a secret, which is made from that of the standard
/// library: ahash's own would need memory that the module cannot return when the server unloads it, after a `MODULE
/// LOADEX` that has failed.
#[derive(Debug, Clone)]
pub struct Secret(ahash::RandomState);

impl Default for Secret {
    fn default() -> Secret {
        let random = RandomState::new();
        let [a, b, c, d] = [0u8, 1, 2, 3].map(|number| random.hash_one(number));
        Secret(ahash::RandomState::with_seeds(a, b, c, d))
    }
}

impl BuildHasher for Secret {
    type Hasher = ahash::AHasher;

    fn build_hasher(&self) -> ahash::AHasher {
        self.0.build_hasher()
    }
}

/// Exchanges the databases of the keys of a table, after `SWAPDB`.
pub(crate) fn swap<V>(table: &mut KeyMap<V>, first: i32, second: i32) {
    let all = std::mem::take(table).into_iter();
    table.extend(all.map(|(key, value)| (key.swapped(first, second), value)));
}

/// A borrowed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a> {
    /// What clients wait for under this name.
    pub resource: Resource,
    /// The database number, as `SELECT` takes it.
    pub db: i32,
    /// The key's bytes, of any value.
    pub name: &'a [u8],
}

impl KeyId {
    /// The borrowed form.
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef {
            resource: self.0.resource,
            db: self.0.db,
            name: &self.0.bytes,
        }
    }
}

impl KeyId {
    /// The name of this resource after `SWAPDB`.
    pub fn swapped(&self, first: i32, second: i32) -> KeyId {
        let key = self.as_ref();
        let db = match key.db {
            db if db == first => second,
            db if db == second => first,
            _ => return self.clone(),
        };
        KeyRef { db, ..key }.to_id()
    }
}

impl<'a> KeyRef<'a> {
    /// A lock.
    pub const fn lock(db: i32, name: &'a [u8]) -> KeyRef<'a> {
        KeyRef {
            resource: Resource::Lock,
            db,
            name,
        }
    }

    /// Another kind of resource under the same name.
    pub const fn of(self, resource: Resource) -> KeyRef<'a> {
        KeyRef { resource, ..self }
    }

    /// Every kind of resource under the same name.
    pub(crate) fn of_all(self) -> impl Iterator<Item = KeyRef<'a>> {
        Resource::ALL
            .into_iter()
            .map(move |resource| self.of(resource))
    }

    /// All that a change of the key of this name concerns: every kind of resource there, and the semaphore whose
    /// permits it has.
    pub(crate) fn concerned(self) -> impl Iterator<Item = KeyRef<'a>> {
        self.of_all().chain(self.semaphore())
    }

    /// The semaphore whose permits a key of this name has, as Redisson names it.
    pub(crate) fn semaphore(self) -> Option<KeyRef<'a>> {
        semaphore_of(self.name).map(|name| KeyRef {
            resource: Resource::Semaphore,
            db: self.db,
            name,
        })
    }

    /// The owned form.
    pub fn to_id(self) -> KeyId {
        in_memory(self.name).fetch_add(1, Ordering::Relaxed);
        KeyId(Rc::new(Name {
            resource: self.resource,
            db: self.db,
            bytes: SmallVec::from_slice(self.name),
        }))
    }
}

// Both forms must hash alike, so that a borrowed name finds an owned one.
impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Database numbers have far fewer than 30 bits.
        ((self.db << 2) | self.resource as i32).hash(state);
        self.name.hash(state);
    }
}

impl Hash for KeyId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl Equivalent<KeyId> for KeyRef<'_> {
    fn equivalent(&self, key: &KeyId) -> bool {
        *self == key.as_ref()
    }
}

/// An owner at a resource: the identity of a hold where there may be several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerAt {
    /// The resource.
    pub key: KeyId,
    /// The owner.
    pub owner: Rc<[u8]>,
}

/// The borrowed form of [`OwnerAt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerAtRef<'a> {
    /// The resource.
    pub key: KeyRef<'a>,
    /// The owner.
    pub owner: &'a [u8],
}

impl OwnerAt {
    fn as_ref(&self) -> OwnerAtRef<'_> {
        OwnerAtRef {
            key: self.key.as_ref(),
            owner: &self.owner,
        }
    }
}

impl Hash for OwnerAt {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl Equivalent<OwnerAt> for OwnerAtRef<'_> {
    fn equivalent(&self, other: &OwnerAt) -> bool {
        *self == other.as_ref()
    }
}

/// A kind of resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A lock.
    #[default]
    Lock,
    /// A permit of a semaphore.
    Semaphore,
    /// The opening of a latch.
    Latch,
}

impl Resource {
    /// Every kind.
    pub const ALL: [Resource; 3] = [Resource::Lock, Resource::Semaphore, Resource::Latch];

    /// The prefix of its fields in `INFO lock`.
    pub fn prefix(self) -> &'static str {
        match self {
            Resource::Lock => "",
            Resource::Semaphore => "sem_",
            Resource::Latch => "latch_",
        }
    }
}

/// One for each kind of resource.
#[derive(Debug, Default)]
pub struct Each<T>([T; Resource::ALL.len()]);

#[allow(clippy::indexing_slicing)] // There is one for each.
impl<T> Index<Resource> for Each<T> {
    type Output = T;

    fn index(&self, resource: Resource) -> &T {
        &self.0[resource as usize]
    }
}

#[allow(clippy::indexing_slicing)]
impl<T> IndexMut<Resource> for Each<T> {
    fn index_mut(&mut self, resource: Resource) -> &mut T {
        &mut self.0[resource as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(name: &[u8]) -> KeyId {
        KeyRef::lock(3, name).to_id()
    }

    #[test]
    fn a_shown_name_is_printable_and_says_where_it_was_cut() {
        assert_eq!(shown(b"a\n\xff", 3), "a\\n\\xff");
        assert_eq!(shown(b"abcd", 3), "abc...");
        assert_eq!(quoted(&[b'x'; 64]), format!("\"{}\"", "x".repeat(64)));
        assert_eq!(quoted(&[b'x'; 65]), format!("\"{}\"...", "x".repeat(64)));
    }

    #[test]
    fn the_key_of_permits_leads_to_their_semaphore() {
        let semaphore = KeyRef::lock(3, b"s").of(Resource::Semaphore);
        assert_eq!(KeyRef::lock(3, b"{s}:timeout").semaphore(), Some(semaphore));
    }

    #[test]
    fn a_name_of_another_database_is_not_swapped() {
        let name = stored(b"k");
        assert_eq!(name.swapped(1, 2), name);
        assert_eq!(name.swapped(3, 4).as_ref().db, 4);
        assert_eq!(name.swapped(4, 3).as_ref().db, 4);
    }

    #[test]
    fn a_name_in_memory_is_never_missed_and_nearly_every_other_name_is_told_apart() {
        let names: Vec<String> = (0..1_000).map(|number| format!("name:{number}")).collect();
        let is_found = |name: &&String| may_be_in_memory(name.as_bytes());
        let ids: Vec<KeyId> = names.iter().map(|name| stored(name.as_bytes())).collect();
        let swapped: Vec<KeyId> = ids.iter().map(|id| id.swapped(3, 4)).collect();
        drop(ids);
        assert!(names.iter().all(|name| is_found(&name)));
        drop(swapped);
        // Other tests store names meanwhile, and some of them share a counter with one of these.
        assert!(names.iter().filter(is_found).count() < 500);
        assert!(may_be_in_memory(b"{semaphore}:timeout"));
    }
}
