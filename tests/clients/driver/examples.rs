//! The programs in `examples`, one a language, each through the same failures on a real server, with the installed
//! package: started twice, killed, ended by SIGTERM, with a lock that another owner takes, and without a server.
//! `main.rs` has the table of the programs and the tests; `examples/README.md` says what each program does.

use std::fs::File;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::SIGTERM;
use redis_lock_harness::page::root;
use redis_lock_harness::process::{signal, spawn};
use redis_lock_harness::{wait_for, TestServer};

use crate::payments::{post, Payments, Response};

/// A program in `examples`.
pub struct Program {
    /// Its file there.
    pub file: &'static str,
    /// The command that runs it, without its arguments; a path begins in the repository.
    pub command: &'static [&'static str],
    pub shape: Shape,
}

/// What a program is.
#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    /// An HTTP service: a request holds the lock of its order.
    Service,
    /// A pool of workers: each takes the lock of an invoice, and waits for it.
    Pool,
    /// A job of cron: one machine takes the lock, and no other waits.
    Job,
    /// Candidates: they wait to be the leader, which works until it is ended.
    Leader,
}

/// So many parts of its work that a program is amid it whenever a test looks.
const ENDLESS: u32 = 1_000_000_000;

/// A server, and what else the programs call.
struct Stage<'a> {
    program: &'a Program,
    server: TestServer,
    payments: Payments,
}

impl Stage<'_> {
    fn of(program: &Program) -> Stage<'_> {
        let (server, payments) = (TestServer::start(), Payments::start());
        Stage {
            program,
            server,
            payments,
        }
    }

    /// Starts the program, for work of so many parts.
    fn start(&self, parts: u32) -> Run {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let output = self.server.dir().join(format!("output.{number}"));
        let url = format!("redis://127.0.0.1:{}", self.server.port);
        let payments = format!("http://127.0.0.1:{}", self.payments.port);
        let parts = parts.to_string();
        let (first, rest) = self.program.command.split_first().expect("a command");
        let mut command = Command::new(first);
        command.current_dir(root()).args(rest).arg(&url);
        match self.program.shape {
            Shape::Service => command.args([&payments, "0"]),
            Shape::Pool => command.args([&parts, "invoices:1"]),
            Shape::Job => command.args(["2030-01-01", &parts]),
            Shape::Leader => &mut command,
        };
        Run::start(&mut command, output)
    }

    /// Starts the program, and waits until it is amid its work: of a service, that of a request.
    fn start_amid(&self) -> (Run, Option<Response>) {
        let (before, asked) = (self.written(), self.payments.asked());
        let run = self.start(ENDLESS);
        if self.program.shape == Shape::Service {
            let response = post(run.port());
            wait_for("a request of a payment", || self.payments.asked() > asked);
            return (run, Some(response));
        }
        wait_for("work", || self.written() > before);
        (run, None)
    }

    /// The lock, and the key with what is written under it.
    fn keys(&self) -> (&'static str, &'static str) {
        match self.program.shape {
            Shape::Service => ("order:7", "charged:7"),
            Shape::Pool => ("invoices:1", "invoices:1:text"),
            Shape::Job => ("report", "report:2030-01-01"),
            Shape::Leader => ("scheduler", "scheduler:ticks"),
        }
    }

    /// How much is written.
    fn written(&self) -> i64 {
        self.server.conn().line(&self.how_much()).int()
    }

    /// The command that tells it.
    fn how_much(&self) -> String {
        let verb = match self.program.shape {
            Shape::Service => "EXISTS",
            _ => "LLEN",
        };
        format!("{verb} {}", self.keys().1)
    }

    fn is_held(&self) -> bool {
        let key = self.keys().0;
        self.server.conn().run(["EXISTS", key]).int() == 1
    }
}

/// A program that runs; dropping it ends the process.
pub struct Run {
    process: Child,
    output: PathBuf,
}

impl Run {
    /// Starts a program, which writes into this file.
    pub fn start(command: &mut Command, output: PathBuf) -> Run {
        let stream = File::create(&output).expect("a file");
        command.stdout(stream.try_clone().expect("a file"));
        let process = spawn(command.stderr(stream));
        let process = process.expect("what make test-clients installs");
        Run { process, output }
    }

    fn output(&self) -> String {
        std::fs::read_to_string(&self.output).expect("a file")
    }

    /// Waits until a service listens.
    fn port(&self) -> u16 {
        let mut port = None;
        wait_for("the service", || {
            let output = self.output();
            let mut words = output.split("listening on 127.0.0.1:").skip(1);
            port = words
                .next()
                .and_then(|rest| rest.lines().next()?.parse().ok());
            port.is_some()
        });
        port.expect("a port")
    }

    fn signal(&self, number: i32) {
        let pid = i32::try_from(self.process.id()).expect("a pid");
        signal(pid, number);
    }

    /// Waits for the end, with this status.
    pub fn ends_with(mut self, status: i32) {
        assert_eq!(self.end(), Some(status), "{}", self.output());
    }

    /// Waits for the end, with the status of an error.
    pub fn fails(mut self) {
        assert_ne!(self.end(), Some(0), "{}", self.output());
    }

