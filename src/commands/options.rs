//! The options of commands: the arguments that the tables of commands are made of, what each option sets, and their
//! parser.

use std::ffi::CStr;
use std::num::NonZeroU32;

use crate::commands::parser::{syntax, Parser, Word};
use crate::lock::{Lease, LockError, Mode, Notify, SetIf, Wait, MOST_AT_ONCE};
use crate::module::entry::command::{Arg, ArgKind};
use crate::module::ffi::strings::Str;

/// Waiters listed by `WAITERS` without `COUNT`.
const DEFAULT_WAITERS: usize = 10;

/// The most waiters that one command lists.
const MOST_WAITERS: usize = 1_000;

/// The options of a command. Those that its table does not have, or that the client leaves out, keep their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options<W> {
    /// `READ`, `WRITE`
    pub mode: Option<Mode>,
    /// The lease: that of `EX` or `PX`, or the default.
    pub lease: Lease,
    /// Whether `EX` or `PX` is given.
    pub names_lease: bool,
    /// `SESSION`
    pub session: bool,
    /// `BLOCK`
    pub wait: Wait,
    /// `QUEUE`
    pub queue: Option<u32>,
    /// `NOTIFY`
    pub notify: Option<NotifyWords<W>>,
    /// `ONCE`
    pub once: bool,
    /// `WITHHOLDER`
    pub with_holder: bool,
    /// `ALL`
    pub all: bool,
    /// `TOKEN`
    pub token: Option<u64>,
    /// `SEQ`
    pub seq: Option<u64>,
    /// `FINAL`
    pub gives_up: Option<u64>,
    /// `NOTE`
    pub note: Option<W>,
    /// `PURGE`
    pub purge: bool,
    /// `COUNT` of permits
    pub permits: u8,
    /// `LIMIT`
    pub limit: Option<NonZeroU32>,
    /// `NX`, `XX`
    pub set_if: SetIf,
    /// `WAITERS`
    pub waiters: bool,
    /// `COUNT`
    pub count: Option<usize>,
    /// `MATCH`
    pub pattern: Option<W>,
    /// `OWNER`, `TO`
    pub owner: Option<W>,
    /// `WAITED`
    pub waited: bool,
    /// `USER`
    pub user: Option<W>,
}

impl<W> Options<W> {
    /// None is given.
    pub fn none(default_lease: Lease) -> Options<W> {
        Options {
            mode: None,
            lease: default_lease,
            names_lease: false,
            session: false,
            wait: Wait::No,
            queue: None,
            notify: None,
            once: false,
            with_holder: false,
            all: false,
            token: None,
            seq: None,
            gives_up: None,
            note: None,
            purge: false,
            permits: 1,
            limit: None,
            set_if: SetIf::Always,
            waiters: false,
            count: None,
            pattern: None,
            owner: None,
            waited: false,
            user: None,
        }
    }

    /// `[WAITERS [COUNT n]]`: how many waiters are to be listed, 0 without `WAITERS`.
    pub fn listed(&self) -> usize {
        match self.waiters {
            true => self.count.unwrap_or(DEFAULT_WAITERS).min(MOST_WAITERS),
            false => 0,
        }
    }
}

impl<'a> Options<Str<'a>> {
    /// The text of `NOTE`.
    pub fn note_text(&self) -> Option<&'a [u8]> {
        self.note.map(Str::bytes)
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

impl<W: Word> Parser<'_, W> {
    /// The options up to the end: those of the command's table, in any order and case.
    ///
    /// # Errors
    /// Left to right: an unknown option, an error of its value, an option given twice or beside one that it excludes.
    /// At the end: `NOTIFY` or `QUEUE` without `BLOCK`, `USER` without what it limits or with `TOKEN`, `FINAL` with
    /// what it excludes, `NOTE` with `READ` or `WRITE`, `COUNT` above `LIMIT`.
    #[inline(always)]
    pub fn options(&mut self) -> Result<Options<W>, LockError> {
        let default = Lease::from_ms(self.settings.default_lease_ms);
        // The setting excludes a default below 1 ms.
        let mut options = Options::none(default.unwrap_or(Lease::SHORTEST));
        if self.has_more() {
            self.set_options(&mut options)?;
        }
        Ok(options)
    }

