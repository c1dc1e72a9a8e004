//! The command filter: it renames an `EVAL` or `EVALSHA` of a known script, and changes nothing else.
//!
//! The server calls it for every command of every client, before it looks the command up. Nearly all commands leave it
//! at the first comparison. While the setting is off no filter is registered.

use redis_module::raw;

use crate::module::ffi::ctx::{server_version, Ctx};
use crate::module::ffi::filter::{Filter, Words};
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
    filter: Option<Filter>,
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
    let filter = STATE.with(|state| state.filter.take());
    let filter = match (settings::redisson_scripts(), filter) {
        (true, None) => {
            let filter = Filter::register(ctx, Some(on_command));
            if filter.is_none() {
                log::warning("the server takes no command filter: Redisson's scripts stay its own");
            }
            filter
        }
        (false, Some(filter)) => {
            filter.unregister(ctx);
            None
        }
        (_, filter) => filter,
    };
    let fields_may_end = filter.is_some() && have_fields_ttls(ctx);
    STATE.with(|state| {
        state.filter = filter;
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

unsafe extern "C" fn on_command(filter: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server's filter context for this callback; the local value ends with it.
    let words = unsafe { Words::of(filter) };
    // The code up to here cannot panic.
    if words.count() < FEWEST_WORDS || !begin_with_eval(&words) {
        return;
    }
    guard::entry("filter", || {
        if are_a_known_call(&words) {
            words.rename(OwnedStr::new(b"lock.redisson"));
        }
    });
}

/// Whether the command is `EVAL` or `EVALSHA`.
fn begin_with_eval(words: &Words) -> bool {
    let Some(name) = words.word(0).map(Str::bytes) else {
        return false;
    };
    matches!(name.len(), 4 | 7)
        && matches!(name.first(), Some(b'E' | b'e'))
        && (name.eq_ignore_ascii_case(b"EVAL") || name.eq_ignore_ascii_case(b"EVALSHA"))
}

/// Whether an `EVAL` or `EVALSHA` calls a known script in the form that Redisson sends.
fn are_a_known_call(words: &Words) -> bool {
    let (Some(name), Some(script), Some(numkeys)) = (words.word(0), words.word(1), words.word(2))
    else {
        return false;
    };
    let is_by_sha1 = name.bytes().len() > 4;
    (script.bytes().len() == crate::redisson::server::SHA1_LEN) == is_by_sha1
        && find(script).is_some_and(|script| {
            script.is_called_with(numkeys.bytes(), words.count().saturating_sub(3))
        })
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
