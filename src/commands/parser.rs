//! The parser of a command's words, left to right. The first error found is the reply.
//!
//! Parsing needs no server: a word is anything that lends bytes ([`Word`]), and the settings that bound the values
//! come in as [`ParseSettings`]. A command that parses has no effect until it is applied.

use std::collections::HashSet;

use smallvec::SmallVec;

use crate::commands::error::CommandError;
use crate::lock::{
    is_beside_a_lock, parse_integer, Lease, Notify, SetIf, Wait, MAX_KEYS, TOKEN_FIELD,
};
use crate::module::ffi::strings::Str;
use crate::module::keyspace::horizon;
use crate::module::state::settings;

/// Waiters listed by `WAITERS` without `COUNT`.
pub const DEFAULT_WAITERS: usize = 10;

/// A word of a command: a string of the server, or plain bytes in tests.
pub trait Word: Copy {
    /// Its bytes.
    fn as_bytes(&self) -> &[u8];
}

impl Word for Str<'_> {
    fn as_bytes(&self) -> &[u8] {
        self.bytes()
    }
}

impl Word for &[u8] {
    fn as_bytes(&self) -> &[u8] {
        self
    }
}

/// The words of `NOTIFY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotifyWords<W> {
    /// The channel of the message.
    pub channel: W,
    /// The client's name for the request.
    pub tag: W,
}

impl<'a> NotifyWords<Str<'a>> {
    /// The request to the core.
    pub fn request(&self) -> Notify<'_> {
        Notify {
            channel: self.channel.bytes(),
            tag: self.tag.bytes(),
        }
    }
}

/// The settings that bound the values of a command, or stand in for absent ones.
#[derive(Debug, Clone, Copy)]
pub struct ParseSettings {
    /// The longest owner, in bytes.
    pub max_owner_len: usize,
    /// The longest lease, in milliseconds.
    pub max_lease_ms: i64,
    /// The longest bounded wait, in milliseconds.
    pub max_wait_ms: i64,
    /// The lease of a request that names none, in milliseconds.
    pub default_lease_ms: i64,
}

impl ParseSettings {
    /// The settings in force.
    pub fn current() -> ParseSettings {
        ParseSettings {
            max_owner_len: settings::max_owner_len(),
            max_lease_ms: settings::max_lease_ms(),
            max_wait_ms: settings::max_wait_ms(),
            default_lease_ms: settings::default_lease_ms(),
        }
    }
}

/// The words that are not parsed yet. Every method takes words from the left; without one it fails with
/// [`CommandError::Syntax`].
pub struct Parser<'w, W> {
    left: std::slice::Iter<'w, W>,
    settings: &'w ParseSettings,
}

