//! The words of a command, read one by one. Everything a client sends is bytes; whatever cannot be
//! understood is an error in the core's wording, found before anything is done.

use std::collections::HashSet;

use smallvec::SmallVec;

use crate::lock::{is_beside_a_lock, parse_integer, Lease, LockError, Wait, MAX_KEYS, TOKEN_FIELD};
use crate::module::entry::command::{Arg, ArgKind};
use crate::module::ffi::strings::Str;
use crate::module::keyspace::horizon;
use crate::module::state::settings;

/// The arguments that are left.
pub struct Args<'a> {
    left: std::slice::Iter<'a, Str<'a>>,
}

impl<'a> Args<'a> {
    /// Starts behind the command's name.
    pub fn new(words: &'a [Str<'a>]) -> Args<'a> {
        let mut left = words.iter();
        left.next();
        Args { left }
    }

    /// The key: any name but those of our own keys.
    pub fn key(&mut self) -> Result<Str<'a>, LockError> {
        let key = self.left.next().copied().ok_or(LockError::Syntax)?;
        may_be_a_key(key)?;
        Ok(key)
    }

    /// `numkeys key [key ...]`, no two of them the same.
    pub fn keys(&mut self) -> Result<&'a [Str<'a>], LockError> {
        let word = self.left.next().ok_or(LockError::Syntax)?.bytes();
        let is_long = word.len() > 18 && word.iter().all(u8::is_ascii_digit);
        let number = match parse_integer(word) {
            Some(number) if number > 0 => usize::try_from(number).unwrap_or(usize::MAX),
            None if is_long => usize::MAX,
            _ => return Err(LockError::NumKeys),
        };
        // At least the owner stands behind the keys.
        let left = self.left.as_slice();
        if number >= left.len() {
            return Err(LockError::MissingKeys);
        }
        let (keys, left) = left.split_at(number);
        if number > MAX_KEYS {
            return Err(LockError::TooManyKeys);
        }
        keys.iter().try_for_each(|key| may_be_a_key(*key))?;
        let mut seen = HashSet::with_capacity(number);
        if !keys.iter().all(|key| seen.insert(key.bytes())) {
            return Err(LockError::SameKeys);
        }
        self.left = left.iter();
        Ok(keys)
    }

    /// The owner: any bytes but none, not too many, and not the name of our field.
    pub fn owner(&mut self) -> Result<Str<'a>, LockError> {
        let word = self.left.next().copied().ok_or(LockError::Syntax)?;
        let owner = word.bytes();
        if owner.is_empty() {
            Err(LockError::OwnerEmpty)
        } else if owner.len() > settings::max_owner_len() {
            Err(LockError::OwnerTooLong)
        } else if owner == TOKEN_FIELD {
            Err(LockError::OwnerReserved)
        } else {
            Ok(word)
        }
    }

    /// Any bytes.
    pub fn bytes(&mut self) -> Result<Str<'a>, LockError> {
        self.left.next().copied().ok_or(LockError::Syntax)
    }

    /// A cursor: an unsigned decimal number of 64 bits.
    pub fn cursor(&mut self) -> Result<u64, LockError> {
        let word = self.bytes()?.bytes();
        let digits = std::str::from_utf8(word).ok();
        digits
            .filter(|digits| !digits.starts_with('+'))
            .and_then(|digits| digits.parse().ok())
            .ok_or(LockError::InvalidCursor)
    }

    /// The next option in upper case, or `None` at the end. Longer words than any option are cut.
    pub fn option(&mut self) -> Option<SmallVec<[u8; 16]>> {
        let word = self.left.next()?.bytes();
        Some(word.iter().take(16).map(u8::to_ascii_uppercase).collect())
    }

    fn integer(&mut self) -> Result<i64, LockError> {
        parse_integer(self.left.next().ok_or(LockError::Syntax)?.bytes())
            .ok_or(LockError::NotInteger)
    }

    /// The value of `TOKEN`.
    pub fn token(&mut self) -> Result<u64, LockError> {
        u64::try_from(self.integer()?).map_err(|_| LockError::NotInteger)
    }

    /// The value of `COUNT`.
    pub fn count(&mut self) -> Result<usize, LockError> {
        match usize::try_from(self.integer()?) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(LockError::NotPositive),
        }
    }

    /// A number from `least` on.
    pub fn number(&mut self, least: i64) -> Result<i64, LockError> {
        match self.integer()? {
            number if number >= least => Ok(number),
            _ if least > 0 => Err(LockError::NotPositive),
            _ => Err(LockError::NotInteger),
        }
    }

    /// The value of `EX` (`unit_ms` 1,000) or `PX` (1), for the command of this name.
    pub fn lease(&mut self, unit_ms: i64, command: &'static str) -> Result<Lease, LockError> {
        let ms = self.integer()?.checked_mul(unit_ms);
        ms.filter(|ms| *ms <= settings::max_lease_ms())
            .and_then(Lease::from_ms)
            .ok_or(LockError::InvalidExpire(command))
    }

    /// The value of `BLOCK`.
    pub fn wait(&mut self) -> Result<Wait, LockError> {
        let word = self.left.next().ok_or(LockError::Syntax)?.bytes();
        match parse_integer(word) {
            None => Err(LockError::TimeoutNotInteger),
            Some(ms) if ms < 0 => Err(LockError::TimeoutNegative),
            Some(ms) if ms > settings::max_wait_ms() => Err(LockError::TimeoutOutOfRange),
            Some(0) => Ok(Wait::ForEver),
            Some(ms) => Ok(Wait::Ms(ms.unsigned_abs())),
        }
    }
}

