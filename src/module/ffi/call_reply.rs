//! Calls of the server's own commands, and their replies.

use std::ffi::{c_int, CStr};
use std::io::Error;
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};

use redis_module::raw;
use smallvec::SmallVec;

use crate::module::ffi::api::api;
use crate::module::ffi::api::fallible;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{pointers, OwnedStr, Str};

/// How a command is called. Errors of the command are no replies, except where a case says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By the module, which may run every command.
    AsModule,
    /// By the module; replicated if it changes something.
    Replicated,
    /// As the calling client's user, with that user's permissions.
    AsUser,
    /// By the module, with errors as replies. Refused are commands that scripts must not run ("S") and writes ("W").
    Probe,
    /// A command that the calling client sent, as a script's `redis.call` runs it: as the client's user, in its
    /// protocol, replicated, with errors as replies, refused where a script must not run it ("S") and when memory is
    /// full. ("S" needs "E": without it Valkey 9.1 ends when it refuses the command.)
    CommandAsUser,
    /// The same for a caller without a user, which may run any command.
    CommandWithoutUser,
}

impl How {
    /// The modifiers of `RedisModule_Call`. None of them takes an argument, except the last: the array of words.
    fn modifiers(self) -> &'static CStr {
        match self {
            How::AsModule => c"v",
            How::Replicated => c"!v",
            How::AsUser => c"Cv",
            How::Probe => c"SWEv",
            How::CommandAsUser => c"C0!SMEv",
            How::CommandWithoutUser => c"0!SMEv",
        }
    }
}

/// The reply to a call; freed on drop.
pub struct Reply(NonNull<raw::RedisModuleCallReply>);

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: the reply is a whole one and ours, and is freed here only; its parts borrow from it.
        unsafe { api!(RedisModule_FreeCallReply)(self.0.as_ptr()) };
    }
}

impl Reply {
    /// Calls a command with these words after its name. `None`: the server refused the call, and `errno` has the
    /// reason.
    pub fn of(ctx: Ctx<'_>, command: &CStr, how: How, words: &[Str<'_>]) -> Option<Reply> {
        // SAFETY: the context is live; of the modifiers only "v" takes arguments: an array of live strings and its
        // length as size_t. The reply is ours.
        let reply = unsafe {
            fallible!(
                RedisModule_Call(
                    ctx.as_ptr(),
                    command.as_ptr(),
                    how.modifiers().as_ptr(),
                    pointers(words),
                    words.len(),
                ),
                null_mut()
            )
        };
        NonNull::new(reply).map(Reply)
    }

    /// The value of a setting of the server; `None` if it has no such setting, or does not tell. The call leaves traces
    /// (SLOWLOG, commandstats), and no function of all servers reads a setting without.
    pub fn of_setting(ctx: Ctx<'_>, name: &CStr) -> Option<Vec<u8>> {
        let words = [b"GET", name.to_bytes()].map(OwnedStr::new);
        let words = words.each_ref().map(OwnedStr::as_str);
        let reply = Reply::of(ctx, c"CONFIG", How::AsModule, &words)?;
        Some(reply.whole().element(1)?.bytes()?.to_vec())
    }

    /// Replies it to the calling client.
    pub fn forward(self, ctx: Ctx<'_>) {
        // SAFETY: context and reply are live; the server copies the reply.
        unsafe { api!(RedisModule_ReplyWithCallReply)(ctx.as_ptr(), self.0.as_ptr()) };
    }

    /// It as it goes to the client, in the protocol. Nothing is parsed.
    pub fn protocol(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the reply is live. Its bytes live as long as it does, and nothing changes them.
        unsafe {
            let data = api!(RedisModule_CallReplyProto)(self.0.as_ptr(), &mut len);
            match data.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(data.cast(), len),
            }
        }
    }

    /// The whole reply.
    pub fn whole(&self) -> Part<'_> {
        Part {
            raw: self.0,
            life: PhantomData,
        }
    }
}

