//! Completions, with the shells themselves; a shell that is not there is left out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redis_lock_harness::{wait_for, TestServer};

use crate::console::Console;
use crate::program::{program, start_args, PROGRAM};

/// A server with two locks; a directory with a file, and programs: one of a name of its own, and a `redis-lock` that
/// completes as the real one and otherwise prints its arguments.
struct Scene {
    real: TestServer,
    dir: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let real = TestServer::start();
        let mut conn = real.conn();
        conn.line("LOCK.ACQUIRE batch:one anna");
        conn.line("LOCK.ACQUIRE nightly anna");
        conn.run(["LOCK.ACQUIRE", "two words", "anna"]);
        let dir = real.dir().join("home");
        fs::create_dir_all(dir.join("bin")).expect("a directory");
        fs::write(dir.join("reportfile"), "").expect("a file");
        let stub = format!(
            "#!/bin/sh\ncase $1 in comple*) exec '{PROGRAM}' \"$@\" ;; esac\nprintf 'ran='\nprintf '<%s>' \"$@\"\necho .\n"
        );
        for (name, text) in [("redis-lock", stub.as_str()), ("zzprogram", "#!/bin/sh\n")] {
            let path = dir.join("bin").join(name);
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        Scene { real, dir }
    }

    fn environment(&self) -> Command {
        let mut command = program(&self.real);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.dir.join("bin").display()));
        command.env("HOME", &self.dir);
        command
    }

    /// Types each line and a tab at this shell, after these lines, and reads what `redis-lock` is then run with. (Once
    /// more where the server was too slow for the tab.)
    fn drive(&self, shell: &[&str], before: &[&str], lines: &[(&str, &str)]) {
        let mut console = Console::of(self.environment(), shell, 200, 30);
        console.line(&format!("cd '{}'", self.dir.display()));
        for line in before {
            console.line(line);
        }
        for (typed, ran) in lines {
            wait_for(&format!("{typed} to be completed to {ran}"), || {
                console.line(&format!("{typed}\t"));
                console.number("ran=") == *ran
            });
        }
    }
}

const LINES: [(&str, &str); 9] = [
    ("redis-lock inf", "<info>"),
    ("redis-lock run --wait 5 nigh", "<run><--wait><5><nightly>"),
    ("redis-lock info batch:o", "<info><batch:one>"),
    ("redis-lock info tw", "<info><two words>"),
    ("redis-lock ls --ser", "<ls><--server>"),
    ("redis-lock ls --cacert rep", "<ls><--cacert><reportfile>"),
    // A key is no file.
    ("redis-lock info rep", "<info><rep>"),
    (
        "redis-lock run batch:one -- zzp",
        "<run><batch:one><--><zzprogram>",
    ),
    (
        "redis-lock run batch:one cat rep",
        "<run><batch:one><cat><reportfile>",
    ),
];
/// Not at the beginning of a line, and by its path.
const PLACED: [(&str, &str); 2] = [
    ("cd .; X=1 redis-lock info batch:o", "<info><batch:one>"),
    ("~/bin/redis-lock info batch:o", "<info><batch:one>"),
];
/// Where the completions of the command are used.
const NESTED: (&str, &str) = (
    "redis-lock run batch:one redis-lock inf",
    "<run><batch:one><redis-lock><info>",
);

fn has(program: &str) -> bool {
    let mut tried = Command::new(program);
    let tried = tried.arg("--version").stdout(Stdio::null()).status();
    let is_there = tried.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("not run: there is no {program}");
    }
    is_there
}

#[test]
fn bash_completes_keys_and_the_command() {
    let scene = Scene::new();
    let shell = ["bash", "--norc", "--noprofile", "-i"];
    let lines: Vec<_> = LINES.into_iter().chain(PLACED).collect();
    scene.drive(&shell, &[". <(redis-lock completions bash)"], &lines);
    let package = "/usr/share/bash-completion/bash_completion";
    if Path::new(package).exists() {
        let package = format!(". {package}");
        let lines: Vec<_> = LINES.into_iter().chain([NESTED]).collect();
        scene.drive(
            &shell,
            &[&package, ". <(redis-lock completions bash)"],
            &lines,
        );
    }
}

#[test]
fn zsh_completes_keys_and_the_command() {
    if has("zsh") {
        let before = [
            "mkdir fpath; redis-lock completions zsh >fpath/_redis-lock; fpath+=($PWD/fpath)",
            "autoload -U compinit; compinit -u -D",
        ];
        let lines: Vec<_> = LINES.into_iter().chain(PLACED).chain([NESTED]).collect();
        Scene::new().drive(&["zsh", "-f", "-i"], &before, &lines);
    }
}

#[test]
fn fish_completes_keys_and_the_command() {
    if !has("fish") {
        return;
    }
    let scene = Scene::new();
    let asked = |line: &str| {
        let mut fish = Command::new("fish");
        for (name, value) in scene.environment().get_envs() {
            value.map(|value| fish.env(name, value));
        }
        let script = format!("redis-lock completions fish | source; complete -C '{line}'");
        let fish = fish
            .args(["--no-config", "-c", &script])
            .current_dir(&scene.dir);
        let output = fish.output().expect("fish");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = out.lines().filter_map(|line| line.split('\t').next());
        names.map(String::from).collect::<Vec<_>>().join(" ")
    };
    for (line, completed) in LINES.into_iter().chain([NESTED]) {
        let last = completed
            .rsplit('<')
            .next()
            .expect("a word")
            .trim_end_matches('>');
        let expected = if line == "redis-lock info rep" {
            ""
        } else {
            last
        };
        wait_for(&format!("{line} to be completed to {completed}"), || {
            asked(line) == expected
        });
    }
}

#[test]
fn candidates_are_those_of_the_place() {
    let real = TestServer::start();
    let next = |line: &str| {
        let words = ["complete", "--", "redis-lock"]
            .into_iter()
            .chain(line.split(' '));
        let out = start_args(&real, words).end().ok();
        let names = out.lines().filter_map(|line| line.split('\t').next());
        names.map(String::from).collect::<Vec<_>>().join(" ")
    };
    for (line, candidates) in [
        ("ru", "run"),
        ("co", "completions"),
        ("run --qu", "--quorum --queue --quiet"),
        ("run -nw 5 k ", ":command 5"),
        ("run -E0 k -- env ", ":command 5"),
        ("run --wait=5 k ", ":command 4"),
        ("run --key-hex 6b ", ":command 4"),
        ("run k --ve", "--verbose"),
        ("run k -- --ve", ":command 4"),
        ("run --lease ", ""),
        ("completions ", "bash zsh fish"),
        ("ls ", ""),
        ("nonsense ", ""),
        ("info --password-from ", ":files"),
    ] {
        assert_eq!(next(line), candidates, "{line}");
    }
    // A server that is not there: no keys, no words.
    assert_eq!(next("info --server redis://127.0.0.1:1 "), "");
    let pattern = ["LOCK.ACQUIRE", "a*b[1]", "anna"];
    real.conn().run(pattern);
    real.conn().run(["LOCK.ACQUIRE", "axb[1]", "anna"]);
    wait_for("the key", || next("info a*") == "a*b[1]");
    let server = format!("watch --server {} other a*", crate::program::url(&real));
    wait_for("the key of a named server", || next(&server) == "a*b[1]");
}
