//! `SEM.*`: semaphores whose permits have leases.

use crate::commands::options::{
    option, required, Options, BLOCK, CONDITION, COUNT, FINAL, ID, KEY, LEASE, LEASE_OR_SESSION,
    SEQ, WAITERS,
};
use crate::commands::parser::{Parser, Word};
use crate::commands::queue::Queue;
use crate::commands::skeleton::{
    acquire, change_confirmed, change_key, end_first, give_up, has_given_up, is_given_up,
    may_create, request, How,
};
use crate::lock::{
    permits_of, Cx, KeyRef, LockError, Locks, Now, Permits, Resource, SemState, SemView, NO_END_MS,
};
use crate::module::acl;
use crate::module::entry::command::{access, ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::Key;
use crate::module::keyspace::sem_key::SemKey;
use crate::module::reply;
use crate::module::state::shell::Shape;

/// Creates a semaphore, or changes its number of permits. Replies that number, or nil when `NX` or `XX` excludes it.
pub struct Set;

impl Command for Set {
    const SPEC: Spec = Spec {
        name: c"sem.set",
        flags: c"write deny-oom fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Makes a semaphore with so many permits, or changes how many it has",
        complexity: c"O(log(N)+M) with N permits held and M waiters that are granted one",
        args: &[KEY, required(c"permits", ArgKind::Integer), CONDITION],
        help: &["Make a semaphore, or change how many permits it has. Returns them, or nil."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, number, options) = Set::parse(Parser::of::<Set>(words))?;
        let permits = permits_to_write(ctx, name)?;
        let key = SemKey::open_with(ctx, name, permits)?;
        let now = ctx.now();
        let view = key.hand_off_view(None, now);
        if view.state == SemState::Absent {
            may_create(ctx)?;
        }
        let set = change_confirmed(ctx, key, now, Option::is_some, |locks, cx| {
            let sems = &mut locks.sems;
            sems.set(&mut locks.shared, &view, number, options.set_if, cx)
        })?;
        ctx.reply_maybe(set.map(i64::from));
        Ok(())
    }
}

impl Set {
    /// Parses the command: the key, the number of permits and the options. The core refuses more than 2^31-1 permits.
    ///
    /// # Errors
    /// Those of the key, the number, and the options, in this order.
    pub fn parse<W: Word>(mut parser: Parser<'_, W>) -> Result<(W, u32, Options<W>), LockError> {
        let (key, permits) = (parser.key()?, parser.number("permits", 0)?);
        let permits = u32::try_from(permits).map_err(|_| LockError::TooManyPermits)?;
        Ok((key, permits, parser.options()?))
    }
}

/// Takes a permit or several, or waits for them. Replies the token, or nil.
pub struct Acquire;

impl Command for Acquire {
    const SPEC: Spec = Spec {
        name: c"sem.acquire",
        flags: c"write deny-oom fast blocking",
        acl: c"write fast blocking",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Takes permits of a semaphore for an id, or waits for them, and returns the token of the grant",
        complexity: c"O(M*log(N)) with N permits held and M asked for, however many wait",
        args: &[
            KEY,
            ID,
            COUNT,
            option(c"permits", c"LIMIT", true),
            LEASE_OR_SESSION,
            BLOCK,
            SEQ,
        ],
        help: &["Take permits (COUNT: 1), or wait for them. LIMIT makes the semaphore if it does not exist.", "Returns the token, or nil: too few were free, or no such semaphore."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, id, options) = Parser::of::<Acquire>(words).key_and_owner()?;
        let request = request(ctx, &[name], id.bytes(), &options)?;
        let permits = permits_to_write(ctx, name)?;
        if is_given_up(ctx, [semaphore(ctx, name)], id, options.seq) {
            ctx.reply_nil();
            return Ok(());
        }
        let (key, view, now) = open_permit(
            ctx,
            name,
            permits,
            (id, options.permits),
            SemKey::minting_view,
        )?;
        let how = How::of(Shape::Token, &request);
        let decision = |locks: &mut Locks, cx: &mut Cx<'_>| {
            locks.sems.acquire(&mut locks.shared, &view, &request, cx)
        };
        acquire(ctx, key, how, now, decision, |got| {
            reply::acquired(ctx, name, Shape::Token, got, now);
        })
    }
}

/// Returns a permit, which goes to the next waiter if there is one. Replies 1, or nil when the id holds none.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"sem.release",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Gives the permits of an id back, to the next waiters if there are some",
        complexity: c"O(M*log(N)) with N permits held and M of them by the id, however many wait",
        args: &[KEY, ID, FINAL],
        help: &[
            "Give the permits back. Returns 1, or nil when the id holds none.",
            "FINAL: as of LOCK.RELEASE.",
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, id, options) = Parser::of::<Release>(words).key_and_owner()?;
        let has_waited = match options.gives_up {
            Some(number) => give_up(ctx, semaphore(ctx, name), id, number),
            None => Some(false),
        };
        let Some(has_waited) = has_waited else {
            ctx.reply_nil();
            return Ok(());
        };
        let permits = permits_to_write(ctx, name)?;
        let (key, view, now) = open_permit(ctx, name, permits, (id, 1), SemKey::hand_off_view)?;
        let released = change_key(ctx, key, now, |locks, cx| {
            locks.sems.release(&mut locks.shared, &view, id.bytes(), cx)
        })?;
        if options.gives_up.is_some() {
            has_given_up(semaphore(ctx, name), id);
        }
        ctx.reply_maybe((released || has_waited).then_some(1));
        Ok(())
    }
}

