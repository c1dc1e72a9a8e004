//! `lock.redisson script numkeys key [key ...] arg [arg ...]`
//!
//! An internal command: with `lock.redisson-scripts yes` the module's command filter rewrites `EVAL` and `EVALSHA` of
//! the scripts that it knows to it. Its words are parsed with the scripts, in `redisson::server`.

use crate::commands::arg_specs::{required, KEYS, NUMKEYS};
use crate::commands::error::CommandError;
use crate::module::entry::command::{access, ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::redisson::server::{run, Call};

/// Runs a script of Redisson's.
pub struct Redisson;

impl Command for Redisson {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.redisson",
        flags: c"write deny-script",
        acl: c"write scripting",
        // As for the keys of EVAL.
        key: Some(access::UPDATE),
        arity: -5,
        summary:
            c"An internal command that runs a lock script of Redisson's sent by EVAL or EVALSHA",
        complexity: c"O(N) in the number of keys",
        args: &[
            required(c"script", ArgKind::String),
            NUMKEYS,
            KEYS,
            required(c"arg", ArgKind::Strings),
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        let call = Call::of(words).ok_or(CommandError::UnknownScript)?;
        Ok(run(ctx, &call)?)
    }
}
