//! The parser of a command's words, left to right. The first error found is the reply.
//!
//! Parsing needs no server: a word is anything that lends bytes ([`Word`]), and the settings that bound the values
//! come in as [`ParseSettings`]. A command that parses has no effect until it is applied.

use std::collections::HashSet;
use std::fmt::Display;

use crate::commands::options::{tokens, NotifyWords, Options};
use crate::lock::{
    is_beside_a_lock, is_marked, parse_integer, Lease, LockError, Wait, MAX_KEYS, MAX_NOTE,
};
use crate::module::entry::command::{ArgKind, Command, Spec};
use crate::module::ffi::strings::Str;
use crate::module::keyspace::horizon;
use crate::module::state::settings;

/// Redis' wording.
const NOT_INTEGER: &str = "value is not an integer or out of range";

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

/// The words that are not parsed yet. Every method takes words from the left; without one it fails with a syntax error.
pub struct Parser<'w, W> {
    pub(super) left: std::slice::Iter<'w, W>,
    pub(super) settings: ParseSettings,
    /// The command. Its table of arguments has its options, and what an error says was expected.
    pub(super) spec: &'static Spec,
}

impl<'w> Parser<'w, Str<'w>> {
    /// A parser of the words behind the command's name, with the settings in force.
    #[inline(always)]
    pub fn of<C: Command>(words: &'w [Str<'w>]) -> Parser<'w, Str<'w>> {
        Parser::new::<C>(words, ParseSettings::current())
    }
}

impl<'w, W: Word> Parser<'w, W> {
    /// A parser of the words behind the command's name.
    #[inline(always)]
    pub fn new<C: Command>(words: &'w [W], settings: ParseSettings) -> Parser<'w, W> {
        let mut left = words.iter();
        left.next();
        Parser {
            left,
            settings,
            spec: const { &C::SPEC },
        }
    }

    /// All words of a command with the arguments `key [option ...]`.
    ///
    /// # Errors
    /// Those of the key and the options, in this order.
    #[inline(always)]
    pub fn key_only(mut self) -> Result<(W, Options<W>), LockError> {
        Ok((self.key()?, self.options()?))
    }

    /// All words of a command with the arguments `key owner [option ...]`.
    ///
    /// # Errors
    /// Those of the key, the owner, and the options, in this order.
    #[inline(always)]
    pub fn key_and_owner(mut self) -> Result<(W, W, Options<W>), LockError> {
        Ok((self.key()?, self.owner("the key")?, self.options()?))
    }

    /// All words of a command with the arguments `numkeys key [key ...] owner [option ...]`.
    ///
    /// # Errors
    /// Those of the keys, the owner, and the options, in this order.
    #[inline(always)]
    pub fn keys_and_owner(mut self) -> Result<(&'w [W], W, Options<W>), LockError> {
        Ok((self.keys()?, self.owner("the key")?, self.options()?))
    }

    /// A word with any bytes, which follows `before`.
    pub fn any(&mut self, before: &str) -> Result<W, LockError> {
        let missing = || syntax(format!("a value is missing after {before}"));
        self.left.next().copied().ok_or_else(missing)
    }

    /// A key.
    ///
    /// # Errors
    /// [`LockError::KeyReserved`] and [`LockError::KeyBesideLock`] for names that the module uses itself.
    pub fn key(&mut self) -> Result<W, LockError> {
        let key = self.any("the command")?;
        check_key(key.as_bytes())?;
        Ok(key)
    }

    /// `numkeys key [key ...]`: from 1 to [`MAX_KEYS`] different keys, with at least one word behind them.
    ///
    /// # Errors
    /// In this order: those of the number, too few words, too many keys, the errors of [`Parser::key`], a key twice.
    pub fn keys(&mut self) -> Result<&'w [W], LockError> {
        let word = self.any("the command")?;
        let word = word.as_bytes();
        let number = number_of_keys(word)?;
        // At least the owner follows the keys.
        let left = self.left.as_slice();
        if number >= left.len() {
            return Err(wrong(
                "Number of keys can't be greater than number of args",
                "numkeys",
                word,
            ));
        }
        let (keys, left) = left.split_at(number);
        if number > MAX_KEYS {
            let error = format!("more than {MAX_KEYS} keys in one request");
            return Err(wrong(&error, "numkeys", word));
        }
        keys.iter().try_for_each(|key| check_key(key.as_bytes()))?;
        let mut seen = HashSet::with_capacity(number);
        if let Some(key) = keys.iter().find(|key| !seen.insert(key.as_bytes())) {
            return Err(wrong("the same key is given twice", "key", key.as_bytes()));
        }
        self.left = left.iter();
        Ok(keys)
    }

