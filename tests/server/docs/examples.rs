//! The examples of README.md and docs/COMMANDS.md, verbatim: each `console` block that begins with a prompt is typed
//! into windows of redis-cli(1) on a server of its own, and the replies are compared.
//!
//! `> ` is the prompt of the only window, `1> ` that of the first of several. The lines below a command are its reply;
//! a prompt without a command is followed by what that window prints later. A line `(silent: ...)` states that a
//! request is parked, and a line of the second column belongs to the second window. An example that cannot be run has
//! the word `not-run` after `console`.

use std::collections::BTreeMap;

use crate::common::page::{blocks, Block};
use crate::common::{wait_for, TestServer};
use crate::docs::window::{Values, Window};

const PAGES: [&str; 2] = ["README.md", "docs/COMMANDS.md"];

/// The indentation of the second column.
const COLUMN: &str = "                              ";

/// An example while it is played.
struct Example {
    server: TestServer,
    windows: BTreeMap<usize, Seat>,
    values: Values,
}

/// A window of the example.
struct Seat {
    window: Window,
    /// Its request is parked.
    is_parked: bool,
    /// It prints messages until it is closed.
    is_subscribed: bool,
}

impl Example {
    fn play(block: &Block) -> Result<(), String> {
        let mut example = Example {
            server: TestServer::start(),
            windows: BTreeMap::new(),
            values: Values::default(),
        };
        let mut current = 1;
        for line in block.text.lines() {
            let is_in_column = line.starts_with(COLUMN);
            let line = line.trim();
            if let Some((number, command)) = prompt(line) {
                current = number;
                if is_in_column && number != 2 {
                    return Err(format!("the second column is that of window 2: {line}"));
                }
                example.enter(number, command);
            } else if line.starts_with("(silent") {
                example.park(if is_in_column { 2 } else { current });
            } else {
                example.compare(if is_in_column { 2 } else { current }, line)?;
            }
        }
        example.end()
    }

    fn seat(&mut self, number: usize) -> &mut Seat {
        let server = &self.server;
        self.windows.entry(number).or_insert_with(|| Seat {
            window: Window::open(server),
            is_parked: false,
            is_subscribed: false,
        })
    }

    fn enter(&mut self, number: usize, command: &str) {
        if command.is_empty() {
            return;
        }
        let typed = self.values.typed(command);
        let seat = self.seat(number);
        seat.is_subscribed |= command.starts_with("SUBSCRIBE ");
        seat.window.enter(&typed);
    }

    fn park(&mut self, number: usize) {
        self.seat(number).is_parked = true;
        let parked = self.windows.values().filter(|seat| seat.is_parked).count();
        wait_for("the request to be parked", || {
            let waiters = ["waiters", "sem_waiters", "latch_waiters"];
            waiters
                .map(|name| self.server.stat(name))
                .iter()
                .sum::<u64>()
                == parked as u64
        });
    }

    fn compare(&mut self, number: usize, line: &str) -> Result<(), String> {
        let seat = self.seat(number);
        seat.is_parked = false;
        let shown = seat.window.line();
        match self.values.agree(line, &shown) {
            true => Ok(()),
            false => Err(format!(
                "the page has {line:?}, redis-cli shows {:?}",
                shown.trim()
            )),
        }
    }

    /// The tokens rise as on the page, and no window has printed more than the page has.
    fn end(self) -> Result<(), String> {
        if !self.values.rise() {
            return Err("the tokens have another order than on the page".into());
        }
        let free = |seat: &&Seat| !seat.is_parked && !seat.is_subscribed;
        for seat in self.windows.into_values().filter(|seat| free(&seat)) {
            let mut window = seat.window;
            window.enter("ECHO end");
            let line = window.line();
            if line != "\"end\"" {
                return Err(format!("not on the page: {line:?}"));
            }
        }
        Ok(())
    }
}

/// The window of a prompt, and the command behind it.
fn prompt(line: &str) -> Option<(usize, &str)> {
    let (number, command) = line.split_once('>')?;
    let number = match number {
        "" => 1,
        number => number.parse().ok()?,
    };
    Some((number, command.trim()))
}

/// The examples of a page: those to run, and those marked `not-run`.
fn examples(page: &str) -> (Vec<Block>, Vec<Block>) {
    let begins = |block: &Block| prompt(block.first_line()).is_some();
    let all = blocks(page).into_iter();
    let all = all.filter(|block| block.language.starts_with("console") && begins(block));
    all.partition(|block| block.language == "console")
}

#[test]
fn the_examples_show_what_the_server_replies() {
    let (mut run, mut skipped, mut wrong) = (0, 0, Vec::new());
    for page in PAGES {
        let (to_run, not_run) = examples(page);
        run += to_run.len();
        skipped += not_run.len();
        for block in &to_run {
            if let Err(why) = Example::play(block) {
                wrong.push(format!("{page}, {}: {why}", block.first_line()));
            }
        }
        for block in &not_run {
            assert_eq!(
                block.language,
                "console,not-run",
                "{page}: {}",
                block.first_line()
            );
        }
    }
    println!("\nexamples of redis-cli: {run} run, {skipped} not run");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run > 15, "only {run} examples were found");
}