    // Set in place, and most commands have none: to move all options costs more than to parse one.
    fn set_options(&mut self, options: &mut Options<W>) -> Result<(), LockError> {
        let mut given = 0;
        while let Some(word) = self.left.next() {
            let word = word.as_bytes();
            let Ok((number, option)) = find(self.spec.args, word, 0) else {
                return Err(self.unknown(word));
            };
            self.set_option(option, options)?;
            if given & (1u64 << number) != 0 {
                return Err(self.again(option));
            }
            given |= 1 << number;
        }
        if options.wait == Wait::No {
            if options.notify.is_some() {
                return Err(syntax("NOTIFY needs BLOCK"));
            }
            if options.queue.is_some() {
                return Err(syntax("QUEUE needs BLOCK"));
            }
        }
        if options.note.is_some() && options.mode.is_some() {
            return Err(syntax(
                "NOTE is for exclusive locks, without READ and WRITE",
            ));
        }
        if options
            .limit
            .is_some_and(|limit| limit.get() < options.permits.into())
        {
            return Err(syntax("COUNT asks for more permits than LIMIT makes"));
        }
        match (options.user.is_some(), options.gives_up.is_some()) {
            (true, _) => self.check_user(options),
            (_, true) if options.token.is_some() || options.mode.is_some() => Err(syntax(
                "FINAL ends every hold, without READ, WRITE or TOKEN",
            )),
            _ => Ok(()),
        }
    }

    /// Whether the command has this option.
    pub(super) fn takes(&self, word: &[u8]) -> bool {
        find(self.spec.args, word, 0).is_ok()
    }

    #[cold]
    fn check_user(&self, options: &Options<W>) -> Result<(), LockError> {
        if options.token.is_some() {
            return Err(syntax("TOKEN and USER exclude each other"));
        }
        match (options.purge, options.waited) {
            (false, false) if self.takes(b"PURGE") => Err(syntax("USER needs PURGE")),
            (false, false) => Err(syntax("USER needs WAITED")),
            _ => Ok(()),
        }
    }

    /// Reads the value of an option, and sets it.
    fn set_option(&mut self, name: &[u8], options: &mut Options<W>) -> Result<(), LockError> {
        match name {
            b"READ" => options.mode = Some(Mode::Read),
            b"WRITE" => options.mode = Some(Mode::Write),
            b"EX" => (options.lease, options.names_lease) = (self.lease("EX", 1_000)?, true),
            b"PX" => (options.lease, options.names_lease) = (self.lease("PX", 1)?, true),
            b"SESSION" => options.session = true,
            b"BLOCK" => options.wait = self.wait()?,
            b"QUEUE" => options.queue = Some(self.queue()?),
            b"NOTIFY" => options.notify = Some(self.notify()?),
            b"ONCE" => options.once = true,
            b"WITHHOLDER" => options.with_holder = true,
            b"ALL" => options.all = true,
            b"TOKEN" => options.token = Some(self.token()?),
            b"SEQ" => options.seq = Some(self.number("SEQ", 1)?.unsigned_abs()),
            b"FINAL" => options.gives_up = Some(self.number("FINAL", 1)?.unsigned_abs()),
            b"NOTE" => options.note = Some(self.note()?),
            b"PURGE" => options.purge = true,
            b"TO" => options.owner = Some(self.owner("TO")?),
            b"LIMIT" => options.limit = Some(self.limit()?),
            b"NX" => options.set_if = SetIf::Absent,
            b"XX" => options.set_if = SetIf::There,
            b"WAITERS" => options.waiters = true,
            b"COUNT" if !options.waiters && find(self.spec.args, b"WAITERS", 0).is_ok() => {
                return Err(syntax("COUNT needs WAITERS before it"));
            }
            b"COUNT" if self.takes(b"LIMIT") => options.permits = self.permits()?,
            b"COUNT" => options.count = Some(self.count()?),
            b"MATCH" => options.pattern = Some(self.any("MATCH")?),
            b"OWNER" => options.owner = Some(self.any("OWNER")?),
            b"WAITED" => options.waited = true,
            b"USER" => options.user = Some(self.any("USER")?),
            // A test parses every option of every table.
            other => return Err(self.unknown(other)),
        }
        Ok(())
    }

