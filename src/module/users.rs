//! The users of requests that wait: who has sent a request, whether that user is still permitted what it waits for,
//! whether several users of the server may wait, and which have been deleted. The server sends no event of such
//! changes.

use std::ffi::CStr;

use crate::lock::{permits_of, Asked, BoundRef, KeyRef, Mode, Resource, UserId, Wait};
use crate::module::acl::{self, Refused, User};
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::horizon;
use crate::module::keyspace::siblings::Siblings;
use crate::module::state::constants::constants;
use crate::module::state::shell;

/// The calling user, for a request that may wait or asks for a session.
pub fn of_caller(ctx: Ctx<'_>, wait: Wait, session: bool) -> UserId {
    if (wait == Wait::No && !session) || !acl::has_user(ctx) {
        return UserId::UNKNOWN;
    }
    learn_several(ctx);
    number_of_caller(ctx)
}

/// The calling user, for a number that it gives up.
pub fn who_gives_up(ctx: Ctx<'_>) -> UserId {
    match acl::has_user(ctx) {
        true => number_of_caller(ctx),
        false => UserId::UNKNOWN,
    }
}

fn number_of_caller(ctx: Ctx<'_>) -> UserId {
    let Some(name) = acl::name_of_caller(ctx) else {
        return UserId::UNKNOWN;
    };
    let known = shell::with(|shell| shell.users.number_of(name.as_str().bytes()));
    known.unwrap_or_else(|| new_user(ctx, name.as_str().bytes()))
}

/// The number of a user whose requests have not waited before. A user that another module has made is none of the
/// server's: its permissions cannot be asked for.
#[cold]
fn new_user(ctx: Ctx<'_>, name: &[u8]) -> UserId {
    match User::named(ctx, OwnedStr::new(name)) {
        Some(_) => shell::with(|shell| shell.users.add(name)),
        None => UserId::UNKNOWN,
    }
}

/// Asks whether several users of the server may wait, once a second at most: the answer is as long as their list.
fn learn_several(ctx: Ctx<'_>) {
    const VALID_MS: u64 = 1_000;
    let now_ms = ctx.now().mono_ms;
    let known = shell::with(|shell| shell.users.several);
    if known.is_none_or(|(_, at_ms)| now_ms >= at_ms + VALID_MS) {
        let several = has_several(ctx);
        shell::with(|shell| {
            shell.users.several = Some((several, now_ms));
            shell.push_settings();
        });
    }
}

/// The commands that wait, each with words that it takes.
const WAITING: [&[&[u8]]; 4] = [
    &[b"lock.acquire", b"k", b"o"],
    &[b"lock.macquire", b"1", b"k", b"o"],
    &[b"sem.acquire", b"k", b"o"],
    &[b"latch.wait", b"k"],
];

/// Whether the server has more than one user that may wait, not counting a `default` that is off. True as well where
/// `ACL` has another name, or has more users than are asked about.
fn has_several(ctx: Ctx<'_>) -> bool {
    const ASKED: usize = 100;
    let Some(users) = ask(ctx, &[b"USERS"]) else {
        return true;
    };
    let names = users.whole().elements().into_iter().flatten();
    if users.whole().element(1).is_none() {
        // Whether one may wait takes an answer as long as the server's list of commands.
        return false;
    }
    let mut waiting = 0;
    for (asked, user) in names.enumerate() {
        let may_wait = user.bytes().is_none_or(|name| may_wait(ctx, name));
        waiting += usize::from(may_wait);
        if waiting > 1 || asked == ASKED {
            return true;
        }
    }
    false
}

/// Whether a user may run a command that waits, on whatever keys.
fn may_wait(ctx: Ctx<'_>, name: &[u8]) -> bool {
    if name == b"default" && is_off(ctx, name) {
        return false;
    }
    WAITING.iter().any(|command| {
        let words = [&[&b"DRYRUN"[..], name], *command].concat();
        let reply = ask(ctx, &words);
        let refusal = reply.as_ref().and_then(|reply| reply.whole().bytes());
        !refusal.is_some_and(refuses_command)
    })
}

/// Whether this answer to `ACL DRYRUN` refuses the command itself, and not its keys. (A user's name has no space.)
fn refuses_command(answer: &[u8]) -> bool {
    const REFUSED: &[u8] = b" permissions to run the ";
    answer.windows(REFUSED.len()).any(|words| words == REFUSED)
}

fn is_off(ctx: Ctx<'_>, name: &[u8]) -> bool {
    let user = ask(ctx, &[b"GETUSER", name]);
    let flags = user.as_ref().and_then(|user| user.whole().element(1));
    let mut flags = flags
        .into_iter()
        .filter_map(|flags| flags.elements())
        .flatten();
    flags.any(|flag| flag.bytes() == Some(b"off"))
}

