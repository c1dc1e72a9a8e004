//! docs/COMMANDS.md and LOCK.HELP, compared with the server's descriptions of the commands: `COMMAND DOCS` gets them
//! from the same table as the help, and the page must agree.
//!
//! The form of a page: a heading `## NAME`; a paragraph that begins `<summary>.`; an indented block with the syntax (on
//! one or more lines); then the parts of [`PARTS`], each behind its name. The table of options has a row for each
//! option of the command, and the first detail is `Complexity: <complexity>.`. In LOCK.HELP a line without indentation
//! is the syntax, with each value in `<>`, `seconds` as `s` and `milliseconds` as `ms`; the indented lines under it say
//! what the command does.

use crate::common::{Conn, Reply, TestServer};

const PAGES: &str = include_str!("../../../docs/COMMANDS.md");

/// The parts of a page, in their order.
const PARTS: [&str; 4] = [
    "\n**Options**\n",
    "\n**Replies**\n",
    "\n**Errors**\n",
    "\n**In detail**\n",
];

/// The reply of `COMMAND DOCS` about one command.
struct Described {
    /// In upper case.
    name: String,
    summary: String,
    complexity: String,
    arguments: Vec<Reply>,
}

impl Described {
    fn all(c: &mut Conn) -> Vec<Described> {
        let mut names: Vec<String> = c
            .line("COMMAND LIST FILTERBY MODULE lock")
            .list()
            .iter()
            .map(Reply::text)
            .collect();
        names.sort();
        assert!(names.len() >= 7, "{names:?}");
        names.iter().map(|name| Described::of(c, name)).collect()
    }

    fn of(c: &mut Conn, name: &str) -> Described {
        let docs = c.run(["COMMAND", "DOCS", name]).field(name).unwrap();
        Described {
            name: name.to_uppercase(),
            summary: docs.field("summary").unwrap().text(),
            complexity: docs.field("complexity").unwrap().text(),
            arguments: docs.field("arguments").map_or(vec![], |args| args.list()),
        }
    }

    /// The command with all its arguments; `value` writes those that are no keywords.
    fn syntax(&self, value: impl Fn(&str) -> String) -> String {
        let mut words = vec![self.name.clone()];
        words.extend(self.arguments.iter().map(|arg| written(arg, &value)));
        words.join(" ")
    }
}

/// An argument of `COMMAND DOCS` in the notation of the pages and of redis-cli's hints.
pub fn written(arg: &Reply, value: &impl Fn(&str) -> String) -> String {
    let text = |name: &str| arg.field(name).map(|field| field.text());
    let parts = |between: &str| {
        let parts = arg.field("arguments").unwrap().list();
        let parts: Vec<String> = parts.iter().map(|part| written(part, value)).collect();
        parts.join(between)
    };
    let flags: Vec<String> = arg.field("flags").map_or(vec![], |flags| {
        flags.list().iter().map(Reply::text).collect()
    });
    let has = |flag: &str| flags.iter().any(|other| other == flag);
    let kind = text("type").unwrap();
    let token = text("token");
    let mut one = match kind.as_str() {
        "oneof" => parts(" | "),
        "block" => parts(" "),
        "pure-token" => return optional(has("optional"), token.unwrap()),
        _ => value(&text("name").unwrap()),
    };
    let token = token.map_or(String::new(), |token| format!("{token} "));
    if has("multiple_token") {
        one = format!("{token}{one} [{token}{one} ...]");
    } else if has("multiple") {
        one = format!("{token}{one} [{one} ...]");
    } else {
        one = format!("{token}{one}");
    }
    optional(has("optional"), one)
}

/// The options among these arguments, with their values, as the pages write them: `NOTIFY channel tag`.
fn options(arguments: &[Reply]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for arg in arguments {
        let text = |name: &str| arg.field(name).map(|field| field.text());
        let name = text("name").unwrap();
        match (text("type").unwrap().as_str(), text("token")) {
            ("oneof" | "block", _) => {
                found.extend(options(&arg.field("arguments").unwrap().list()));
            }
            ("pure-token", token) => found.extend(token),
            (_, Some(token)) => found.push(format!("{token} {name}")),
            // A further value of the option before it. The key and the owner come before all options.
            (_, None) => {
                if let Some(option) = found.last_mut() {
                    *option = format!("{option} {name}");
                }
            }
        }
    }
    found
}

fn optional(is: bool, text: String) -> String {
    if is {
        format!("[{text}]")
    } else {
        text
    }
}

/// A section of the page: its heading, and its paragraphs, each joined into one line.
struct Section {
    heading: &'static str,
    /// The first indented block.
    syntax: String,
    paragraphs: Vec<String>,
    body: &'static str,
}

