//! The driver's side of an agent: a program around a client library that gets orders line by line. Words are separated
//! by one space, times are in milliseconds; the agent answers every line with one line, in order, and begins with
//! `ready`.
//!
//! | Order | Answers |
//! |---|---|
//! | `acquire KEY OWNER WAIT LEASE` | `token N`, `nil` |
//! | `renew KEY OWNER TOKEN LEASE` | `1`, `0` |
//! | `release KEY OWNER TOKEN` | `1`, `0` |
//! | `quit`, or the end of the input | the program ends |
//!
//! Every error that the library raises is answered `error TEXT`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

use redis_lock_harness::process::{self, spawn};
use redis_lock_harness::{patience, wait_for};

use crate::Client;

/// A running agent; dropping it ends the process.
pub struct Agent {
    process: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

/// The directory of this name.
pub fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

impl Agent {
    /// Starts the agent of this library's helper that parks requests, connected to this port.
    pub fn start(client: &Client, port: u16) -> Agent {
        Agent::start_as(client.name, port, &[])
    }

    /// Starts the agent in this directory with further arguments.
    pub fn start_as(name: &str, port: u16, further: &[&str]) -> Agent {
        Agent::start_by(Agent::program(name), name, port, further)
    }

    /// The program of the agent in this directory, without arguments.
    pub fn program(name: &str) -> Command {
        Command::new(directory(name).join("run"))
    }

    /// Starts an agent by its program.
    pub fn start_by(mut program: Command, name: &str, port: u16, further: &[&str]) -> Agent {
        program
            .args(["127.0.0.1", &port.to_string()])
            .args(further)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = spawn(&mut program).unwrap_or_else(|error| panic!("{name}: {error}"));
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        let orders = process.stdin.take();
        let agent = Agent {
            process,
            orders,
            answers,
        };
        let first = agent.answer();
        assert_eq!(first, "ready", "{name} (make test-clients installs)");
        agent
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.process.id()).expect("a pid");
        process::signal(pid, signal);
    }

    /// Sends an order without waiting for the answer.
    pub fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("a pipe");
        writeln!(orders, "{order}").expect("the agent lives");
    }

    /// The next answer.
    pub fn answer(&self) -> String {
        self.answer_within(patience())
    }

    /// The next answer, if it arrives within this time.
    pub fn answer_within(&self, limit: Duration) -> String {
        let answer = self.answers.recv_timeout(limit);
        answer.expect("an answer of the agent")
    }

    /// The next answer, if it has arrived.
    pub fn answer_so_far(&self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    /// Sends an order and waits for the answer.
    pub fn run(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// Ends the input, and waits for the end of the program.
    pub fn end(mut self) {
        self.orders = None;
        wait_for("the end of the program", || {
            self.process.try_wait().expect("a child").is_some()
        });
    }

    /// The token in the next answer.
    pub fn token(&self) -> i64 {
        token_in(&self.answer())
    }
}

/// The token in this answer.
pub fn token_in(answer: &str) -> i64 {
    let token = answer.strip_prefix("token ").and_then(|t| t.parse().ok());
    token.unwrap_or_else(|| panic!("not a token: {answer}"))
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
