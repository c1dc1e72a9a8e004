//! `LOCK.INFO`

use crate::commands::lock::read_write;
use crate::commands::options::{KEY, WAITERS};
use crate::commands::parser::Parser;
use crate::commands::queue::Queue;
use crate::lock::{BoundRef, Holder, KeyState, LockError, Mode, Now};
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::key::Key;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::state::shell;

/// Replies the holders and the waiters of a lock, or nil when there are none.
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"lock.info",
        flags: c"readonly",
        acl: c"read",
        key: Some(access::READ),
        arity: -2,
        summary: c"Tells who holds a lock and who waits for it",
        complexity: c"O(1), of readers O(N) in the number of holds, 250 at most, with WAITERS O(N) in the number of waiters listed, 1,000 at most",
        args: &[KEY, WAITERS],
        help: &["Who holds, who waits, since when."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, options) = Parser::of::<Info>(words).key_only()?;
        let list = options.listed();
        let now = ctx.now();
        let mut key = LockKey::open_read(ctx, name);
        // Of very many readers only some are read. The caller may ask whether its own holds last.
        key.read_also(shell::with(|shell| {
            shell
                .locks
                .shared
                .sessions
                .readers_of(ctx.client_id(), key.id())
        }));
        let state = key.read();
        read_write::may_read(ctx, name, &state)?;
        let queue = Queue::of(key.id(), now, list);
        let holders = state.holders(now);
        let has_more = matches!(&state, KeyState::ReadWrite(lock)
            if !lock.is_whole && lock.writer.is_none() && !lock.is_over(now));
        if holders.is_empty() && queue.waiters == 0 && !has_more {
            ctx.reply_nil();
            return Ok(());
        }
        let mode = holders.first().map(|first| first.mode);
        let mode = mode.or(has_more.then_some(Mode::Read)).or(queue.mode);
        let mode = match holders.first() {
            Some(string) if string.owner.is_empty() => "string",
            _ => mode.unwrap_or(Mode::Exclusive).name(),
        };
        ctx.reply_map(4 + usize::from(list > 0) + usize::from(has_more));
        ctx.reply_bytes(b"mode");
        ctx.reply_bytes(mode.as_bytes());
        ctx.reply_bytes(b"holders");
        ctx.reply_array(holders.len());
        for holder in &holders {
            reply_holder(ctx, &key, holder, now);
        }
        if has_more {
            // Some readers were not read: they may hold the lock, or be expired.
            ctx.reply_bytes(b"more-holders");
            ctx.reply_integer(1);
        }
        queue.reply(ctx, list > 0);
        Ok(())
    }
}

fn reply_holder(ctx: Ctx<'_>, lock: &LockKey<'_>, hold: &Holder<'_>, now: Now) {
    let key = lock.id();
    let (tracked, session) = shell::with(|shell| {
        let locks = &shell.locks;
        let tracked = match hold.mode {
            Mode::Read => locks.tracked_reader(key, hold.owner),
            _ => locks.tracked(key, hold.token),
        };
        let what = BoundRef::lock(hold.mode, key, hold.owner);
        // A reader may be bound under an earlier token of the same read phase.
        let token = match hold.mode {
            Mode::Read => locks.shared.sessions.token_of(what),
            _ => hold.token,
        };
        let session = locks.shared.sessions.client_of(what, token);
        (tracked.copied(), session)
    });
    let client = session.or(tracked.map(|tracked| tracked.client));
    let (addr, name) = match client.and_then(|id| ctx.client_info(id)) {
        Some((addr, name)) => (Some(addr), name),
        None => (None, None),
    };
    ctx.reply_map(10);
    ctx.reply_bytes(b"owner");
    ctx.reply_bytes(hold.owner);
    ctx.reply_bytes(b"holds");
    ctx.reply_integer(hold.count.into());
    ctx.reply_bytes(b"token");
    ctx.reply_maybe(hold.token.map(|token| token.get() as i64));
    ctx.reply_bytes(b"pttl");
    ctx.reply_integer(hold.deadline_ms.map_or(-1, |end| end - now.wall_ms));
    ctx.reply_bytes(b"held-ms");
    ctx.reply_maybe(tracked.map(|tracked| now.mono_ms.saturating_sub(tracked.since_ms) as i64));
    ctx.reply_bytes(b"client-id");
    ctx.reply_maybe(client.map(|id| id as i64));
    ctx.reply_bytes(b"addr");
    ctx.reply_bytes_or_nil(addr.as_deref().map(str::as_bytes));
    ctx.reply_bytes(b"client-name");
    ctx.reply_bytes_or_nil(name.as_ref().map(|name| name.as_str().bytes()));
    ctx.reply_bytes(b"session");
    ctx.reply_integer(session.is_some().into());
    ctx.reply_bytes(b"note");
    let note = (hold.mode == Mode::Exclusive && !hold.owner.is_empty())
        .then(|| lock.note(hold.owner))
        .flatten();
    ctx.reply_bytes_or_nil(note.as_ref().map(|note| note.as_str().bytes()));
}