/// A lock under the name of a key beside another lock would be written over with that: under the eyes of a
/// command that has both keys open, which ends the server.
fn may_be_a_key(key: Str<'_>) -> Result<(), LockError> {
    let name = key.bytes();
    if horizon::is_reserved(name) {
        return Err(LockError::KeyReserved);
    }
    match is_beside_a_lock(name) {
        true => Err(LockError::KeyBesideLock),
        false => Ok(()),
    }
}

/// The lease where the request names none.
pub fn default_lease() -> Result<Lease, LockError> {
    Lease::from_ms(settings::default_lease_ms()).ok_or(LockError::Syntax)
}

/// Puts a value into an option that may be given once only.
pub fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), LockError> {
    match slot.replace(value) {
        Some(_) => Err(LockError::Syntax),
        None => Ok(()),
    }
}

/// `key`, for the descriptions.
pub const KEY: Arg = Arg {
    name: c"key",
    kind: ArgKind::Key,
    token: None,
    optional: false,
};

/// `numkeys`, for the descriptions.
pub const NUMKEYS: Arg = Arg {
    name: c"numkeys",
    kind: ArgKind::Integer,
    token: None,
    optional: false,
};

/// `key [key ...]`, for the descriptions.
pub const KEYS: Arg = Arg {
    name: c"key",
    kind: ArgKind::Keys,
    token: None,
    optional: false,
};

/// `owner`, for the descriptions.
pub const OWNER: Arg = Arg {
    name: c"owner",
    kind: ArgKind::String,
    token: None,
    optional: false,
};

/// `[EX seconds | PX milliseconds]`, for the descriptions.
pub const LEASE: Arg = Arg {
    name: c"lease",
    kind: ArgKind::OneOf(&[
        option(c"seconds", c"EX", false),
        option(c"milliseconds", c"PX", false),
    ]),
    token: None,
    optional: true,
};

/// `[EX seconds | PX milliseconds | SESSION]`, for the descriptions.
pub const TERMS: Arg = Arg {
    name: c"lease",
    kind: ArgKind::OneOf(&[
        option(c"seconds", c"EX", false),
        option(c"milliseconds", c"PX", false),
        Arg {
            name: c"session",
            kind: ArgKind::Word,
            token: Some(c"SESSION"),
            optional: false,
        },
    ]),
    token: None,
    optional: true,
};

/// `[READ | WRITE]`, for the descriptions.
pub const MODE: Arg = Arg {
    name: c"mode",
    kind: ArgKind::OneOf(&[bare(c"read", c"READ"), bare(c"write", c"WRITE")]),
    token: None,
    optional: true,
};

/// `[TOKEN token]`, for the descriptions.
pub const TOKEN: Arg = option(c"token", c"TOKEN", true);

/// A word with an integer behind it.
pub const fn option(
    name: &'static std::ffi::CStr,
    token: &'static std::ffi::CStr,
    optional: bool,
) -> Arg {
    Arg {
        name,
        kind: ArgKind::Integer,
        token: Some(token),
        optional,
    }
}

/// An optional word with any bytes behind it.
pub const fn text(name: &'static std::ffi::CStr, token: &'static std::ffi::CStr) -> Arg {
    Arg {
        name,
        kind: ArgKind::String,
        token: Some(token),
        optional: true,
    }
}

/// A bare optional word.
pub const fn word(name: &'static std::ffi::CStr, token: &'static std::ffi::CStr) -> Arg {
    Arg {
        optional: true,
        ..bare(name, token)
    }
}

/// A bare word.
const fn bare(name: &'static std::ffi::CStr, token: &'static std::ffi::CStr) -> Arg {
    Arg {
        name,
        kind: ArgKind::Word,
        token: Some(token),
        optional: false,
    }
}
