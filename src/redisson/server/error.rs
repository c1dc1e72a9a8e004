//! Errors of `lock.redisson`.

use std::fmt;

use crate::lock::LockError;

/// Why a script of Redisson's does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptError {
    /// An error of locking.
    Lock(LockError),
    /// The caller's user may not run the command that it sent; that command's name.
    MayNotRun(&'static str),
    /// The script needs Lua, and another script is running.
    InScript,
    /// The script needs Lua, and would loop over more holds than the limit.
    TooManyHolds,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScriptError::Lock(error) => return error.fmt(f),
            ScriptError::MayNotRun(command) => {
                return write!(f, "NOPERM this user has no permissions to run the '{command}' command");
            }
            ScriptError::InScript => "ERR a script of Redisson's cannot run inside a script",
            ScriptError::TooManyHolds => {
                "ERR the lock states too many holds for a script of Redisson's, delete the key or set lock.redisson-scripts to no"
            }
        })
    }
}

impl From<LockError> for ScriptError {
    fn from(error: LockError) -> ScriptError {
        ScriptError::Lock(error)
    }
}
