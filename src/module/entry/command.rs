//! Commands as data: the description that the server gets of each, and the entry that all share.

use std::ffi::{c_int, CStr, CString};
use std::io::ErrorKind;
use std::ptr::{null, null_mut, NonNull};

use redis_module::raw;

use crate::lock::LockError;
use crate::module::entry::slots;
use crate::module::ffi::api::api;
use crate::module::ffi::api::zeroed;
use crate::module::ffi::ctx::{Callback, Ctx};
use crate::module::ffi::guard;
use crate::module::ffi::strings::Str;

/// A command of the module.
pub trait Command {
    /// Its description, for the server and its users.
    const SPEC: Spec;

    /// Serves one call: replies, or returns the error whose text is the reply.
    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError>;
}

/// One command of the module's table.
pub type Register = fn() -> Registration;

/// What the server gets of a command.
pub struct Registration {
    /// The description.
    pub spec: &'static Spec,
    entry: raw::RedisModuleCmdFunc,
}

/// The description of a command, for `COMMAND INFO`, `COMMAND DOCS` and the ACL.
pub struct Spec {
    /// Its name, in lower case.
    pub name: &'static CStr,
    /// Flags as `RedisModule_CreateCommand` takes them.
    pub flags: &'static CStr,
    /// ACL categories, for servers that let a module state them.
    pub acl: &'static CStr,
    /// How it uses its key, the first argument, or its keys ([`ArgKind::Keys`]); `None` if it has none.
    pub key: Option<u32>,
    /// Number of arguments, the name among them; negative for a minimum.
    pub arity: i32,
    /// One line.
    pub summary: &'static CStr,
    /// In big-O notation.
    pub complexity: &'static CStr,
    /// Its arguments: the table of its options for the parser, for errors and for `LOCK.HELP`.
    pub args: &'static [Arg],
    /// What `LOCK.HELP` says below its syntax; empty if it does not have the command.
    pub help: &'static [&'static str],
}

impl Spec {
    /// The position of `numkeys`, for a command with [`ArgKind::Keys`].
    const fn numkeys_at(&self) -> Option<usize> {
        match self.args {
            [_, Arg {
                kind: ArgKind::Keys,
                ..
            }, ..] => Some(1),
            [_, _, Arg {
                kind: ArgKind::Keys,
                ..
            }, ..] => Some(2),
            _ => None,
        }
    }
}

/// One argument of a command.
pub struct Arg {
    /// Its name in the documentation.
    pub name: &'static CStr,
    /// Its kind.
    pub kind: ArgKind,
    /// The word before the value; for a bare word, the whole argument.
    pub token: Option<&'static CStr>,
    /// Whether it may be left out.
    pub optional: bool,
}

