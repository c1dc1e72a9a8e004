//! `lock.redisson script numkeys key [key ...] arg [arg ...]`
//!
//! Nobody types this. With `lock.redisson-scripts yes` the module's command filter turns `EVAL` and `EVALSHA`
//! of the scripts that it knows into it.

use crate::commands::args::{KEYS, NUMKEYS};
use crate::lock::LockError;
use crate::module::entry::command::{access, Arg, ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::redisson::server::{run, Call};

/// A script of Redisson's.
pub struct Redisson;

impl Command for Redisson {
    const SPEC: Spec = Spec {
        name: c"lock.redisson",
        flags: c"write deny-script getkeys-api",
        acl: c"write scripting",
        // What EVAL says of its keys.
        key: Some(access::UPDATE),
        arity: -5,
        summary:
            c"An internal command that runs a lock script of Redisson's sent by EVAL or EVALSHA",
        complexity: c"O(N) in the number of keys",
        args: &[
            Arg {
                name: c"script",
                kind: ArgKind::String,
                token: None,
                optional: false,
            },
            NUMKEYS,
            KEYS,
            Arg {
                name: c"arg",
                kind: ArgKind::Strings,
                token: None,
                optional: false,
            },
        ],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        run(ctx, &Call::of(words).ok_or(LockError::UnknownScript)?)
    }
}
