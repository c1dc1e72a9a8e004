//! The content of a key, read anew for every decision: the hash is the truth about the holder.
//!
//! An exclusive lock is Redisson's `RLock` hash: one field, the owner, whose value is the hold count, and the key's TTL
//! as the lease. The module adds a field, [`TOKEN_FIELD`], whose value `t<digits>` is not a number, so scripts that
//! look for counts skip it; and where the request has one, a note ([`note_field`]).
//!
//! No owner begins with `#`: a field that does, and that this version does not know, is one of a later version. It is
//! kept and ignored, and without a holder the lock is free whatever such fields are left. (The hash of a read-write
//! lock has no such fields, because Redisson's scripts count its fields: what is new there goes into a key beside it.)
//!
//! With `lock.string-holders yes` a string with a TTL is a hold too, as most other lock libraries write it.

use smallvec::{smallvec, SmallVec};

use crate::lock::{Domain, KeyRef, LockError, Mode, Name, Now, ReadWrite, Token};

/// The reserved hash field that holds the fencing token of the current grant.
pub const TOKEN_FIELD: &[u8] = b"#token";

/// The first byte of every field that is not an owner.
const MARK: u8 = b'#';

/// The most fields of an exclusive lock: the owner, the token, its note, and those of later versions.
const MOST_FIELDS: usize = 16;

/// The longest name of a field of a lock, and the longest value: an owner has at most 65,536 bytes (the highest
/// `lock.max-owner-len`), and its note's field a prefix.
const LONGEST: usize = 65_536 + 256;

/// Whether a field of this name and value may be one of a lock, or this permit one of a semaphore. Looked at before the
/// bytes are copied or searched.
pub fn may_be_of_a_lock(field: &[u8], value: &[u8]) -> bool {
    field.len() <= LONGEST && value.len() <= LONGEST
}

/// Whether a field of this name could not be told from those of the module, so that no owner has it.
pub fn is_marked(owner: &[u8]) -> bool {
    owner.first() == Some(&MARK)
}

/// The hash field of an owner's note. It contains the owner's name: if a script replaces the owner and nothing else,
/// the note is not shown for the new one.
pub fn note_field(owner: &[u8]) -> Name {
    let mut field = Name::from_slice(b"#note:");
    field.extend_from_slice(owner);
    field
}

/// The longest note in bytes.
pub const MAX_NOTE: usize = 256;

/// The highest hold count, as in Redisson (a Java int).
pub const MAX_HOLD_COUNT: u32 = i32::MAX as u32;

/// The name of an owner, of any bytes. A name as Redisson makes it (`uuid:thread`) needs no allocation.
pub type OwnerId = SmallVec<[u8; 48]>;

/// A holder of a lock of any mode.
pub struct Holder<'s> {
    /// The mode of its hold.
    pub mode: Mode,
    /// Who holds; empty for a string.
    pub owner: &'s [u8],
    /// How many holds it has.
    pub count: u32,
    /// The fencing token of the grant, if the key has one.
    pub token: Option<Token>,
    /// The end of its lease, in milliseconds of the wall clock; `None`: no end.
    pub deadline_ms: Option<i64>,
}

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
    /// A hash without an owner, with the token or other fields of the module: the holder was removed by `HDEL`, or by
    /// the TTL of its field.
    Bare(Option<Token>),
    /// A lock, perhaps one whose lease is over.
    Held(Hold),
    /// A string that is the lock of a client of another library.
    Text(Text),
    /// A read-write lock, perhaps without a holder.
    ReadWrite(Box<ReadWrite>),
    /// A hash of another layout.
    OtherHash,
    /// Another Redis type.
    OtherType,
}

/// A string as the lock of a client that takes it with `SET key value NX PX lease`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The hold, of an owner without a name.
    hold: Hold,
    /// Whether the value is a number. A latch and the free permits of a semaphore are numbers too, and nothing in the
    /// key tells them apart. So it excludes other owners, as any string with a TTL, but is not broken.
    pub is_number: bool,
}

/// The longest string that is a number.
pub const LONGEST_NUMBER: usize = 20;

