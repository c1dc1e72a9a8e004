//! The permission to run a script natively: the user must be allowed the command that was sent, and every command in
//! the script.
//!
//! The server has checked `lock.redisson` and its keys. Its ACL does not know that the words replace an `EVAL`, in
//! which other commands are checked one by one.

use smallvec::SmallVec;

use crate::module::acl::User;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::main_thread::MainThread;
use crate::module::state::constants::constants;
use crate::redisson::scripts::{Inner, KeyOf};
use crate::redisson::server::{Call, OwnedStr, Str};

/// Names of commands, created once.
pub struct Names {
    eval: OwnedStr,
    evalsha: OwnedStr,
    inner: [(Inner, OwnedStr); Inner::NAMED.len()],
}

impl Names {
    fn make() -> Names {
        Names {
            eval: OwnedStr::new(b"eval"),
            evalsha: OwnedStr::new(b"evalsha"),
            inner: Inner::NAMED.map(|(inner, name)| (inner, OwnedStr::new(name))),
        }
    }

    fn of(&self, inner: Inner) -> Option<Str<'_>> {
        let mut all = self.inner.iter();
        all.find(|(other, _)| *other == inner)
            .map(|(_, name)| name.as_str())
    }
}

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static NAMES: MainThread<Names> = unsafe { MainThread::empty() };

/// Called when the module is loaded.
pub fn start() {
    NAMES.set(Some(Names::make()));
}

/// Called when the module is unloaded.
pub fn stop() {
    NAMES.set(None);
}

/// Whether the user is allowed the command that was sent and all commands of the script. If not, the server runs the
/// script itself and names in its error what is forbidden. It knows more than a module can ask: Valkey 9.1 has users
/// limited to some databases, and answers a module that they may run nothing.
pub fn covers(ctx: Ctx<'_>, call: &Call<'_>) -> bool {
    if !ctx.is_connection() {
        // A call by another module; the server determines whether it has a user.
        return false;
    }
    let names = NAMES.borrow();
    User::of_caller(ctx)
        .is_some_and(|user| may_send(&user, call, &names) && may_do_all(&user, call, &names))
}

/// Whether the user is allowed these commands, too, on keys that the call does not name.
pub fn may_also(ctx: Ctx<'_>, commands: &[(Inner, Str<'_>)]) -> bool {
    let names = NAMES.borrow();
    let mut commands = commands.iter();
    User::of_caller(ctx)
        .is_some_and(|user| commands.all(|(inner, key)| may_do(&user, *inner, *key, &names)))
}

fn may_send(user: &User<'_>, call: &Call<'_>, names: &Names) -> bool {
    let name = match call.is_by_sha1() {
        true => names.evalsha.as_str(),
        false => names.eval.as_str(),
    };
    let mut sent: SmallVec<[Str<'_>; 16]> = SmallVec::from_slice(call.words);
    if let Some(first) = sent.first_mut() {
        *first = name;
    }
    user.may_run(&sent)
}

fn may_do_all(user: &User<'_>, call: &Call<'_>, names: &Names) -> bool {
    call.script.calls.iter().all(|(inner, keys)| {
        let inner = match *inner {
            Inner::Said(at) => call.publisher(at),
            inner => Some(inner),
        };
        let keys = match *keys {
            KeyOf::At(at) => call.keys.get(at..=at),
            KeyOf::Each => Some(call.keys),
        };
        let (Some(inner), Some(keys)) = (inner, keys) else {
            return false;
        };
        keys.iter().all(|key| may_do(user, inner, *key, names))
            || fault::is_on("script-exceeds-its-user")
    })
}

fn may_do(user: &User<'_>, inner: Inner, key: Str<'_>, names: &Names) -> bool {
    let Some(name) = names.of(inner) else {
        return false;
    };
    // The words after the key do not matter for the permission.
    let constants = constants();
    let any = constants.one();
    let words = [name, key, any, any];
    words
        .get(..2 + inner.words_behind())
        .is_some_and(|command| user.may_run(command))
}
