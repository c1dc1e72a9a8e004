//! Command filters: the server calls them for every command of every client, before it looks the command up.

use std::ptr::null_mut;

use redis_module::raw;

use crate::module::ffi::api::api;
use crate::module::ffi::api::fallible;
use crate::module::ffi::ctx::Ctx;

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
