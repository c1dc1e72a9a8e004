//! The state between calls, and the settings.

pub mod alarm;
pub mod constants;
pub mod parked;
pub mod settings;
pub mod shell;
pub mod users;
