//! The files of examples/command-line, run as their systems run them: their environment, their signals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{killpg, Signal};
use redis_lock_harness::page::{root, text};
use redis_lock_harness::{wait_for, TestServer};

use crate::program::{pid, url, Running, PATIENT, PROGRAM};

/// A server, and a directory with the programs that the files run: each says so, and goes on until there is a file
/// `go` or `stop`, which it removes.
struct Place {
    real: TestServer,
    dir: PathBuf,
}

impl Place {
    fn new() -> Place {
        let real = TestServer::start();
        let dir = real.dir().join("place");
        fs::create_dir_all(dir.join("bin")).expect("a directory");
        let place = Place { real, dir };
        let patient = PATIENT.join(" ");
        place.program(
            "redis-lock",
            &format!("[ $1 != run ] || {{ shift; set -- run {patient} \"$@\"; }}; exec '{PROGRAM}' \"$@\""),
        );
        let works = "trap 'echo term; exit 3' TERM; echo \"$(basename \"$0\") $* under ${LOCK_KEY-nothing}\"
            while [ ! -e go ] && [ ! -e stop ]; do sleep 0.05; done; rm -f stop";
        for name in ["report", "deploy.sh", "migrate.sh"] {
            place.program(name, works);
        }
        let terraform = "[ \"$*\" != 'workspace show' ] || { echo default; exit; }
            echo \"terraform $* under ${LOCK_KEY-nothing}\"";
        place.program("terraform", terraform);
        for name in ["deploy.sh", "migrate.sh"] {
            fs::copy(place.bin().join(name), place.dir.join(name)).expect("a copy");
        }
        place
    }

    fn bin(&self) -> PathBuf {
        self.dir.join("bin")
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.bin().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// The lines of a file but for comments, with the server and the programs of this place.
    fn lines(&self, file: &str) -> Vec<String> {
        let bin = self.bin();
        let place = |line: &str| {
            let line = line.replace("redis://locks.example.org", &url(&self.real));
            let line = line.replace("/usr/local/bin", &bin.display().to_string());
            line.replace(
                "/usr/bin/redis-lock",
                &bin.join("redis-lock").display().to_string(),
            )
        };
        let text = text(&format!("examples/command-line/{file}"));
        let lines = text.lines().filter(|line| !line.trim().starts_with('#'));
        lines.map(place).collect()
    }

    /// What follows this mark in a file, once or more.
    fn after(&self, file: &str, mark: &str) -> Vec<String> {
        let lines = self.lines(file);
        let found: Vec<_> = lines
            .iter()
            .filter_map(|line| Some(line.split_once(mark)?.1.to_string()))
            .collect();
        assert!(!found.is_empty(), "{mark}");
        found
    }

    /// A program with this environment and no other.
    fn command(&self, program: &str, vars: &[(&str, &str)]) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", &self.dir)
            .current_dir(&self.dir);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.bin().display()));
        command.envs(vars.iter().copied());
        command
    }

    fn go(&self) {
        fs::write(self.dir.join("go"), "").expect("a file");
    }

    fn is_held(&self, key: &str) -> bool {
        !self.real.conn().line(&format!("LOCK.INFO {key}")).is_nil()
    }
}

/// A command in the form of a list, which JSON and YAML have in common.
fn words(list: &str) -> Vec<String> {
    serde_json::from_str(list.trim()).expect("a list")
}

#[test]
fn the_line_of_the_crontab() {
    let place = Place::new();
    let lines = place.lines("crontab");
    let vars: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split_once('='))
        .collect();
    let vars: Vec<_> = vars
        .into_iter()
        .filter(|(name, _)| {
            name.chars()
                .all(|char| char.is_ascii_uppercase() || char == '_')
        })
        .collect();
    let entry = lines
        .last()
        .expect("an entry")
        .splitn(6, ' ')
        .last()
        .expect("a command");
    // As crontab(5) has it.
    let entry = entry.replace("\\%", "%");
    let job = || Running::of(place.command("/bin/sh", &vars).args(["-c", &entry]));
    let first = job();
    let said = first.line();
    assert!(
        said.starts_with("report --day 20") && said.ends_with(" under nightly-report"),
        "{said}"
    );
    let second = job().end();
    assert_eq!(
        (second.code(), second.out.as_str(), second.err.as_str()),
        (0, "", "")
    );
    place.go();
    assert_eq!(first.end().code(), 0);
}

