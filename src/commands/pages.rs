//! The facts that the documentation site states of each command, from the table that `COMMAND DOCS` has too.
//!
//! `make docs` names a directory in `LOCK_PAGES`. It then gets two tables of each command, in Markdown, and a list of
//! all commands. docs/COMMANDS.md has the text; site/pages.awk joins both.

use std::ffi::CStr;
use std::fmt::Write;
use std::path::Path;

use crate::commands::ALL;
use crate::module::entry::command::{access, Arg, ArgKind, Spec, SINCE};

fn text(name: &CStr) -> &str {
    name.to_str().unwrap()
}

fn specs() -> impl Iterator<Item = &'static Spec> {
    ALL.iter().map(|registration| registration().spec)
}

/// `a`, `b`, `c`
fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// The table below the title of a command's page.
fn facts(spec: &Spec) -> String {
    let key = match spec.key {
        None => "none",
        Some(access::READ) => "read",
        Some(access::UPDATE) => "read and written",
        Some(access::DELETE) => "read, may be deleted",
        Some(other) => panic!("no words for the access {other:#x}"),
    };
    let categories = text(spec.acl).split(' ').chain(["lock"]);
    let categories: Vec<String> = categories.map(|category| format!("@{category}")).collect();
    let flags = match text(spec.flags) {
        "" => "none".into(),
        flags => quoted(flags.split(' ')),
    };
    let rows = [
        ("Since", text(SINCE).into()),
        (
            "ACL categories",
            quoted(categories.iter().map(String::as_str)),
        ),
        ("Flags", flags),
        ("Keys", key.into()),
    ];
    let rows = rows.map(|(name, fact)| format!("| {name} | {fact} |\n"));
    format!("| | |\n|---|---|\n{}\n", rows.concat())
}

/// The rows of one argument. `place` is what the arguments around it state: optional, or one of several.
fn rows(out: &mut String, arg: &Arg, place: &str) {
    let optional = if arg.optional { "optional" } else { "" };
    let place = [place, optional].map(str::to_string).into_iter();
    let place: Vec<String> = place.filter(|words| !words.is_empty()).collect();
    let place = place.join("; ");
    let kind = match arg.kind {
        ArgKind::Key => "key",
        ArgKind::Keys => "keys, `numkeys` of them",
        ArgKind::String => "bytes",
        ArgKind::Strings => "bytes, once or several times",
        ArgKind::Integer => "integer",
        ArgKind::Word => "word",
        ArgKind::OneOf(parts) => {
            let place = format!("{place}; one of {}", quoted(parts.iter().map(first_word)));
            return parts.iter().for_each(|part| rows(out, part, &place));
        }
        ArgKind::Block(parts) => {
            // The first argument of a group opens it; the others need it.
            let (first, others) = parts.split_first().unwrap();
            rows(out, first, &place);
            let needs = format!("after `{}`", first_word(first));
            return others.iter().for_each(|part| rows(out, part, &needs));
        }
    };
    let written = match (arg.token, &arg.kind) {
        (Some(token), ArgKind::Word) => text(token).into(),
        (Some(token), _) => format!("{} {}", text(token), text(arg.name)),
        (None, _) => text(arg.name).into(),
    };
    let place = match place.as_str() {
        "" => " |".into(),
        place => format!(" {place} |"),
    };
    writeln!(out, "| `{written}` | {kind} |{place}").unwrap();
}

/// The word that begins an argument, or its name.
fn first_word(arg: &Arg) -> &'static str {
    match (arg.token, &arg.kind) {
        (None, ArgKind::Block(parts)) => first_word(&parts[0]),
        (token, _) => text(token.unwrap_or(arg.name)),
    }
}

fn arguments(spec: &Spec) -> String {
    if spec.args.is_empty() {
        return String::new();
    }
    let mut out = String::from("| Argument | Type | |\n|---|---|---|\n");
    spec.args.iter().for_each(|arg| rows(&mut out, arg, ""));
    out.push('\n');
    out
}

/// The name of a command's page: lock-acquire.
fn file(spec: &Spec) -> String {
    text(spec.name).replace('.', "-")
}

#[test]
fn every_command_has_facts_for_its_page() {
    let directory = std::env::var_os("LOCK_PAGES");
    let write = |name: &str, text: &str| {
        if let Some(directory) = &directory {
            std::fs::write(Path::new(directory).join(name), text).unwrap();
        }
    };
    let mut list = String::new();
    for spec in specs() {
        let (name, file) = (text(spec.name).to_uppercase(), file(spec));
        writeln!(list, "- [{name}]({file}.md): {}", text(spec.summary)).unwrap();
        write(&format!("{file}.facts"), &facts(spec));
        write(&format!("{file}.arguments"), &arguments(spec));
    }
    write("list", &list);
    assert!(specs().count() > 15, "{list}");
}

#[test]
fn options_name_the_words_that_exclude_or_need_each_other() {
    let of = |name| arguments(specs().find(|spec| spec.name == name).unwrap());
    let acquire = of(c"lock.acquire");
    for row in [
        "| `key` | key | |",
        "| `EX seconds` | integer | optional; one of `EX`, `PX`, `SESSION` |",
        "| `BLOCK milliseconds` | integer | optional |",
        "| `NOTIFY channel` | bytes | after `BLOCK`; optional |",
        "| `tag` | bytes | after `NOTIFY` |",
        "| `ONCE` | word | optional |",
    ] {
        assert!(acquire.contains(row), "{row}\n{acquire}");
    }
    assert!(of(c"lock.macquire").contains("| `key` | keys, `numkeys` of them | |"));
}
