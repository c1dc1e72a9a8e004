//! The content of a key, read anew for every decision: the hash is the truth about the holder.
//!
//! An exclusive lock is Redisson's `RLock` hash: one field, the owner, whose value is the hold count, and the key's TTL
//! as the lease. The module adds a field, [`TOKEN_FIELD`], whose value `t<digits>` is not a number, so scripts that
//! look for counts skip it; and where the request has one, a note ([`NOTE_FIELD`]).
//!
//! With `lock.string-holders yes` a string with a TTL is a hold too, as most other lock libraries write it.

use smallvec::SmallVec;

use crate::lock::{Domain, KeyRef, Now, ReadWrite, Token};

/// The reserved hash field that holds the fencing token of the current grant.
pub const TOKEN_FIELD: &[u8] = b"#token";

/// The reserved hash field of a hold's note: any text, for those who look.
pub const NOTE_FIELD: &[u8] = b"#note";

/// The longest note in bytes.
pub const MAX_NOTE: usize = 256;

/// The highest hold count, as in Redisson (a Java int).
pub const MAX_HOLD_COUNT: u32 = i32::MAX as u32;

/// The name of an owner, of any bytes. A name as Redisson makes it (`uuid:thread`) needs no allocation.
pub type OwnerId = SmallVec<[u8; 48]>;

/// A hold as the hash states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The owner: the hash field. Empty, which no client can name, where a string is the lock.
    pub owner: OwnerId,
    /// The hold count, at least 1.
    pub count: u32,
    /// The token of the grant; `None` if another client took the lock.
    pub token: Option<Token>,
    /// The end of the lease in Unix milliseconds; `None` if the TTL was removed by other means.
    pub deadline_ms: Option<i64>,
}

impl Hold {
    /// Whether the lease is over. The clock alone decides: a hold ends at its deadline, even if the key still exists
    /// and no timer has run.
    pub fn is_over(&self, now: Now) -> bool {
        self.deadline_ms.is_some_and(|end| now.wall_ms >= end)
    }

    /// Whether it has this token, if one is named.
    pub(crate) fn is_under(&self, token: Option<u64>) -> bool {
        token.is_none_or(|token| self.token.map(Token::get) == Some(token))
    }
}

/// The content of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// No key.
    Absent,
    /// A hash with the token field only: the holder was removed by `HDEL`.
    Bare(Token),
    /// A lock, perhaps one whose lease is over.
    Held(Hold),
    /// A read-write lock, perhaps without a holder.
    ReadWrite(Box<ReadWrite>),
    /// A hash of another layout.
    OtherHash,
    /// Another Redis type.
    OtherType,
}

impl KeyState {
    /// A string as the lock of a client that takes it with `SET key value NX PX lease`. Without a TTL it is other data.
    pub fn of_string(deadline_ms: Option<i64>) -> KeyState {
        match deadline_ms {
            Some(_) => KeyState::Held(Hold {
                owner: OwnerId::new(),
                count: 1,
                token: None,
                deadline_ms,
            }),
            None => KeyState::OtherType,
        }
    }

    /// The present hold.
    pub fn hold(&self, now: Now) -> Option<&Hold> {
        match self {
            KeyState::Held(hold) if !hold.is_over(now) => Some(hold),
            _ => None,
        }
    }

    /// Whether the TTL of the key is over. The server counts such a key as expired one millisecond later than the
    /// lease, or when it reads the clock again.
    pub fn is_over(&self, now: Now) -> bool {
        match self {
            KeyState::Held(hold) => hold.is_over(now),
            KeyState::ReadWrite(lock) => lock.is_over(now),
            _ => false,
        }
    }

    /// The token stored in the key: the next one must be higher.
    pub fn token(&self) -> Option<Token> {
        match self {
            KeyState::Bare(token) => Some(*token),
            KeyState::Held(hold) => hold.token,
            KeyState::ReadWrite(lock) => lock
                .token_record
                .as_ref()
                .map(|token_record| token_record.token),
            _ => None,
        }
    }

    /// Whether this is the latest token of the present hold, or of the readers.
    pub fn is_held_under(&self, token: u64, now: Now) -> bool {
        match self {
            KeyState::ReadWrite(lock) => lock.is_held_under(token, now),
            _ => self
                .hold(now)
                .is_some_and(|hold| hold.is_under(Some(token))),
        }
    }

    /// The end of the present holds, as far as known, in Unix milliseconds; `None`: no end, or no hold.
    pub fn ends(&self, now: Now) -> Option<i64> {
        match self {
            KeyState::ReadWrite(lock) => lock.ends(now, None),
            _ => self.hold(now)?.deadline_ms,
        }
    }
}

