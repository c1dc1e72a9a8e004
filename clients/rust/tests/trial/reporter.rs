//! The way from a worker to the check: a call, or lines over a socket where the worker is in another process.
//!
//! A line is answered before the worker goes on: so it is inside and outside at the same moments in both processes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::check::{Check, Failure, Hold, Loss, STANDSTILL};
use crate::fault_log::{Link, Reach};

pub enum Reporter {
    Local(Arc<Check>),
    Remote(Remote),
}

/// The socket of a program that is not the trial's own process.
pub struct Remote {
    stream: Mutex<BufReader<UnixStream>>,
    is_over: AtomicBool,
}

impl Remote {
    pub fn to(path: &str) -> Reporter {
        let stream = UnixStream::connect(path).expect("the trial's socket");
        Reporter::Remote(Remote {
            stream: Mutex::new(BufReader::new(stream)),
            is_over: AtomicBool::new(false),
        })
    }

    fn tell(&self, line: &str) {
        self.ask(line);
    }

    /// The answer to a line; 0 when the trial is over.
    fn ask(&self, line: &str) -> u64 {
        let mut stream = self.stream.lock().unwrap();
        let mut answer = String::new();
        let sent = stream.get_mut().write_all(format!("{line}\n").as_bytes());
        let read = sent.and_then(|()| stream.read_line(&mut answer));
        let mut words = answer.split_whitespace();
        let number = words.next().and_then(|word| word.parse().ok());
        if read.is_err() || number.is_none() || words.next() == Some("over") {
            self.is_over.store(true, Ordering::SeqCst);
        }
        number.unwrap_or(0)
    }
}

impl Reporter {
    pub fn goes_on(&self) -> bool {
        match self {
            Reporter::Local(check) => check.goes_on(),
            Reporter::Remote(remote) => !remote.is_over.load(Ordering::SeqCst),
        }
    }

    pub fn enter(&self, hold: &Hold) -> u64 {
        match self {
            Reporter::Local(check) => check.enter(hold.clone()),
            Reporter::Remote(remote) => remote.ask(&format!("enter {}", written(hold))),
        }
    }

    pub fn lose(&self, number: u64, why: Loss) {
        match self {
            Reporter::Local(check) => check.lose(number, why),
            Reporter::Remote(remote) => remote.tell(&format!("lose {number} {why:?}")),
        }
    }

    pub fn leave(&self, number: u64, why: &str) {
        match self {
            Reporter::Local(check) => check.leave(number, why),
            Reporter::Remote(remote) => remote.tell(&format!("leave {number} {why}")),
        }
    }

    pub fn not_held(&self, hold: &Hold) {
        match self {
            Reporter::Local(check) => check.not_held(hold.clone()),
            Reporter::Remote(remote) => remote.tell(&format!("not-held {}", written(hold))),
        }
    }

    pub fn failure(&self, failure: Failure) {
        match self {
            Reporter::Local(check) => check.failure(failure),
            // It has few open files: any acquisition of it may fail, in a way that passes.
            Reporter::Remote(remote) if failure.is_passing => remote.tell("failure"),
            Reporter::Remote(remote) => remote.tell(&format!("fail {}", failure.text)),
        }
    }

    pub fn tally(&self, kind: &str, outcome: &str, waited: Duration) {
        match self {
            Reporter::Local(check) => check.tally(kind, outcome, waited),
            Reporter::Remote(remote) => {
                let micros = waited.as_micros();
                remote.tell(&format!("tally {micros} {kind} {outcome}"));
            }
        }
    }

    /// The machine ran nothing of the trial since then.
    pub fn lag(&self, begin: Instant) {
        let end = Instant::now();
        match self {
            Reporter::Local(check) => {
                check.log.was(Reach::AllServers, STANDSTILL, (begin, end));
                check.lagged(end - begin);
            }
            Reporter::Remote(remote) => {
                remote.tell(&format!("lag {}", begin.elapsed().as_micros()));
            }
        }
    }
}

