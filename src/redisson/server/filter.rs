//! The filter: an `EVAL` or `EVALSHA` of a known script gets another name, and nothing else is touched.
//!
//! The server calls it for every command of every client, before it even looks the command up. So nearly
//! all leave by the first line. While the setting is off there is no filter at all.

use redis_module::raw;

use crate::module::ffi::api::api;
use crate::module::ffi::checked::fallible;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::{guard, log};
use crate::module::state::settings;
use crate::redisson::scripts::{recognise_text, Script, SCRIPTS};
use crate::redisson::server::{find, OwnedStr, Str};

/// The fewest words of a call: `EVAL script 1 key arg arg`, or with two keys and one argument.
const FEWEST_WORDS: usize = 6;

/// What the filter keeps between calls.
#[derive(Default)]
pub struct State {
    /// The registered filter.
    handle: Option<*mut raw::RedisModuleCommandFilter>,
    /// Whether it has renamed any command since the module was loaded. Without the filter that does not count;
    /// with it again it does, since a transaction that began before may still be open.
    has_renamed: bool,
    /// The texts that were seen, by place in the table. They are compared byte for byte, which takes less
    /// time than their SHA1.
    texts: Vec<(usize, Box<[u8]>)>,
}

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static STATE: MainThread<State> = unsafe { MainThread::empty() };

/// The module is loaded.
pub fn start() {
    STATE.set(Some(State::default()));
}

/// The module is unloaded.
pub fn stop() {
    STATE.set(None);
}

/// Registers the filter, or takes it back, as the setting says.
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
            // SAFETY: the filter is registered, by this module, and is forgotten here. (Refused is only another
            // module's.)
            unsafe { api!(RedisModule_UnregisterCommandFilter)(ctx.as_ptr(), filter) };
            None
        }
        (_, handle) => handle,
    };
    STATE.with(|state| state.handle = handle);
}

/// Whether commands may be under way that the filter has renamed, while it is registered.
pub fn has_renamed() -> bool {
    STATE.with(|state| state.handle.is_some() && state.has_renamed)
}

unsafe extern "C" fn on_command(filter: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server's filter context for this callback; the local value ends with it.
    let words = unsafe { Words::of(filter) };
    // Nothing up to here can panic.
    if words.count() < FEWEST_WORDS || !words.begin_with_eval() {
        return;
    }
    guard::entry("filter", || {
        if words.are_a_known_call() {
            words.rename();
        }
    });
}

/// The words of a command that is about to be looked up.
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
        // SAFETY: the context is live (see `of`). A word lives until it is replaced, which `rename` does, and that ends
        // `self` and so what borrows from it.
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

    /// Whether an `EVAL` or `EVALSHA` is of a known script and as Redisson sends it.
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
        // SAFETY: the context is live (see `of`). The server takes over the reference to the new word, and gives up
        // that to the old one.
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