impl Section {
    /// The text of the part of this name, up to the next part.
    fn part(&self, name: &str) -> &'static str {
        let (_, text) = self.body.split_once(name).unwrap_or_default();
        text.split("\n**").next().unwrap_or_default()
    }

    /// The options in the table of options. (Its rows in lower case are other arguments.)
    fn options(&self) -> Vec<&'static str> {
        let rows = self.part(PARTS[0]).lines();
        let firsts = rows.filter(|row| row.starts_with("| `"));
        let firsts = firsts.filter_map(|row| row.split('|').nth(1));
        let codes = firsts.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        codes
            .filter(|code| code.starts_with(|first: char| first.is_ascii_uppercase()))
            .collect()
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn sections() -> Vec<Section> {
    let (_, sections) = PAGES.split_once("\n## ").unwrap();
    let section = |text: &'static str| {
        let (heading, body) = text.split_once('\n').unwrap();
        let blocks = body.split("\n\n").map(|block| block.trim_matches('\n'));
        let (indented, paragraphs): (Vec<&str>, Vec<&str>) = blocks
            .filter(|block| !block.trim().is_empty())
            .partition(|block| block.starts_with("    "));
        Section {
            heading: heading.trim(),
            syntax: indented.first().map_or(String::new(), |s| in_one_line(s)),
            paragraphs: paragraphs.iter().map(|p| in_one_line(p)).collect(),
            body,
        }
    };
    sections.split("\n## ").map(section).collect()
}

/// The sections about commands: a name like `LOCK.ACQUIRE` in the heading.
fn pages() -> Vec<Section> {
    let is_name = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        word.contains('.') && word == word.to_uppercase()
    };
    let mut sections = sections();
    sections.retain(|section| section.heading.split_whitespace().any(is_name));
    sections
}

#[test]
fn every_command_has_a_page_and_every_page_a_command() {
    let server = TestServer::start();
    let mut c = server.conn();
    let names: Vec<String> = Described::all(&mut c).into_iter().map(|d| d.name).collect();
    let mut headings: Vec<&str> = pages().iter().map(|page| page.heading).collect();
    headings.sort_unstable();
    assert_eq!(headings, names);
}

#[test]
fn a_page_states_syntax_summary_and_complexity_as_the_server_does() {
    let server = TestServer::start();
    let mut wrong = Vec::new();
    for mut c in [server.conn(), server.conn3()] {
        let pages = pages();
        for command in Described::all(&mut c) {
            let Some(page) = pages.iter().find(|page| page.heading == command.name) else {
                continue;
            };
            let syntax = command.syntax(str::to_string);
            if page.syntax != syntax {
                wrong.push(format!("{syntax}\n  but: {}", page.syntax));
            }
            let opening = format!("{}.", command.summary);
            let first = page.paragraphs.first().map_or("", String::as_str);
            if !first.starts_with(&opening) {
                wrong.push(format!("{}: {opening}\n  but: {first}", command.name));
            }
            let complexity = format!("- Complexity: {}.", command.complexity);
            let details = in_one_line(page.part(PARTS[3]));
            if !details.starts_with(&complexity) {
                wrong.push(format!("{}: {complexity}\n  but: {details}", command.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_help_has_every_command_with_its_syntax() {
    let server = TestServer::start();
    let mut c = server.conn();
    let help: Vec<String> = c.line("LOCK.HELP").list().iter().map(Reply::text).collect();
    let mut response: Vec<&str> = help
        .iter()
        .map(String::as_str)
        .filter(|line| !line.starts_with(' '))
        .collect();
    response.sort_unstable();
    let mut expected: Vec<String> = Described::all(&mut c)
        .iter()
        .map(|command| {
            command.syntax(|name| match name {
                "milliseconds" => "<ms>".into(),
                "seconds" => "<s>".into(),
                name => format!("<{name}>"),
            })
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(response, expected);
    for pair in help.windows(2).filter(|pair| !pair[0].starts_with(' ')) {
        assert!(
            pair[1].starts_with("    "),
            "nothing is said of {}",
            pair[0]
        );
    }
}

#[test]
fn a_page_has_its_parts_in_their_order() {
    for page in pages() {
        let at = PARTS.map(|part| page.body.find(part));
        assert!(
            at.is_sorted() && at.iter().all(Option::is_some),
            "{}: {PARTS:?} are at {at:?}",
            page.heading
        );
    }
}

#[test]
fn the_table_of_options_has_every_option_of_the_command_and_no_other() {
    let server = TestServer::start();
    let mut c = server.conn();
    let (pages, mut count) = (pages(), 0);
    for command in Described::all(&mut c) {
        let Some(page) = pages.iter().find(|page| page.heading == command.name) else {
            continue;
        };
        let (mut expected, mut described) = (options(&command.arguments), page.options());
        count += expected.len();
        expected.sort_unstable();
        described.sort_unstable();
        assert_eq!(described, expected, "{}", command.name);
    }
    assert!(count > 40, "only {count} options were found");
}

#[test]
fn every_field_of_info_has_a_row_on_the_page() {
    let server = TestServer::start();
    let info = server.conn().line("INFO lock").text();
    let (_, section) = PAGES.split_once("\n## INFO lock\n").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let firsts = rows.filter_map(|row| row.split('|').nth(1));
    let described: Vec<&str> = firsts
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    for line in info.lines() {
        let Some((name, _)) = line
            .strip_prefix("lock_")
            .and_then(|line| line.split_once(':'))
        else {
            continue;
        };
        // Those of semaphores are described by those of locks.
        let as_of_locks = name.strip_prefix("sem_").unwrap_or(name);
        let is_described = [name, as_of_locks]
            .iter()
            .any(|name| described.contains(name));
        assert!(is_described, "no row for {name}");
    }
}