#[test]
fn the_unit_of_systemd_gets_one_sigterm() {
    let place = Place::new();
    let unit = |name: &str| place.after("nightly.service", name).remove(0);
    let line = unit("ExecStart=");
    let (program, args) = line.split_once(' ').expect("arguments");
    let environment = unit("Environment=");
    let var = environment.split_once('=').expect("a variable");
    let vars = [var, ("INVOCATION_ID", "5d0149bfa2c34b79bccb13074001eb20")];
    let mut job = Running::of(place.command(program, &vars).args(args.split(' ')));
    assert_eq!(job.line(), "report  under nightly-report");
    assert_eq!(unit("KillMode="), "mixed");
    job.signal(Signal::SIGTERM);
    assert_eq!(job.line(), "term");
    wait_for("its end", || !job.is_running());
    let end = job.end();
    assert_eq!((end.code(), end.out.as_str()), (3, ""));
    assert!(!place.is_held("nightly-report"));
    let grace = args.split(' ').skip_while(|word| *word != "--grace").nth(1);
    let grace: u32 = grace
        .and_then(|grace| grace.parse().ok())
        .expect("a grace period");
    assert!(unit("TimeoutStopSec=").parse::<u32>().expect("seconds") > grace);
    assert!(place.after("nightly.timer", "OnCalendar=").len() == 1);
}

/// GitHub's runner writes the script to a file for `bash -e`, and sends SIGINT to that process.
#[test]
fn the_job_of_github_waits_and_is_cancelled() {
    let place = Place::new();
    let script = place.after("github-actions.yml", "- run: ").remove(0);
    fs::write(place.dir.join("step.sh"), script).expect("a file");
    let here = url(&place.real);
    let step = || {
        let mut bash = place.command("bash", &[("REDIS_LOCK_URL", &here)]);
        Running::of(bash.args(["--noprofile", "--norc", "-eo", "pipefail", "step.sh"]))
    };
    let mut conn = place.real.conn();
    conn.line("LOCK.ACQUIRE deploy-production another PX 600000");
    let waiting = step();
    assert!(waiting.complaint().contains("another"));
    waiting.signal(Signal::SIGINT);
    assert_eq!(waiting.end().code(), 130);
    assert_eq!(place.real.waits(), 0);
    let next = step();
    place.real.wait_for_waits(1);
    conn.line("LOCK.RELEASE deploy-production another");
    assert_eq!(next.line(), "deploy.sh production under deploy-production");
    place.go();
    assert_eq!(next.end().code(), 0);
}

#[test]
fn a_lock_of_github_lasts_over_several_steps() {
    let place = Place::new();
    let here = url(&place.real);
    place.go();
    let steps = place.after("github-actions.yml", "- run: ");
    let file = place.dir.join("variables");
    fs::write(&file, "").expect("a file");
    let step = |script: &str| {
        let variables = fs::read_to_string(&file).expect("a file");
        let mut bash = place.command("bash", &[("REDIS_LOCK_URL", &here)]);
        bash.env("GITHUB_ENV", &file);
        bash.envs(variables.lines().filter_map(|line| line.split_once('=')));
        Running::of(bash.args(["-eo", "pipefail", "-c", script]))
            .end()
            .ok()
    };
    step(&steps[1]);
    assert!(place.is_held("database"));
    let said = step(&steps[2]);
    let token = said
        .split_whitespace()
        .nth(1)
        .and_then(|token| token.parse::<u64>().ok());
    assert!(token.is_some(), "{said}");
    step(&steps[3]);
    assert!(!place.is_held("database"));
}

