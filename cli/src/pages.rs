//! The manual page, from the definitions of the options.

use std::env;
use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::failure::Failure;
use crate::output::print;
use crate::servers::HEADING;

/// One page, in which each subcommand has a section and the options that name servers have one for all.
pub fn manual(program: Command) -> Result<i32, Failure> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let is_of_servers = |arg: &&Arg| arg.get_help_heading() == Some(HEADING);
    let mut page = format!(
        ".TH REDIS\\-LOCK 1 \"\" \"redis\\-lock {}\"\n.SH NAME\nredis\\-lock \\- {}\n",
        quoted(env!("CARGO_PKG_VERSION")),
        quoted(&about(&program)),
    );
    page += ".SH SYNOPSIS\n\\fBredis\\-lock\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fB\\-\\-help\\fR]\n.SH COMMANDS\n";
    let mut servers = String::new();
    for mut subcommand in program
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .cloned()
    {
        let usage = subcommand.render_usage().to_string();
        for line in usage.trim_start_matches("Usage:").lines() {
            let _ = writeln!(page, ".SS \"{}\"", quoted(line.trim()));
        }
        page += &paragraphs(&about(&subcommand));
        let options = subcommand.get_arguments().filter(|arg| !is_of_servers(arg));
        page += &list(options);
        page += &subcommand
            .get_after_help()
            .map_or_else(String::new, |help| paragraphs(&help.to_string()));
        servers = match list(subcommand.get_arguments().filter(is_of_servers)) {
            none if none.is_empty() => servers,
            list => list,
        };
    }
    page += &format!(".SH SERVERS\nAll commands but \\fBcompletions\\fR and \\fBman\\fR have these options.\n{servers}");
    page += ".SH EXIT STATUS\n";
    page += &paragraphs(
        &program
            .get_after_help()
            .map_or_else(String::new, ToString::to_string),
    );
    print(page.lines().chain(REST.lines()).map(String::from))?;
    Ok(0)
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    about.map_or_else(String::new, ToString::to_string)
}

/// The options and their arguments, without space between them.
fn list<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let mut list = String::new();
    // The usage has the others.
    let is_listed = |arg: &&Arg| match arg.is_positional() {
        true => !arg.get_default_values().is_empty(),
        false => !arg.is_hide_set() && arg.get_id() != "help",
    };
    for arg in args.filter(is_listed) {
        let short = arg.get_short().map(|short| format!("\\fB\\-{short}\\fR"));
        let long = arg
            .get_long()
            .map(|long| format!("\\fB\\-\\-{}\\fR", quoted(long)));
        let mut names = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
        if arg.get_action().takes_values() {
            let value = arg.get_value_names().unwrap_or_default().join(" ");
            let _ = write!(names, " \\fI{}\\fR", quoted(&value));
        }
        let help = arg
            .get_long_help()
            .or(arg.get_help())
            .map_or_else(String::new, ToString::to_string);
        let defaults = arg
            .get_default_values()
            .iter()
            .filter(|_| arg.get_action().takes_values());
        let defaults: String = defaults
            .map(|value| format!(" [default: {}]", value.to_string_lossy()))
            .collect();
        let _ = writeln!(
            list,
            ".TP\n{}\n{}",
            names.trim(),
            quoted(&(help + &defaults))
        );
    }
    match list.is_empty() {
        true => list,
        false => format!(".PP\n.PD 0\n{list}.PD\n"),
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
.TP
\fBREDIS_LOCK_URL\fR
The server, where no \-\-server is given; several are separated by spaces.
.TP
\fBREDIS_LOCK_\fINAME\fR
The default of another option that takes a value, such as REDIS_LOCK_TIMEOUT (\-\-key: REDIS_LOCK_TLS_KEY). Not of
\-\-owner, \-\-key\-hex, \-\-token and \-\-match.
.TP
\fBREDISCLI_AUTH\fR
The password, where neither the URL nor \-\-password\-from has one.
.TP
\fBREDIS_LOCK_CONFIG\fR
The file in place of those below.
.TP
\fBLOCK_KEY\fR, \fBLOCK_KEY_HEX\fR, \fBLOCK_OWNER\fR, \fBLOCK_TOKEN\fR, \fBLOCK_TOKENS\fR
Set for the command of \fBrun\fR: the key (unless it contains a NUL), the same in hexadecimal, the owner, the fencing
token (with \-\-quorum the highest; not with \-\-all), and with several servers the token of each as
\fIserver\fR=\fItoken\fR. Pass the token to the resource that the lock protects, which has to refuse lower ones.
.PD
.SH FILES
.TP
\fB~/.config/redis\-lock.toml\fR, \fB/etc/redis\-lock.toml\fR
Defaults of options that take a value, as lines \fIname\fR = "\fIvalue\fR": first those that name servers, then those of
a command below its name in brackets, such as [run]. The user's file precedes the system's, the environment both.
.SH EXAMPLES
.nf
redis\-lock run nightly \-\- /usr/local/bin/report
redis\-lock run \-n \-E 0 nightly \-\- /usr/local/bin/report    # another one is at it: fine
redis\-lock run \-\-wait 60 \-\-lease 10 deploy \-\- sh \-c 'deploy \-\-fence "$LOCK_TOKEN"'
redis\-lock ls \-\-waited
redis\-lock info nightly \-\-json
redis\-lock watch nightly \-\-json
redis\-lock top
.fi
.SH SEE ALSO
.BR flock (1)
"#;
