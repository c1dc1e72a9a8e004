//! The name of a file's record on the simulated disk, for `disk.rs` and for the preloaded `disk_shim.rs`.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// A file's inode with the time of its creation: the number is used again.
pub fn identity(found: &Metadata) -> String {
    let created = found.created().ok();
    let created = created.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    format!("{}.{}", found.ino(), created.unwrap_or_default().as_nanos())
}
