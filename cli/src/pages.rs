//! The manual page, from the definitions of the options.

use std::env;

use clap::{Arg, Command};

use crate::failure::Failure;
use crate::output::print;

/// One page: a section for each subcommand, and one for the options that several subcommands have alike.
pub fn manual(program: Command) -> Result<i32, Failure> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let subcommands = program.get_subcommands().filter(|sub| !sub.is_hide_set());
    let subcommands: Vec<_> = subcommands.cloned().collect();
    let mut users: Vec<(String, Vec<&str>)> = Vec::new();
    for subcommand in &subcommands {
        for option in subcommand.get_arguments().filter_map(option) {
            match users.iter_mut().find(|(other, _)| *other == option) {
                Some((_, names)) => names.push(subcommand.get_name()),
                None => users.push((option, vec![subcommand.get_name()])),
            }
        }
    }
    let mut page = format!(
        ".TH REDIS\\-LOCK 1 \"\" \"redis\\-lock {}\"\n.SH NAME\nredis\\-lock \\- {}\n.SH SYNOPSIS\n{}.SH COMMANDS\n",
        env!("CARGO_PKG_VERSION"),
        quoted(&about(&program)),
        "\\fBredis\\-lock\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fB\\-\\-help\\fR]\n",
    );
    let help = |command: &Command| {
        command
            .get_after_help()
            .map_or_else(String::new, ToString::to_string)
    };
    for subcommand in &subcommands {
        let usage = subcommand.clone().render_usage().to_string();
        for line in usage.trim_start_matches("Usage:").lines() {
            page += &format!(".SS \"{}\"\n", quoted(line.trim()));
        }
        page += &paragraphs(&about(subcommand));
        let own = users
            .iter()
            .filter(|(_, names)| names[..] == [subcommand.get_name()]);
        page += &list(own.map(|(option, _)| option.clone()));
        page += &paragraphs(&help(subcommand));
    }
    page += ".SH OPTIONS OF SEVERAL COMMANDS\nThose without names of commands are for all that ask a server.\n";
    let shared = users.iter().filter(|(_, names)| names.len() > 1);
    page += &list(shared.map(|(option, names)| match names.len() {
        2..=6 => format!("{} ({})\n", option.trim_end(), names.join(", ")),
        _ => option.clone(),
    }));
    page += &format!(".SH EXIT STATUS\n{}", paragraphs(&help(&program)));
    print(page.lines().chain(REST.lines()).map(String::from))?;
    Ok(0)
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    about.map_or_else(String::new, ToString::to_string)
}

/// An option, or a positional argument with a default. (The usage has the others.)
fn option(arg: &Arg) -> Option<String> {
    let takes_value = arg.get_action().takes_values();
    let is_shown = takes_value && !arg.is_hide_default_value_set();
    let defaults = arg.get_default_values().iter().filter(|_| is_shown);
    let defaults: String = defaults
        .map(|value| format!(" [default: {}]", value.to_string_lossy()))
        .collect();
    let is_left_out = arg.is_positional() && defaults.is_empty();
    if is_left_out || arg.is_hide_set() || arg.get_id() == "help" {
        return None;
    }
    let short = arg.get_short().map(|short| format!("\\fB\\-{short}\\fR"));
    let long = arg
        .get_long()
        .map(|long| format!("\\fB\\-\\-{}\\fR", quoted(long)));
    let mut names = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    if takes_value {
        let value = arg.get_value_names().unwrap_or_default().join(" ");
        names += &format!(" \\fI{}\\fR", quoted(&value));
    }
    let help = arg.get_long_help().or(arg.get_help())?.to_string();
    Some(format!(
        ".IP \"{}\" 4\n{}\n",
        names.trim(),
        quoted(&(help + &defaults))
    ))
}

/// Without space between them.
fn list(options: impl Iterator<Item = String>) -> String {
    match options.collect::<String>() {
        none if none.is_empty() => none,
        list => format!(".PP\n.PD 0\n{list}.PD\n"),
    }
}

fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").filter(|text| !text.is_empty());
    paragraphs
        .map(|text| format!(".PP\n{}\n", quoted(text)))
        .collect()
}

/// Text for troff: hyphens are those of options, and no line is a request.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text
        .lines()
        .map(|line| match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line.to_string(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

const REST: &str = r#".SH ENVIRONMENT
.PD 0
.IP \fBREDIS_LOCK_URL\fR 4
The server, where no \-\-server is given.
.IP \fBREDIS_LOCK_\fINAME\fR 4
The default of another option that takes a value, such as REDIS_LOCK_TIMEOUT (\-\-key: REDIS_LOCK_TLS_KEY). Not of
options of one lock: \-\-owner, \-\-key\-hex, \-\-and, \-\-permits, \-\-count, \-\-prefix, \-\-token, \-\-match, \-\-is,
\-\-hold\-while.
.IP \fBREDISCLI_AUTH\fR 4
The password, where neither the URL nor \-\-password\-from has one.
.IP \fBREDIS_LOCK_CONFIG\fR 4
The file in place of those below.
.IP "\fBLOCK_OWNER\fR, \fBLOCK_TOKEN\fR" 4
For \fBrenew\fR and \fBrelease\fR, as \fBacquire\fR has printed them. \fBrun\fR sets these and more: see there.
.PD
.SH FILES
.IP "\fB~/.config/redis\-lock.toml\fR, \fB/etc/redis\-lock.toml\fR" 4
Defaults of options that take a value, as lines \fIname\fR = "\fIvalue\fR": first those that name servers, then those of
a command below its name in brackets, such as [run]. The user's file precedes the system's, the environment both.
.SH EXAMPLES
.nf
redis\-lock run nightly \-\- /usr/local/bin/report
redis\-lock run \-n \-E 0 nightly \-\- /usr/local/bin/report    # another one is at it: fine
redis\-lock run \-\-wait 60 \-\-lease 10 deploy \-\- sh \-c 'deploy \-\-fence "$LOCK_TOKEN"'
redis\-lock ls \-\-waited
.fi
.SH SEE ALSO
.BR flock (1)
"#;
