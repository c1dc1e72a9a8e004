//! The bound on the loops of a script that Lua runs for the module.
//!
//! A script that runs longer than `busy-reply-threshold` lets the server serve other clients meanwhile. Redis and
//! Redict protect the client of the script from being freed then. If a module calls the script, the protected client is
//! one made for the call, and the client that sent the command may be freed during it. Lua compares the time only after
//! each 100,000th instruction, so a script of fewer instructions cannot reach that point, however slow the server is.

use crate::redisson::scripts::read_write::ReadWrite;
use crate::redisson::scripts::rlock::RLock;
use crate::redisson::scripts::script::Native;

/// The most steps of the loops of one run.
///
/// A step costs at most 26 instructions, by the compiler's listing (a lock of a renewal: 26, a field: 21, a hold: 18;
/// measured: 25, 20, 18), the rest of a script at most 203: together 52,203, about half of what Lua executes before it
/// compares the time.
pub const MOST_STEPS: u64 = 2000;

/// The subject of the loops of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loops {
    /// The script has no loop.
    None,
    /// The keys of the call: one step for each.
    Keys,
    /// The fields of the lock and the numbers in them: one step for each field and each hold.
    Holds,
}

impl Native {
    /// The subject of the loops of this script.
    pub fn loops(self) -> Loops {
        match self {
            Native::RLock(RLock::RenewAll) => Loops::Keys,
            Native::ReadWrite(ReadWrite::ReadUnlock(_)) => Loops::Holds,
            Native::RLock(_) | Native::Fenced(_) | Native::Spin(_) | Native::ReadWrite(_) => {
                Loops::None
            }
        }
    }
}

/// A count of the steps of loops over the holds of a lock.
#[derive(Debug, Default)]
pub struct Steps(u64);

impl Steps {
    /// Counts a field with this value. The field `mode` is counted like any other: the scripts do not skip it.
    pub fn field(&mut self, value: &[u8]) {
        self.0 = self.0.saturating_add(1).saturating_add(rounds(value));
    }

    /// Whether the steps exceed the limit for Lua.
    pub fn are_too_many(&self) -> bool {
        self.0 > MOST_STEPS
    }
}

/// At least as many rounds as `for i=tonumber(value), 1, -1` runs. A number that is not decimal (hexadecimal,
/// infinity), and a text that only begins like a number, counts as too many.
fn rounds(value: &[u8]) -> u64 {
    // `tonumber` reads C strings: up to the first NUL, with C's white space around the number.
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = trim(text);
    // A number with a minus is below 1.
    let text = text.strip_prefix(b"+").unwrap_or(text);
    match text {
        // NaN is below 1 too; any other text that begins with a letter is not a number.
        [b'i' | b'I', b'n' | b'N', ..] => u64::MAX,
        [b'0'..=b'9' | b'.', ..] => decimal(text),
        _ => 0,
    }
}

/// The value of this decimal, or the greatest; a fraction is rounded up.
fn decimal(text: &[u8]) -> u64 {
    let text = std::str::from_utf8(text).ok();
    let number = text.and_then(|text| text.parse::<f64>().ok());
    // A value beyond the type becomes its greatest.
    number.map_or(u64::MAX, |number| number.ceil() as u64)
}

/// The text without white space (by `isspace`) at both ends.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t'..=b'\r', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'..=b'\r'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::SCRIPTS;
    use super::*;

    #[test]
    fn values_that_are_not_numbers_or_below_1_in_lua_take_no_rounds() {
        for value in [
            "", "read", "write", "t123", "-1", "-1e9", "-0x7f", "-inf", "nan", "+", "+-5", "- 5",
            "0", "000", " ", "\0", "\x005", "e9", "x10",
        ] {
            assert_eq!(rounds(value.as_bytes()), 0, "{value:?}");
        }
    }

    #[test]
    fn decimals_take_as_many_rounds_as_their_value() {
        for (value, expected) in [
            ("1", 1),
            ("2000", 2000),
            ("007", 7),
            ("+12", 12),
            (" \t\n\x0b\x0c\r12 \x0b", 12),
            ("12\0e9", 12),
            ("1.5", 2),
            (".5", 1),
            ("1e1", 10),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(rounds(value.as_bytes()), expected, "{value:?}");
        }
    }

    #[test]
    fn other_numbers_and_texts_like_numbers_count_as_too_many() {
        for value in [
            "1e9",
            "1E9",
            "0x7fffffff",
            "0X1p30",
            "inf",
            "INF",
            "+Infinity",
            " inf ",
            "1 2",
            "12a",
            "18446744073709551616",
            "99999999999999999999999999",
        ] {
            let mut steps = Steps::default();
            steps.field(value.as_bytes());
            assert!(steps.are_too_many(), "{value:?}");
        }
    }

    #[test]
    fn each_field_and_each_hold_is_a_step() {
        let mut steps = Steps::default();
        for value in ["read", "1", "1996"] {
            steps.field(value.as_bytes());
        }
        assert!(!steps.are_too_many(), "2000");
        steps.field(b"");
        assert!(steps.are_too_many(), "2001");
        steps.field(b"1e9");
        assert!(steps.are_too_many(), "and no overflow");
    }

    #[test]
    fn renewals_of_several_locks_and_unlocks_of_readers_have_loops() {
        let with = |loops| {
            SCRIPTS
                .iter()
                .filter(move |script| script.native.loops() == loops)
        };
        assert_eq!(with(Loops::Keys).count(), 1);
        assert!(with(Loops::Keys).all(|script| script.keys.is_none()));
        assert_eq!(with(Loops::Holds).count(), 4);
    }
}
