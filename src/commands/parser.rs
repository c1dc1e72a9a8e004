//! The parser of a command's words, left to right. The first error found is the reply.
//!
//! Parsing needs no server: a word is anything that lends bytes ([`Word`]), and the settings that bound the values
//! come in as [`ParseSettings`]. A command that parses has no effect until it is applied.

use std::collections::HashSet;
use std::fmt::Display;

use crate::commands::error::CommandError;
use crate::lock::{
    is_beside_a_lock, parse_integer, Lease, Notify, SetIf, Wait, MAX_KEYS, TOKEN_FIELD,
};
use crate::module::entry::command::{Arg, ArgKind, Command, Spec};
use crate::module::ffi::strings::Str;
use crate::module::keyspace::horizon;
use crate::module::state::settings;

/// Redis' wording.
const NOT_INTEGER: &str = "value is not an integer or out of range";

/// Waiters listed by `WAITERS` without `COUNT`.
pub const DEFAULT_WAITERS: usize = 10;

/// The most waiters that one command lists.
pub const MOST_WAITERS: usize = 1_000;

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

/// The words that are not parsed yet. Every method takes words from the left; without one it fails with a syntax error.
pub struct Parser<'w, W> {
    left: std::slice::Iter<'w, W>,
    settings: &'w ParseSettings,
    /// Its arguments are what an error says was expected.
    spec: &'static Spec,
}

/// What a parsed word is.
pub enum Found {
    /// An option that is given for the first time.
    New,
    /// An option that was given before, or beside which it is excluded.
    Again,
    /// No option of the command.
    Unknown,
}