fn ask(ctx: Ctx<'_>, words: &[&[u8]]) -> Option<Reply> {
    let words: Vec<OwnedStr> = words.iter().map(|word| OwnedStr::new(word)).collect();
    let words: Vec<Str<'_>> = words.iter().map(OwnedStr::as_str).collect();
    Reply::of(ctx, c"ACL", How::AsModule, &words)
}

/// Looks for some of the users: the tickets of one that has been deleted are to end.
pub fn look_for_deleted(ctx: Ctx<'_>) {
    const AT_ONCE: usize = 100;
    for name in shell::with(|shell| shell.users.next_names(AT_ONCE)) {
        if User::named(ctx, OwnedStr::new(&name)).is_none() {
            shell::with(|shell| {
                if let Some(user) = shell.users.forget(&name) {
                    shell.locks.shared.waiters.user_is_deleted(user);
                }
            });
        }
    }
}

/// Whether the user of this waiter is still permitted to take the key, and to write Redisson's counter if there is one.
/// If not, the server's log of refusals says so.
pub fn may_take(ctx: Ctx<'_>, asked: &Asked, has_counter: bool) -> bool {
    let key = asked.key.as_ref();
    let at = (key, asked.mode, asked.owner.as_deref());
    is_permitted(ctx, asked.user, at, |user| {
        let name = || horizon::counter_name(key.name);
        let counter = has_counter.then(name).flatten();
        let channel = asked.channel.as_ref();
        let channel = channel.map(|channel| OwnedStr::new(channel.name()));
        counter.is_none_or(|counter| user.may_write(&[counter.as_str()]))
            && channel.is_none_or(|channel| user.may_publish(channel.as_str()))
    })
}

/// Whether the user that has bound this hold is still permitted to take its key.
pub fn may_renew(ctx: Ctx<'_>, bound: BoundRef<'_>) -> bool {
    let Some(user) = shell::with(|shell| shell.locks.shared.sessions.user_of(bound)) else {
        return true;
    };
    let at = (bound.key, bound.mode, Some(bound.owner));
    is_permitted(ctx, user, at, |_| true)
}

/// Whether the user may run the command that takes this key, and write the keys beside it, and whatever else is asked
/// for. The owner is that of READ and WRITE.
fn is_permitted(
    ctx: Ctx<'_>,
    user: UserId,
    (key, mode, owner): (KeyRef<'_>, Mode, Option<&[u8]>),
    may_more: impl FnOnce(&User<'_>) -> bool,
) -> bool {
    if user == UserId::UNKNOWN || fault::is_on("revoked-user-is-granted") {
        return true;
    }
    let name = shell::with(|shell| shell.users.name_of(user));
    // A deleted user is permitted nothing.
    let Some(user) = name.and_then(|name| User::named(ctx, OwnedStr::new(&name))) else {
        return false;
    };
    if !may_run(&user, key) {
        return false;
    }
    let may_write_beside = match (key.resource, mode, owner) {
        (Resource::Semaphore, _, _) => {
            let permits = OwnedStr::new(&permits_of(key.name));
            user.may_write(&[permits.as_str()])
        }
        (Resource::Lock, Mode::Read | Mode::Write, Some(owner)) => {
            let siblings = Siblings::default();
            let timeout = siblings.own(key.name, owner).first();
            user.may_write(&[timeout, siblings.token(key.name)])
        }
        _ => true,
    };
    may_write_beside && may_more(&user)
}

/// Whether the user may run the command that takes this key.
fn may_run(user: &User<'_>, key: KeyRef<'_>) -> bool {
    let name = OwnedStr::new(key.name);
    // For the owner any word will do.
    let (word, owner) = (name.as_str(), name.as_str());
    let may_run = |command: &CStr| {
        let command = OwnedStr::new(command.to_bytes());
        user.may_run_here(&[command.as_str(), word, owner])
    };
    let (command, may) = match key.resource {
        // It is not known which of the two commands for locks was sent.
        Resource::Lock => (c"lock.acquire", {
            let constants = constants();
            user.may_run_here(&[constants.acquire.as_str(), word, owner]) || {
                let many = OwnedStr::new(b"lock.macquire");
                user.may_run_here(&[many.as_str(), constants.one.as_str(), word, owner])
            }
        }),
        Resource::Semaphore => (c"sem.acquire", may_run(c"sem.acquire")),
        Resource::Latch => (c"latch.wait", may_run(c"latch.wait")),
    };
    // Where the key is refused, the check of the key says so.
    if !may && user.may_write(&[word]) {
        user.log(Refused::Command(command));
    }
    may
}
