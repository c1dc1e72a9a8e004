//! A module of somebody else, for the tests: its command `foreign.do` blocks its client in every way that the server
//! has, without a question whether it may. Built by `harness::foreign`; it has no dependencies.

use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

type Pointer = *mut c_void;
type Callback = unsafe extern "C" fn(Pointer, *mut Pointer, c_int) -> c_int;
type OnDisconnect = unsafe extern "C" fn(Pointer, Pointer);
type OnFree = unsafe extern "C" fn(Pointer, Pointer);

/// The functions of the server that the module calls: each is looked up when the module is loaded.
macro_rules! functions {
    ($($name:ident($($argument:ty),* $(; $more:tt)?) -> $result:ty;)+) => {
        #[allow(non_snake_case)]
        struct Api { $($name: unsafe extern "C" fn($($argument),* $(, $more)?) -> $result),+ }

        impl Api {
            /// The first word of every context is the function that looks up the others.
            unsafe fn of(ctx: Pointer) -> Option<Api> {
                type Look = unsafe extern "C" fn(*const c_char, *mut Pointer) -> c_int;
                // SAFETY: the caller's context is the server's.
                let look: Look = unsafe { transmute(*ctx.cast::<Pointer>()) };
                let find = |name: &CStr| {
                    let mut found = null_mut();
                    // SAFETY: a name, and a place for one pointer.
                    (unsafe { look(name.as_ptr(), &mut found) } == 0).then_some(found)
                };
                Some(Api {
                    $($name: {
                        let name = concat!("RedisModule_", stringify!($name), "\0").as_bytes();
                        let found = find(CStr::from_bytes_with_nul(name).ok()?)?;
                        // SAFETY: the server's function of this name has this type.
                        unsafe { transmute::<Pointer, unsafe extern "C" fn($($argument),* $(, $more)?) -> $result>(found) }
                    }),+
                })
            }
        }
    };
}

functions! {
    SetModuleAttribs(Pointer, *const c_char, c_int, c_int) -> ();
    CreateCommand(Pointer, *const c_char, Callback, *const c_char, c_int, c_int, c_int) -> c_int;
    BlockClient(Pointer, Option<Callback>, Option<Callback>, Option<OnFree>, c_longlong) -> Pointer;
    BlockClientOnKeys(Pointer, Option<Callback>, Option<Callback>, Option<OnFree>, c_longlong, *mut Pointer, c_int, Pointer) -> Pointer;
    SetDisconnectCallback(Pointer, OnDisconnect) -> ();
    UnblockClient(Pointer, Pointer) -> c_int;
    AbortBlock(Pointer) -> c_int;
    GetContextFlags(Pointer) -> c_int;
    GetThreadSafeContext(Pointer) -> Pointer;
    FreeThreadSafeContext(Pointer) -> ();
    ThreadSafeContextLock(Pointer) -> ();
    ThreadSafeContextUnlock(Pointer) -> ();
    Call(Pointer, *const c_char, *const c_char; ...) -> Pointer;
    FreeCallReply(Pointer) -> ();
    ReplyWithLongLong(Pointer, c_longlong) -> c_int;
    ReplyWithSimpleString(Pointer, *const c_char) -> c_int;
    ReplyWithError(Pointer, *const c_char) -> c_int;
    ReplyWithArray(Pointer, std::ffi::c_long) -> c_int;
    ReplyWithMap(Pointer, std::ffi::c_long) -> c_int;
    ReplyWithDouble(Pointer, f64) -> c_int;
    StringPtrLen(Pointer, *mut usize) -> *const u8;
    CreateStringFromString(Pointer, Pointer) -> Pointer;
    FreeString(Pointer, Pointer) -> ();
}

static mut API: Option<Api> = None;

fn api() -> &'static Api {
    // SAFETY: written once, when the module is loaded, before every other call.
    unsafe { (*(&raw const API)).as_ref() }.expect("the module is loaded")
}

/// What `foreign.counts` replies: clients blocked, callbacks of a reply, of a timeout, of a disconnect, data freed,
/// threads that have ended.
static COUNTS: [AtomicI64; 6] = [const { AtomicI64::new(0) }; 6];

fn count(which: usize) {
    COUNTS[which].fetch_add(1, Relaxed);
}

/// Adds one to the value of a key, replicated.
unsafe fn increment(ctx: Pointer, key: Pointer) {
    // SAFETY: "s" takes one string of the server.
    unsafe {
        let reply = (api().Call)(ctx, c"INCR".as_ptr(), c"!s".as_ptr(), key);
        if !reply.is_null() {
            (api().FreeCallReply)(reply);
        }
    }
}

unsafe extern "C" fn on_reply(ctx: Pointer, argv: *mut Pointer, _: c_int) -> c_int {
    count(1);
    // SAFETY: the words are those of the command that blocked; the first argument is the key.
    unsafe {
        increment(ctx, *argv.add(1));
        (api().ReplyWithSimpleString)(ctx, c"late".as_ptr())
    }
}