impl KeyState {
    /// A string, which is a lock if it has a TTL, and other data without one. `value`: unless it is too long for a
    /// number.
    pub fn of_string(deadline_ms: Option<i64>, value: Option<&[u8]>) -> KeyState {
        let Some(_) = deadline_ms else {
            return KeyState::OtherType;
        };
        KeyState::Text(Text {
            hold: Hold {
                owner: OwnerId::new(),
                count: 1,
                token: None,
                deadline_ms,
            },
            is_number: value.and_then(parse_integer).is_some(),
        })
    }

    /// The present hold.
    pub fn hold(&self, now: Now) -> Option<&Hold> {
        match self {
            KeyState::Held(hold) | KeyState::Text(Text { hold, .. }) if !hold.is_over(now) => {
                Some(hold)
            }
            _ => None,
        }
    }

    /// The holders. A writer that also holds READ is one, as the writer; of the readers those that were read.
    pub fn holders(&self, now: Now) -> SmallVec<[Holder<'_>; 1]> {
        let KeyState::ReadWrite(lock) = self else {
            let holder = self.hold(now).map(|hold| Holder {
                mode: Mode::Exclusive,
                owner: &hold.owner,
                count: hold.count,
                token: hold.token,
                deadline_ms: hold.deadline_ms,
            });
            return holder.into_iter().collect();
        };
        let token = lock.token(now);
        let of = |mode, (owner, count), deadline_ms| Holder {
            mode,
            owner,
            count,
            token,
            deadline_ms,
        };
        match lock.writer(now) {
            Some(writer) => {
                let hold = (&writer.owner[..], writer.count);
                smallvec![of(Mode::Write, hold, lock.deadline_ms)]
            }
            None => {
                let readers = lock.readers(now);
                let readers = readers.map(|reader| {
                    let hold = (&reader.owner[..], reader.count);
                    of(Mode::Read, hold, lock.end_of(reader))
                });
                readers.collect()
            }
        }
    }

    /// Checks that the key holds a lock, or nothing.
    ///
    /// # Errors
    /// [`LockError::WrongType`], [`LockError::LockType`].
    pub fn check_is_lock(&self) -> Result<(), LockError> {
        match self {
            KeyState::OtherType => Err(LockError::WrongType),
            KeyState::OtherHash => Err(LockError::LockType),
            _ => Ok(()),
        }
    }

    /// Checks that the present hold may be ended by force.
    ///
    /// # Errors
    /// [`LockError::MayBeCount`].
    pub(crate) fn may_break(&self, now: Now) -> Result<(), LockError> {
        match self {
            KeyState::Text(text) if text.is_number && !text.hold.is_over(now) => {
                Err(LockError::MayBeCount)
            }
            _ => Ok(()),
        }
    }

    /// Whether the TTL of the key is over. The server counts such a key as expired one millisecond later than the
    /// lease, or when it reads the clock again.
    pub fn is_over(&self, now: Now) -> bool {
        match self {
            KeyState::Held(hold) | KeyState::Text(Text { hold, .. }) => hold.is_over(now),
            KeyState::ReadWrite(lock) => lock.is_over(now),
            _ => false,
        }
    }