/// GitLab's runner ends the group of the shell's processes.
#[test]
fn the_job_of_gitlab_ends_with_its_group() {
    let place = Place::new();
    let line = place.after("gitlab-ci.yml", "- redis-lock").remove(0);
    let server = place.after("gitlab-ci.yml", "REDIS_LOCK_URL: ").remove(0);
    let mut shell = place.command("/bin/sh", &[("REDIS_LOCK_URL", &server)]);
    let script = format!("set -e; redis-lock{line}; echo after");
    let job = Running::of(shell.args(["-c", &script]).process_group(0));
    assert_eq!(job.line(), "deploy.sh production under deploy-production");
    killpg(pid(job.pid()), Signal::SIGTERM).expect("a signal");
    let end = job.end();
    assert!(!end.out.contains("after"), "{}", end.out);
    wait_for("the release", || !place.is_held("deploy-production"));
}

#[test]
fn the_cron_job_of_kubernetes_ends_by_its_hook() {
    let place = Place::new();
    let secret = place.dir.join("password");
    fs::write(&secret, "of no matter").expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("permissions");
    let [command, hook] = &place.after("cronjob.yaml", " command: ")[..] else {
        panic!("two commands");
    };
    let values = place.after("cronjob.yaml", " value: ");
    let [server, file] = &values[..] else {
        panic!("{values:?}");
    };
    assert_eq!(file, "/run/secrets/redis-lock/password");
    let file = secret.display().to_string();
    let vars = [
        ("REDIS_LOCK_URL", server.as_str()),
        ("REDIS_LOCK_PASSWORD_FROM", &file),
    ];
    let run = |list: &str| {
        let words = words(list);
        let (program, args) = words.split_first().expect("a program");
        Running::of(place.command(program, &vars).args(args))
    };
    let job = run(command);
    assert_eq!(job.line(), "report  under nightly-report");
    assert_eq!(run(hook).end().code(), 0);
    assert_eq!(job.end().code(), 0);
    assert!(!place.is_held("nightly-report"));
}

#[test]
fn the_probes_ask_the_server() {
    let place = Place::new();
    let here = url(&place.real);
    for list in place.after("probes.yaml", "command: ") {
        let words = words(&list);
        let mut probe = place.command(&words[0], &[("REDIS_LOCK_URL", &here)]);
        assert_eq!(
            Running::of(probe.args(&words[1..])).end().code(),
            0,
            "{list}"
        );
    }
    let check = place.lines("haproxy-check.sh").join("\n");
    assert!(place
        .lines("haproxy.cfg")
        .iter()
        .any(|line| line.ends_with("/haproxy-check.sh")));
    for (port, status) in [(place.real.port, 0), (1, 69)] {
        let args = ["127.0.0.1", "6379", "127.0.0.1", &port.to_string()];
        let mut shell = place.command("/bin/sh", &[]);
        let end = Running::of(shell.args(["-c", &check, "check"]).args(args)).end();
        assert_eq!(end.code(), status, "{}", end.err);
    }
}

#[test]
fn the_targets_of_make_exclude_each_other() {
    let place = Place::new();
    let here = url(&place.real);
    let make = |target: &str| {
        let file = root().join("examples/command-line/Makefile");
        let mut make = place.command("make", &[("REDIS_LOCK_URL", &here)]);
        Running::of(make.arg("-sf").arg(file).args([target, "STAGE=test"]))
    };
    let deploy = make("deploy");
    assert_eq!(deploy.line(), "deploy.sh test under deploy-test");
    let migrate = make("migrate");
    place.real.wait_for_waits(1);
    place.go();
    assert_eq!(deploy.end().code(), 0);
    assert_eq!(migrate.line(), "migrate.sh test under deploy-test");
    assert_eq!(migrate.end().code(), 0);
}

#[test]
fn terraform_changes_its_state_under_a_lock() {
    let place = Place::new();
    let here = url(&place.real);
    let terraform = |words: &[&str]| {
        let script = root().join("examples/command-line/terraform.sh");
        let mut shell = place.command("/bin/sh", &[("REDIS_LOCK_URL", &here)]);
        Running::of(shell.arg(script).args(words)).end().ok()
    };
    assert_eq!(
        terraform(&["apply", "-auto-approve"]),
        "terraform apply -auto-approve under terraform:place:default\n"
    );
    assert_eq!(terraform(&["fmt"]), "terraform fmt under nothing\n");
}
