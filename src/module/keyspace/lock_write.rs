//! Writes the lock hash as the core has decided, and replicates each change.

use smallvec::SmallVec;

use crate::lock::{note_field, KeyRef, KeyWrite, Token};
use crate::module::ffi::api::Written;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::{Key, OTHER_KIND};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::rw_write;
use crate::module::state::constants::constants;

impl<'a> Key<'a> for LockKey<'a> {
    fn ctx(&self) -> Ctx<'a> {
        self.ctx
    }

    fn name(&self) -> Str<'a> {
        self.name
    }

    fn id(&self) -> KeyRef<'a> {
        KeyRef::lock(self.db, self.name.bytes())
    }

    /// Where the server refuses, nothing of a fresh hold was written, and of a present hold perhaps the lease.
    fn write(&mut self, change: &KeyWrite, replication: Replication<'_>) -> Written {
        match change {
            KeyWrite::Delete => self.delete(replication)?,
            KeyWrite::ReadWrite(change) => rw_write::write(self, change, replication)?,
            KeyWrite::Note(owner, note) => {
                let (field, note) = (OwnedStr::new(&note_field(owner)), OwnedStr::new(note));
                let words = [self.name(), field.as_str(), note.as_str()];
                self.open_key()?.set_fields(&words)?;
                replication.hset(&words);
            }
            KeyWrite::Take {
                clear,
                owner,
                token,
                deadline_ms,
            } => {
                if *clear {
                    self.delete(replication)?;
                }
                self.set_fields(owner, Some(1), Some(*token), replication)?;
                let leased = self.set_deadline(*deadline_ms, replication);
                if leased.is_err() && !fault::is_on("refused-lease-leaves-the-hold") {
                    // Without a TTL it would be held for ever.
                    let _ = self.delete(replication);
                }
                leased?;
            }
            KeyWrite::Adjust {
                owner,
                count,
                token,
                deadline_ms,
            } => {
                // The lease first: if the second write is refused, a longer lease does no harm, one hold more would.
                if let Some(deadline_ms) = deadline_ms {
                    self.expire_at(*deadline_ms)?;
                }
                let fields = match count.is_some() || token.is_some() {
                    true => self.set_fields(owner, count.map(|(_, to)| to), *token, replication),
                    false => Ok(()),
                };
                if let Some(deadline_ms) = deadline_ms {
                    replication.pexpireat(self.name(), *deadline_ms);
                }
                fields?;
            }
            KeyWrite::Permits(_) | KeyWrite::Count(_) => return Err(OTHER_KIND),
        }
        self.signal();
        Ok(())
    }

    /// A fresh hold is removed, and a re-entry is not counted.
    fn roll_back(
        &mut self,
        change: &KeyWrite,
        before: Option<&KeyWrite>,
        replication: Replication<'_>,
    ) {
        let before = before.and_then(|before| match before {
            KeyWrite::ReadWrite(before) => Some(before),
            _ => None,
        });
        let rolled_back = match change {
            KeyWrite::Take { .. } => self.delete(replication),
            KeyWrite::ReadWrite(change) => rw_write::roll_back(self, change, before, replication),
            KeyWrite::Adjust {
                owner,
                count: Some((count, _)),
                ..
            } => self.set_fields(owner, Some(*count), None, replication),
            // These leave no hold.
            KeyWrite::Delete | KeyWrite::Adjust { count: None, .. } | KeyWrite::Note(..) => Ok(()),
            KeyWrite::Permits(_) | KeyWrite::Count(_) => Err(OTHER_KIND),
        };
        // If the server refuses this too, a hold stays that ends with its lease.
        if rolled_back.is_ok() {
            self.signal();
        }
    }
}

impl LockKey<'_> {
    /// Sets the owner's count, the token, or both, in one call.
    fn set_fields(
        &mut self,
        owner: &[u8],
        count: Option<u32>,
        token: Option<Token>,
        replication: Replication<'_>,
    ) -> Written {
        let constants = constants();
        // A hold count of 1 and the name of the token's field are in every grant: those strings are constants. The
        // owner's string is the one that the client sent.
        let own = self.owner().filter(|own| own.bytes() == owner);
        let made = own.is_none().then(|| OwnedStr::new(owner));
        let owner = own.or(made.as_ref().map(OwnedStr::as_str));
        let other_count = count.filter(|count| *count != 1).map(OwnedStr::of_number);
        let token = token.map(|token| OwnedStr::new(&token_text(token)));

        let mut words: SmallVec<[_; 5]> = SmallVec::new();
        words.push(self.name());
        if let (Some(owner), Some(_)) = (owner, count) {
            let count = other_count
                .as_ref()
                .map_or(constants.one.as_str(), OwnedStr::as_str);
            words.extend([owner, count]);
        }
        if let Some(token) = &token {
            words.extend([constants.token_field.as_str(), token.as_str()]);
        }
        self.open_key()?.set_fields(&words)?;
        replication.hset(&words);
        Ok(())
    }
}

/// The value of the token field: `t` and digits.
fn token_text(token: Token) -> SmallVec<[u8; 24]> {
    let mut text = SmallVec::from_slice(b"t");
    text.extend_from_slice(itoa::Buffer::new().format(token.get()).as_bytes());
    text
}
