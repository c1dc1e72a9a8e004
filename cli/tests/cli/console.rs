//! At a terminal, below an interactive shell: the keyboard is the command's, Ctrl-C and Ctrl-Z do what they do
//! without `redis-lock`.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::{openpty, Winsize};
use nix::unistd::tcgetpgrp;
use redis_lock_harness::process::{spawn, Family};
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{program, PROGRAM};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const CTRL_D: &str = "\x04";

/// A shell at a terminal, and all that it has written.
pub struct Console {
    shell: Child,
    family: Family,
    keys: File,
    written: Arc<Mutex<String>>,
    seen: usize,
}

impl Console {
    pub fn start(real: &TestServer) -> Console {
        Console::sized(real, 120, 30)
    }

    pub fn sized(real: &TestServer, columns: u16, rows: u16) -> Console {
        let bash = ["bash", "--norc", "--noprofile", "--noediting", "-i"];
        Console::of(program(real), &bash, columns, rows)
    }

    /// This shell, with the environment of the command.
    pub fn of(with: Command, shell: &[&str], columns: u16, rows: u16) -> Console {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).expect("a terminal");
        let end = || Stdio::from(pty.slave.try_clone().expect("a terminal"));
        let mut command = Command::new("setsid");
        for (name, value) in with.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.arg("-c").args(shell);
        command
            .env("PS1", "ready> ")
            .env("TERM", "xterm")
            .env("L", PROGRAM);
        let family = Family::of(&mut command);
        let command = command.stdin(end()).stdout(end()).stderr(end());
        let shell = spawn(command).expect("setsid and bash");
        let written = Arc::new(Mutex::new(String::new()));
        let mut screen = File::from(pty.master.try_clone().expect("a terminal"));
        let into = written.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                into.lock().expect("no panic").push_str(&text);
            }
        });
        let keys = File::from(pty.master);
        let mut console = Console {
            shell,
            family,
            keys,
            written,
            seen: 0,
        };
        console.see("ready> ");
        console
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Ends a program that the key q ends: the shell follows, and the status is 0.
    pub fn quit(&mut self) {
        self.press("q");
        self.see("ready> ");
        assert_eq!(self.status(), "0");
    }

    /// Types a line to the shell.
    pub fn line(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits until this is written, after all that has been seen so far.
    pub fn see(&mut self, text: &str) {
        let written = self.written.clone();
        let mut seen = self.seen;
        wait_for(&format!("{text:?} in {:?}", &self.text()[seen..]), || {
            let written = written.lock().expect("no panic");
            let found = written[seen..].find(text);
            seen += found.map_or(0, |at| at + text.len());
            found.is_some()
        });
        self.seen = seen;
    }

    /// The status of the last command, as the shell has it.
    pub fn status(&mut self) -> String {
        self.line("echo sta''tus=$?.");
        self.number("status=")
    }

    /// What stands between these words and a full stop.
    pub fn number(&mut self, words: &str) -> String {
        self.see(words);
        let from = self.seen;
        self.see(".");
        self.text()[from..self.seen - 1].to_string()
    }

    /// Waits until the keyboard is this command's, and the command goes on: before that a key's signal goes to
    /// the shell, or is forgotten when the command is continued.
    fn until_in_front(&self, pid: &str) {
        wait_for("the command in the foreground", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let is_stopped = stat.contains(") T ");
            let front = tcgetpgrp(&self.keys).map(|group| group.to_string());
            !is_stopped && front.as_deref() == Ok(pid)
        });
    }

    /// Waits until the shell has given the keyboard to a job.
    fn until_behind(&self) {
        wait_for("a job in the foreground", || {
            let front = tcgetpgrp(&self.keys).map(|group| group.to_string());
            front.is_ok_and(|front| front != self.shell.id().to_string())
        });
    }

    fn text(&self) -> String {
        self.written.lock().expect("no panic").clone()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the console:\n{}", self.text());
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        self.family.kill();
    }
}

fn is_held(real: &TestServer) -> bool {
    !real.conn().line("LOCK.INFO k").is_nil()
}

#[test]
fn the_command_is_in_the_foreground_from_the_beginning() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    for _ in 0..5 {
        // Its process group is that of the terminal's foreground (proc(5): pgrp, tpgid).
        console.line("\"$L\" run k -- sh -c 'read stat </proc/$$/stat; set ${stat##*) }; [ $3 = $6 ] && echo in-fr''ont || echo behi''nd'");
        console.see("in-front\r\n");
        assert_eq!(console.status(), "0");
    }
}

#[test]
fn the_command_reads_the_keyboard() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    console.line("\"$L\" run k -- sh -c 'read x; echo got-$x'");
    wait_for("the lock", || is_held(&real));
    console.line("abc");
    console.see("got-abc");
    assert_eq!(console.status(), "0");
}

