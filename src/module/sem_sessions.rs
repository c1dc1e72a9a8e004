//! Permits that are bound to connections; [`crate::module::sessions`] has the other holds.

use crate::lock::{Bound, BoundRef, PermitChange, Resource, SemState};
use crate::module::apply::decide;
use crate::module::duty::Duty;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::name_of;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::sem_key::SemKey;
use crate::module::state::shell;

/// Performs the work that is due for one permit. False when the server refuses writes to its keys at the moment.
pub fn perform(ctx: Ctx<'_>, bound: &Bound, duty: Duty) -> bool {
    let name = name_of(&bound.key);
    let name = name.as_str();
    let now = ctx.now();
    let id = OwnedStr::new(&bound.owner);
    let Ok(key) = SemKey::open(ctx, name) else {
        return false;
    };
    let view = key.plain_view(Some(id.as_str()), now);
    let is_there = matches!(&view.state, SemState::There(there) if there.own_end_ms.is_some());
    // With the keys closed: the probe may delete one whose TTL ends.
    drop(key);
    if is_there && !ctx.probe_write(name) {
        return false;
    }
    carry_out(ctx, (name, id.as_str()), duty, Replication::of_event(ctx))
}

/// Releases the permit of a connection that has ended, before a command about this permit. True if it did: the caller
/// arms the timer again.
pub fn end_first(ctx: Ctx<'_>, name: Str<'_>, id: Str<'_>) -> bool {
    let what = BoundRef::permit(ctx.key_ref(name).of(Resource::Semaphore), id.bytes());
    let ended = shell::with(|shell| shell.locks.shared.sessions.ended(what));
    let is_due = ended.is_some() && ctx.may_write();
    if is_due {
        // The server has admitted the command, so it accepts a write to this key.
        carry_out(ctx, (name, id), Duty::Release, Replication::of_command(ctx));
    }
    is_due
}

fn carry_out(
    ctx: Ctx<'_>,
    (name, id): (Str<'_>, Str<'_>),
    duty: Duty,
    to: Replication<'_>,
) -> bool {
    let Ok(key) = SemKey::open(ctx, name) else {
        return false;
    };
    let now = ctx.now();
    let view = match duty {
        Duty::Release => key.hand_off_view(Some(id), now),
        Duty::Renew => key.plain_view(Some(id), now),
    };
    if key.may_be_anothers(&view, id, now) {
        // The semaphore of the bound permit was deleted and made again by another client.
        shell::with(|shell| {
            shell
                .locks
                .shared
                .sessions
                .lose(BoundRef::permit(view.key, id.bytes()))
        });
        return true;
    }
    let mut change = PermitChange::default();
    let ((), fx) = decide(now, |locks, cx| {
        let (sems, shared) = (&mut locks.sems, &mut locks.shared);
        change = match duty {
            Duty::Release => sems.end_session(shared, &view, id.bytes(), cx),
            Duty::Renew => sems.renew_session(shared, &view, id.bytes(), cx),
        }
    });
    let _ = key.apply(&change, &fx, to);
    true
}
