//! The manual: generated from the definitions of the options, checked with groff.

use std::io::Write;
use std::process::{Command, Stdio};

use redis_lock_harness::process::spawn;

use crate::program::{Running, PROGRAM};

fn out(words: &str) -> String {
    Running::of(Command::new(PROGRAM).args(words.split(' ')))
        .end()
        .ok()
}

/// What the tool makes of the text; None where the machine does not have it.
fn through(tool: &str, args: &[&str], text: &str) -> Option<(String, String)> {
    let mut command = Command::new(tool);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(&mut command).ok()?;
    child
        .stdin
        .take()?
        .write_all(text.as_bytes())
        .expect("a pipe");
    let output = child.wait_with_output().expect("an end");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some((text(output.stdout), text(output.stderr)))
}

#[test]
fn the_manual_has_every_subcommand_and_every_option() {
    let page = out("man");
    for name in [
        "RUN",
        "LS",
        "INFO",
        "BREAK",
        "TOP",
        "WATCH",
        "CHECK",
        "COMPLETIONS",
        "MAN",
    ] {
        assert!(
            page.contains(&format!(".SS \"redis\\-lock {}", name.to_lowercase())),
            "{name}"
        );
        let help = out(&format!("{} --help", name.to_lowercase()));
        let options = help
            .split_whitespace()
            .filter(|word| word.starts_with("--") && word.len() > 2);
        for option in options {
            let option = option
                .trim_end_matches([',', '.', ')', ':', ';', ']'])
                .replace('-', "\\-");
            assert!(page.contains(&option), "{name}: {option}");
        }
    }
    let Some((text, complaints)) = through("groff", &["-man", "-Tutf8", "-ww", "-P-cbou"], &page)
    else {
        return;
    };
    assert_eq!(complaints, "");
    assert!(
        text.contains("redis-lock run [OPTIONS] <KEY> <COMMAND>..."),
        "{text}"
    );
    // The options that name servers stand there once.
    assert_eq!(text.matches("--cacert").count(), 1, "{text}");
}
