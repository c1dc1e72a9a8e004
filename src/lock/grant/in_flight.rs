//! A grant in flight: made, and its reply not written yet.

use std::rc::Rc;

use crate::lock::name::OwnerAt;
use crate::lock::session::bindings::BoundRef;
use crate::lock::wait::request::Seq;
use crate::lock::{Hold, KeyId, Mode, Now, Token};

/// A grant in flight to a parked client.
#[derive(Debug)]
pub(crate) struct GrantInFlight {
    pub key: KeyId,
    pub owner: Rc<[u8]>,
    pub mode: Mode,
    pub token: Token,
    pub seq: Seq,
    /// Set where the owner had a hold already: an undo then drops this one hold only.
    pub reentry: Option<Reentry>,
}

/// The effect of a re-entry in flight on the hold that its owner had before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reentry {
    /// It raised the hold count.
    pub counted: bool,
    /// The connection to bind the hold to when the reply is written, and the moment of the grant. Not before: if the
    /// reply is never written, the end of that connection must not end the hold.
    pub binds: Option<(u64, Now)>,
    /// The former binding ends when the reply is written.
    pub unbinds: bool,
}

impl GrantInFlight {
    /// The owner and the key.
    pub fn at(&self) -> OwnerAt {
        OwnerAt {
            key: self.key.clone(),
            owner: self.owner.clone(),
        }
    }

    /// Whether the present hold is of this grant.
    pub fn is(&self, hold: &Hold) -> bool {
        hold.token == Some(self.token) && hold.owner[..] == self.owner[..]
    }

    /// The hold as a name of a binding.
    pub fn bound(&self) -> BoundRef<'_> {
        BoundRef::lock(self.mode, self.key.as_ref(), &self.owner)
    }
}
