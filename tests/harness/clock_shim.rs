//! A wall clock for one process, preloaded into a server. The file named in `LOCK_TEST_CLOCK` says by how many seconds
//! it differs from the real one, or, as `=1800000000000`, at which millisecond it is stopped. The monotonic clock stays
//! as it is. Built by `harness::clock`. It uses system calls only, because it runs during the start of an allocator.

use std::ffi::{c_char, c_int, c_long, c_void, CStr};
use std::ptr::null_mut;

#[repr(C)]
pub struct Moment {
    seconds: i64,
    fraction: i64,
}

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn read(file: c_int, to: *mut u8, len: usize) -> isize;
    fn close(file: c_int) -> c_int;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The next definition of a name after that of this library.
const RTLD_NEXT: isize = -1;
const RTLD_DEEPBIND: c_int = 8;

#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;
const CLOCK_REALTIME: c_int = 0;
const CLOCK_REALTIME_COARSE: c_int = 5;

/// The content of the file: a number, and whether it is a point in time instead of a difference.
fn setting() -> (i64, bool) {
    let mut text = [0u8; 24];
    // SAFETY: constants and a buffer of the stated length; the file is closed once.
    let len = unsafe {
        let path = getenv(c"LOCK_TEST_CLOCK".as_ptr());
        if path.is_null() {
            return (0, false);
        }
        let file = open(path, 0);
        let len = read(file, text.as_mut_ptr(), text.len());
        close(file);
        len
    };
    let text = &text[..usize::try_from(len).unwrap_or(0)];
    let sign = if text.first() == Some(&b'-') { -1 } else { 1 };
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    let number = digits.fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    (sign * number, text.first() == Some(&b'='))
}

impl Moment {
    fn set(&mut self) {
        match setting() {
            (seconds_off, false) => self.seconds += seconds_off,
            (milliseconds, true) => {
                self.seconds = milliseconds / 1_000;
                self.fraction = milliseconds % 1_000 * 1_000_000;
            }
        }
    }
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn clock_gettime(clock: c_int, to: *mut Moment) -> c_int {
    // SAFETY: the caller passes a pointer that the kernel may write through, as the function requires.
    let status = unsafe { syscall(CLOCK_GETTIME, clock, to) } as c_int;
    if status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        // SAFETY: the kernel has just written a value there.
        unsafe { (*to).set() };
    }
    status
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn gettimeofday(to: *mut Moment, _zone: *mut u8) -> c_int {
    // SAFETY: the caller passes a valid pointer; both structures are two longs.
    unsafe {
        let status = clock_gettime(CLOCK_REALTIME, to);
        (*to).fraction /= 1_000;
        status
    }
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn time(to: *mut i64) -> i64 {
    let mut now = Moment {
        seconds: 0,
        fraction: 0,
    };
    // SAFETY: a local variable, and the caller's pointer unless it is NULL.
    unsafe {
        clock_gettime(CLOCK_REALTIME, &mut now);
        if to != null_mut() {
            *to = now.seconds;
        }
    }
    now.seconds
}

/// Valkey 8.1 and newer load modules so that they find the C library's clock before this one: the module would have
/// another time than its server.
///
/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: the C library has a `dlopen` of this type; it gets the caller's arguments, with one flag removed.
    unsafe {
        let next = dlsym(RTLD_NEXT as *mut c_void, c"dlopen".as_ptr());
        let open: Open = std::mem::transmute(next);
        open(path, flags & !RTLD_DEEPBIND)
    }
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: the caller's strings, which are valid for the C library's function.
    unsafe { open_file(c"fopen", path, mode) }
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: the caller's strings, which are valid for the C library's function.
    unsafe { open_file(c"fopen64", path, mode) }
}

/// Valkey 9 uses the processor's own counter between two readings of the clock if this file says that there is one: a
/// stopped clock would continue for a while.
unsafe fn open_file(by: &CStr, path: *const c_char, mode: *const c_char) -> *mut c_void {
    type Open = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
    // SAFETY: the C library has both functions, of this type; they get the caller's strings.
    unsafe {
        if CStr::from_ptr(path) == c"/proc/cpuinfo" {
            return null_mut();
        }
        let next = dlsym(RTLD_NEXT as *mut c_void, by.as_ptr());
        let open: Open = std::mem::transmute(next);
        open(path, mode)
    }
}