    fn end(&mut self) -> Option<i32> {
        let mut ended = None;
        wait_for("the end of the program", || {
            ended = self.process.try_wait().expect("a child");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }

    fn kill(mut self) {
        self.process.kill().expect("a child");
        self.process.wait().expect("a child");
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Two at a time: all of the work is done, once, and nothing of one stands between that of another.
pub fn never_two_at_once(program: &Program) {
    const PARTS: i64 = 300;
    let stage = Stage::of(program);
    let mut conn = stage.server.conn();
    let runs = [stage.start(PARTS as u32), stage.start(PARTS as u32)];
    match program.shape {
        Shape::Service => {
            let ports = runs.each_ref().map(Run::port);
            let first = post(ports[0]);
            wait_for("a request of a payment", || stage.payments.asked() == 1);
            assert_eq!(post(ports[1]).status(), 409);
            assert_eq!(stage.payments.asked(), 1);
            stage.payments.answer();
            assert_eq!(first.status(), 200);
            assert_eq!(post(ports[1]).status(), 200);
            assert_eq!(stage.payments.asked(), 1, "it is charged once");
        }
        Shape::Leader => {
            stage.server.wait_for_stat("tickets", 1);
            wait_for("work", || stage.written() > 10);
            let ticks = conn.line("LRANGE scheduler:ticks 0 -1").list();
            assert!(ticks.iter().all(|tick| tick.text() == ticks[0].text()));
        }
        Shape::Pool | Shape::Job => {
            runs.into_iter().for_each(|run| run.ends_with(0));
            let text = conn.run(["LRANGE", stage.keys().1, "0", "-1"]).list();
            let numbers = text.iter().map(|part| {
                let text = part.text();
                text.rsplit(' ').next().and_then(|n| n.parse().ok())
            });
            assert!(numbers.eq((1..=PARTS).map(Some)), "{text:?}");
        }
    }
}

/// One is killed amid its work: another one goes on when the lease is over.
pub fn another_goes_on_after_a_kill(program: &Program) {
    let stage = Stage::of(program);
    let (killed, _) = stage.start_amid();
    let next = stage.start(3);
    match program.shape {
        Shape::Pool | Shape::Leader => stage.server.wait_for_stat("tickets", 1),
        Shape::Service => drop(next.port()),
        Shape::Job => {}
    }
    let pid = next.process.id();
    let free = || wait_for("the end of the lease", || !stage.is_held());
    match program.shape {
        Shape::Service => {
            killed.kill();
            free();
            stage.payments.answer();
            assert_eq!(post(next.port()).status(), 200);
            assert_eq!(stage.written(), 1);
        }
        Shape::Pool => {
            killed.kill();
            next.ends_with(0);
            assert_eq!(stage.written(), 3, "the rest of the former one is gone");
        }
        Shape::Job => {
            next.ends_with(0);
            assert!(stage.written() > 3, "it has left the other one alone");
            killed.kill();
            free();
            stage.start(3).ends_with(0);
            assert_eq!(stage.written(), 3, "the rest of the former one is gone");
        }
        Shape::Leader => {
            killed.kill();
            wait_for("the next leader", || {
                let last = stage.server.conn().line("LINDEX scheduler:ticks -1");
                last.text() == format!("pid {pid}")
            });
        }
    }
}

/// SIGTERM, also to one that waits: it leaves nothing, and ends with the status that the page says.
pub fn ended_by_sigterm_it_leaves_nothing(program: &Program) {
    let stage = Stage::of(program);
    let (run, response) = stage.start_amid();
    if matches!(program.shape, Shape::Pool | Shape::Leader) {
        let waiting = stage.start(1);
        stage.server.wait_for_stat("tickets", 1);
        waiting.signal(SIGTERM);
        waiting.ends_with(143);
        assert_eq!(stage.server.stat("tickets"), 0);
    }
    assert!(stage.is_held());
    let port = response.is_some().then(|| run.port());
    run.signal(SIGTERM);
    if let (Some(response), Some(port)) = (response, port) {
        wait_for("no new request", || {
            TcpStream::connect(("127.0.0.1", port)).is_err()
        });
        stage.payments.answer();
        assert_eq!(response.status(), 200);
        run.ends_with(0);
    } else {
        run.ends_with(143);
    }
    assert!(!stage.is_held());
    assert_eq!(stage.server.stat("tickets"), 0);
}

/// Another owner gets the lock amid the work: nothing more is written, and the program says so.
pub fn it_writes_nothing_after_a_loss(program: &Program) {
    for answers in [false, true] {
        let stage = Stage::of(program);
        let mut conn = stage.server.conn();
        let (run, response) = stage.start_amid();
        let key = stage.keys().0;
        conn.line("MULTI");
        conn.line(&format!("LOCK.BREAK {key} TO TAKER PX 600000"));
        conn.line(&stage.how_much());
        let written = conn.line("EXEC").list()[1].int();
        if answers {
            stage.payments.answer();
        }
        match program.shape {
            Shape::Service => assert_eq!(response.expect("a response").status(), 503),
            Shape::Pool | Shape::Job => run.ends_with(1),
            Shape::Leader => stage.server.wait_for_stat("tickets", 1),
        }
        assert_eq!(stage.written(), written);
        assert!(stage.is_held(), "by the other one");
        if program.shape != Shape::Service {
            break;
        }
    }
}

/// The server dies amid the work, and is away for some time.
pub fn the_server_is_away(program: &Program) {
    let mut stage = Stage::of(program);
    let (mut run, response) = stage.start_amid();
    stage.server.crash();
    stage.payments.answer();
    match program.shape {
        Shape::Service => {
            assert_eq!(response.expect("a response").status(), 503);
            let port = run.port();
            assert_eq!(post(port).status(), 503);
            stage.server.start_again();
            wait_for("a response", || post(port).status() == 200);
            assert_eq!(stage.written(), 1);
        }
        Shape::Pool | Shape::Job => {
            run.ends_with(1);
            stage.start(1).ends_with(1);
            stage.server.start_again();
            stage.start(1).ends_with(0);
        }
        Shape::Leader => {
            stage.server.start_again();
            wait_for("work", || stage.written() > 0);
            assert!(run.process.try_wait().expect("a child").is_none());
        }
    }
}
