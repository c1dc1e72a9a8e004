//! The messages that end tickets, as the module publishes them.

use std::str;

/// The outcome of a ticket, without its tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// `granted <token> <tag>`. The token is not used: the wait asks for it.
    Granted,
    /// `timeout <tag>`: the time of `BLOCK` is over.
    TimedOut,
    /// `failed <CODE> <tag>`.
    Failed(String),
}

/// Reads a message: the number of the ticket and the outcome. None for any other text.
pub(crate) fn read(payload: &[u8]) -> Option<(u64, Message)> {
    let text = str::from_utf8(payload).ok()?;
    let (word, rest) = text.split_once(' ')?;
    let (message, tag) = match word {
        "timeout" => (Message::TimedOut, rest),
        "granted" => (Message::Granted, rest.split_once(' ')?.1),
        "failed" => {
            let (code, tag) = rest.split_once(' ')?;
            (Message::Failed(code.to_string()), tag)
        }
        _ => return None,
    };
    Some((tag.parse().ok()?, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_an_outcome_and_a_tag() {
        let granted = Some((7, Message::Granted));
        assert_eq!(read(b"granted 1795215970812000 7"), granted);
        assert_eq!(read(b"granted 12,13,14 7"), granted);
        assert_eq!(read(b"timeout 8"), Some((8, Message::TimedOut)));
        let failed = Message::Failed("LOCKBROKEN".into());
        assert_eq!(read(b"failed LOCKBROKEN 9"), Some((9, failed)));
    }

    #[test]
    fn other_text_is_no_message() {
        for text in [
            &b""[..],
            b"granted",
            b"granted 1",
            b"timeout x",
            b"failed 9",
            b"hello 1 2",
            b"granted 1 7 8",
            b"granted 1 \xff",
        ] {
            assert_eq!(read(text), None);
        }
    }
}
