//! The command line: the source of the help, the completions and the manual page.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::config::Configured;
use crate::{break_lock, check, complete, info, leader, ls, run, steps, top, watch};

/// Runs commands under locks of the redis-lock module, and shows the locks of a server.
#[derive(Debug, clap::Parser)]
#[command(name = "redis-lock", version, after_help = STATUS, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    Run(run::Args),
    Acquire(steps::AcquireArgs),
    Renew(steps::RenewArgs),
    Release(steps::ReleaseArgs),
    Ls(ls::Args),
    Info(info::Args),
    Leader(leader::Args),
    #[command(name = "break")]
    Break(break_lock::Args),
    Top(top::Args),
    Watch(watch::Args),
    Check(check::Args),
    Completions(complete::CompletionsArgs),
    #[command(hide = true)]
    Complete(complete::Args),
    /// Print the manual: `redis-lock man | man -l -`
    Man,
}

const STATUS: &str = "\
Exit status: 0 done; 1 (see -E) not granted, or not held; 64 usage, or certificates that are not accepted; 65 the key \
holds other data; 69 a server is unavailable or has no module; 71 the machine refuses (processes, files, a full disk); \
75 the lock was lost; 77 the user lacks the permission. `run` ends with the status of its command: see there.";

impl Args {
    /// Parses the command line, whose first word is the program's name. After `run --key-hex` the first positional word
    /// is the command: an unused KEY is inserted before it, so that one grammar is enough.
    pub fn of_words(words: Vec<OsString>) -> Result<Args, clap::Error> {
        let wrong = |what: String| Args::command().error(ErrorKind::ValueValidation, what);
        let mut configured = Configured::of(Args::command()).map_err(wrong)?;
        let mut parse = |words: &[OsString]| {
            let matches = configured.command.clone().try_get_matches_from(words);
            let matches = matches.map_err(|error| configured.placed(error))?;
            Args::from_arg_matches(&matches)
        };
        let has_option =
            |args: &Args| matches!(&args.subcommand, Subcommand::Run(run) if run.key_hex.is_some());
        let is_run = words.get(1).is_some_and(|word| word == "run");
        let mut options = words.iter().map(|word| word.as_bytes());
        if is_run && options.any(|word| word.starts_with(b"--key-hex")) {
            let mut with_key = words.clone();
            with_key.insert(2, "-".into());
            let args = parse(&with_key)?;
            // Otherwise the option belongs to the command.
            if has_option(&args) {
                return Ok(args);
            }
        }
        let args = parse(&words)?;
        match has_option(&args) {
            true => Err(wrong(
                "--key-hex stands in place of KEY: name the key once".into(),
            )),
            false => Ok(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Args;

    #[test]
    fn the_definition_of_the_options_is_consistent() {
        Args::command().debug_assert();
    }
}
