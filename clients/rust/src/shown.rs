//! The text of values for `{:?}`. It has no owner, which is the credential of its locks.

use std::fmt;

/// Bytes as quoted text, in which all but printable ASCII is escaped.
pub(crate) struct Text<'a>(pub &'a [u8]);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
