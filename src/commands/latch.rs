//! `LATCH.*`: latches that are counted down.

use crate::commands::options::{optional, required, Options, BLOCK, CONDITION, KEY};
use crate::commands::parser::{Parser, Word};
use crate::commands::skeleton::{acquire, change_key, may_create, request, How};
use crate::lock::{self, permits_of, Count, Cx, Latches, LockError, Locks};
use crate::module::acl;
use crate::module::entry::command::{access, ArgKind, Command, Spec};
use crate::module::ffi::ctx::{is_out_of_memory, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::count_key::CountKey;
use crate::module::keyspace::key::Key;
use crate::module::keyspace::sem_key;
use crate::module::reply;
use crate::module::state::shell::Shape;

/// Closes a latch for a number of counts; 0 opens it. Replies that number, or nil when `NX` or `XX` excludes it.
pub struct Set;

impl Command for Set {
    const SPEC: Spec = Spec {
        name: c"latch.set",
        flags: c"write deny-oom fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Closes a latch until it has been counted down so many times",
        complexity: c"O(1), with a count of 0 O(N) in the number of waiters",
        args: &[KEY, required(c"count", ArgKind::Integer), CONDITION],
        help: &["Close a latch for so many counts. Returns them, or nil."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, count, options) = Set::parse(Parser::of::<Set>(words))?;
        is_no_semaphore(ctx, name)?;
        let key = CountKey::open(ctx, name);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state == Count::Absent {
            may_create(ctx)?;
        }
        let set_if = options.set_if;
        let set = change_key(ctx, key, now, |locks, cx| {
            Latches::set(&mut locks.shared, id, state, (count, set_if), cx)
        })?;
        ctx.reply_maybe(set);
        Ok(())
    }
}

impl Set {
    /// Parses the command: the key, the count and the options.
    ///
    /// # Errors
    /// Those of the key, the number, and the options, in this order.
    pub fn parse<W: Word>(mut parser: Parser<'_, W>) -> Result<(W, i64, Options<W>), LockError> {
        Ok((parser.key()?, parser.number("count", 0)?, parser.options()?))
    }
}

/// Counts a latch down; at 0 it opens. Replies what is left.
pub struct Down;

impl Command for Down {
    const SPEC: Spec = Spec {
        name: c"latch.down",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::DELETE),
        arity: -2,
        summary: c"Counts a latch down, and answers all waiters when nothing is left",
        complexity: c"O(1), O(N) in the number of waiters when it opens",
        args: &[KEY, optional(c"n", ArgKind::Integer)],
        help: &["Count it down; at 0 it opens. Returns what is left."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, by) = Down::parse(Parser::of::<Down>(words))?;
        let key = CountKey::open(ctx, name);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state != Count::Absent {
            is_no_semaphore(ctx, name)?;
        }
        let left = change_key(ctx, key, now, |locks, cx| {
            Latches::down(&mut locks.shared, id, state, by, cx)
        })?;
        ctx.reply_integer(left);
        Ok(())
    }
}

impl Down {
    /// Parses the command: the key and the number.
    ///
    /// # Errors
    /// Those of the key and the number, in this order.
    pub fn parse<W: Word>(mut parser: Parser<'_, W>) -> Result<(W, i64), LockError> {
        let key = parser.key()?;
        let by = match parser.has_more() {
            true => parser.number("n", 1)?,
            false => 1,
        };
        parser.end()?;
        Ok((key, by))
    }
}

/// Waits until a latch is open. Replies 1, or 0 when it is still closed.
pub struct Wait;

impl Command for Wait {
    const SPEC: Spec = Spec {
        name: c"latch.wait",
        flags: c"readonly fast blocking",
        acl: c"read fast blocking",
        key: Some(access::READ),
        arity: -2,
        summary: c"Tells whether a latch is open, or waits until it is",
        complexity: c"O(1)",
        args: &[KEY, BLOCK],
        help: &["Wait until it is open. Returns 1, or 0 when it is still closed."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, options) = Parser::of::<Wait>(words).key_only()?;
        let request = request(ctx, &[name], b"", &options)?;
        let key = CountKey::open_read(ctx, name);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state != Count::Absent {
            is_no_semaphore(ctx, name)?;
        }
        // The command only reads, so the server itself does not refuse it; a wait needs memory.
        let is_closed = matches!(state, Count::Is(..)) && !state.is_open(now);
        if request.wait != lock::Wait::No && is_closed && is_out_of_memory() {
            return Err(LockError::OutOfMemory);
        }
        let how = How::of(Shape::Latch, &request);
        let decision = |locks: &mut Locks, cx: &mut Cx<'_>| {
            let (latches, shared) = (&mut locks.latches, &mut locks.shared);
            latches.wait(shared, id, state, &request, cx)
        };
        acquire(ctx, key, how, now, decision, |got| reply::is_open(ctx, got))
    }
}

/// Checks that a number is not that of a semaphore: one with permits beside it. Called when the key exists or is about
/// to be created; an absent key is an open latch. The reply must not depend on a key that the caller's user may not
/// read: without that permission the number counts as a latch.
///
/// # Errors
/// [`LockError::OtherCount`].
fn is_no_semaphore(ctx: Ctx<'_>, name: Str<'_>) -> Result<(), LockError> {
    let permits = || OwnedStr::new(&permits_of(name.bytes()));
    let has_permits = sem_key::has_permits(ctx, name) && !fault::is_on("latch-made-of-a-semaphore");
    match has_permits && acl::may_read(ctx, permits().as_str(), false) {
        true => Err(LockError::OtherCount),
        false => Ok(()),
    }
}