    /// An owner, or the id of a permit, behind the word or argument of this name.
    ///
    /// # Errors
    /// [`LockError::OwnerEmpty`], [`LockError::OwnerTooLong`], [`LockError::OwnerReserved`].
    pub fn owner(&mut self, after: &str) -> Result<W, LockError> {
        let word = self.any(after)?;
        let owner = word.as_bytes();
        if owner.is_empty() {
            Err(LockError::OwnerEmpty)
        } else if owner.len() > self.settings.max_owner_len && self.takes(b"SEQ") {
            // Of requests that acquire: a hold of before the setting was lowered can be renewed and released.
            Err(LockError::OwnerTooLong)
        } else if is_marked(owner) {
            Err(LockError::OwnerReserved)
        } else {
            Ok(word)
        }
    }

    /// A cursor: an unsigned decimal integer of 64 bits. Leading zeros are allowed, a sign is not.
    ///
    /// # Errors
    /// A word of another form.
    pub fn cursor(&mut self) -> Result<u64, LockError> {
        let word = self.any("the command")?;
        let word = word.as_bytes();
        let digits = std::str::from_utf8(word).ok();
        digits
            .filter(|digits| !digits.starts_with('+'))
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| wrong("invalid cursor", "cursor", word))
    }

    #[cold]
    pub(super) fn again(&self, option: &[u8]) -> LockError {
        let option = shown(option);
        let mut groups = self.spec.args.iter().filter_map(|arg| match arg.kind {
            ArgKind::OneOf(parts) => Some(tokens(parts)),
            _ => None,
        });
        let group = groups.find(|group| group.contains(&option.as_str()));
        syntax(match group {
            Some(group) => format!("more than one of {}", group.join(", ")),
            None => format!("more than one {option}"),
        })
    }

    #[cold]
    pub(super) fn unknown(&self, word: &[u8]) -> LockError {
        let word = shown(word);
        let expected = match tokens(self.spec.args).join(", ") {
            none if none.is_empty() => "none".into(),
            options => options,
        };
        syntax(format!("unknown option '{word}', expected {expected}"))
    }

    /// Whether words are left.
    pub fn has_more(&self) -> bool {
        !self.left.as_slice().is_empty()
    }

    /// The end of the words.
    ///
    /// # Errors
    /// A word is left.
    pub fn end(&self) -> Result<(), LockError> {
        match self.left.as_slice().first() {
            Some(word) => Err(self.unknown(word.as_bytes())),
            None => Ok(()),
        }
    }

    /// The value of `TOKEN`: an integer from 0 on.
    ///
    /// # Errors
    /// Those of [`Parser::number`].
    pub fn token(&mut self) -> Result<u64, LockError> {
        Ok(self.number("TOKEN", 0)?.unsigned_abs())
    }

    /// The value of `COUNT`: an integer from 1 on.
    ///
    /// # Errors
    /// Those of [`Parser::number`].
    pub fn count(&mut self) -> Result<usize, LockError> {
        let count = self.number("COUNT", 1)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// An integer from `least` on, 0 or 1, for the argument of this name.
    ///
    /// # Errors
    /// A word of another form, or a smaller number.
    pub fn number(&mut self, name: &str, least: i64) -> Result<i64, LockError> {
        let word = self.any(name)?;
        let word = word.as_bytes();
        match parse_integer(word) {
            Some(number) if number >= least => Ok(number),
            Some(_) if least > 0 => {
                Err(wrong("value is out of range, must be positive", name, word))
            }
            _ => Err(wrong(NOT_INTEGER, name, word)),
        }
    }

    /// The value of `EX` (`unit_ms` 1,000) or `PX` (`unit_ms` 1).
    ///
    /// # Errors
    /// A word that is no integer, or a lease below 1 ms or above `lock.max-lease`.
    pub fn lease(&mut self, name: &str, unit_ms: i64) -> Result<Lease, LockError> {
        let word = self.any(name)?;
        let word = word.as_bytes();
        let number = parse_integer(word).ok_or_else(|| wrong(NOT_INTEGER, name, word))?;
        let ms = number.checked_mul(unit_ms);
        ms.filter(|ms| *ms <= self.settings.max_lease_ms)
            .and_then(Lease::from_ms)
            .ok_or_else(|| {
                let command = self.spec.name.to_string_lossy();
                let error = format!("invalid expire time in '{command}' command");
                wrong(&error, name, word)
            })
    }

    /// The value of `BLOCK`, in milliseconds; 0 is without limit.
    ///
    /// # Errors
    /// A word that is no integer, a negative one, one above `lock.max-wait`.
    pub fn wait(&mut self) -> Result<Wait, LockError> {
        let word = self.any("BLOCK")?;
        let word = word.as_bytes();
        let error = match parse_integer(word) {
            Some(0) => return Ok(Wait::ForEver),
            Some(ms) if (0..=self.settings.max_wait_ms).contains(&ms) => {
                return Ok(Wait::Ms(ms.unsigned_abs()));
            }
            None => "timeout is not an integer or out of range",
            Some(ms) if ms < 0 => "timeout is negative",
            Some(_) => "timeout is out of range",
        };
        Err(wrong(error, "BLOCK", word))
    }

    /// The value of `NOTE`, of [`MAX_NOTE`] bytes at most.
    ///
    /// # Errors
    /// [`LockError::NoteTooLong`].
    pub fn note(&mut self) -> Result<W, LockError> {
        let note = self.any("NOTE")?;
        match note.as_bytes().len() > MAX_NOTE {
            true => Err(LockError::NoteTooLong),
            false => Ok(note),
        }
    }

    /// The values of `NOTIFY`: a channel of 256 bytes and a tag of 64 at most.
    ///
    /// # Errors
    /// [`LockError::ChannelTooLong`], [`LockError::TagTooLong`].
    pub fn notify(&mut self) -> Result<NotifyWords<W>, LockError> {
        let (channel, tag) = (self.any("NOTIFY")?, self.any("the channel of NOTIFY")?);
        if channel.as_bytes().len() > 256 {
            return Err(LockError::ChannelTooLong);
        }
        if tag.as_bytes().len() > 64 {
            return Err(LockError::TagTooLong);
        }
        Ok(NotifyWords { channel, tag })
    }
}