/// Kinds of argument.
pub enum ArgKind {
    /// The key of the command.
    Key,
    /// `numkeys key [key ...]`, at the beginning or after one other argument.
    Keys,
    /// Any bytes.
    String,
    /// Any bytes, once or several times.
    Strings,
    /// A decimal integer.
    Integer,
    /// A bare word.
    Word,
    /// One of several.
    OneOf(&'static [Arg]),
    /// Several together.
    Block(&'static [Arg]),
}

/// Key flags for [`Spec::key`], as the server names them.
pub mod access {
    use redis_module::raw;

    /// Read only.
    pub const READ: u32 = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
    /// Reads and changes the value.
    pub const UPDATE: u32 = raw::REDISMODULE_CMD_KEY_RW
        | raw::REDISMODULE_CMD_KEY_ACCESS
        | raw::REDISMODULE_CMD_KEY_UPDATE;
    /// Reads and may delete the value.
    pub const DELETE: u32 = raw::REDISMODULE_CMD_KEY_RW
        | raw::REDISMODULE_CMD_KEY_ACCESS
        | raw::REDISMODULE_CMD_KEY_DELETE;
}

const ACL_CATEGORY: &CStr = c"lock";

/// Adds the module's own ACL category; `None` if the server cannot.
pub fn add_category(ctx: Ctx<'_>) -> Option<&'static CStr> {
    // SAFETY: the context is OnLoad's; the server copies the name.
    unsafe {
        let added = raw::RedisModule_AddACLCategory?(ctx.as_ptr(), ACL_CATEGORY.as_ptr());
        // A `MODULE LOADEX` that has failed leaves the category: at the next load the error is EBUSY.
        let is_there = added == raw::REDISMODULE_OK as c_int
            || std::io::Error::last_os_error().kind() == ErrorKind::ResourceBusy;
        is_there.then_some(ACL_CATEGORY)
    }
}

/// The registration of a command.
pub fn register<C: Command>() -> Registration {
    Registration {
        spec: const { &C::SPEC },
        entry: Some(entry::<C>),
    }
}

impl Registration {
    /// Registers the command with its description, in the module's own ACL category if the server has it.
    pub fn perform(&self, ctx: Ctx<'_>, own_category: Option<&CStr>) -> Option<()> {
        let spec = self.spec;
        let position = i32::from(spec.key.is_some() && spec.numkeys_at().is_none());
        // SAFETY: the context is OnLoad's, the only one in which commands are created; strings are constants.
        let command = unsafe {
            let status = api!(RedisModule_CreateCommand)(
                ctx.as_ptr(),
                spec.name.as_ptr(),
                self.entry,
                spec.flags.as_ptr(),
                position,
                position,
                position,
            );
            (status == raw::REDISMODULE_OK as c_int).then_some(())?;
            api!(RedisModule_GetCommand)(ctx.as_ptr(), spec.name.as_ptr())
        };
        let command = Registered(NonNull::new(command)?);
        command.describe(spec)?;
        command.categorize(spec, own_category)
    }
}

/// A registered command of this module.
struct Registered(NonNull<raw::RedisModuleCommand>);

/// The first version of the module with these commands; a later command needs its own.
pub const SINCE: &CStr = c"0.1.0";

impl Registered {
    fn describe(&self, spec: &Spec) -> Option<()> {
        let mut lists = Vec::new();
        let mut keys: Vec<raw::RedisModuleCommandKeySpec> = Vec::new();
        if let Some(access) = spec.key {
            keys.push(key_spec(spec, access));
            keys.extend(spec.numkeys_at().map(|at| routing_spec(at, access)));
        }
        keys.push(zeroed());
        let mut version = raw::RedisModuleCommandInfoVersion {
            version: 1,
            sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
            sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
            sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
        };
        let info = raw::RedisModuleCommandInfo {
            version: &raw mut version,
            summary: spec.summary.as_ptr(),
            complexity: spec.complexity.as_ptr(),
            since: SINCE.as_ptr(),
            history: null_mut(),
            tips: null(),
            arity: spec.arity,
            key_specs: keys.as_mut_ptr(),
            args: arg_list(spec.args, &mut lists),
        };
        // SAFETY: the command is live. Both arrays end with an all-zero element and outlive the call; the server copies
        // all.
        let status = unsafe { api!(RedisModule_SetCommandInfo)(self.0.as_ptr(), &info) };
        (status == raw::REDISMODULE_OK as c_int).then_some(())
    }

    fn categorize(&self, spec: &Spec, own_category: Option<&CStr>) -> Option<()> {
        // SAFETY: a pointer that is written once, at load.
        let Some(set) = (unsafe { raw::RedisModule_SetCommandACLCategories }) else {
            return Some(());
        };
        let mut categories = spec.acl.to_bytes().to_vec();
        if let Some(own) = own_category {
            categories.extend(b" ");
            categories.extend(own.to_bytes());
        }
        let categories = CString::new(categories).ok()?;
        // SAFETY: the command is live, of this module, and registered in this `OnLoad`; the text is only read.
        let status = unsafe { set(self.0.as_ptr(), categories.as_ptr()) };
        (status == raw::REDISMODULE_OK as c_int).then_some(())
    }
}

fn key_spec(command: &Spec, flags: u32) -> raw::RedisModuleCommandKeySpec {
    let mut spec: raw::RedisModuleCommandKeySpec = zeroed();
    spec.flags = flags.into();
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = 1;
    if let Some(at) = command.numkeys_at() {
        spec.bs.index.pos = at as c_int;
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
        spec.fk.keynum.firstkey = 1;
        spec.fk.keynum.keystep = 1;
    } else {
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        spec.fk.range.keystep = 1;
    }
    spec
}

/// In a cluster the server looks for the slot of a command of a module in its first range of keys alone, here the first
/// key; [`slots`] looks at the others. With the flag `getkeys-api` it would ask the command instead, but Valkey does
/// so from its I/O threads, which corrupts the state of the server, and would run this module on two threads.
fn routing_spec(numkeys_at: usize, access: u32) -> raw::RedisModuleCommandKeySpec {
    let mut spec: raw::RedisModuleCommandKeySpec = zeroed();
    // Not one more key, for permissions and for clients that ask for the keys.
    spec.flags = (access | raw::REDISMODULE_CMD_KEY_NOT_KEY).into();
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = numkeys_at as c_int + 1;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range.keystep = 1;
    spec
}

/// The C form of a list of arguments; `lists` owns every list.
fn arg_list(
    args: &'static [Arg],
    lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> *mut raw::RedisModuleCommandArg {
    if args.is_empty() {
        return null_mut();
    }
    let mut list: Vec<_> = args.iter().map(|arg| c_arg(arg, lists)).collect();
    list.push(zeroed());
    let first = list.as_mut_ptr();
    lists.push(list);
    first
}

fn c_arg(
    arg: &'static Arg,
    lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> raw::RedisModuleCommandArg {
    let mut c: raw::RedisModuleCommandArg = zeroed();
    c.name = arg.name.as_ptr();
    c.token = arg.token.map_or(null(), CStr::as_ptr);
    c.key_spec_index = -1;
    if arg.optional {
        c.flags = raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int;
    }
    c.type_ = match arg.kind {
        ArgKind::Key => {
            c.key_spec_index = 0;
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY
        }
        ArgKind::Keys => {
            c.key_spec_index = 0;
            c.flags = raw::REDISMODULE_CMD_ARG_MULTIPLE as c_int;
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY
        }
        ArgKind::Strings => {
            c.flags = raw::REDISMODULE_CMD_ARG_MULTIPLE as c_int;
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING
        }
        ArgKind::String => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        ArgKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ArgKind::Word => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ArgKind::OneOf(parts) => {
            c.subargs = arg_list(parts, lists);
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF
        }
        ArgKind::Block(parts) => {
            c.subargs = arg_list(parts, lists);
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK
        }
    };
    c
}

unsafe extern "C" fn entry<C: Command>(
    raw_ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(raw_ctx) };
    let ctx = callback.ctx();
    let done = guard::entry("command", || {
        // SAFETY: the server's arguments for this callback.
        let args = unsafe { callback.words(argv, argc) };
        if let Some(numkeys_at) = const { C::SPEC.numkeys_at() } {
            if let Err(error) = slots::check_keys(ctx, args, numkeys_at) {
                return ctx.reply_error(&error);
            }
        }
        if let Err(error) = C::run(ctx, args) {
            ctx.reply_error(&error);
        }
    });
    if done.is_none() {
        ctx.reply_error(&LockError::Internal);
    }
    raw::REDISMODULE_OK as c_int
}