/// The keys of a command, whose name is the first of these words; `None`: the server has no such command, or not with
/// so many arguments.
pub fn keys_of<'k>(ctx: Ctx<'_>, words: &[Str<'k>]) -> Option<SmallVec<[Str<'k>; 4]>> {
    let mut found = 0;
    // SAFETY: the context is live; the words are an array of live strings of this length, which is only read. (A
    // command has no more words than a c_int counts.)
    let positions = unsafe {
        api!(RedisModule_GetCommandKeys)(
            ctx.as_ptr(),
            pointers(words).cast_mut(),
            words.len() as c_int,
            &raw mut found,
        )
    };
    let Some(first) = NonNull::new(positions) else {
        // The error number is 0 for a command without keys.
        let has_none = Error::last_os_error().raw_os_error() == Some(0);
        return has_none.then(SmallVec::new);
    };
    let found = usize::try_from(found).unwrap_or(0);
    // SAFETY: the server has returned an array of so many numbers, which is ours to free and is read before.
    unsafe {
        let positions = std::slice::from_raw_parts(first.as_ptr(), found);
        let word = |at: &c_int| words.get(usize::try_from(*at).ok()?).copied();
        let keys = positions.iter().filter_map(word).collect();
        api!(RedisModule_Free)(first.as_ptr().cast());
        Some(keys)
    }
}

/// A reply or an element of one; it lives as long as the whole reply.
#[derive(Clone, Copy)]
pub struct Part<'r> {
    raw: NonNull<raw::RedisModuleCallReply>,
    life: PhantomData<&'r Reply>,
}

impl<'r> Part<'r> {
    fn kind(self) -> isize {
        // SAFETY: the reply is live (see `Part`).
        unsafe { api!(RedisModule_CallReplyType)(self.raw.as_ptr()) as isize }
    }

    /// The elements of an array; `None` for another type.
    pub fn elements(self) -> Option<impl Iterator<Item = Part<'r>>> {
        (self.kind() == raw::REDISMODULE_REPLY_ARRAY).then(|| {
            // SAFETY: the reply is live, and an array.
            let len = unsafe { api!(RedisModule_CallReplyLength)(self.raw.as_ptr()) };
            (0..len).filter_map(move |at| self.element(at))
        })
    }

    /// One element of an array; `None` as well for another type.
    pub fn element(self, at: usize) -> Option<Part<'r>> {
        if self.kind() != raw::REDISMODULE_REPLY_ARRAY {
            return None;
        }
        // SAFETY: the reply is live, and an array. The element is NULL at a place beyond the end; else it lives as long
        // as the array.
        let element = unsafe { api!(RedisModule_CallReplyArrayElement)(self.raw.as_ptr(), at) };
        NonNull::new(element).map(|raw| Part {
            raw,
            life: PhantomData,
        })
    }

    /// The number of an integer; `None` for another type.
    pub fn number(self) -> Option<i64> {
        // SAFETY: the reply is live, and an integer.
        (self.kind() == raw::REDISMODULE_REPLY_INTEGER)
            .then(|| unsafe { api!(RedisModule_CallReplyInteger)(self.raw.as_ptr()) })
    }

    /// The bytes of a string; `None` for another type.
    pub fn bytes(self) -> Option<&'r [u8]> {
        (self.kind() == raw::REDISMODULE_REPLY_STRING).then(|| self.text())?
    }

    /// The text of an error; `None` for another type.
    pub fn error(self) -> Option<&'r [u8]> {
        (self.kind() == raw::REDISMODULE_REPLY_ERROR).then(|| self.text())?
    }

    fn text(self) -> Option<&'r [u8]> {
        let mut len = 0;
        // SAFETY: the reply is live, and a string or an error. Its bytes live as long as it does, and nothing changes
        // them.
        unsafe {
            let data = api!(RedisModule_CallReplyStringPtr)(self.raw.as_ptr(), &mut len);
            (!data.is_null()).then(|| std::slice::from_raw_parts(data.cast(), len))
        }
    }
}