impl<'w, W: Word> Parser<'w, W> {
    /// A parser of the words behind the command's name.
    pub fn new<C: Command>(words: &'w [W], settings: &'w ParseSettings) -> Parser<'w, W> {
        let mut left = words.iter();
        left.next();
        Parser {
            left,
            settings,
            spec: const { &C::SPEC },
        }
    }

    /// A word with any bytes, which follows `before`.
    pub fn any(&mut self, before: &str) -> Result<W, CommandError> {
        let missing = || syntax(format!("a value is missing after {before}"));
        self.left.next().copied().ok_or_else(missing)
    }

    /// A key.
    ///
    /// # Errors
    /// [`CommandError::KeyReserved`] and [`CommandError::KeyBesideLock`] for names that the module uses itself.
    pub fn key(&mut self) -> Result<W, CommandError> {
        let key = self.any("the command")?;
        check_key(key.as_bytes())?;
        Ok(key)
    }

    /// `numkeys key [key ...]`: from 1 to [`MAX_KEYS`] different keys, with at least one word behind them.
    ///
    /// # Errors
    /// In this order: those of the number, too few words, too many keys, the errors of [`Parser::key`], a key twice.
    pub fn keys(&mut self) -> Result<&'w [W], CommandError> {
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

    /// An owner, or the id of a permit.
    ///
    /// # Errors
    /// [`CommandError::OwnerEmpty`], [`CommandError::OwnerTooLong`], [`CommandError::OwnerReserved`].
    pub fn owner(&mut self) -> Result<W, CommandError> {
        let word = self.any("the key")?;
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
    /// A word of another form.
    pub fn cursor(&mut self) -> Result<u64, CommandError> {
        let word = self.any("the command")?;
        let word = word.as_bytes();
        let digits = std::str::from_utf8(word).ok();
        digits
            .filter(|digits| !digits.starts_with('+'))
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| wrong("invalid cursor", "cursor", word))
    }

    /// The options up to the end. `parse` gets each in upper case, cut to 16 bytes (longer than any option), and reads
    /// its value.
    ///
    /// # Errors
    /// Those of `parse`, an unknown option, an option that excludes one before it.
    pub fn options(
        &mut self,
        mut parse: impl FnMut(&mut Self, &[u8]) -> Result<Found, CommandError>,
    ) -> Result<(), CommandError> {
        while let Some(word) = self.left.next() {
            let word = word.as_bytes();
            let mut buffer = [0; 16];
            for (upper, byte) in buffer.iter_mut().zip(word) {
                *upper = byte.to_ascii_uppercase();
            }
            let option = buffer.get(..word.len()).unwrap_or(&buffer);
            match parse(self, option)? {
                Found::New => {}
                Found::Again => return Err(self.again(option)),
                Found::Unknown => return Err(self.unknown(word)),
            }
        }
        Ok(())
    }

    #[cold]
    fn again(&self, option: &[u8]) -> CommandError {
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
    fn unknown(&self, word: &[u8]) -> CommandError {
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
    pub fn end(&self) -> Result<(), CommandError> {
        match self.left.as_slice().first() {
            Some(word) => Err(self.unknown(word.as_bytes())),
            None => Ok(()),
        }
    }

    /// The value of `TOKEN`: an integer from 0 on.
    ///
    /// # Errors
    /// Those of [`Parser::number`].
    pub fn token(&mut self) -> Result<u64, CommandError> {
        Ok(self.number("TOKEN", 0)?.unsigned_abs())
    }

    /// The value of `COUNT`: an integer from 1 on.
    ///
    /// # Errors
    /// Those of [`Parser::number`].
    pub fn count(&mut self) -> Result<usize, CommandError> {
        let count = self.number("COUNT", 1)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// An integer from `least` on, 0 or 1, for the argument of this name.
    ///
    /// # Errors
    /// A word of another form, or a smaller number.
    pub fn number(&mut self, name: &str, least: i64) -> Result<i64, CommandError> {
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
    pub fn lease(&mut self, name: &str, unit_ms: i64) -> Result<Lease, CommandError> {
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

    /// This lease, or the default where the request names none.
    pub fn or_default(&self, lease: Option<Lease>) -> Lease {
        let default = || Lease::from_ms(self.settings.default_lease_ms);
        // The setting excludes a default below 1 ms.
        lease.or_else(default).unwrap_or(Lease::SHORTEST)
    }

    /// The value of `BLOCK`, in milliseconds; 0 is without limit.
    ///
    /// # Errors
    /// A word that is no integer, a negative one, one above `lock.max-wait`.
    pub fn wait(&mut self) -> Result<Wait, CommandError> {
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

    /// The values of `NOTIFY`: a channel of 256 bytes and a tag of 64 at most.
    ///
    /// # Errors
    /// [`CommandError::ChannelTooLong`], [`CommandError::TagTooLong`].
    pub fn notify(&mut self) -> Result<NotifyWords<W>, CommandError> {
        let (channel, tag) = (self.any("NOTIFY")?, self.any("the channel of NOTIFY")?);
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
    /// Those of [`Parser::options`].
    pub fn condition(&mut self) -> Result<SetIf, CommandError> {
        let mut set_if = None;
        self.options(|_, option| {
            Ok(match option {
                b"NX" => once(&mut set_if, SetIf::Absent),
                b"XX" => once(&mut set_if, SetIf::There),
                _ => Found::Unknown,
            })
        })?;
        Ok(set_if.unwrap_or(SetIf::Always))
    }

    /// `[WAITERS [COUNT n]]` up to the end: how many waiters are to be listed, 0 without `WAITERS`.
    ///
    /// # Errors
    /// Those of [`Parser::options`] and of the count; `COUNT` without `WAITERS` before it.
    pub fn waiters(&mut self) -> Result<usize, CommandError> {
        let (mut waiters, mut count) = (None, None);
        self.options(|parser, option| {
            Ok(match option {
                b"WAITERS" => once(&mut waiters, DEFAULT_WAITERS),
                b"COUNT" if waiters.is_none() => {
                    return Err(syntax("COUNT needs WAITERS before it"))
                }
                b"COUNT" => once(&mut count, parser.count()?),
                _ => Found::Unknown,
            })
        })?;
        Ok(count.or(waiters).unwrap_or(0).min(MOST_WAITERS))
    }
}

/// The value of `numkeys`. More digits than an integer has are too many keys for any command, not an error of form.
fn number_of_keys(word: &[u8]) -> Result<usize, CommandError> {
    let is_long = word.len() > 18 && word.iter().all(u8::is_ascii_digit);
    match parse_integer(word) {
        Some(number) if number > 0 => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        None if is_long => Ok(usize::MAX),
        _ => Err(wrong("numkeys should be greater than 0", "numkeys", word)),
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
pub fn once<T>(slot: &mut Option<T>, value: T) -> Found {
    match slot.replace(value) {
        Some(_) => Found::Again,
        None => Found::New,
    }
}

/// Checks the options of a wait.
///
/// # Errors
/// `NOTIFY` without `BLOCK`.
pub fn check_wait<W>(
    wait: Option<Wait>,
    notify: Option<&NotifyWords<W>>,
) -> Result<(), CommandError> {
    match (wait, notify) {
        (None, Some(_)) => Err(syntax("NOTIFY needs BLOCK")),
        _ => Ok(()),
    }
}

/// An error of form.
#[cold]
pub fn syntax(detail: impl Display) -> CommandError {
    CommandError::Word(format!("syntax error: {detail}").into())
}

/// An error of the value of an argument, in the server's own wording where it has one, with the argument and the word.
#[cold]
fn wrong(error: &str, argument: &str, word: &[u8]) -> CommandError {
    CommandError::Word(format!("{error}: {argument} '{}'", shown(word)).into())
}

/// A client's word in a reply.
pub fn shown(word: &[u8]) -> String {
    crate::lock::shown(word, 32)
}

/// The words that begin these arguments.
fn tokens(args: &'static [Arg]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for arg in args {
        found.extend(arg.token.and_then(|token| token.to_str().ok()));
        if let ArgKind::OneOf(parts) | ArgKind::Block(parts) = arg.kind {
            found.extend(tokens(parts));
        }
    }
    found
}
