//! The measured defaults of each library: the table of `docs/CLIENTS.md`.

use std::time::{Duration, Instant};

use redis_lock_harness::{wait_for, TestServer};

use crate::agent::Agent;
use crate::page::{page, read};
use crate::suite::{hold, wait_for_connection, waiting_connection};
use crate::{Client, ALL};

const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->\n";
const HEAD: &str = "\
| Client | A wait of 10 s, by default | Its connection killed meanwhile, by default | A PING beside a wait of 2 s | The one setting |
|---|---|---|---|---|
";

/// Measures the clients that `LOCK_CLIENTS` names (default: all), each on a server of its own, and writes their rows
/// into the page; the other rows stay.
#[test]
#[ignore = "REPORT=1 make test-clients"]
fn report() {
    let wanted = std::env::var("LOCK_CLIENTS").ok();
    let is_wanted = |client: &&&Client| {
        let names = wanted.as_deref();
        names.is_none_or(|names| {
            names
                .split_whitespace()
                .any(|name| name == client.subject.name)
        })
    };
    let measured: Vec<String> = ALL.iter().filter(is_wanted).map(|c| row(c)).collect();
    let text = read(&page());
    let (before, rest) = text.split_once(BEGIN).expect("a begin");
    let (table, after) = rest.split_once(END).expect("an end");
    let start = |client: &Client| format!("| {} {} |", client.subject.name, client.version);
    let rows = ALL.iter().filter_map(|client| {
        let mut known = measured.iter().map(String::as_str).chain(table.lines());
        known.find(|row| row.starts_with(&start(client)))
    });
    let rows: String = rows.map(|row| format!("{row}\n")).collect();
    let text = format!("{before}{BEGIN}{HEAD}{rows}{END}{after}");
    std::fs::write(page(), text).expect("a page");
}

fn row(client: &Client) -> String {
    let cells = [
        format!("{} {}", client.subject.name, client.version),
        a_long_wait(client),
        a_killed_wait(client),
        a_ping_beside(client),
        client.setting.to_string(),
    ];
    let row = format!("| {} |", cells.join(" | "));
    println!("{row}");
    row
}

/// Ten seconds, or somewhat more than the library's own limit if that is longer.
fn a_long_wait(client: &Client) -> String {
    let wait = match client.subject.gives_up_after {
        limit @ 10_000.. => limit + 2_000,
        _ => 10_000,
    };
    let server = TestServer::start();
    hold(&mut server.conn());
    let mut agent = Agent::start(&client.subject, server.port);
    let start = Instant::now();
    let answer = agent.run(&format!("raw {wait} k a"));
    let took = in_seconds(start.elapsed());
    let times = match server.stat("waits_parked") {
        1 => String::new(),
        sent => format!(", sent {sent} times"),
    };
    // A wait whose client has closed the connection is removed in the following ticks.
    let stays = match server.stat("waiters") {
        0 => "",
        _ => "; the wait stays behind in the server",
    };
    let limit = match wait {
        10_000 => String::new(),
        _ => format!(" (of {} s)", wait / 1_000),
    };
    format!("{} after {took} s{limit}{times}{stays}", plain(&answer))
}

fn a_killed_wait(client: &Client) -> String {
    let server = TestServer::start();
    let mut conn = server.conn();
    hold(&mut conn);
    let mut agent = Agent::start(&client.subject, server.port);
    agent.order("raw 20000 k a");
    let first = wait_for_connection(&mut conn, "a");
    conn.line(&format!("CLIENT KILL ID {first}"));
    let mut answer = None;
    wait_for("an answer, or another request", || {
        answer = agent.answer_so_far();
        answer.is_some() || waiting_connection(&mut conn, "a").is_some_and(|id| id != first)
    });
    match answer {
        Some(answer) => plain(&answer).to_string(),
        None => "sent again silently".to_string(),
    }
}

fn a_ping_beside(client: &Client) -> String {
    let server = TestServer::start();
    hold(&mut server.conn());
    let mut agent = Agent::start(&client.subject, server.port);
    let start = Instant::now();
    let answer = agent.run("ping-behind 2000 k a");
    match answer.strip_prefix("ping ").map(str::parse) {
        Some(Ok(ms)) if ms < 100 => "is not held up".to_string(),
        Some(Ok(ms)) => format!(
            "waits {} s behind it",
            in_seconds(Duration::from_millis(ms))
        ),
        _ => format!("{} after {} s", plain(&answer), in_seconds(start.elapsed())),
    }
}

/// An answer for the table: of an error only that it was one.
fn plain(answer: &str) -> &str {
    let is_error = answer.starts_with("error ");
    if is_error {
        "an error"
    } else {
        answer
    }
}

fn in_seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}
