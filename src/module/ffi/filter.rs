//! Command filters: the server calls them for every command of every client, before it looks the command up.

use std::ptr::null_mut;

use redis_module::raw;

use crate::module::ffi::api::api;
use crate::module::ffi::api::fallible;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};

/// A registered filter. The server removes it with the module.
pub struct Filter(*mut raw::RedisModuleCommandFilter);

impl Filter {
    /// Registers a filter that does not see the module's own calls; `None` if the server refuses.
    pub fn register(ctx: Ctx<'_>, callback: raw::RedisModuleCommandFilterFunc) -> Option<Filter> {
        let not_our_own = raw::REDISMODULE_CMDFILTER_NOSELF as i32;
        // SAFETY: the context is live and of this module; the filter has the type that the server expects.
        let filter = unsafe {
            fallible!(
                RedisModule_RegisterCommandFilter(ctx.as_ptr(), callback, not_our_own),
                null_mut()
            )
        };
        (!filter.is_null()).then_some(Filter(filter))
    }

    /// Unregisters it.
    pub fn unregister(self, ctx: Ctx<'_>) {
        // SAFETY: this module registered the filter and forgets it here. (The server refuses only filters of other
        // modules.)
        unsafe { api!(RedisModule_UnregisterCommandFilter)(ctx.as_ptr(), self.0) };
    }
}

/// The words of a command, before the server looks it up.
pub struct Words(*mut raw::RedisModuleCommandFilterCtx);

impl Words {
    /// # Safety
    /// `filter` is the context that the server passed to the callback now running, and the value is dropped before that
    /// callback returns.
    pub unsafe fn of(filter: *mut raw::RedisModuleCommandFilterCtx) -> Words {
        Words(filter)
    }

    /// Their number.
    pub fn count(&self) -> usize {
        // SAFETY: the context is live (see `of`).
        let count = unsafe { api!(RedisModule_CommandFilterArgsCount)(self.0) };
        usize::try_from(count).unwrap_or(0)
    }

    /// The word at this position.
    pub fn word(&self, at: i32) -> Option<Str<'_>> {
        // SAFETY: the context is live (see `of`). A word lives until it is replaced. Only `rename` replaces words, and
        // it consumes `self`, on which the returned borrow depends.
        unsafe {
            let word = api!(RedisModule_CommandFilterArgGet)(self.0, at);
            (!word.is_null()).then(|| Str::new(word))
        }
    }

    /// Replaces the name of the command.
    pub fn rename(self, name: OwnedStr) {
        // SAFETY: the context is live (see `of`). The server takes over the reference to the new word, and releases its
        // reference to the old one.
        unsafe { api!(RedisModule_CommandFilterArgReplace)(self.0, 0, name.into_raw()) };
    }
}
