//! `top` at terminals of several sizes, and its keys.

use redis_lock_harness::TestServer;

use crate::console::Console;
use crate::program::{program, Running};

const CTRL_C: &str = "\x03";
/// The sequences of the screen beside that of the shell.
const ENTERS: &str = "\x1b[?1049h";
const LEAVES: &str = "\x1b[?1049l";

/// Twelve locks whose long names differ at the end.
fn twelve() -> TestServer {
    let real = TestServer::start();
    for i in 10..22 {
        let key = format!("batch:invoices:2026-11-27:eu-central:customer:{i}");
        real.conn()
            .line(&format!("LOCK.ACQUIRE {key} worker-{i} PX 600000"));
    }
    real
}

#[test]
fn long_names_are_told_apart_on_narrow_terminals() {
    let real = twelve();
    for columns in [80, 60] {
        let mut console = Console::sized(&real, columns, 24);
        console.line("\"$L\" top -i 0.1");
        console.press("n");
        for i in 10..22 {
            console.see(&format!("customer:{i}"));
        }
        console.press("q");
        console.see("ready> ");
    }
}

#[test]
fn the_rows_scroll() {
    let real = twelve();
    let mut console = Console::sized(&real, 100, 10);
    console.line("\"$L\" top -i 0.1");
    console.press("n");
    // Five rows fit between the head and the foot.
    console.see("1-5 of 12");
    console.press("\x1b[6~");
    console.see("customer:15");
    console.see("6-10 of 12");
    for (key, range) in [
        ("j", "7-11"),
        ("\x1b[B", "8-12"),
        ("k", "7-11"),
        ("\x1b[A", "6-10"),
        ("\x1b[5~", "1-5"),
        ("\x1b[F", "8-12"),
        ("\x1b[B", "8-12"),
        ("\x1b[H", "1-5"),
    ] {
        console.press(key);
        console.see(&format!("{range} of 12"));
    }
    console.press("q");
    console.see("ready> ");
}

#[test]
fn a_filter_chooses_rows_by_key_and_holder() {
    let real = twelve();
    let mut console = Console::sized(&real, 100, 24);
    console.line("\"$L\" top -i 0.1");
    console.see("1-12 of 12");
    // The keys that order and end are letters here.
    console.press("/worker-qwh\x7f\x7f\x7f17");
    console.see("/worker-17");
    console.see("1-1 of 1");
    console.press("\r");
    console.see("filter: worker-17");
    console.press("\x1b");
    console.see("1-12 of 12");
    console.press("/customer:2");
    console.see("1-2 of 2");
    // Escape leaves the filter, not the program.
    console.press("\x1b");
    console.see("1-12 of 12");
    console.quit();
}

#[test]
fn ctrl_z_gives_the_shell_its_screen_and_fg_goes_on() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE nightly me PX 600000");
    let mut console = Console::start(&real);
    console.line("\"$L\" top -i 0.1");
    for _ in 0..5 {
        console.see("nightly");
        console.press("\x1a");
        console.see(LEAVES);
        console.see("Stopped");
        console.see("ready> ");
        console.line("fg");
        console.see(ENTERS);
    }
    // Stopped by a signal, it could not leave the screen.
    console.see("nightly");
    console.quit();
    console.line("\"$L\" top -i 0.1 & echo p''id=$!.; fg");
    let pid = console.number("pid=");
    console.see("nightly");
    let pid = nix::unistd::Pid::from_raw(pid.parse().expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("a signal");
    console.see("Stopped");
    console.see("ready> ");
    console.line("fg");
    console.see(ENTERS);
    console.see("nightly");
    console.quit();
}

#[test]
fn a_terminal_without_a_cursor_gets_one_frame_of_text() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE nightly me PX 600000");
    let mut console = Console::start(&real);
    for term in ["TERM=dumb", "TERM=", "-u TERM"] {
        console.line(&format!("env {term} \"$L\" top -i 0.1"));
        console.see("redis-lock top   127");
        console.see("\r\nheld 1 ");
        console.see("by wait\r\nready> ");
    }
    assert_eq!(console.status(), "0");
}

/// Of two columns each, and of a locale that has none of them.
#[test]
fn the_columns_of_wide_characters_are_counted() {
    let real = TestServer::start();
    for key in ["\u{65e5}\u{672c}", "abcd", "gr\u{f6}\u{df}e"] {
        real.conn().run(["LOCK.ACQUIRE", key, "me", "PX", "600000"]);
    }
    let rows = |words: &str, locale: &str| {
        let mut command = program(&real);
        command.env("LC_ALL", locale).args(words.split(' '));
        let out = Running::of(&mut command).end().ok();
        let rows = out.lines().filter(|line| line.contains("exclusive"));
        // Up to the next column, which is the holder or the mode.
        let names = rows.map(|row| {
            let ends = ["me ", "exclusive"].map(|next| row.find(next).expect("a column"));
            row[..ends[0].min(ends[1])].to_string()
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let expected = ["abcd   ", "gr\u{f6}\u{df}e  ", "\u{65e5}\u{672c}   "];
    for locale in ["C.UTF-8", "de_DE.utf8", ""] {
        assert_eq!(rows("top --once -i 0.01", locale), expected, "{locale}");
        assert_eq!(rows("ls", locale), expected, "{locale}");
    }
    let expected = [
        "\\u{65e5}\\u{672c}  ",
        "abcd              ",
        "gr\\u{f6}\\u{df}e   ",
    ];
    for locale in ["C", "POSIX", "de_DE.ISO-8859-1"] {
        assert_eq!(rows("top --once -i 0.01", locale), expected, "{locale}");
    }
}

#[test]
fn it_is_live_until_q_and_helps() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE nightly me PX 600000");
    let mut console = Console::start(&real);
    console.line("\"$L\" top --interval 0.2");
    console.see("hand-offs/s");
    console.see("nightly");
    real.conn().line("LOCK.ACQUIRE another me PX 600000");
    console.see("another");
    // By name it is the first row.
    console.press("n");
    console.see("\x1b[5;1H\x1b[Kanother");
    console.press("?");
    console.see("the graph of waits");
    console.press("?");
    console.see("\x1b[5;1H\x1b[Kanother");
    console.quit();
    console.line("\"$L\" top");
    console.see("hand-offs/s");
    console.press(CTRL_C);
    console.see("ready> ");
    assert_eq!(console.status(), "0");
}
