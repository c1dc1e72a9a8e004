//! The configuration: defaults of options, from files and the environment.
//!
//! A file has lines `name = value` of TOML, each value in one line: first the options that name servers, then a table
//! for each subcommand. Names are those of long options.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::Command;
use serde_json::{Deserializer, Value};

use crate::failure::say;
use crate::servers;

const SYSTEM: &str = "/etc/redis-lock.toml";
const USER: &str = "redis-lock.toml";
/// In place of both files.
const FILE: &str = "REDIS_LOCK_CONFIG";
const URL: &str = "REDIS_LOCK_URL";
/// Options of one lock or one call, which are not configured.
const SINGLE: [&str; 10] = [
    "key_hex",
    "and",
    "permits",
    "count",
    "prefix",
    "owner",
    "token",
    "pattern",
    "is",
    "hold_while",
];

/// The command with the configured defaults, and those of files.
pub struct Configured {
    pub command: Command,
    settings: Settings,
}

/// By the table, which is that of a subcommand, or empty for the options that name servers, and the option: a value,
/// its file and line.
type Settings = BTreeMap<(String, String), (String, String)>;

impl Configured {
    /// The defaults: of the system's file, before them those of the user's, before them those of the environment.
    pub fn of(command: Command) -> Result<Configured, String> {
        let mut settings = Settings::new();
        for path in paths() {
            settings.extend(read(&path)?);
        }
        let mut unknown = settings.clone();
        let command = command.mut_subcommands(|subcommand| {
            let table = subcommand.get_name().to_string();
            subcommand.mut_args(|arg| {
                let is_of_servers = arg.get_help_heading() == Some(servers::HEADING);
                let table = if is_of_servers {
                    String::new()
                } else {
                    table.clone()
                };
                let name = (table, arg.get_long().unwrap_or_default().to_string());
                if !arg.get_action().takes_values() || SINGLE.contains(&arg.get_id().as_str()) {
                    return arg;
                }
                unknown.remove(&name);
                // REDISCLI_AUTH is in the environment, which precedes files.
                let is_out = name.1 == "password-from" && env::var_os(servers::PASSWORD).is_some();
                let setting = settings.get(&name).filter(|_| !is_out);
                let variable = format!("REDIS_LOCK_{}", arg.get_id().as_str().to_uppercase());
                // No server is not the default one.
                let value = env::var_os(&variable)
                    .filter(|value| !value.is_empty() || variable == URL)
                    .or(setting.map(|(value, _)| value.into()));
                match value {
                    Some(value) if !arg.is_positional() => {
                        let value: &OsStr = Box::leak(value.into_boxed_os_str());
                        arg.default_value(value)
                    }
                    _ => arg,
                }
            })
        });
        match unknown.into_iter().next() {
            Some(((table, option), (_, place))) => Err(format!(
                "{place}: there is no setting '{option}' in [{table}]"
            )
            .replace(" in []", "")),
            None => Ok(Configured { command, settings }),
        }
    }

    /// The error, with the file and the line if it is that of a value there.
    pub fn placed(&mut self, error: clap::Error) -> clap::Error {
        let value = match error.get(ContextKind::InvalidValue) {
            Some(ContextValue::String(value)) => value,
            _ => return error,
        };
        match self.settings.values().find(|(own, _)| own == value) {
            Some((_, place)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let cause = cause.unwrap_or_default();
                let what = format!("{place}: invalid value '{value}': {cause}");
                self.command.error(error.kind(), what)
            }
            None => error,
        }
    }
}

/// The files, the last one preceding.
fn paths() -> Vec<PathBuf> {
    if let Some(path) = named(FILE) {
        return vec![path];
    }
    let home = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")));
    [SYSTEM.into()]
        .into_iter()
        .chain(home.map(|home| home.join(USER)))
        .collect()
}

/// The path in a variable; an empty one is as none.
fn named(variable: &str) -> Option<PathBuf> {
    let value = env::var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

fn read(path: &Path) -> Result<Settings, String> {
    // Nor does a file exist for a user that may not enter its directory.
    if !path.exists() && named(FILE).is_none() {
        return Ok(Settings::new());
    }
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut settings, mut table) = (Settings::new(), String::new());
    let text = text.trim_start_matches('\u{feff}');
    for (i, line) in text.lines().enumerate() {
        let (line, place) = (line.trim(), format!("{}:{}", path.display(), i + 1));
        let title = line.strip_prefix('[').and_then(|line| line.split_once(']'));
        if let Some((name, _)) = title.filter(|(_, rest)| is_end(rest)) {
            table = name.trim().into();
        } else if !is_end(line) {
            // The rest may be a password.
            let mut words = line.split(|char: char| !char.is_alphanumeric() && char != '-');
            let name = words.next().unwrap_or_default();
            let wrong = || format!("{place}: not a line of name = \"value\": {name}...");
            let (option, rest) = line.split_once('=').ok_or_else(wrong)?;
            let value = value(rest.trim()).ok_or_else(wrong)?;
            settings.insert((table.clone(), option.trim().into()), (value, place));
        }
    }
    let is_secret = |value: &str| value.contains("://") && servers::password_in(value).is_some();
    if settings.values().any(|(value, _)| is_secret(value)) {
        warn_of_readers(path);
    }
    Ok(settings)
}

/// A value of TOML in one line. All but literal strings are as in JSON.
fn value(text: &str) -> Option<String> {
    if let Some(literal) = text.strip_prefix('\'') {
        let (value, rest) = literal.split_once('\'')?;
        return is_end(rest).then(|| value.into());
    }
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let rest = text.get(values.byte_offset()..)?;
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let value = match &value {
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(" "),
        other => text(other),
    };
    is_end(rest).then_some(value)
}

/// Whether nothing but a comment is left of a line.
fn is_end(rest: &str) -> bool {
    let rest = rest.trim();
    rest.is_empty() || rest.starts_with('#')
}

/// Warns of a file that has a password and can be read by all users.
pub fn warn_of_readers(path: &Path) {
    let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode());
    if mode & 0o004 != 0 {
        let path = path.display();
        say(&format!(
            "redis-lock: {path}: other users can read the password in it (chmod 600)"
        ));
    }
}
