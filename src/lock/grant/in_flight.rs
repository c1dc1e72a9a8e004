//! IN FLIGHT

use std::rc::Rc;

use crate::lock::name::OwnerAt;
use crate::lock::session::bindings::BoundRef;
use crate::lock::wait::request::Seq;
use crate::lock::{Hold, KeyId, Mode, Now, Token};

/// A grant on its way to a parked client.
#[derive(Debug)]
pub(crate) struct GrantInFlight {
    pub key: KeyId,
    pub owner: Rc<[u8]>,
    pub mode: Mode,
    pub token: Token,
    pub seq: Seq,
    /// Set where the owner held already: then only this one hold is undone.
    pub reentry: Option<Reentry>,
}

/// What a re-entry on its way to a parked client means for the hold that its owner had before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reentry {
    /// It was counted.
    pub counted: bool,
    /// The hold is bound to this connection when the reply is written, and not before: if the reply is never
    /// written, the end of that connection must not end the hold.
    pub binds: Option<(u64, Now)>,
    /// The former binding is ended when the reply is written.
    pub unbinds: bool,
}

impl GrantInFlight {
    /// Whose it is, and where.
    pub fn at(&self) -> OwnerAt {
        OwnerAt {
            key: self.key.clone(),
            owner: self.owner.clone(),
        }
    }

    /// Whether this is the grant of the present hold.
    pub fn is(&self, hold: &Hold) -> bool {
        hold.token == Some(self.token) && hold.owner[..] == self.owner[..]
    }

    /// The hold, as sessions name it.
    pub fn bound(&self) -> BoundRef<'_> {
        BoundRef::lock(self.mode, self.key.as_ref(), &self.owner)
    }
}
