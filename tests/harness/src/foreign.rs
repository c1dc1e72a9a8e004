//! A module of somebody else in the test's server.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::clock;

/// The module that `tests/harness/foreign_module.rs` describes.
pub fn foreign_module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| clock::build("foreign_module"))
}
