//! What can come next on a command line, for the completions of the shells, whose scripts ask for it at each word.

use std::ffi::OsString;
use std::time::Duration;

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
/// For bash, save them as ~/.local/share/bash-completion/completions/redis-lock; for another shell in its own
/// directory.
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
    let lines = match next(&words, &program) {
        Next::Words(words) => words,
        Next::Files => vec![":files".into()],
        Next::Command(place) => vec![format!(":command {place}")],
        Next::Keys(servers) => {
            let last = words.last().map_or("", |word| word);
            let found = timeout(QUICK, keys(servers, last)).await;
            found.ok().flatten().unwrap_or_default()
        }
    };
    print(lines.into_iter())?;
    Ok(0)
}

enum Next {
    Words(Vec<String>),
    Files,
    /// Another command begins at this word.
    Command(usize),
    /// With the options that name the server.
    Keys(Vec<String>),
}

fn next<S: AsRef<str>>(words: &[S], program: &Command) -> Next {
    let Some((last, before)) = words.split_last() else {
        return Next::Words(vec![]);
    };
    let last = last.as_ref();
    let (mut command, mut place, mut is_rest) = (program, 0, false);
    let (mut option, mut servers): (Option<&Arg>, _) = (None, Vec::new());
    for (i, word) in before.iter().enumerate().skip(1) {
        let word = word.as_ref();
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
        } else if let Some(subcommand) = command.find_subcommand(word) {
            command = subcommand;
        } else if is_command(positional(command, place)) {
            return Next::Command(i);
        } else {
            place += 1;
        }
    }
    let arg = match option {
        None if !is_rest && last.starts_with('-') => {
            let options = command.get_arguments().filter_map(|arg| {
                let help = arg.get_help().map(ToString::to_string);
                Some((format!("--{}", arg.get_long()?), help))
            });
            return Next::Words(candidates(options, last));
        }
        None if command.has_subcommands() && place == 0 => {
            let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
            let about = |sub: &Command| sub.get_about().map(ToString::to_string);
            let names = subcommands.map(|sub| (sub.get_name().to_string(), about(sub)));
            return Next::Words(candidates(names, last));
        }
        None => positional(command, place),
        option => option,
    };
    let Some(arg) = arg else {
        return Next::Words(vec![]);
    };
    let is_path = matches!(
        arg.get_value_hint(),
        ValueHint::AnyPath | ValueHint::FilePath
    );
    let names = arg.get_value_names().unwrap_or_default();
    match () {
        () if is_command(Some(arg)) => Next::Command(before.len()),
        () if is_path => Next::Files,
        () if names.iter().any(|name| name == "KEY") => Next::Keys(servers),
        () => {
            let values = arg.get_possible_values().into_iter();
            let values = values.map(|value| (value.get_name().to_string(), None));
            Next::Words(candidates(values, last))
        }
    }
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

fn is_command(arg: Option<&Arg>) -> bool {
    arg.is_some_and(|arg| arg.get_id() == "command")
}

fn candidates(names: impl Iterator<Item = (String, Option<String>)>, start: &str) -> Vec<String> {
    let fitting = names.filter(|(name, _)| name.starts_with(start));
    let line = |(name, about): (String, Option<String>)| match about {
        Some(about) => format!("{name}\t{}", about.split(". ").next().unwrap_or_default()),
        None => name,
    };
    fitting.map(line).collect()
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