    /// The value of `QUEUE`. No server has room for as many requests as fit into 32 bits.
    fn queue(&mut self) -> Result<u32, LockError> {
        let requests = self.number("QUEUE", 0)?;
        Ok(u32::try_from(requests).unwrap_or(u32::MAX))
    }

    /// The value of `COUNT` of permits: from 1 to 64.
    fn permits(&mut self) -> Result<u8, LockError> {
        let permits = u8::try_from(self.number("COUNT", 1)?).ok();
        permits
            .filter(|permits| *permits <= MOST_AT_ONCE)
            .ok_or(LockError::TooManyAtOnce)
    }

    /// The value of `LIMIT`: from 1 to 2^31-1 permits.
    fn limit(&mut self) -> Result<NonZeroU32, LockError> {
        let permits = i32::try_from(self.number("LIMIT", 1)?);
        let permits = permits.ok().map(i32::unsigned_abs);
        permits
            .and_then(NonZeroU32::new)
            .ok_or(LockError::TooManyPermits)
    }
}

/// The option of this table that the word names, as the table writes it, with its number: options that exclude each
/// other have the same. The first number is `number`; an error is the first that is not used.
fn find(args: &'static [Arg], word: &[u8], mut number: u32) -> Result<(u32, &'static [u8]), u32> {
    for arg in args {
        let found = match arg.kind {
            ArgKind::OneOf(parts) => parts.iter().find_map(|part| named(part, word)),
            ArgKind::Block(parts) => match find(parts, word, number) {
                Err(next) => {
                    number = next;
                    continue;
                }
                found => return found,
            },
            _ => named(arg, word),
        };
        if let Some(option) = found {
            return Ok((number, option));
        }
        number += 1;
    }
    Err(number)
}

/// The word of this argument, if it is this one in any case.
#[inline(always)]
fn named(arg: &'static Arg, word: &[u8]) -> Option<&'static [u8]> {
    let token = arg.token?.to_bytes();
    let is_named = token.len() == word.len()
        && std::iter::zip(token, word).all(|(upper, byte)| *upper == byte.to_ascii_uppercase());
    is_named.then_some(token)
}

/// The words that begin these arguments.
pub fn tokens(args: &'static [Arg]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for arg in args {
        found.extend(arg.token.and_then(|token| token.to_str().ok()));
        if let ArgKind::OneOf(parts) | ArgKind::Block(parts) = arg.kind {
            found.extend(tokens(parts));
        }
    }
    found
}

/// `key`
pub const KEY: Arg = required(c"key", ArgKind::Key);

/// `numkeys`
pub const NUMKEYS: Arg = required(c"numkeys", ArgKind::Integer);

/// `key [key ...]`
pub const KEYS: Arg = required(c"key", ArgKind::Keys);

/// `owner`
pub const OWNER: Arg = required(c"owner", ArgKind::String);

/// `id`
pub const ID: Arg = required(c"id", ArgKind::String);

/// `[EX seconds | PX milliseconds]`
pub const LEASE: Arg = optional(
    c"lease",
    ArgKind::OneOf(&[
        option(c"seconds", c"EX", false),
        option(c"milliseconds", c"PX", false),
    ]),
);

