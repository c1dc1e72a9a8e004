//! `top` at terminals of several sizes, and its keys.

use redis_lock_harness::TestServer;

use crate::console::Console;

const CTRL_C: &str = "\x03";

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
    console.press("q");
    console.see("ready> ");
    assert_eq!(console.status(), "0");
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
    console.press("q");
    console.see("ready> ");
    assert_eq!(console.status(), "0");
    console.line("\"$L\" top");
    console.see("hand-offs/s");
    console.press(CTRL_C);
    console.see("ready> ");
    assert_eq!(console.status(), "0");
}