#[test]
fn ctrl_c_ends_the_command_and_a_script_around_it() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    for before in ["env", "\"$L\" run k --"] {
        console.line(&format!("{before} sh -c 'echo u''p; exec sleep 100'"));
        console.see("up\r\n");
        console.press(CTRL_C);
        assert_eq!(console.status(), "130");
        let script = format!("{before} sh -c \"echo u''p; exec sleep 100\"; echo af''ter");
        console.line(&format!("sh -c '{}'", script.replace("''", "\"\"")));
        console.see("up\r\n");
        let from = console.seen;
        console.press(CTRL_C);
        assert_eq!(console.status(), "130", "{before}");
        assert!(!console.text()[from..].contains("after\r\n"), "{before}");
    }
    assert!(!is_held(&real));
}

#[test]
fn ctrl_c_is_the_commands_own_to_handle() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    console.line("\"$L\" run k -- sh -c 'trap \"echo caught; exit 7\" INT; echo u''p; while :; do sleep 0.05; done'");
    console.see("up\r\n");
    console.press(CTRL_C);
    console.see("caught\r\n");
    assert_eq!(console.status(), "7");
}

#[test]
fn ctrl_c_ends_a_wait() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    real.conn().line("LOCK.ACQUIRE k other");
    console.line("sh -c '\"$L\" run k -- true; echo af\"\"ter'");
    real.wait_for_waits(1);
    let from = console.seen;
    console.press(CTRL_C);
    assert_eq!(console.status(), "130");
    assert!(!console.text()[from..].contains("after\r\n"));
    assert_eq!(real.waits(), 0);
}

#[test]
fn ctrl_z_stops_it_all_and_fg_goes_on() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    console.line("\"$L\" run k -- sh -c 'echo p''id=$$.; read x; echo got-$x; exit 3'");
    let command = console.number("pid=");
    for _ in 0..50 {
        console.until_in_front(&command);
        console.press(CTRL_Z);
        console.see("Stopped");
        console.see("ready> ");
        console.line("fg");
    }
    console.line("abc");
    console.see("got-abc");
    assert_eq!(console.status(), "3");
    assert!(!is_held(&real));
}

#[test]
fn a_script_around_it_is_stopped_with_it() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    console.line(
        "sh -c '\"$L\" run k -- sh -c \"echo u\"\"p; read x; echo got-\\$x\"; echo af\"\"ter'",
    );
    console.see("up\r\n");
    console.press(CTRL_Z);
    console.see("Stopped");
    console.see("ready> ");
    console.line("fg");
    console.see("read x");
    console.line("abc");
    console.see("got-abc");
    console.see("after\r\n");
    assert_eq!(console.status(), "0");
}

#[test]
fn a_command_that_was_stopped_for_longer_than_the_lease_is_ended() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    let file = real.dir().join("written");
    let written = || std::fs::metadata(&file).map_or(0, |file| file.len());
    let busy = format!("while :; do echo x; done >{}", file.display());
    console.line(&format!("\"$L\" run --lease 3 k -- sh -c '{busy}'"));
    wait_for("the command", || written() > 0);
    console.press(CTRL_Z);
    console.see("Stopped");
    console.see("ready> ");
    // Its lease is over when another owner has the lock, and later, by every clock.
    let next = real.conn().line("LOCK.ACQUIRE k other PX 50 BLOCK 10000");
    assert!(next.int() > 0);
    wait_for("the end of the lease", || !is_held(&real));
    let before = written();
    console.line("fg");
    console.see("the lock was lost");
    assert_eq!(console.status(), "75");
    // Not a step more.
    assert_eq!(written(), before);
}

#[test]
fn in_a_pipe_the_command_has_the_keyboard_when_it_asks() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    console.line("\"$L\" run k -- sh -c 'echo u''p; read x </dev/tty; echo got-$x' | cat");
    console.see("up\r\n");
    console.line("abc");
    console.see("got-abc");
    assert_eq!(console.status(), "0");
    console.line("\"$L\" run k -- sh -c 'echo u''p; exec sleep 100' | cat");
    console.see("up\r\n");
    console.press(CTRL_Z);
    console.see("Stopped");
    console.see("ready> ");
    console.line("fg");
    console.until_behind();
    console.press(CTRL_C);
    assert_eq!(console.status(), "130");
    wait_for("the release", || !is_held(&real));
}

#[test]
fn in_the_background_it_waits_for_the_keyboard() {
    let real = TestServer::start();
    let mut console = Console::start(&real);
    console.line("\"$L\" run k -- cat & sleep 0");
    wait_for("the lock", || is_held(&real));
    console.line("while ! jobs | grep Stopp''ed; do sleep 0.05; done");
    console.see("Stopped");
    console.line("fg");
    console.line("hello-again");
    console.see("hello-again\r\n");
    console.see("hello-again\r\n");
    console.press(CTRL_D);
    assert_eq!(console.status(), "0");
}
