//! Changes of a read-write lock.
//!
//! Each method changes the [`ReadWrite`] in memory and adds the same change to the effects, so that a decision of
//! several steps (a release, then several readers) continues with the changed state.

use crate::lock::effect::{Cx, KeyWrite};
use crate::lock::read_write::readers::Reader;
use crate::lock::read_write::state::{ReadWrite, TokenRecord, Writer};
use crate::lock::{Mode, OwnerId, Token};

/// One primitive write to the hash of a read-write lock or to its sibling keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RwWrite {
    /// Delete the hash, before another one is written.
    Clear,
    /// Set the mode, and the owner's count in it to 1.
    Begin(Mode, OwnerId),
    /// Set the mode only.
    Mode(Mode),
    /// Set the owner's count from the first number (0: no unexpired hold) to the second.
    Count(Mode, OwnerId, (u32, u32)),
    /// Remove the owner's count.
    Drop(Mode, OwnerId),
    /// Set the end of the timeouts of the owner's holds, from the first number to the second (Unix milliseconds).
    Timeouts(OwnerId, (u32, u32), i64),
    /// Delete these timeouts.
    DropTimeouts(OwnerId, (u32, u32)),
    /// Set the TTL of the hash.
    Lease(i64),
    /// Store the token record, with its TTL.
    TokenRecord(TokenRecord),
    /// Set the TTL of the token record.
    TokenRecordLease(i64),
    /// Delete the token record.
    DropTokenRecord,
}

pub(crate) fn write(cx: &mut Cx<'_>, change: RwWrite) {
    cx.write(KeyWrite::ReadWrite(change));
}

/// A copy in one block: a clone would go byte by byte.
fn copy_of(owner: &OwnerId) -> OwnerId {
    OwnerId::from_slice(owner)
}

impl ReadWrite {
    /// A lock without holders.
    pub(crate) fn fresh() -> ReadWrite {
        ReadWrite {
            is_whole: true,
            ..ReadWrite::default()
        }
    }

    /// Adds a hold of an owner that has `holds` in this mode; one that is not counted (`once`) only extends the lease.
    pub(crate) fn add_hold(
        &mut self,
        (mode, owner): (Mode, &[u8]),
        (holds, once): (Option<u32>, bool),
        end_ms: i64,
        cx: &mut Cx<'_>,
    ) {
        match (mode, holds) {
            (Mode::Read, Some(_)) => self.read_again(owner, u32::from(!once), end_ms, cx),
            (Mode::Read, None) => self.add_reader(owner, end_ms, cx),
            (_, Some(count)) => {
                if !once {
                    self.count_writes(count + 1, cx);
                }
                self.reach(end_ms, cx);
            }
            (_, None) => self.set_writer(owner, end_ms, cx),
        }
    }

    /// Adds the first READ hold of an owner; others may hold the lock.
    pub(crate) fn add_reader(&mut self, owner: &[u8], end_ms: i64, cx: &mut Cx<'_>) {
        let owner = OwnerId::from_slice(owner);
        let begins = self.writer.is_none() && self.readers.is_empty() && self.is_whole;
        self.readers.remove(&owner);
        write(
            cx,
            match begins {
                true => RwWrite::Begin(Mode::Read, copy_of(&owner)),
                false => RwWrite::Count(Mode::Read, copy_of(&owner), (0, 1)),
            },
        );
        write(cx, RwWrite::Timeouts(copy_of(&owner), (1, 1), end_ms));
        self.readers.push(Reader {
            owner,
            count: 1,
            first_ms: end_ms,
            until_ms: end_ms,
        });
        self.reach(end_ms, cx);
    }

    /// Adds a READ hold of a present reader (`count` 1), or only its lease (0). The first timeout is the last to be
    /// deleted when the holds are released one by one, so the first one gets the longer lease.
    pub(crate) fn read_again(&mut self, owner: &[u8], count: u32, end_ms: i64, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(owner) else {
            return;
        };
        let owner = copy_of(&reader.owner);
        if count > 0 {
            let counts = (reader.count, reader.count + count);
            reader.count = counts.1;
            write(cx, RwWrite::Count(Mode::Read, copy_of(&owner), counts));
            let number = (reader.count, reader.count);
            write(cx, RwWrite::Timeouts(copy_of(&owner), number, end_ms));
        }
        if end_ms > reader.first_ms {
            write(cx, RwWrite::Timeouts(owner, (1, 1), end_ms));
            reader.first_ms = end_ms;
        }
        reader.until_ms = reader.until_ms.max(end_ms);
        self.reach(end_ms, cx);
    }

    /// Sets the lease of all holds of a present reader.
    pub(crate) fn renew_reader(&mut self, owner: &[u8], end_ms: i64, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(owner) else {
            return;
        };
        (reader.first_ms, reader.until_ms) = (end_ms, end_ms);
        let all = (1, reader.count);
        write(cx, RwWrite::Timeouts(copy_of(&reader.owner), all, end_ms));
    }

    /// A present reader releases one of several holds; its lease stays.
    pub(crate) fn read_less(&mut self, owner: &[u8], cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(owner) else {
            return;
        };
        let (owner, number) = (copy_of(&reader.owner), reader.count);
        reader.count -= 1;
        let counts = (number, reader.count);
        write(cx, RwWrite::Count(Mode::Read, copy_of(&owner), counts));
        write(cx, RwWrite::DropTimeouts(copy_of(&owner), (number, number)));
        if reader.until_ms > reader.first_ms && reader.until_ms < i64::MAX {
            // The released hold may be the one with the longest lease.
            reader.first_ms = reader.until_ms;
            write(cx, RwWrite::Timeouts(owner, (1, 1), reader.until_ms));
        }
    }

