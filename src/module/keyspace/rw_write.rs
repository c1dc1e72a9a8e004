//! Writes a read-write lock's hash and its sibling keys, one change of the core's decision at a time.

use crate::lock::{is_braced, write_field, Mode, RwWrite, MODE_FIELD};
use crate::module::ffi::api::Written;
use crate::module::ffi::fault;
use crate::module::ffi::strings::OwnedStr;
use crate::module::keyspace::key::Key;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::rw_read::numbers;
use crate::module::keyspace::siblings::{SiblingKind, TIMEOUT};
use crate::module::keyspace::string_key::StringKey;

/// Makes one change.
///
/// # Errors
/// When the server refuses.
pub(crate) fn write(
    key: &mut LockKey<'_>,
    change: &RwWrite,
    replication: Replication<'_>,
) -> Written {
    let ctx = key.ctx();
    match change {
        RwWrite::Clear => key.delete(replication),
        RwWrite::Begin(mode, owner) => {
            let (field, one) = (field_of(*mode, owner), OwnedStr::of_number(1u32));
            let pairs = [mode_pair(*mode), (field, one)];
            set_fields(key, &pairs, replication)
        }
        RwWrite::Mode(mode) => set_fields(key, &[mode_pair(*mode)], replication),
        RwWrite::Count(mode, owner, (_, count)) => {
            set_count(key, (*mode, owner), *count, replication)
        }
        RwWrite::Drop(mode, owner) => drop_field(key, &field_of(*mode, owner), replication),
        RwWrite::Timeouts(owner, range, end_ms) => {
            set_timeouts(key, owner, (*range, *end_ms), replication)
        }
        RwWrite::DropTimeouts(owner, range) => drop_timeouts(key, owner, *range, replication),
        RwWrite::Lease(end_ms) => key.set_deadline(*end_ms, replication),
        // The token record of this name is that of the lock without the braces.
        RwWrite::TokenRecord(_) | RwWrite::TokenRecordLease(_) | RwWrite::DropTokenRecord
            if is_braced(key.name().bytes()) =>
        {
            Ok(())
        }
        RwWrite::TokenRecord(token_record) => {
            let value = (&token_record.value()[..], SiblingKind::Token);
            let mut sibling = StringKey::open_to_write(ctx, key.token_name());
            sibling.put(value, token_record.deadline_ms, replication)
        }
        RwWrite::TokenRecordLease(end_ms) => {
            let mut sibling = StringKey::open_to_write(ctx, key.token_name());
            match sibling.has(SiblingKind::Token) {
                true => sibling.expire_at(*end_ms, replication),
                false => Ok(()),
            }
        }
        RwWrite::DropTokenRecord => StringKey::open_to_write(ctx, key.token_name())
            .delete_own(SiblingKind::Token, replication),
    }
}

/// Sets timeouts of a reader.
fn set_timeouts(
    key: &LockKey<'_>,
    owner: &[u8],
    ((from, to), end_ms): ((u32, u32), i64),
    replication: Replication<'_>,
) -> Written {
    let ctx = key.ctx();
    key.with_timeouts(owner, |names| {
        numbers((from, to), key.most_renewed(owner)).try_for_each(|number| {
            names.with(number, |name| {
                let value = (TIMEOUT, SiblingKind::Timeout);
                StringKey::open_to_write(ctx, name).put(value, Some(end_ms), replication)
            })
        })
    })
}

/// Deletes timeouts of a reader.
fn drop_timeouts(
    key: &LockKey<'_>,
    owner: &[u8],
    (from, to): (u32, u32),
    replication: Replication<'_>,
) -> Written {
    let ctx = key.ctx();
    key.with_timeouts(owner, |names| {
        numbers((from, to), key.most_timeouts(owner)).try_for_each(|number| {
            names.with(number, |name| {
                StringKey::open_to_write(ctx, name).delete_own(SiblingKind::Timeout, replication)
            })
        })
    })
}

/// Undoes a change, because the server refused a later one of the same decision; `before` is the change before it. A
/// hold that was to begin is removed, a re-entry is not counted, a WRITE that was to end stays.
///
/// # Errors
/// When the server refuses this too.
pub(crate) fn roll_back(
    key: &mut LockKey<'_>,
    change: &RwWrite,
    before: Option<&RwWrite>,
    replication: Replication<'_>,
) -> Written {
    match change {
        RwWrite::Timeouts(owner, (first, last), _) if first == last => {
            let is_new = match before {
                Some(RwWrite::Count(Mode::Read, _, (reads, more))) => reads < more && more == last,
                Some(RwWrite::Begin(Mode::Read, _)) => *last == 1,
                _ => false,
            };
            // Otherwise the timeout belongs to an older hold and stays.
            match is_new {
                true => drop_timeouts(key, owner, (*first, *last), replication),
                false => Ok(()),
            }
        }
        RwWrite::Count(mode, owner, (0, _)) => {
            drop_field(key, &field_of(*mode, owner), replication)
        }
        RwWrite::Count(mode, owner, (count, _)) => {
            set_count(key, (*mode, owner), *count, replication)
        }
        RwWrite::Begin(mode, owner) => {
            drop_field(key, &field_of(*mode, owner), replication)?;
            match key.open_key()?.len() > 1 {
                true => set_fields(key, &[mode_pair(Mode::Read)], replication),
                false => key.delete(replication),
            }
        }
        RwWrite::Drop(Mode::Write, owner) => {
            let pair = (field_of(Mode::Write, owner), OwnedStr::of_number(1u32));
            set_fields(key, &[mode_pair(Mode::Write), pair], replication)
        }
        _ => Ok(()),
    }
}

fn set_count(
    key: &mut LockKey<'_>,
    (mode, owner): (Mode, &[u8]),
    count: u32,
    replication: Replication<'_>,
) -> Written {
    let pair = (field_of(mode, owner), OwnedStr::of_number(count));
    set_fields(key, &[pair], replication)
}

fn mode_pair(mode: Mode) -> (OwnedStr, OwnedStr) {
    let value: &[u8] = match mode {
        Mode::Write => b"write",
        _ => b"read",
    };
    (OwnedStr::new(MODE_FIELD), OwnedStr::new(value))
}

fn field_of(mode: Mode, owner: &[u8]) -> OwnedStr {
    match mode {
        Mode::Write => OwnedStr::new(&write_field(owner)),
        _ => OwnedStr::new(owner),
    }
}

/// Sets one or two fields of the hash.
fn set_fields(
    key: &mut LockKey<'_>,
    pairs: &[(OwnedStr, OwnedStr)],
    replication: Replication<'_>,
) -> Written {
    let mut words = vec![key.name()];
    for (field, value) in pairs {
        words.extend([field.as_str(), value.as_str()]);
    }
    key.open_key()?.set_fields(&words)?;
    replication.hset(&words);
    Ok(())
}

fn drop_field(key: &mut LockKey<'_>, name: &OwnedStr, replication: Replication<'_>) -> Written {
    key.open_key()?.drop_field(name.as_str())?;
    if !fault::is_on("reader-stays-on-replicas") {
        replication.hdel(key.name(), name.as_str());
    }
    Ok(())
}