/// `[EX seconds | PX milliseconds | SESSION]`
pub const LEASE_OR_SESSION: Arg = optional(
    c"lease",
    ArgKind::OneOf(&[
        option(c"seconds", c"EX", false),
        option(c"milliseconds", c"PX", false),
        bare(c"session", c"SESSION"),
    ]),
);

/// `[READ | WRITE]`
pub const MODE: Arg = optional(
    c"mode",
    ArgKind::OneOf(&[bare(c"read", c"READ"), bare(c"write", c"WRITE")]),
);

/// `[NX | XX]`
pub const CONDITION: Arg = optional(
    c"condition",
    ArgKind::OneOf(&[bare(c"nx", c"NX"), bare(c"xx", c"XX")]),
);

/// `[ONCE]`
pub const ONCE: Arg = word(c"once", c"ONCE");

/// `[WITHHOLDER]`
pub const WITHHOLDER: Arg = word(c"withholder", c"WITHHOLDER");

/// `[ALL]`
pub const ALL: Arg = word(c"all", c"ALL");

/// `[PURGE]`
pub const PURGE: Arg = word(c"purge", c"PURGE");

/// `[TO owner]`
pub const TO: Arg = text(c"owner", c"TO");

/// `[USER user]`
pub const USER: Arg = text(c"user", c"USER");

/// `[TOKEN token]`
pub const TOKEN: Arg = option(c"token", c"TOKEN", true);

/// `[SEQ number]`
pub const SEQ: Arg = option(c"number", c"SEQ", true);

/// `[NOTE note]`
pub const NOTE: Arg = text(c"note", c"NOTE");

/// `[COUNT permits]`
pub const COUNT: Arg = option(c"permits", c"COUNT", true);

/// `[FINAL number]`
pub const FINAL: Arg = option(c"number", c"FINAL", true);

/// `[BLOCK milliseconds [NOTIFY channel tag] [QUEUE requests]]`
pub const BLOCK: Arg = optional(
    c"wait",
    ArgKind::Block(&[option(c"milliseconds", c"BLOCK", false), NOTIFY, QUEUE]),
);

/// `[QUEUE requests]`
const QUEUE: Arg = option(c"requests", c"QUEUE", true);

/// `[NOTIFY channel tag]`
const NOTIFY: Arg = optional(
    c"notify",
    ArgKind::Block(&[
        Arg {
            token: Some(c"NOTIFY"),
            ..required(c"channel", ArgKind::String)
        },
        required(c"tag", ArgKind::String),
    ]),
);

/// `[WAITERS [COUNT count]]`
pub const WAITERS: Arg = optional(
    c"waiters",
    ArgKind::Block(&[
        bare(c"waiters", c"WAITERS"),
        option(c"count", c"COUNT", true),
    ]),
);

/// A required argument without a word before it.
pub const fn required(name: &'static CStr, kind: ArgKind) -> Arg {
    Arg {
        name,
        kind,
        token: None,
        optional: false,
    }
}

/// An optional argument without a word before it.
pub const fn optional(name: &'static CStr, kind: ArgKind) -> Arg {
    Arg {
        name,
        kind,
        token: None,
        optional: true,
    }
}

/// A word with an integer behind it.
pub const fn option(name: &'static CStr, token: &'static CStr, optional: bool) -> Arg {
    Arg {
        name,
        kind: ArgKind::Integer,
        token: Some(token),
        optional,
    }
}

/// An optional word with any bytes behind it.
pub const fn text(name: &'static CStr, token: &'static CStr) -> Arg {
    Arg {
        name,
        kind: ArgKind::String,
        token: Some(token),
        optional: true,
    }
}

/// An optional bare word.
pub const fn word(name: &'static CStr, token: &'static CStr) -> Arg {
    Arg {
        name,
        kind: ArgKind::Word,
        token: Some(token),
        optional: true,
    }
}

/// A required bare word, one of several.
const fn bare(name: &'static CStr, token: &'static CStr) -> Arg {
    Arg {
        name,
        kind: ArgKind::Word,
        token: Some(token),
        optional: false,
    }
}