/// Whether the key is a lock with a holder, or with this holder if `owner` is given.
pub fn is_held(state: &KeyState, owner: Option<&[u8]>, now: Now) -> bool {
    match (state, owner) {
        (KeyState::ReadWrite(lock), None) => lock.is_held(now),
        (KeyState::ReadWrite(lock), Some(owner)) => {
            lock.writes(owner, now) || lock.reader(owner, now).is_some()
        }
        (state, owner) => state
            .hold(now)
            .is_some_and(|hold| owner.is_none_or(|owner| hold.owner[..] == *owner)),
    }
}

/// Reads a small hash field by field into a [`KeyState`].
#[derive(Debug, Default)]
pub struct HashReader {
    holder: Option<(OwnerId, u32)>,
    token: Option<Token>,
    has_note: bool,
    other: bool,
}

impl HashReader {
    /// Adds one field with its value, in any order.
    pub fn field(&mut self, field: &[u8], value: &[u8]) {
        if field.is_empty() {
            self.other = true;
        } else if field == TOKEN_FIELD && self.token.is_none() {
            self.token = parse_token(value);
            self.other |= self.token.is_none();
        } else if field == NOTE_FIELD && !self.has_note {
            self.has_note = true;
        } else if self.holder.is_none() && field != TOKEN_FIELD && field != NOTE_FIELD {
            self.holder = parse_count(value).map(|count| (field.into(), count));
            self.other |= self.holder.is_none();
        } else {
            self.other = true;
        }
    }

    /// Whether the hash is not a lock, whatever fields follow.
    pub fn is_other(&self) -> bool {
        self.other
    }

    /// The state of the hash, after all its fields have been added.
    #[inline]
    pub fn finish(self, deadline_ms: Option<i64>) -> KeyState {
        match (self.other, self.holder, self.token) {
            (false, Some((owner, count)), token) => KeyState::Held(Hold {
                owner,
                count,
                token,
                deadline_ms,
            }),
            (false, None, Some(token)) => KeyState::Bare(token),
            // All fields had TTLs of their own, and these are over: the lock is free, and the server will remove the
            // hash.
            (false, None, None) if !self.has_note => {
                KeyState::ReadWrite(Box::new(ReadWrite::emptied(deadline_ms)))
            }
            _ => KeyState::OtherHash,
        }
    }
}

/// Plain decimal digits without sign or leading zero, as `HINCRBY` writes them.
pub fn parse_decimal(digits: &[u8]) -> Option<u64> {
    let (first, rest) = digits.split_first()?;
    if digits.len() > 19 || (*first == b'0' && !rest.is_empty()) {
        return None;
    }
    // Nineteen digits cannot overflow.
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(value * 10 + digit)
    })
}

/// An integer as Redis parses it: an optional minus, digits, no leading zero, no spaces.
pub fn parse_integer(word: &[u8]) -> Option<i64> {
    let (digits, negative) = match word.strip_prefix(b"-") {
        Some(digits) => (digits, true),
        None => (word, false),
    };
    match (i128::from(parse_decimal(digits)?), negative) {
        (0, true) => None,
        (value, true) => i64::try_from(-value).ok(),
        (value, false) => i64::try_from(value).ok(),
    }
}

/// Redisson's token counter, as far as tokens depend on it: a negative number, from which `INCR` continues, is below
/// every token, as 0 is. `None` if it is not a number. A number beyond the range of `INCR` is implausible.
pub fn parse_counter(word: &[u8]) -> Option<u64> {
    match parse_integer(word) {
        Some(number) => Some(u64::try_from(number).unwrap_or(0)),
        None => parse_decimal(word),
    }
}

/// The value of the token field: `t` and digits.
pub fn parse_token(value: &[u8]) -> Option<Token> {
    token_of(value.strip_prefix(b"t")?)
}

/// A token in a key. A number of 2^53 and more, which the module does not write, counts as the highest token: it is not
/// plausible either.
pub(crate) fn token_of(digits: &[u8]) -> Option<Token> {
    let token = parse_decimal(digits).and_then(Token::new);
    token.or_else(|| is_above_tokens(digits).then_some(Token::MAX))
}

#[cold]
fn is_above_tokens(digits: &[u8]) -> bool {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number && digits.first().is_some_and(|first| *first != b'0')
}