/// Sets the lease of a permit that the id still holds. Replies 1, or 0 when the id holds it no more.
pub struct Renew;

impl Command for Renew {
    const SPEC: Spec = Spec {
        name: c"sem.renew",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Sets the lease of the permits that the id still holds",
        complexity: c"O(M*log(N)) with N permits held and M of them by the id",
        args: &[KEY, ID, LEASE],
        help: &["Set the lease of the permits anew. Returns 1, or 0 when they are lost."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, id, options) = Parser::of::<Renew>(words).key_and_owner()?;
        let permits = permits_to_write(ctx, name)?;
        let (key, view, now) = open_permit(ctx, name, permits, (id, 1), SemKey::plain_view)?;
        let lease = (options.lease, options.names_lease);
        let renewed = change_key(ctx, key, now, |locks, cx| {
            locks
                .sems
                .renew(&mut locks.shared, &view, id.bytes(), lease, cx)
        })?;
        ctx.reply_integer(renewed.into());
        Ok(())
    }
}

/// Replies the permits and the waiters of a semaphore, or nil when there is neither.
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"sem.info",
        flags: c"readonly",
        acl: c"read",
        key: Some(access::READ),
        arity: -2,
        summary: c"Tells how many permits a semaphore has, how many are free, and who waits",
        complexity: c"O(log(N)) with N permits held, and O(M) with M waiters listed",
        args: &[KEY, WAITERS],
        help: &["How many permits there are, how many are free, who waits."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let (name, options) = Parser::of::<Info>(words).key_only()?;
        let list = options.listed();
        let now = ctx.now();
        let permits = OwnedStr::new(&permits_of(name.bytes()));
        if !acl::may_read(ctx, permits.as_str(), true) {
            return Err(LockError::MayNotUsePermits);
        }
        let key = SemKey::open_read(ctx, name)?;
        let (state, over) = key.counted_view(now);
        let permits = match state {
            SemState::OtherType => return Err(LockError::WrongType),
            SemState::OtherSet => return Err(LockError::SiblingForeign),
            SemState::OtherString => return Err(LockError::NotCount),
            SemState::Absent => None,
            SemState::There(permits) => Some(permits),
        };
        let queue = Queue::of(key.id(), now, list);
        if permits.is_none() && queue.waiters == 0 {
            ctx.reply_nil();
            return Ok(());
        }
        ctx.reply_map(if list > 0 { 7 } else { 6 });
        reply_permits(ctx, (permits, over), now);
        queue.reply(ctx, list > 0);
        Ok(())
    }
}

fn semaphore<'k>(ctx: Ctx<'_>, name: Str<'k>) -> KeyRef<'k> {
    ctx.key_ref(name).of(Resource::Semaphore)
}

/// A permit whose lease has ended counts as free, even before it is returned to the free ones.
fn reply_permits(ctx: Ctx<'_>, (permits, over): (Option<Permits>, usize), now: Now) {
    let permits = permits.unwrap_or_default();
    let over = over as i64;
    let taken = permits.taken as i64;
    let next = permits.next_end_ms.filter(|end| *end < NO_END_MS);
    ctx.reply_bytes(b"permits");
    ctx.reply_integer(permits.free.saturating_add(taken));
    ctx.reply_bytes(b"free");
    ctx.reply_integer(permits.free.saturating_add(over));
    ctx.reply_bytes(b"held");
    ctx.reply_integer(taken - over);
    ctx.reply_bytes(b"next-end-ms");
    ctx.reply_maybe(next.map(|end| end - now.wall_ms));
}

/// The name of the key of the permits, which a command on this semaphore does not name itself.
///
/// # Errors
/// [`LockError::MayNotUsePermits`] if the caller's user may not write that key.
fn permits_to_write(ctx: Ctx<'_>, key: Str<'_>) -> Result<OwnedStr, LockError> {
    let permits = OwnedStr::new(&permits_of(key.bytes()));
    match acl::may_write(ctx, &[permits.as_str()]) {
        true => Ok(permits),
        false => Err(LockError::MayNotUsePermits),
    }
}

/// Opens a semaphore for a command on the permits of this id, of which it may ask for so many, and makes the view with
/// `read`. If the permit's connection has ended, it is released first.
///
/// # Errors
/// Those of opening.
fn open_permit<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    permits: OwnedStr,
    own: (Str<'_>, u8),
    read: impl FnOnce(&SemKey<'a>, Option<(Str<'_>, u8)>, Now) -> SemView<'a>,
) -> Result<(SemKey<'a>, SemView<'a>, Now), LockError> {
    end_first(ctx, Resource::Semaphore, name, own.0);
    let key = SemKey::open_with(ctx, name, permits)?;
    let now = ctx.now();
    let view = read(&key, Some(own), now);
    Ok((key, view, now))
}
