//! The command filter: it renames an `EVAL` or `EVALSHA` of a known script, and changes nothing else.
//!
//! The server calls it for every command of every client, before it looks the command up. Nearly all commands leave it
//! at the first comparison. While the setting is off no filter is registered.

use redis_module::raw;

use crate::module::ffi::api::api;
use crate::module::ffi::checked::fallible;
use crate::module::ffi::ctx::{server_version, Ctx};
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::{guard, log};
use crate::module::state::settings;
use crate::redisson::scripts::{recognise_text, Script, SCRIPTS};
use crate::redisson::server::{find, OwnedStr, Str};

/// The minimum number of words of a call: `EVAL script 1 key arg arg`, or two keys and one argument.
const FEWEST_WORDS: usize = 6;

/// The state of the filter between calls.
#[derive(Default)]
pub struct State {
    /// The registered filter.
    handle: Option<*mut raw::RedisModuleCommandFilter>,
    /// Whether it has renamed any command since the module was loaded. This counts only while the filter is registered;
    /// after a new registration it counts again, since a transaction that began before may still be open.
    has_renamed: bool,
    /// Whether fields of a hash may have a TTL of their own on this server.
    fields_may_end: bool,
    /// The texts seen so far, by index in the table. A byte-for-byte comparison takes less time than a SHA1.
    texts: Vec<(usize, Box<[u8]>)>,
}

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static STATE: MainThread<State> = unsafe { MainThread::empty() };

/// Called when the module is loaded.
pub fn start() {
    STATE.set(Some(State::default()));
}

/// Called when the module is unloaded.
pub fn stop() {
    STATE.set(None);
}

/// Registers or unregisters the filter, according to the setting.
pub fn follow_setting(ctx: Ctx<'_>) {
    let wanted = settings::redisson_scripts();
    let handle = STATE.with(|state| state.handle.take());
    let handle = match (wanted, handle) {
        (true, None) => {
            let not_our_own = raw::REDISMODULE_CMDFILTER_NOSELF as i32;
            // SAFETY: the context is live and of this module; the filter has the type that the server expects.
            let filter = unsafe {
                fallible!(
                    RedisModule_RegisterCommandFilter(ctx.as_ptr(), Some(on_command), not_our_own),
                    std::ptr::null_mut()
                )
            };
            if filter.is_null() {
                log::warning("the server takes no command filter: Redisson's scripts stay its own");
            }
            (!filter.is_null()).then_some(filter)
        }
        (false, Some(filter)) => {
            // SAFETY: this module registered the filter and forgets it here. (The server refuses only filters of other
            // modules.)
            unsafe { api!(RedisModule_UnregisterCommandFilter)(ctx.as_ptr(), filter) };
            None
        }
        (_, handle) => handle,
    };
    let fields_may_end = handle.is_some() && have_fields_ttls(ctx);
    STATE.with(|state| {
        state.handle = handle;
        state.fields_may_end = fields_may_end;
    });
}

/// Whether the server has HPEXPIRE.
fn have_fields_ttls(ctx: Ctx<'_>) -> bool {
    const REDIS_SINCE: i32 = 0x07_04_00;
    const VALKEY_SINCE: i32 = 0x09_00_00;
    let version = server_version();
    version >= REDIS_SINCE && (version >= VALKEY_SINCE || !ctx.is_valkey())
}

/// Whether fields of a hash may have a TTL of their own on this server.
pub fn fields_may_end() -> bool {
    STATE.with(|state| state.fields_may_end)
}

/// Whether the filter is registered and commands that it has renamed may still be pending.
pub fn has_renamed() -> bool {
    STATE.with(|state| state.handle.is_some() && state.has_renamed)
}

unsafe extern "C" fn on_command(filter: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server's filter context for this callback; the local value ends with it.
    let words = unsafe { Words::of(filter) };
    // The code up to here cannot panic.
    if words.count() < FEWEST_WORDS || !words.begin_with_eval() {
        return;
    }
    guard::entry("filter", || {
        if words.are_a_known_call() {
            words.rename();
        }
    });
}

/// The words of a command, before the server looks it up.
struct Words(*mut raw::RedisModuleCommandFilterCtx);

impl Words {
    /// # Safety
    /// `filter` is the context that the server passed to the callback now running, and the value is dropped before that
    /// callback returns.
    unsafe fn of(filter: *mut raw::RedisModuleCommandFilterCtx) -> Words {
        Words(filter)
    }

    fn count(&self) -> usize {
        // SAFETY: the context is live (see `of`).
        let count = unsafe { api!(RedisModule_CommandFilterArgsCount)(self.0) };
        usize::try_from(count).unwrap_or(0)
    }

    fn word(&self, at: i32) -> Option<Str<'_>> {
        // SAFETY: the context is live (see `of`). A word lives until it is replaced. Only `rename` replaces words, and
        // it consumes `self`, on which the returned borrow depends.
        unsafe {
            let word = api!(RedisModule_CommandFilterArgGet)(self.0, at);
            (!word.is_null()).then(|| Str::new(word))
        }
    }

    /// Whether the command is `EVAL` or `EVALSHA`.
    fn begin_with_eval(&self) -> bool {
        let Some(name) = self.word(0).map(Str::bytes) else {
            return false;
        };
        matches!(name.len(), 4 | 7)
            && matches!(name.first(), Some(b'E' | b'e'))
            && (name.eq_ignore_ascii_case(b"EVAL") || name.eq_ignore_ascii_case(b"EVALSHA"))
    }

    /// Whether an `EVAL` or `EVALSHA` calls a known script in the form that Redisson sends.
    fn are_a_known_call(&self) -> bool {
        let (Some(name), Some(script), Some(numkeys)) = (self.word(0), self.word(1), self.word(2))
        else {
            return false;
        };
        let is_by_sha1 = name.bytes().len() > 4;
        (script.bytes().len() == crate::redisson::server::SHA1_LEN) == is_by_sha1
            && find(script).is_some_and(|script| {
                script.is_called_with(numkeys.bytes(), self.count().saturating_sub(3))
            })
    }

    fn rename(self) {
        STATE.with(|state| state.has_renamed = true);
        let name = OwnedStr::new(b"lock.redisson");
        // SAFETY: the context is live (see `of`). The server takes over the reference to the new word, and releases its
        // reference to the old one.
        unsafe { api!(RedisModule_CommandFilterArgReplace)(self.0, 0, name.into_raw()) };
    }
}

/// The script of this text.
pub fn find_text(text: &[u8]) -> Option<&'static Script> {
    let seen = STATE.with(|state| {
        let mut texts = state.texts.iter();
        texts.find(|(_, seen)| **seen == *text).map(|(at, _)| *at)
    });
    if let Some(at) = seen {
        return SCRIPTS.get(at);
    }
    let (at, script) = recognise_text(text)?;
    STATE.with(|state| state.texts.push((at, text.into())));
    Some(script)
}
