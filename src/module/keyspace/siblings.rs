//! The names of the keys beside a lock, as strings of the server. Each is made once for a call, at its first
//! use.

use std::cell::OnceCell;

use crate::lock::{timeout_name, timeout_prefix, token_name};
use crate::module::ffi::strings::{OwnedStr, Str};

/// The names of one owner's timeouts at one lock: that of the first hold, from which the others are made.
pub struct Timeouts(OwnedStr);

impl Timeouts {
    /// Makes them.
    pub fn of(lock: &[u8], owner: &[u8]) -> Timeouts {
        let prefix = timeout_prefix(lock, owner);
        Timeouts(OwnedStr::new(&timeout_name(&prefix, 1)))
    }

    /// That of the first hold.
    pub fn first(&self) -> Str<'_> {
        self.0.as_str()
    }

    /// What all of them begin with.
    fn prefix(&self) -> &[u8] {
        let first = self.first().bytes();
        first.strip_suffix(b"1").unwrap_or(first)
    }

    /// Hands that of the n-th hold on.
    pub fn with<T>(&self, n: u32, body: impl FnOnce(Str<'_>) -> T) -> T {
        match n {
            1 => body(self.first()),
            n => body(OwnedStr::new(&timeout_name(self.prefix(), n)).as_str()),
        }
    }
}

/// The names of the keys beside one lock: its token's, and the timeouts' of the owner who asks.
#[derive(Default)]
pub struct Siblings {
    token: OnceCell<OwnedStr>,
    own: OnceCell<Timeouts>,
}

impl Siblings {
    /// The key of the token of this lock, always the same.
    pub fn token(&self, lock: &[u8]) -> Str<'_> {
        let made = self.token.get_or_init(|| OwnedStr::new(&token_name(lock)));
        made.as_str()
    }

    /// The timeouts of this lock and owner, always the same.
    pub fn own(&self, lock: &[u8], owner: &[u8]) -> &Timeouts {
        self.own.get_or_init(|| Timeouts::of(lock, owner))
    }
}
