//! Work that is done while a script runs.
//!
//! The server ends if a command that a module has called blocks the client of that call. Its own commands ask whether
//! they may; those of modules should. But within a script the server itself refuses to block a client, and many
//! commands that do not ask elsewhere ask there, and reply at once. (Redis 7.2 and newer also let a called command
//! block ("K"), but all except Redis 8.6 end when the call is to be given up.) So a script of one line calls a command
//! of this module, and that does the work.

use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::strings::{OwnedStr, Str};

/// Work that is on its way through the script.
struct Due(*mut (dyn FnMut() + 'static));

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static DUE: MainThread<Due> = unsafe { MainThread::empty() };

/// Runs this script, which calls, with the key, a command that calls [`resume`], and so does the work. False: the
/// server did not run it.
pub fn run(ctx: Ctx<'_>, script: &[u8], key: Str<'_>, work: &mut dyn FnMut()) -> bool {
    // SAFETY: the types differ in the lifetime only. The pointer is used during this call, which ends with its removal.
    let due =
        unsafe { std::mem::transmute::<*mut dyn FnMut(), *mut (dyn FnMut() + 'static)>(work) };
    DUE.set(Some(Due(due)));
    let words = [script, b"1"].map(OwnedStr::new);
    let [script, count] = words.each_ref().map(OwnedStr::as_str);
    Reply::of(ctx, c"EVAL", How::Replicated, &[script, count, key]);
    DUE.take().is_none()
}

/// Does the work for which [`run`] runs a script; false if there is none.
pub fn resume(ctx: Ctx<'_>) -> bool {
    if !DUE.is_set() || !ctx.is_in_script() {
        return false;
    }
    let Some(due) = DUE.take() else {
        return false;
    };
    // SAFETY: `run` waits for the script, and what it was given lives as long. The pointer was removed, so nothing else
    // uses it.
    unsafe { (*due.0)() };
    true
}
