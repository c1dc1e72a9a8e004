//! The users of requests that wait: who has sent a request, whether the server has several users, and which have been
//! deleted. The server sends no event of a change of its users.

use crate::lock::{UserId, Wait};
use crate::module::acl;
use crate::module::ffi::call_reply::Reply;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::state::shell;

/// The user of the calling connection, for a request that may wait.
pub fn of_caller(ctx: Ctx<'_>, wait: Wait) -> UserId {
    if wait == Wait::No {
        return UserId::UNKNOWN;
    }
    learn_several(ctx);
    let name = ctx.has_connection().then(|| acl::name_of_caller(ctx));
    let number = |name: OwnedStr| shell::with(|shell| shell.users.number_of(name.as_str().bytes()));
    name.flatten().map_or(UserId::UNKNOWN, number)
}

/// Asks whether the server has several users, once a second at most: the answer is as long as their list.
fn learn_several(ctx: Ctx<'_>) {
    const VALID_MS: u64 = 1_000;
    let now_ms = ctx.now().mono_ms;
    let known = shell::with(|shell| shell.users.several);
    if known.is_none_or(|(_, at_ms)| now_ms >= at_ms + VALID_MS) {
        let several = has_several(ctx);
        shell::with(|shell| shell.users.several = Some((several, now_ms)));
    }
}

/// Whether the server has more than one user, not counting a `default` that is off. True as well where `ACL` has
/// another name.
fn has_several(ctx: Ctx<'_>) -> bool {
    let Some(users) = ask(ctx, &[b"USERS"]) else {
        return true;
    };
    let first_two = [0, 1].map(|at| users.whole().element(at).is_some());
    match (first_two, users.whole().element(2)) {
        (_, Some(_)) => true,
        ([true, true], None) => {
            let default = ask(ctx, &[b"GETUSER", b"default"]);
            let flags = default.as_ref().and_then(|user| user.whole().element(1));
            let mut flags = flags
                .into_iter()
                .filter_map(|flags| flags.elements())
                .flatten();
            !flags.any(|flag| flag.bytes() == Some(b"off"))
        }
        _ => false,
    }
}

fn ask(ctx: Ctx<'_>, words: &[&[u8]]) -> Option<Reply> {
    let words: Vec<OwnedStr> = words.iter().map(|word| OwnedStr::new(word)).collect();
    let words: Vec<Str<'_>> = words.iter().map(OwnedStr::as_str).collect();
    Reply::of(ctx, c"ACL", c"v", &words)
}

/// Looks for some of the users: the tickets of one that has been deleted are to end.
pub fn look_for_deleted() {
    const AT_ONCE: usize = 100;
    for name in shell::with(|shell| shell.users.next_names(AT_ONCE)) {
        if !acl::exists(OwnedStr::new(&name).as_str()) {
            shell::with(|shell| {
                if let Some(user) = shell.users.forget(&name) {
                    shell.locks.user_is_deleted(user);
                }
            });
        }
    }
}