/// The value of the owner's field: 1 to 2^31-1.
pub fn parse_count(value: &[u8]) -> Option<u32> {
    let count = u32::try_from(parse_decimal(value)?).ok()?;
    (1..=MAX_HOLD_COUNT).contains(&count).then_some(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn counters_parse_as_for_incr_and_negative_ones_count_as_zero() {
        for (word, counter) in [
            ("0", Some(0)),
            ("41", Some(41)),
            ("-1", Some(0)),
            ("-9223372036854775808", Some(0)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", Some(1 << 63)),
        ] {
            assert_eq!(parse_counter(word.as_bytes()), counter, "{word}");
        }
        for odd in [
            "",
            "-",
            "-0",
            "01",
            "-01",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "x",
            "-9223372036854775809",
        ] {
            assert_eq!(parse_counter(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn a_hash_without_a_holder_has_a_token() {
        let token = Token::new(7).unwrap();
        assert_eq!(KeyState::Bare(token).token(), Some(token));
        assert_eq!(read(&[("#token", "t7")]).token(), Some(token));
    }

    fn read(fields: &[(&str, &str)]) -> KeyState {
        let mut reader = HashReader::default();
        for (field, value) in fields {
            reader.field(field.as_bytes(), value.as_bytes());
        }
        reader.finish(Some(5))
    }

    #[test]
    fn a_redisson_hold_and_a_hold_of_the_module_parse_alike() {
        let KeyState::Held(plain) = read(&[("u:1", "2")]) else {
            panic!()
        };
        assert_eq!((plain.count, plain.token), (2, None));
        let KeyState::Held(of_module) = read(&[("#token", "t7"), ("u:1", "1")]) else {
            panic!()
        };
        assert_eq!((of_module.count, of_module.token), (1, Token::new(7)));
        assert_eq!(
            read(&[("#token", "t7")]),
            KeyState::Bare(Token::new(7).unwrap())
        );
    }

    #[test]
    fn every_other_hash_is_foreign() {
        for fields in [
            &[("mode", "read"), ("u:1", "1")][..],
            &[("u:1", "0")],
            &[("u:1", "-1")],
            &[("u:1", "01")],
            &[("u:1", "2147483648")],
            &[("u:1", "1"), ("u:2", "1")],
            &[("#token", "7"), ("u:1", "1")],
            &[("#token", "t0"), ("u:1", "1")],
            &[("name", "Ada")],
            &[("", "1")],
        ] {
            assert_eq!(read(fields), KeyState::OtherHash, "{fields:?}");
        }
    }

    #[test]
    fn a_hash_whose_fields_have_all_expired_is_free() {
        let KeyState::ReadWrite(lock) = read(&[]) else {
            panic!()
        };
        let now = Now {
            wall_ms: 0,
            wall_sub_us: 0,
            mono_ms: 0,
        };
        assert!(!lock.is_held(now) && lock.deadline_ms == Some(5));
    }

    #[test]
    fn a_token_above_all_tokens_is_the_highest_one() {
        for number in [
            "9007199254740991",
            "9007199254740992",
            "18446744073709551616",
        ] {
            let token = parse_token(format!("t{number}").as_bytes());
            assert_eq!(token, Some(Token::MAX), "{number}");
        }
    }

    #[test]
    fn a_lease_is_over_at_its_deadline_not_after_it() {
        let at = |wall_ms| Now {
            wall_ms,
            wall_sub_us: 0,
            mono_ms: 0,
        };
        let state = read(&[("u:1", "1")]);
        assert!(state.hold(at(4)).is_some());
        assert!(state.hold(at(5)).is_none());
    }

    #[test]
    fn integers_parse_as_in_redis() {
        for (word, value) in [
            ("0", 0),
            ("7", 7),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse_integer(word.as_bytes()), Some(value));
        }
        for word in [
            "",
            " 1",
            "1 ",
            "+1",
            "1.0",
            "1e3",
            "0x1",
            "01",
            "-",
            "--1",
            "-0",
            "NaN",
            "9223372036854775808",
        ] {
            assert_eq!(parse_integer(word.as_bytes()), None, "{word:?}");
        }
    }
}

/// The content that the shell has read for one decision.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The lock.
    pub key: KeyRef<'a>,
    /// The content of the key.
    pub state: KeyState,
    /// The domain of the horizon that covers this key: 0, in a cluster its slot.
    pub domain: Domain,
    /// The numbers on which a token depends; `None` if the decision was not expected to need a token.
    pub fence: Option<Fence>,
    /// Whether the lock has a subscriber; read only if
    /// [`depends_on_subscribers`](crate::lock::wait::waiters::Waiters::depends_on_subscribers).
    pub has_subscriber: bool,
    /// The most readers that the decision grants: the sibling keys of so many were checked.
    pub readers: usize,
}

/// The keys besides the lock on which a token depends.
#[derive(Debug, Clone, Copy)]
pub struct Fence {
    /// Redisson's token counter of this name, if that key exists.
    pub counter: Option<u64>,
    /// False while a grant cannot be made safe: the slot of its horizon is migrating, or traffic is paused within this
    /// transaction.
    pub may_grant: bool,
}

/// The database that holds the horizons.
pub const HORIZON_DB: i32 = 0;

impl View<'_> {
    /// Whether a grant is possible now.
    pub fn may_grant(&self) -> bool {
        self.fence.is_some_and(|fence| fence.may_grant)
    }
}
