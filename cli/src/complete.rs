//! What can come next on a command line, for the completions of the shells, whose scripts ask for it at each word.

use std::borrow::Cow;
use std::ffi::OsString;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Arg, Command, ValueEnum, ValueHint};
use redis_lock_client::Search;
use tokio::time::timeout;

use crate::cli::{self, Subcommand};
use crate::escape::shown;
use crate::failure::Failure;
use crate::output::print;
use crate::servers::HEADING;

/// The longest time for the names of keys.
const QUICK: Duration = Duration::from_millis(500);

/// Print the completions of a shell
///
/// They know the options, the keys of held locks, and after KEY the command. For bash, save them as
/// ~/.local/share/bash-completion/completions/redis-lock; for another shell in its own directory.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The words up to the cursor, with the program's name; the last may be empty.
    #[arg(last = true)]
    words: Vec<OsString>,
}

pub fn completions(args: &CompletionsArgs) -> Result<i32, Failure> {
    let script = match args.shell {
        Shell::Bash => include_str!("complete/redis-lock.bash"),
        Shell::Zsh => include_str!("complete/redis-lock.zsh"),
        Shell::Fish => include_str!("complete/redis-lock.fish"),
    };
    print(script.lines().map(String::from))?;
    Ok(0)
}

/// Prints the candidates for the last word, each with a tab and a description if it has one; or `:files`; or `:command
/// N` where the words from the Nth on are another command.
pub async fn run(args: Args, program: Command) -> Result<i32, Failure> {
    let words: Vec<_> = args
        .words
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    print(next(&words, &program).await)?;
    Ok(0)
}

async fn next(words: &[Cow<'_, str>], program: &Command) -> Vec<String> {
    let Some((last, before)) = words.split_last() else {
        return vec![];
    };
    let (mut command, mut place, mut is_rest) = (program, 0, false);
    let (mut option, mut servers): (Option<&Arg>, _) = (None, Vec::new());
    let mut first = None;
    for (i, word) in before.iter().enumerate().skip(1) {
        if let Some(arg) = option.take() {
            if arg.get_help_heading() == Some(HEADING) {
                servers.push(format!("--{}={word}", arg.get_long().unwrap_or_default()));
            }
        } else if !is_rest && word == "--" {
            is_rest = true;
        } else if !is_rest && word.len() > 1 && word.starts_with('-') {
            option = option_of(command, word);
            // It stands in place of KEY.
            place += usize::from(command.get_name() == "run" && word.starts_with("--key-hex"));
        } else if let Some(subcommand) = command.find_subcommand(word.as_ref()) {
            command = subcommand;
        } else {
            let is_command = positional(command, place).is_some_and(is_command);
            first = first.or(is_command.then_some(i));
            place += 1;
        }
    }
    if let Some(first) = first {
        return vec![format!(":command {first}")];
    }
    let about = |text: Option<&StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    if option.is_none() && !is_rest && last.starts_with('-') {
        let long = |arg: &Arg| Some((format!("--{}", arg.get_long()?), about(arg.get_help())));
        return candidates(command.get_arguments().filter_map(long), last);
    }
    if command.has_subcommands() && place == 0 {
        let names = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let names = names.map(|sub| (sub.get_name().to_string(), about(sub.get_about())));
        return candidates(names, last);
    }
    let Some(arg) = option.or_else(|| positional(command, place)) else {
        return vec![];
    };
    let names = arg.get_value_names().unwrap_or_default();
    if is_command(arg) {
        return vec![format!(":command {}", before.len())];
    }
    if matches!(
        arg.get_value_hint(),
        ValueHint::AnyPath | ValueHint::FilePath
    ) {
        return vec![":files".into()];
    }
    if names.iter().any(|name| name == "KEY") {
        let found = timeout(QUICK, keys(servers, last)).await;
        return found.ok().flatten().unwrap_or_default();
    }
    let values = arg.get_possible_values();
    candidates(
        values
            .iter()
            .map(|value| (value.get_name().to_string(), String::new())),
        last,
    )
}

/// The option of this word, if its value is the next word.
fn option_of<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let takes_value = |arg: &&Arg| arg.get_action().takes_values();
    let mut args = command.get_arguments().filter(takes_value);
    match word.strip_prefix("--") {
        Some(long) => args.find(|arg| arg.get_long() == Some(long)),
        // After flags; otherwise its value is in the word.
        None => args.find(|arg| arg.get_short() == word.chars().last()),
    }
}

fn positional(command: &Command, place: usize) -> Option<&Arg> {
    let positionals = || command.get_positionals();
    let is_repeated = |arg: &&Arg| {
        arg.get_num_args()
            .is_some_and(|count| count.max_values() > 1)
    };
    positionals()
        .nth(place)
        .or_else(|| positionals().last().filter(is_repeated))
}

fn is_command(arg: &Arg) -> bool {
    arg.get_id() == "command"
}

fn candidates(names: impl Iterator<Item = (String, String)>, start: &str) -> Vec<String> {
    let fitting = names.filter(|(name, _)| name.starts_with(start));
    let lines = fitting.map(|(name, about)| match about.split(". ").next() {
        None | Some("") => name,
        Some(about) => format!("{name}\t{about}"),
    });
    lines.collect()
}

/// The keys of held locks that begin so, and that a shell can show as they are.
async fn keys(servers: Vec<String>, start: &str) -> Option<Vec<String>> {
    let words = ["redis-lock", "info", "-"]
        .map(String::from)
        .into_iter()
        .chain(servers);
    let args = cli::Args::of_words(words.map(OsString::from).collect()).ok()?;
    let Subcommand::Info(args) = args.subcommand else {
        return None;
    };
    let server = args.connect.open_one().ok()?;
    let mut pattern = String::new();
    for char in start.chars() {
        pattern.extend(['*', '?', '[', '\\'].contains(&char).then_some('\\'));
        pattern.push(char);
    }
    let search = Search::held().matching(pattern + "*");
    let mut scan = server.scan(search).await.ok()?;
    let mut found = std::collections::BTreeSet::new();
    while let Some(keys) = scan.step().await.ok()? {
        let names = keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
        found.extend(
            names
                .filter(|name| shown(name.as_bytes()) == *name)
                .map(String::from),
        );
    }
    Some(found.into_iter().collect())
}
