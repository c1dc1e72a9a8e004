//! Permits that are bound to connections: see `sessions`.

use crate::lock::{Bound, BoundRef, PermitChange, SemState};
use crate::module::alarm;
use crate::module::apply::decide;
use crate::module::ctx::Ctx;
use crate::module::events;
use crate::module::key::name_of;
use crate::module::replication::Replication;
use crate::module::sem_key::SemKey;
use crate::module::sessions::Duty;
use crate::module::shell;
use crate::module::strings::{OwnedStr, Str};

/// Does what is due with one permit. False when the server refuses writes to its keys just now.
pub fn attend(ctx: Ctx, bound: &Bound, duty: Duty) -> bool {
    let name = name_of(&bound.key);
    let name = name.as_str();
    ctx.select(bound.key.as_ref().db);
    let now = ctx.now();
    let id = OwnedStr::new(&bound.owner);
    let Ok(key) = SemKey::open(ctx, name) else {
        return false;
    };
    let view = key.plain_view(Some(id.as_str()), now);
    let is_there = matches!(&view.state, SemState::There(there) if there.own_end_ms.is_some());
    // Asked with the keys closed, as in the alarm.
    drop(key);
    if is_there && !ctx.probe_write(name) {
        return false;
    }
    carry_out(ctx, (name, id.as_str()), duty, Replication::of_event(ctx))
}

/// Somebody asks about a permit whose connection has gone and that is still to be released: first it is.
pub fn end_first(ctx: Ctx, name: Str<'_>, id: Str<'_>) {
    let what = BoundRef::permit(events::id(ctx, name), id.bytes());
    let ended = shell::with(|shell| shell.locks.sessions.ended(what));
    if ended.is_some() && ctx.may_write() {
        // The server has let the command through, so it would take a write to this key.
        carry_out(ctx, (name, id), Duty::Release, Replication::of_command(ctx));
        alarm::rearm(ctx);
    }
}

fn carry_out(ctx: Ctx, (name, id): (Str<'_>, Str<'_>), duty: Duty, to: Replication) -> bool {
    let Ok(key) = SemKey::open(ctx, name) else {
        return false;
    };
    let now = ctx.now();
    let view = match duty {
        Duty::Release => key.handing_view(Some(id), now),
        Duty::Renew => key.plain_view(Some(id), now),
    };
    if key.may_be_anothers(&view, id, now) {
        // The semaphore of the bound permit was deleted, and made again by another client.
        shell::with(|shell| shell.locks.drop_permit_binding(view.key, id.bytes()));
        return true;
    }
    let mut change = PermitChange::default();
    let ((), fx) = decide(|locks, fx| {
        change = match duty {
            Duty::Release => locks.end_permit_session(&view, id.bytes(), now, fx),
            Duty::Renew => locks.renew_permit_session(&view, id.bytes(), now),
        }
    });
    let _ = key.apply(&change, &fx, to);
    true
}
