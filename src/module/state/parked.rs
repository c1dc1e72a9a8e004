//! The shell's record of a parked request.

use std::ptr::NonNull;

use redis_module::raw;

use crate::lock::Outcome;
use crate::module::ffi::strings::OwnedStr;

/// The form of an acquire's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The token, or nil.
    Token,
    /// `WITHHOLDER`: the token, or nil, and the holder.
    WithHolder,
    /// One token a key, or nil.
    Tokens,
    /// `WITHHOLDER`: the tokens, or nil, and the holder of a key that cannot be granted.
    TokensWithHolder,
    /// Whether a latch is open: 1 or 0.
    Latch,
}

/// Reasons for which the server may condemn a client (see `entry::condemned`), known when it is parked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Risks {
    /// Its user can be deleted.
    pub(in crate::module) user: bool,
    /// It may be subscribed.
    pub(in crate::module) messages: bool,
}

/// A parked request.
pub struct Parked {
    /// `None` until the client is blocked, which is the last step of its command.
    pub(in crate::module) handle: Option<NonNull<raw::RedisModuleBlockedClient>>,
    /// The id of the client; 0 until it is blocked.
    pub(in crate::module) client: u64,
    pub(in crate::module) shape: Shape,
    pub(in crate::module) risks: Risks,
    /// Whether the module has unblocked the client.
    pub(in crate::module) is_ending: bool,
    /// The words of the command, kept for a late answer (see `unblock`).
    pub(in crate::module) words: Vec<OwnedStr>,
    /// The answer; `None` until the core has decided.
    pub outcome: Option<Outcome>,
}

impl Parked {
    /// A request whose client is about to be blocked.
    pub fn expected(shape: Shape) -> Parked {
        Parked {
            handle: None,
            client: 0,
            shape,
            risks: Risks::default(),
            is_ending: false,
            words: Vec::new(),
            outcome: None,
        }
    }

    /// Whether the client has been blocked.
    pub fn is_blocked(&self) -> bool {
        self.handle.is_some()
    }

    /// Whether the answer is a grant.
    pub fn is_granted(&self) -> bool {
        matches!(
            self.outcome,
            Some(Outcome::Granted(_) | Outcome::GrantedAll(_))
        )
    }
}
