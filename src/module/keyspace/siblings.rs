//! The names of a lock's sibling keys, as strings of the server. Each is made at its first use, once for an open key.

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

    /// The name of the first hold's timeout.
    pub fn first(&self) -> Str<'_> {
        self.0.as_str()
    }

    /// Their common prefix.
    fn prefix(&self) -> &[u8] {
        let first = self.first().bytes();
        first.strip_suffix(b"1").unwrap_or(first)
    }

    /// Calls the body with the name of the n-th hold's timeout.
    pub fn with<T>(&self, n: u32, body: impl FnOnce(Str<'_>) -> T) -> T {
        match n {
            1 => body(self.first()),
            n => body(OwnedStr::new(&timeout_name(self.prefix(), n)).as_str()),
        }
    }
}

/// The names of one lock's sibling keys: the token's, and the timeouts' of the command's owner.
#[derive(Default)]
pub struct Siblings {
    token: OnceCell<OwnedStr>,
    own: OnceCell<Timeouts>,
}

impl Siblings {
    /// The token's key. `lock` is the same in every call.
    pub fn token(&self, lock: &[u8]) -> Str<'_> {
        let made = self.token.get_or_init(|| OwnedStr::new(&token_name(lock)));
        made.as_str()
    }

    /// The timeouts. `lock` and `owner` are the same in every call.
    pub fn own(&self, lock: &[u8], owner: &[u8]) -> &Timeouts {
        self.own.get_or_init(|| Timeouts::of(lock, owner))
    }
}