    /// Drops one of several holds of an owner in this mode. The last one stays.
    pub(crate) fn count_one_less(&mut self, mode: Mode, owner: &[u8], cx: &mut Cx<'_>) {
        match (mode, self.count_of(mode, owner, cx.now)) {
            (Mode::Read, Some(2..)) => self.read_less(owner, cx),
            (_, Some(count @ 2..)) => self.count_writes(count - 1, cx),
            _ => {}
        }
    }

    /// Ends the READ holds of an owner. Its field is removed only while other holders remain; otherwise the caller
    /// deletes the hash.
    pub(crate) fn drop_reader(&mut self, owner: &[u8], cx: &mut Cx<'_>) {
        let token = self.token(cx.now);
        let Some(reader) = self.readers.remove(owner) else {
            return;
        };
        let timeouts = (1, reader.count);
        write(cx, RwWrite::DropTimeouts(copy_of(&reader.owner), timeouts));
        if self.is_held(cx.now) {
            write(cx, RwWrite::Drop(Mode::Read, reader.owner));
            self.shrink(cx);
            self.share_token_record(token, cx);
        }
    }

    /// Adds the first WRITE hold of an owner, which may be a reader already.
    pub(crate) fn set_writer(&mut self, owner: &[u8], end_ms: i64, cx: &mut Cx<'_>) {
        let owner = OwnerId::from_slice(owner);
        write(cx, RwWrite::Begin(Mode::Write, copy_of(&owner)));
        self.writer = Some(Writer { owner, count: 1 });
        // The TTL of the hash covers no other hold any more.
        if self.longest() < i64::MAX && !self.is_cut {
            self.deadline_ms = None;
        }
        self.reach(end_ms, cx);
    }

    /// Sets the number of WRITE holds.
    pub(crate) fn count_writes(&mut self, count: u32, cx: &mut Cx<'_>) {
        if let Some(writer) = &mut self.writer {
            let counts = (writer.count, count);
            writer.count = count;
            write(
                cx,
                RwWrite::Count(Mode::Write, copy_of(&writer.owner), counts),
            );
        }
    }

    /// Ends the WRITE holds. A writer that also reads becomes a reader under the same token.
    pub(crate) fn drop_writer(&mut self, cx: &mut Cx<'_>) {
        let token = self.token(cx.now);
        let Some(writer) = self.writer.take() else {
            return;
        };
        if !self.is_held(cx.now) {
            return;
        }
        write(cx, RwWrite::Drop(Mode::Write, writer.owner));
        write(cx, RwWrite::Mode(Mode::Read));
        self.shrink(cx);
        self.share_token_record(token, cx);
    }

    /// The token of the writer becomes that of every reader beside it, whichever of them remains.
    pub(crate) fn share_token_record(&mut self, token: Option<Token>, cx: &mut Cx<'_>) {
        let writers = self
            .token_record
            .as_ref()
            .filter(|token_record| token_record.writer.is_some());
        let since = writers.map(|token_record| token_record.since);
        if let (Some(token), Some(since), None) = (token, since, &self.writer) {
            self.set_token_record((since, token), self.longest(), cx);
        }
    }

    /// Stores the token of the present holders, and their first one, with the TTL of the hash.
    pub(crate) fn set_token_record(
        &mut self,
        (since, token): (Token, Token),
        end_ms: i64,
        cx: &mut Cx<'_>,
    ) {
        let writer = self.writer.as_ref().map(|writer| copy_of(&writer.owner));
        let token_record = TokenRecord {
            token,
            since,
            writer,
            deadline_ms: self.deadline_ms.or(Some(end_ms)),
        };
        write(cx, RwWrite::TokenRecord(token_record.clone()));
        self.token_record = Some(token_record);
    }

    /// Removes the fields of expired readers, as far as they were read. Returns their owners.
    pub(crate) fn prune(&mut self, cx: &mut Cx<'_>) -> Vec<OwnerId> {
        let dead = self.readers.take_expired(cx.now);
        for owner in &dead {
            write(cx, RwWrite::Drop(Mode::Read, copy_of(owner)));
        }
        dead
    }

    /// Extends the TTL of the hash and of the token record to at least this end.
    pub(crate) fn reach(&mut self, end_ms: i64, cx: &mut Cx<'_>) {
        let end_ms = match self.deadline_ms {
            Some(present) => present.max(end_ms),
            // The TTL was removed by other means: it is set again, unless an unread reader may need a longer one.
            None if self.is_whole && !self.is_cut => self.longest().max(end_ms),
            None => return,
        };
        if end_ms < i64::MAX {
            self.set_lease(end_ms, cx);
        }
    }

    /// Reduces the TTL of the hash to its longest lease, if all leases are known.
    pub(crate) fn shrink(&mut self, cx: &mut Cx<'_>) {
        let may_shrink = self.is_whole && self.writer.is_none() && self.is_held(cx.now);
        if may_shrink && !self.is_cut && self.longest() < i64::MAX {
            self.set_lease(self.longest(), cx);
        }
    }

    pub(crate) fn longest(&self) -> i64 {
        let ends = self.readers.iter().map(|reader| reader.until_ms);
        ends.max().unwrap_or(0)
    }

    pub(crate) fn set_lease(&mut self, end_ms: i64, cx: &mut Cx<'_>) {
        if self.deadline_ms != Some(end_ms) {
            self.deadline_ms = Some(end_ms);
            write(cx, RwWrite::Lease(end_ms));
        }
        if let Some(token_record) = self
            .token_record
            .as_mut()
            .filter(|token_record| token_record.deadline_ms != Some(end_ms))
        {
            token_record.deadline_ms = Some(end_ms);
            write(cx, RwWrite::TokenRecordLease(end_ms));
        }
    }
}