impl<'w, W: Word> Parser<'w, W> {
    /// A parser of the words behind the command's name.
    pub fn new(words: &'w [W], settings: &'w ParseSettings) -> Parser<'w, W> {
        let mut left = words.iter();
        left.next();
        Parser { left, settings }
    }

    /// A word with any bytes.
    pub fn any(&mut self) -> Result<W, CommandError> {
        self.left.next().copied().ok_or(CommandError::Syntax)
    }

    /// A key.
    ///
    /// # Errors
    /// [`CommandError::KeyReserved`] and [`CommandError::KeyBesideLock`] for names that the module uses itself.
    pub fn key(&mut self) -> Result<W, CommandError> {
        let key = self.any()?;
        check_key(key.as_bytes())?;
        Ok(key)
    }

    /// `numkeys key [key ...]`: from 1 to [`MAX_KEYS`] different keys, with at least one word behind them.
    ///
    /// # Errors
    /// In this order: [`CommandError::NumKeys`], [`CommandError::MissingKeys`], [`CommandError::TooManyKeys`], the
    /// errors of [`Parser::key`], [`CommandError::SameKeys`].
    pub fn keys(&mut self) -> Result<&'w [W], CommandError> {
        let word = self.any()?;
        let number = number_of_keys(word.as_bytes())?;
        // At least the owner follows the keys.
        let left = self.left.as_slice();
        if number >= left.len() {
            return Err(CommandError::MissingKeys);
        }
        let (keys, left) = left.split_at(number);
        if number > MAX_KEYS {
            return Err(CommandError::TooManyKeys);
        }
        keys.iter().try_for_each(|key| check_key(key.as_bytes()))?;
        let mut seen = HashSet::with_capacity(number);
        if !keys.iter().all(|key| seen.insert(key.as_bytes())) {
            return Err(CommandError::SameKeys);
        }
        self.left = left.iter();
        Ok(keys)
    }

    /// An owner, or the id of a permit.
    ///
    /// # Errors
    /// [`CommandError::OwnerEmpty`], [`CommandError::OwnerTooLong`], [`CommandError::OwnerReserved`].
    pub fn owner(&mut self) -> Result<W, CommandError> {
        let word = self.any()?;
        let owner = word.as_bytes();
        if owner.is_empty() {
            Err(CommandError::OwnerEmpty)
        } else if owner.len() > self.settings.max_owner_len {
            Err(CommandError::OwnerTooLong)
        } else if owner == TOKEN_FIELD {
            Err(CommandError::OwnerReserved)
        } else {
            Ok(word)
        }
    }

    /// A cursor: an unsigned decimal integer of 64 bits. Leading zeros are allowed, a sign is not.
    ///
    /// # Errors
    /// [`CommandError::InvalidCursor`].
    pub fn cursor(&mut self) -> Result<u64, CommandError> {
        let word = self.any()?;
        let digits = std::str::from_utf8(word.as_bytes()).ok();
        digits
            .filter(|digits| !digits.starts_with('+'))
            .and_then(|digits| digits.parse().ok())
            .ok_or(CommandError::InvalidCursor)
    }

    /// The next option in upper case, or `None` at the end. Cut to 16 bytes, which is longer than any option.
    pub fn option(&mut self) -> Option<SmallVec<[u8; 16]>> {
        let word = self.left.next()?.as_bytes();
        Some(word.iter().take(16).map(u8::to_ascii_uppercase).collect())
    }

    /// Whether words are left.
    pub fn has_more(&self) -> bool {
        !self.left.as_slice().is_empty()
    }

    /// The end of the words.
    ///
    /// # Errors
    /// [`CommandError::Syntax`] if words are left.
    pub fn end(&self) -> Result<(), CommandError> {
        match self.has_more() {
            true => Err(CommandError::Syntax),
            false => Ok(()),
        }
    }

    fn integer(&mut self) -> Result<i64, CommandError> {
        parse_integer(self.any()?.as_bytes()).ok_or(CommandError::NotInteger)
    }

    /// The value of `TOKEN`: an integer from 0 on.
    ///
    /// # Errors
    /// [`CommandError::NotInteger`].
    pub fn token(&mut self) -> Result<u64, CommandError> {
        u64::try_from(self.integer()?).map_err(|_| CommandError::NotInteger)
    }

    /// The value of `COUNT`: an integer from 1 on.
    ///
    /// # Errors
    /// [`CommandError::NotInteger`], [`CommandError::NotPositive`].
    pub fn count(&mut self) -> Result<usize, CommandError> {
        match usize::try_from(self.integer()?) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(CommandError::NotPositive),
        }
    }

    /// An integer from `least` on.
    ///
    /// # Errors
    /// [`CommandError::NotInteger`]; below a `least` above zero [`CommandError::NotPositive`].
    pub fn number(&mut self, least: i64) -> Result<i64, CommandError> {
        match self.integer()? {
            number if number >= least => Ok(number),
            _ if least > 0 => Err(CommandError::NotPositive),
            _ => Err(CommandError::NotInteger),
        }
    }

    /// The value of `EX` (`unit_ms` 1,000) or `PX` (`unit_ms` 1) of this command.
    ///
    /// # Errors
    /// [`CommandError::NotInteger`], [`CommandError::InvalidExpire`].
    pub fn lease(&mut self, unit_ms: i64, command: &'static str) -> Result<Lease, CommandError> {
        let ms = self.integer()?.checked_mul(unit_ms);
        ms.filter(|ms| *ms <= self.settings.max_lease_ms)
            .and_then(Lease::from_ms)
            .ok_or(CommandError::InvalidExpire(command))
    }

    /// This lease, or the default where the request names none.
    ///
    /// # Errors
    /// [`CommandError::Syntax`] for a default below 1 ms, which the setting excludes.
    pub fn or_default(&self, lease: Option<Lease>) -> Result<Lease, CommandError> {
        let default = || Lease::from_ms(self.settings.default_lease_ms).ok_or(CommandError::Syntax);
        lease.map_or_else(default, Ok)
    }

    /// The value of `BLOCK`, in milliseconds; 0 is without limit.
    ///
    /// # Errors
    /// [`CommandError::TimeoutNotInteger`], [`CommandError::TimeoutNegative`], [`CommandError::TimeoutOutOfRange`].
    pub fn wait(&mut self) -> Result<Wait, CommandError> {
        match parse_integer(self.any()?.as_bytes()) {
            None => Err(CommandError::TimeoutNotInteger),
            Some(ms) if ms < 0 => Err(CommandError::TimeoutNegative),
            Some(ms) if ms > self.settings.max_wait_ms => Err(CommandError::TimeoutOutOfRange),
            Some(0) => Ok(Wait::ForEver),
            Some(ms) => Ok(Wait::Ms(ms.unsigned_abs())),
        }
    }

    /// The values of `NOTIFY`: a channel of 256 bytes and a tag of 64 at most.
    ///
    /// # Errors
    /// [`CommandError::ChannelTooLong`], [`CommandError::TagTooLong`].
    pub fn notify(&mut self) -> Result<NotifyWords<W>, CommandError> {
        let (channel, tag) = (self.any()?, self.any()?);
        if channel.as_bytes().len() > 256 {
            return Err(CommandError::ChannelTooLong);
        }
        if tag.as_bytes().len() > 64 {
            return Err(CommandError::TagTooLong);
        }
        Ok(NotifyWords { channel, tag })
    }

    /// `[NX | XX]` up to the end. `NX XX` is a syntax error, like `NX NX`.
    ///
    /// # Errors
    /// [`CommandError::Syntax`].
    pub fn condition(&mut self) -> Result<SetIf, CommandError> {
        let mut set_if = None;
        while let Some(option) = self.option() {
            match &option[..] {
                b"NX" => once(&mut set_if, SetIf::Absent)?,
                b"XX" => once(&mut set_if, SetIf::There)?,
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(set_if.unwrap_or(SetIf::Always))
    }

    /// `[WAITERS [COUNT n]]` up to the end: how many waiters are to be listed, 0 without `WAITERS`.
    ///
    /// # Errors
    /// [`CommandError::Syntax`], [`CommandError::NotInteger`], [`CommandError::NotPositive`].
    pub fn waiters(&mut self) -> Result<usize, CommandError> {
        let list = match self.option().as_deref() {
            None => return Ok(0),
            Some(b"WAITERS") => match self.option().as_deref() {
                None => return Ok(DEFAULT_WAITERS),
                Some(b"COUNT") => self.count()?,
                Some(_) => return Err(CommandError::Syntax),
            },
            Some(_) => return Err(CommandError::Syntax),
        };
        self.end()?;
        Ok(list)
    }
}

/// The value of `numkeys`. More digits than an integer has are too many keys for any command, not an error of form.
fn number_of_keys(word: &[u8]) -> Result<usize, CommandError> {
    let is_long = word.len() > 18 && word.iter().all(u8::is_ascii_digit);
    match parse_integer(word) {
        Some(number) if number > 0 => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        None if is_long => Ok(usize::MAX),
        _ => Err(CommandError::NumKeys),
    }
}

/// Refuses the names of keys that the module writes itself: a lock of that name would be overwritten by a command
/// that has both keys open, which ends the server.
fn check_key(name: &[u8]) -> Result<(), CommandError> {
    if horizon::is_reserved(name) {
        return Err(CommandError::KeyReserved);
    }
    match is_beside_a_lock(name) {
        true => Err(CommandError::KeyBesideLock),
        false => Ok(()),
    }
}

/// Sets an option.
///
/// # Errors
/// [`CommandError::Syntax`] if it is set already.
pub fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), CommandError> {
    match slot.replace(value) {
        Some(_) => Err(CommandError::Syntax),
        None => Ok(()),
    }
}