unsafe extern "C" fn on_timeout(ctx: Pointer, _: *mut Pointer, _: c_int) -> c_int {
    count(2);
    // SAFETY: the server's context.
    unsafe { (api().ReplyWithSimpleString)(ctx, c"timeout".as_ptr()) }
}

unsafe extern "C" fn on_disconnect(_: Pointer, client: Pointer) {
    count(3);
    // SAFETY: the blocked client that the server names.
    unsafe { (api().UnblockClient)(client, null_mut()) };
}

unsafe extern "C" fn on_free(_: Pointer, _: Pointer) {
    count(4);
}

/// `foreign.do key how`
unsafe extern "C" fn foreign_do(ctx: Pointer, argv: *mut Pointer, argc: c_int) -> c_int {
    /// In a script, in MULTI, or where blocking is denied.
    const ASKED: c_int = 1 | 1 << 1 | 1 << 21;
    let api = api();
    // SAFETY: the context and the words are the server's; what is blocked is used as the interface demands.
    unsafe {
        if argc != 3 {
            return (api.ReplyWithError)(ctx, c"ERR foreign.do key how".as_ptr());
        }
        let key = *argv.add(1);
        let mut len = 0;
        let how = (api.StringPtrLen)(*argv.add(2), &mut len);
        let how = std::slice::from_raw_parts(how, len);
        let at_once = |text: &CStr| {
            increment(ctx, key);
            (api.ReplyWithSimpleString)(ctx, text.as_ptr())
        };
        match how {
            b"now" => return at_once(c"done"),
            b"map" => {
                (api.ReplyWithMap)(ctx, 1);
                (api.ReplyWithSimpleString)(ctx, c"half".as_ptr());
                return (api.ReplyWithDouble)(ctx, 0.5);
            }
            b"asks" if (api.GetContextFlags)(ctx) & ASKED != 0 => return at_once(c"done"),
            // More digits than a number of Lua has.
            b"number" => return (api.ReplyWithLongLong)(ctx, (1 << 53) + 1),
            b"writes" => increment(ctx, key),
            _ => {}
        }
        let (reply, end, free): (Option<Callback>, Option<Callback>, Option<OnFree>) =
            (Some(on_reply), Some(on_timeout), Some(on_free));
        let timeout = if how == b"timeout" { 1 } else { 0 };
        let blocked = match how {
            b"keys" => {
                let mut keys = [key];
                (api.BlockClientOnKeys)(ctx, reply, end, free, 0, keys.as_mut_ptr(), 1, null_mut())
            }
            _ => (api.BlockClient)(ctx, reply, end, free, timeout),
        };
        if blocked.is_null() {
            return (api.ReplyWithError)(ctx, c"ERR not blocked".as_ptr());
        }
        count(0);
        match how {
            // Unblocked by a thread, which writes the key meanwhile.
            b"thread" => {
                let copy = (api.CreateStringFromString)(null_mut(), key);
                let [blocked, copy] = [blocked as usize, copy as usize];
                std::thread::spawn(move || {
                    let api = self::api();
                    let [blocked, copy] = [blocked as Pointer, copy as Pointer];
                    let own = (api.GetThreadSafeContext)(blocked);
                    (api.ThreadSafeContextLock)(own);
                    increment(own, copy);
                    (api.FreeString)(null_mut(), copy);
                    (api.ThreadSafeContextUnlock)(own);
                    (api.UnblockClient)(blocked, null_mut());
                    (api.FreeThreadSafeContext)(own);
                    count(5);
                });
            }
            b"abort" => {
                (api.AbortBlock)(blocked);
            }
            // Unblocked before the command returns.
            b"unblocked" => {
                (api.UnblockClient)(blocked, null_mut());
            }
            // Without any callback: the client stays blocked until its connection ends.
            b"forgotten" => {}
            _ => (api.SetDisconnectCallback)(blocked, on_disconnect),
        }
    }
    0
}

/// `foreign.counts`
unsafe extern "C" fn foreign_counts(ctx: Pointer, _: *mut Pointer, _: c_int) -> c_int {
    // SAFETY: the server's context.
    unsafe {
        (api().ReplyWithArray)(ctx, COUNTS.len() as _);
        for value in &COUNTS {
            (api().ReplyWithLongLong)(ctx, value.load(Relaxed));
        }
    }
    0
}

/// # Safety
/// Called by the server, once.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Pointer, _: *mut Pointer, _: c_int) -> c_int {
    // SAFETY: the server's context; the statics are written before they are read.
    unsafe {
        let Some(found) = Api::of(ctx) else {
            return 1;
        };
        (found.SetModuleAttribs)(ctx, c"foreign".as_ptr(), 1, 1);
        API = Some(found);
        let create = |name: &CStr, run, flags: &CStr, key| {
            (api().CreateCommand)(ctx, name.as_ptr(), run, flags.as_ptr(), key, key, key)
        };
        create(c"foreign.do", foreign_do, c"write", 1)
            | create(c"foreign.counts", foreign_counts, c"", 0)
    }
}