/// A hold as one line.
fn written(hold: &Hold) -> String {
    let tokens = hold
        .tokens
        .iter()
        .map(|(key, token)| format!("{key}={token}"));
    let servers = hold.servers.iter().map(ToString::to_string);
    format!(
        "{} {} {} {} {} {} {} {} {} {}",
        hold.worker,
        hold.kind,
        hold.is_shared,
        hold.is_red,
        hold.lease.as_micros(),
        hold.margin.as_micros(),
        hold.asked.elapsed().as_micros(),
        servers.collect::<Vec<_>>().join(","),
        tokens.collect::<Vec<_>>().join(","),
        hold.since.elapsed().as_micros(),
    )
}

fn read(words: &[&str], link: Link) -> Option<Hold> {
    let micros = |place: usize| Some(Duration::from_micros(words.get(place)?.parse().ok()?));
    let servers = words
        .get(7)?
        .split(',')
        .filter_map(|word| word.parse().ok());
    let tokens = words.get(8)?.split(',').filter_map(|word| {
        let (key, token) = word.rsplit_once('=')?;
        Some((key.to_string(), token.parse().ok()?))
    });
    Some(Hold {
        worker: (*words.first()?).to_string(),
        kind: (*words.get(1)?).to_string(),
        link,
        is_shared: *words.get(2)? == "true",
        is_red: *words.get(3)? == "true",
        lease: micros(4)?,
        margin: micros(5)?,
        asked: Instant::now() - micros(6)?,
        since: Instant::now() - micros(9)?,
        servers: servers.collect(),
        tokens: tokens.collect(),
    })
}

/// Serves the programs that come; their threads end with their connections.
pub fn serve(path: &str, check: &Arc<Check>, link: Link) {
    let listener = UnixListener::bind(path).expect("a socket");
    let check = check.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let check = check.clone();
            thread::spawn(move || serve_one(&stream, &check, link));
        }
    });
}

fn serve_one(stream: &UnixStream, check: &Check, link: Link) {
    let mut inside = Vec::new();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = serve_line(&words, check, link, &mut inside);
        let word = if check.goes_on() { "" } else { " over" };
        let mut stream = stream;
        if stream
            .write_all(format!("{number}{word}\n").as_bytes())
            .is_err()
        {
            break;
        }
    }
    // Killed, it does nothing more.
    for number in inside {
        check.leave(number, "killed");
    }
}

fn serve_line(words: &[&str], check: &Check, link: Link, inside: &mut Vec<u64>) -> u64 {
    let number = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let hold = || words.get(1..).and_then(|words| read(words, link));
    match words.first().copied() {
        Some("enter") => {
            let hold = hold().expect("a hold");
            let number = check.enter(hold);
            inside.push(number);
            return number;
        }
        Some("lose") => check.lose(
            number,
            match words.get(2).copied() {
                Some("Unconfirmed") => Loss::Unconfirmed,
                Some("Taken") => Loss::Taken,
                _ => Loss::Refused,
            },
        ),
        Some("leave") => {
            check.leave(number, words.get(2).unwrap_or(&""));
            inside.retain(|other| *other != number);
        }
        Some("not-held") => check.not_held(hold().expect("a hold")),
        Some("failure") => check.tally("failure", "of the program with few files", Duration::ZERO),
        Some("fail") => check.fail(words.join(" ")),
        Some("tally") => {
            let kind = words.get(2).unwrap_or(&"");
            let outcome = words.get(3..).unwrap_or_default().join(" ");
            check.tally(kind, &outcome, Duration::from_micros(number));
        }
        Some("lag") => {
            let begin = Instant::now() - Duration::from_micros(number);
            let span = (begin, Instant::now());
            check.log.was(Reach::AllServers, STANDSTILL, span);
        }
        _ => {}
    }
    1
}
