//! The configuration: defaults of options, from files and the environment.
//!
//! A file has lines `name = value` of TOML, each value in one line: first the options that name servers, then a table
//! for each subcommand. Names are those of long options.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use serde_json::{Deserializer, Value};

use crate::failure::say;
use crate::servers;

const SYSTEM: &str = "/etc/redis-lock.toml";
const USER: &str = "redis-lock.toml";
/// In place of both files.
const FILE: &str = "REDIS_LOCK_CONFIG";
/// Options of one lock or one call, which are not configured.
const SINGLE: [&str; 4] = ["key_hex", "owner", "token", "pattern"];

/// The command with the configured defaults, and these.
pub struct Configured {
    pub command: Command,
    settings: Vec<Setting>,
}

struct Setting {
    /// None: of all subcommands that name servers.
    subcommand: Option<String>,
    option: String,
    value: String,
    /// The file and the line.
    place: String,
}

impl Configured {
    /// The defaults: of the system's file, before them those of the user's, before them those of the environment.
    pub fn of(mut command: Command) -> Result<Configured, String> {
        let mut settings = Vec::new();
        for path in paths() {
            settings.extend(read(&path)?);
        }
        for setting in &settings {
            command = setting.apply(command)?;
        }
        let configured = |arg: &Arg| Some((arg.get_id().to_string(), env::var_os(variable(arg))?));
        let names: Vec<String> = command
            .get_subcommands()
            .map(|sub| sub.get_name().into())
            .collect();
        for name in names {
            command = command.mut_subcommand(name, |mut subcommand| {
                let args: Vec<_> = subcommand
                    .get_arguments()
                    .filter(|arg| is_configurable(arg))
                    .collect();
                let values: Vec<_> = args.into_iter().filter_map(configured).collect();
                for (id, value) in values {
                    let value: &'static std::ffi::OsStr = Box::leak(value.into_boxed_os_str());
                    subcommand = subcommand.mut_arg(id, |arg| arg.default_value(value));
                }
                subcommand
            });
        }
        Ok(Configured { command, settings })
    }

    /// The error, with the file and the line if it is that of a value there.
    pub fn placed(&mut self, error: clap::Error) -> clap::Error {
        let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
            return error;
        };
        let setting = self.settings.iter().find(|setting| setting.value == *value);
        let Some(Setting { place, option, .. }) = setting else {
            return error;
        };
        let cause =
            std::error::Error::source(&error).map_or_else(String::new, |why| format!(": {why}"));
        let what = format!("{place}: {option}: invalid value '{value}'{cause}");
        self.command.error(error.kind(), what)
    }
}

impl Setting {
    fn apply(&self, mut command: Command) -> Result<Command, String> {
        // REDISCLI_AUTH is in the environment, which precedes files.
        if self.option == "password-from" && env::var_os(servers::PASSWORD).is_some() {
            return Ok(command);
        }
        let is_meant = |arg: &&Arg| {
            let is_of_servers = arg.get_help_heading() == Some(servers::HEADING);
            let is_named = arg.get_long() == Some(&self.option) && is_configurable(arg);
            is_named && is_of_servers == self.subcommand.is_none()
        };
        let mut meant = Vec::new();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            if self.subcommand.as_deref().is_none_or(|own| own == name) {
                let arg = subcommand.get_arguments().find(is_meant);
                meant.extend(arg.map(|arg| (name.to_string(), arg.get_id().clone())));
            }
        }
        if meant.is_empty() {
            let table = self.subcommand.as_ref().map(|name| format!(" in [{name}]"));
            let table = table.unwrap_or_default();
            return Err(format!(
                "{}: there is no setting '{}'{table}",
                self.place, self.option
            ));
        }
        for (subcommand, id) in meant {
            let value: &'static str = self.value.clone().leak();
            let with_default = |arg: Arg| arg.default_value(value);
            command = command.mut_subcommand(subcommand, |sub| sub.mut_arg(id, with_default));
        }
        Ok(command)
    }
}

fn is_configurable(arg: &Arg) -> bool {
    let takes_value = arg.get_action().takes_values() && !arg.is_positional();
    takes_value && !SINGLE.contains(&arg.get_id().as_str())
}

/// The variable of an option: `REDIS_LOCK_TIMEOUT`.
fn variable(arg: &Arg) -> String {
    format!("REDIS_LOCK_{}", arg.get_id().as_str().to_uppercase())
}

/// The files, the last one preceding.
fn paths() -> Vec<PathBuf> {
    if let Some(path) = env::var_os(FILE) {
        return vec![path.into()];
    }
    let named = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")));
    [SYSTEM.into()]
        .into_iter()
        .chain(home.map(|home| home.join(USER)))
        .collect()
}

fn read(path: &Path) -> Result<Vec<Setting>, String> {
    // Nor does a file exist for a user that may not enter its directory.
    if !path.exists() && env::var_os(FILE).is_none() {
        return Ok(vec![]);
    }
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut settings = Vec::new();
    let mut subcommand = None;
    for (i, line) in text.lines().enumerate() {
        let (line, place) = (line.trim(), format!("{}:{}", path.display(), i + 1));
        let table = line.strip_prefix('[').and_then(|line| line.split_once(']'));
        if let Some((name, _)) = table.filter(|(_, rest)| is_end(rest)) {
            subcommand = Some(name.trim().to_string());
        } else if !is_end(line) {
            let setting = line
                .split_once('=')
                .and_then(|(name, rest)| Some((name.trim(), value(rest.trim())?)));
            let wrong = || format!("{place}: not a line of name = \"value\": {line}");
            let (option, value) = setting.ok_or_else(wrong)?;
            settings.push(Setting {
                subcommand: subcommand.clone(),
                option: option.into(),
                value,
                place,
            });
        }
    }
    if settings
        .iter()
        .any(|setting| setting.value.contains("://") && servers::has_password(&setting.value))
    {
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