    /// The token stored in the key: the next one must be higher.
    pub fn token(&self) -> Option<Token> {
        match self {
            KeyState::Bare(token) => *token,
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
            // One that is over, and is still read, does not end once more.
            KeyState::ReadWrite(lock) => lock.ends(now, None).filter(|end| *end > now.wall_ms),
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
        // Its owner has no name.
        (KeyState::Text(_), Some(_)) => false,
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
    /// Fields of the module beside the token: notes, and what a later version has added.
    marked: bool,
    fields: usize,
    too_long: bool,
    other: bool,
}

impl HashReader {
    /// Adds one field with its value, in any order.
    pub fn field(&mut self, field: &[u8], value: &[u8]) {
        self.fields += 1;
        self.too_long |= !may_be_of_a_lock(field, value);
        if field.is_empty() || self.fields > MOST_FIELDS || self.too_long {
            self.other = true;
        } else if field == TOKEN_FIELD && self.token.is_none() {
            self.token = parse_token(value);
            self.other |= self.token.is_none();
        } else if is_marked(field) {
            self.marked = true;
        } else if self.holder.is_none() {
            self.holder = parse_count(value).map(|count| (field.into(), count));
            self.other |= self.holder.is_none();
        } else {
            self.other = true;
        }
    }

    /// Whether it has a field that no lock of any mode has: nothing more of it is to be read.
    pub fn is_too_long(&self) -> bool {
        self.too_long
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
            (false, None, token) if token.is_some() || self.marked => KeyState::Bare(token),
            // All fields had TTLs of their own, and these are over: the lock is free, and the server will remove the
            // hash.
            (false, None, _) => KeyState::ReadWrite(Box::new(ReadWrite::emptied(deadline_ms))),
            (true, ..) => KeyState::OtherHash,
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
    let is_number = digits.len() <= 64 && digits.iter().all(u8::is_ascii_digit);
    is_number && digits.first().is_some_and(|first| *first != b'0')
}

/// The value of the owner's field: 1 to 2^31-1.
pub fn parse_count(value: &[u8]) -> Option<u32> {
    let count = u32::try_from(parse_decimal(value)?).ok()?;
    (1..=MAX_HOLD_COUNT).contains(&count).then_some(count)
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

    /// Whether a grant writes Redisson's counter.
    pub fn has_counter(&self) -> bool {
        self.fence.is_some_and(|fence| fence.counter.is_some())
    }
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
        assert_eq!(KeyState::Bare(Some(token)).token(), Some(token));
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
        assert_eq!(read(&[("#token", "t7")]), KeyState::Bare(Token::new(7)));
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
    fn fields_of_the_module_and_of_later_versions_are_no_holders() {
        for fields in [
            &[("#note:u:1", "x")][..],
            &[("#later", "1")],
            &[("#", ""), ("#note:u:1", "x")],
        ] {
            assert_eq!(read(fields), KeyState::Bare(None), "{fields:?}");
            let with_token = [fields, &[("#token", "t7")]].concat();
            assert_eq!(read(&with_token), KeyState::Bare(Token::new(7)));
            let held = [fields, &[("u:1", "2")]].concat();
            assert!(matches!(read(&held), KeyState::Held(hold) if hold.count == 2));
        }
    }

    #[test]
    fn what_is_longer_than_a_lock_can_have_is_no_locks() {
        let (fits, long) = ("x".repeat(LONGEST), "x".repeat(LONGEST + 1));
        assert!(matches!(read(&[(&fits, "1")]), KeyState::Held(_)));
        assert_eq!(read(&[("u:1", "1"), ("#x", &fits)]), read(&[("u:1", "1")]));
        for foreign in [(&*long, "1"), ("#x", &*long), ("#token", &*long)] {
            assert_eq!(read(&[foreign]), KeyState::OtherHash);
        }
        let names: Vec<_> = (0..MOST_FIELDS).map(|n| format!("#{n}")).collect();
        let mut fields: Vec<_> = names.iter().map(|name| (&**name, "")).collect();
        assert_eq!(read(&fields), KeyState::Bare(None));
        fields.push(("u:1", "1"));
        assert_eq!(read(&fields), KeyState::OtherHash);
        let digits = format!("t{}", "9".repeat(65));
        assert_eq!(read(&[("#token", &digits)]), KeyState::OtherHash);
    }

    #[test]
    fn a_string_with_a_ttl_is_a_lock_without_an_owners_name() {
        let now = Now {
            wall_ms: 4,
            wall_sub_us: 0,
            mono_ms: 0,
        };
        assert_eq!(KeyState::of_string(None, Some(b"x")), KeyState::OtherType);
        for (value, is_number) in [
            (Some(&b"5f1c"[..]), false),
            (Some(b"1"), true),
            (Some(b"-3"), true),
            (None, false),
        ] {
            let state = KeyState::of_string(Some(5), value);
            assert!(state.hold(now).is_some() && is_held(&state, None, now));
            assert!(!is_held(&state, Some(b""), now));
            assert_eq!(state.may_break(now).is_err(), is_number);
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