/// The value of `numkeys`. More digits than an integer has are too many keys for any command, not an error of form.
fn number_of_keys(word: &[u8]) -> Result<usize, LockError> {
    let is_long = word.len() > 18 && word.iter().all(u8::is_ascii_digit);
    match parse_integer(word) {
        Some(number) if number > 0 => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        None if is_long => Ok(usize::MAX),
        _ => Err(wrong("numkeys should be greater than 0", "numkeys", word)),
    }
}

/// Refuses the names of keys that the module writes itself: a lock of that name would be overwritten by a command
/// that has both keys open, which ends the server.
fn check_key(name: &[u8]) -> Result<(), LockError> {
    if horizon::is_reserved(name) {
        return Err(LockError::KeyReserved);
    }
    match is_beside_a_lock(name) {
        true => Err(LockError::KeyBesideLock),
        false => Ok(()),
    }
}

/// An error of form.
#[cold]
pub fn syntax(detail: impl Display) -> LockError {
    LockError::Word(format!("syntax error: {detail}").into())
}

/// An error of the value of an argument, in the server's own wording where it has one, with the argument and the word.
#[cold]
fn wrong(error: &str, argument: &str, word: &[u8]) -> LockError {
    LockError::Word(format!("{error}: {argument} '{}'", shown(word)).into())
}

/// A client's word in a reply.
pub fn shown(word: &[u8]) -> String {
    crate::lock::shown(word, 32)
}
