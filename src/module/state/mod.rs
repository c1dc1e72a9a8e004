//! The state between calls, and the settings.

pub mod constants;
pub mod settings;
pub mod shell;
