//! A parked request, as the shell keeps it.

use std::ptr::NonNull;

use redis_module::raw;

use crate::lock::Outcome;

/// What an acquire asked to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The token, or nil.
    Token,
    /// With `WITHHOLDER`: the holder too.
    WithHolder,
    /// One token a key, or nil.
    Tokens,
    /// With `WITHHOLDER`: the holder of a key that is not to be had, too.
    TokensWithHolder,
    /// Whether a latch is open: 1 or 0.
    Latch,
}

/// What may condemn a client, as far as it is known when it is parked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Risks {
    /// Its user can be deleted.
    pub(in crate::module) user: bool,
    /// It may be subscribed.
    pub(in crate::module) messages: bool,
}

/// What the shell knows of a parked request.
pub struct Parked {
    /// `None` until the client is blocked, which is the last thing its command does.
    pub(in crate::module) handle: Option<NonNull<raw::RedisModuleBlockedClient>>,
    pub(in crate::module) shape: Shape,
    pub(in crate::module) risks: Risks,
    /// The answer, once it is known.
    pub outcome: Option<Outcome>,
}

impl Parked {
    /// A request whose client is about to be blocked.
    pub fn expected(shape: Shape) -> Parked {
        Parked {
            handle: None,
            shape,
            risks: Risks::default(),
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
