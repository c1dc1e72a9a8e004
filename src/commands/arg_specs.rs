//! Descriptions of arguments that several commands share, for `COMMAND DOCS`.

use std::ffi::CStr;

use crate::module::entry::command::{Arg, ArgKind};

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

/// `[WAITS | HANDOFFS]`
pub const TOP_ORDER: Arg = optional(
    c"order",
    ArgKind::OneOf(&[bare(c"waits", c"WAITS"), bare(c"handoffs", c"HANDOFFS")]),
);

/// `[NX | XX]`
pub const CONDITION: Arg = optional(
    c"condition",
    ArgKind::OneOf(&[bare(c"nx", c"NX"), bare(c"xx", c"XX")]),
);

/// `[TOKEN token]`
pub const TOKEN: Arg = option(c"token", c"TOKEN", true);

/// `[BLOCK milliseconds [NOTIFY channel tag]]`
pub const BLOCK: Arg = optional(
    c"wait",
    ArgKind::Block(&[option(c"milliseconds", c"BLOCK", false), NOTIFY]),
);

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
