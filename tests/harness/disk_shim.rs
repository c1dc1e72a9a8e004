//! A disk that keeps only what was synced, for one server and its children. Preloaded beside the real calls, it records
//! in the directory named in `LOCK_TEST_DISK` what a loss of power would leave: for each file its length when the last
//! fsync or fdatasync that has returned was called, and for each directory its names when it was last synced, as hard
//! links. A sync takes a random time of `LOCK_TEST_DISK_US` microseconds on average; with `LOCK_TEST_DISK_LIES` it is
//! reported and not made. Built by `harness::disk`.
//!
//! Servers write each file from its beginning to its end, so a length describes the durable content.

use std::ffi::{c_char, c_int, c_long, CStr};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[path = "src/file_identity.rs"]
mod file_identity;
use file_identity::identity;

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn flock(file: c_int, operation: c_int) -> c_int;
}

const LOCK_EX: c_int = 2;
const LOCK_UN: c_int = 8;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const FSYNC: i64 = 74;
    pub const FDATASYNC: i64 = 75;
    pub const TRUNCATE: i64 = 76;
    pub const FTRUNCATE: i64 = 77;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const FSYNC: i64 = 82;
    pub const FDATASYNC: i64 = 83;
    pub const TRUNCATE: i64 = 45;
    pub const FTRUNCATE: i64 = 46;
}

/// What a sync makes durable, as it was when the sync was called.
enum Synced {
    File { identity: String, length: u64 },
    Names(PathBuf),
    Other,
}

fn record() -> Option<PathBuf> {
    std::env::var_os("LOCK_TEST_DISK").map(PathBuf::from)
}

fn synced(file: RawFd) -> Synced {
    let link = format!("/proc/self/fd/{file}");
    match fs::metadata(&link) {
        Ok(found) if found.is_file() => Synced::File {
            identity: identity(&found),
            length: found.len(),
        },
        Ok(found) if found.is_dir() => fs::read_link(&link).map_or(Synced::Other, Synced::Names),
        _ => Synced::Other,
    }
}

/// Runs the change while no loss of power can happen. The lock is given back by a call: a child that was forked
/// meanwhile has the file open as well.
fn alone(record: &Path, change: impl FnOnce()) {
    let Ok(file) = File::open(record.join("lock")) else {
        return;
    };
    // SAFETY: flock(2) takes a descriptor that is open here.
    unsafe { flock(file.as_raw_fd(), LOCK_EX) };
    change();
    // SAFETY: the same descriptor.
    unsafe { flock(file.as_raw_fd(), LOCK_UN) };
}

fn set_length(record: &Path, identity: &str, length: impl Fn(u64) -> u64) {
    let path = record.join("lengths").join(identity);
    let old = fs::read_to_string(&path).ok();
    let old = old.and_then(|text| text.parse().ok()).unwrap_or(0);
    let _ = fs::write(path, length(old).to_string());
}

/// Replaces the durable names of a directory of the server by the present ones.
fn set_names(record: &Path, directory: &Path) {
    let Some(root) = record.parent() else { return };
    let Ok(below) = directory.strip_prefix(root) else {
        return;
    };
    let names = match below.as_os_str().is_empty() {
        true => record.join("names/top"),
        false => record.join("names").join(below),
    };
    let _ = fs::remove_dir_all(&names);
    let _ = fs::create_dir_all(&names);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = fs::hard_link(entry.path(), names.join(entry.file_name()));
        }
    }
}

/// A random time, the mean of which is the setting.
fn take_time() {
    let mean = std::env::var("LOCK_TEST_DISK_US").ok();
    let mean: u64 = mean.and_then(|text| text.parse().ok()).unwrap_or(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // The time of the clock in nanoseconds, multiplied so that its lowest digits decide.
    let random = now.map_or(0, |now| {
        u64::from(now.subsec_nanos()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
    });
    if mean > 0 {
        std::thread::sleep(Duration::from_micros(random % (2 * mean)));
    }
}

fn sync(file: c_int, number: i64) -> c_int {
    let Some(record) = record() else {
        // SAFETY: the caller's descriptor, as the C library's function takes it.
        return unsafe { syscall(number, file) } as c_int;
    };
    let synced = synced(file);
    take_time();
    if std::env::var_os("LOCK_TEST_DISK_LIES").is_some() {
        return 0;
    }
    // SAFETY: the same.
    let status = unsafe { syscall(number, file) } as c_int;
    if status == 0 {
        alone(&record, || match &synced {
            Synced::File { identity, length } => {
                set_length(&record, identity, |old| old.max(*length))
            }
            Synced::Names(directory) => set_names(&record, directory),
            Synced::Other => (),
        });
    }
    status
}

/// Of a file that is cut, the disk keeps no more than the rest.
fn cut(path: &str, length: i64) {
    if let (Some(record), Ok(found)) = (record(), fs::metadata(path)) {
        let length = u64::try_from(length).unwrap_or(0);
        alone(&record, || {
            set_length(&record, &identity(&found), |old| old.min(length))
        });
    }
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn fsync(file: c_int) -> c_int {
    sync(file, number::FSYNC)
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    sync(file, number::FDATASYNC)
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn ftruncate(file: c_int, length: i64) -> c_int {
    cut(&format!("/proc/self/fd/{file}"), length);
    // SAFETY: the caller's arguments.
    unsafe { syscall(number::FTRUNCATE, file, length) as c_int }
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn ftruncate64(file: c_int, length: i64) -> c_int {
    // SAFETY: the caller's arguments; both functions have the same types here.
    unsafe { ftruncate(file, length) }
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn truncate(path: *const c_char, length: i64) -> c_int {
    // SAFETY: the caller passes a string.
    cut(&unsafe { CStr::from_ptr(path) }.to_string_lossy(), length);
    // SAFETY: the caller's arguments.
    unsafe { syscall(number::TRUNCATE, path, length) as c_int }
}

/// # Safety
/// As for the C library's function.
#[no_mangle]
pub unsafe extern "C" fn truncate64(path: *const c_char, length: i64) -> c_int {
    // SAFETY: the caller's arguments; both functions have the same types here.
    unsafe { truncate(path, length) }
}
