//! The tasks of `docs/TASKS.md`, in each language, by the blocks of the page: `page::program` makes a program of them,
//! with `tasks.template` of each package, which is compiled with the installed package and run once a task. The blocks
//! for a shell are run by `sh`, with the `redis-lock` that was built. What a task has to bring about is the same for
//! all languages. `main.rs` has the table of the languages and the tests.
//!
//! All work is a script, `./work.sh`, or another one that a block names, which writes `begin` and `end` into a log and
//! in between waits until a test lets it go on.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use redis_lock_harness::page::{self, root};
use redis_lock_harness::process::{tame, Family};
use redis_lock_harness::{wait_for, Reply, TestServer};

use crate::examples::Run;

const PAGE: &str = "docs/TASKS.md";

/// The work. It ends with the program that has started it, too.
const WORK: &str = "echo begin >>log
until rm go 2>/dev/null; do
    kill -0 $PPID || exit
    sleep 0.05
done
echo end >>log";

/// A language of the page.
pub struct Language {
    /// The word behind the fence.
    pub fence: &'static str,
    /// The template of the program, in this directory, and the source that is made of it; None: the program is there.
    pub source: Option<(&'static str, &'static str)>,
    /// What compiles the source, for a shell.
    pub compile: &'static str,
    /// The command that runs a task, without its number.
    pub command: &'static [&'static str],
    /// Whether the source is compiled.
    pub is_ready: OnceLock<()>,
}

impl Language {
    /// Makes and compiles the program, in the first test of the language.
    fn prepare(&self) {
        self.is_ready.get_or_init(|| {
            let Some((template, source)) = self.source else {
                return;
            };
            let template = page::text(&format!("tests/clients/{template}"));
            let source = root().join(source);
            let program = page::program(PAGE, self.fence, &template);
            std::fs::create_dir_all(source.parent().expect("a directory")).expect("a directory");
            std::fs::write(&source, program).expect("what make test-clients installs");
            let mut shell = Command::new("sh");
            let compiled = tame(shell.args(["-ec", self.compile]).current_dir(root())).output();
            let compiled = compiled.expect("a shell");
            let output = String::from_utf8_lossy(&compiled.stderr);
            assert!(compiled.status.success(), "{}: {output}", source.display());
        });
    }

    /// The command that runs a task.
    fn command(&self, task: usize, port: u16) -> Command {
        let Some((first, rest)) = self.command.split_first() else {
            let blocks = page::of_each_section(PAGE, self.fence);
            let top = blocks[0].replace(":6379", &format!(":{port}"));
            let mut shell = Command::new("sh");
            shell.args(["-ec", &format!("{top}{}", blocks[task])]);
            return shell;
        };
        // They run in another directory.
        let target = format!(
            "{}/target/clients/",
            root().canonicalize().expect("a directory").display()
        );
        let mut command = Command::new(first.replace("target/clients/", &target));
        command.args(
            rest.iter()
                .map(|word| word.replace("target/clients/", &target)),
        );
        command.arg(task.to_string());
        command
    }
}

/// A server, and the directory in which a task runs.
struct Stage<'a> {
    language: &'a Language,
    task: usize,
    server: TestServer,
    dir: PathBuf,
    families: RefCell<Vec<Family>>,
}

/// A test that fails may leave programs below a shell, and shows what all programs said.
impl Drop for Stage<'_> {
    fn drop(&mut self) {
        let files = std::fs::read_dir(&self.dir).expect("a directory").flatten();
        for path in files.map(|file| file.path()) {
            if std::thread::panicking() && path.extension().is_some_and(|end| end != "sh") {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                eprintln!("{}: {text}", path.display());
            }
        }
        self.families.borrow().iter().for_each(Family::kill);
    }
}

impl Stage<'_> {
    fn of(language: &Language, task: usize) -> Stage<'_> {
        language.prepare();
        let server = TestServer::start();
        let dir = server.dir().join("tasks");
        std::fs::create_dir(&dir).expect("a directory");
        write_scripts(&dir);
        Stage {
            language,
            task,
            server,
            dir,
            families: RefCell::default(),
        }
    }

    /// Starts the program.
    fn start(&self) -> Run {
        self.start_for("7")
    }

    /// Starts the program, for this order.
    fn start_for(&self, order: &str) -> Run {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut command = self.language.command(self.task, self.server.port);
        let built = Path::new(env!("CARGO_BIN_EXE_tasks"))
            .parent()
            .expect("a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(&self.dir)
            .env("PATH", format!("{}:{path}", built.display()))
            .env(
                "REDIS_LOCK_URL",
                format!("redis://127.0.0.1:{}", self.server.port),
            )
            // For a busy machine: a call that does not wait ends after a twentieth of it.
            .env("REDIS_LOCK_TIMEOUT", "120")
            .env("ORDER", order);
        let family = Family::of(&mut command);
        self.families.borrow_mut().push(family);
        Run::start(&mut command, self.dir.join(format!("output.{number}")))
    }

    /// Starts the program, and waits until it is amid its work, the first or a further one.
    fn start_amid(&self) -> Run {
        let before = self.begun();
        let run = self.start();
        self.wait_until_begun(before + 1);
        run
    }

    /// Starts the program, which finds nothing to do, or may not do it.
    fn does_nothing(&self) {
        let before = self.begun();
        self.start().ends_with(0);
        assert_eq!(self.begun(), before);
    }

    fn begun(&self) -> usize {
        self.logged("begin")
    }

    fn logged(&self, word: &str) -> usize {
        let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        log.lines().filter(|line| *line == word).count()
    }

    fn wait_until_begun(&self, count: usize) {
        wait_for("work", || self.begun() == count);
    }

    /// Lets one work end.
    fn go(&self) {
        let go = self.let_go();
        wait_for("the end of work", || !go.exists());
    }

    /// Lets one work end, if it is not stopped.
    fn let_go(&self) -> PathBuf {
        let go = self.dir.join("go");
        std::fs::write(&go, "").expect("a file");
        go
    }

    fn line(&self, line: &str) -> Reply {
        self.server.conn().line(line)
    }

    fn is_held(&self, key: &str) -> bool {
        self.line(&format!("EXISTS {key}")).int() == 1
    }

    /// What `LOCK.INFO` says of the holder of a lock, which has one.
    fn holder(&self, key: &str, field: &str) -> Reply {
        let info = self.line(&format!("LOCK.INFO {key}"));
        let holders = info.field("holders").expect("holders").list();
        holders[0].field(field).expect("a field")
    }

    /// Waits until this number of programs wait.
    fn wait_for_waits(&self, count: u64) {
        self.server.wait_for_stat("tickets", count);
    }

    /// One of two programs works while the other one waits.
    fn one_by_one(&self, meanwhile: impl FnOnce()) {
        let first = self.start_amid();
        let second = self.start();
        self.wait_for_waits(1);
        meanwhile();
        assert_eq!(self.begun(), 1);
        self.go();
        first.ends_with(0);
        self.wait_until_begun(2);
        self.go();
        second.ends_with(0);
    }
}

/// Writes the scripts that the page names.
fn write_scripts(dir: &Path) {
    let page = page::text(PAGE);
    let named = page.split("./").skip(1);
    let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let names = named.filter_map(|rest| Some(rest.split_once(".sh")?.0));
    for name in names.filter(is_name).chain(["work"]) {
        let text = match name {
            "is-done" => "grep -qx end log",
            _ => WORK,
        };
        let path = dir.join(format!("{name}.sh"));
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a file");
    }
    std::fs::write(dir.join("log"), "").expect("a file");
}

/// The lock stays held for hours, and a host that comes late finds it so.
pub fn one_job_a_night(language: &Language) {
    let stage = Stage::of(language, 1);
    let run = stage.start_amid();
    stage.does_nothing();
    stage.go();
    run.ends_with(0);
    let rest = stage.line("PTTL nightly").int();
    assert!((5 * 3_600_000..=6 * 3_600_000).contains(&rest), "{rest}");
    stage.does_nothing();
}

/// A second request of an order waits, one of another order does not.
pub fn one_request_at_a_time(language: &Language) {
    let stage = Stage::of(language, 2);
    let other = stage.start_for("8");
    stage.wait_until_begun(1);
    let first = stage.start_amid();
    let second = stage.start();
    stage.wait_for_waits(1);
    assert_eq!(stage.begun(), 2);
    (0..3).for_each(|_| stage.go());
    for run in [other, first, second] {
        run.ends_with(0);
    }
    assert_eq!(stage.begun(), 3);
    assert!(!stage.is_held("order:7"));
}

/// The test takes four of five permits, so the second program waits for the first.
pub fn five_at_a_time(language: &Language) {
    let stage = Stage::of(language, 3);
    let first = stage.start_amid();
    for number in 0..4 {
        let taken = stage.line(&format!("SEM.ACQUIRE vendor test-{number} PX 600000"));
        assert!(!taken.is_nil(), "permit {number} of four");
    }
    let second = stage.start();
    stage.wait_for_waits(1);
    assert_eq!(stage.begun(), 1);
    stage.go();
    first.ends_with(0);
    stage.wait_until_begun(2);
    stage.go();
    second.ends_with(0);
    let info = stage.line("SEM.INFO vendor");
    assert_eq!(info.field("held").expect("a field").int(), 4);
}

/// The next candidate leads after the first, and the leader has a note.
pub fn one_leader(language: &Language) {
    let stage = Stage::of(language, 4);
    stage.one_by_one(|| assert!(!stage.holder("scheduler", "note").text().is_empty()));
    assert!(!stage.is_held("scheduler"));
}

/// The key is written, and not under a lock that was broken.
pub fn a_fenced_write(language: &Language) {
    let stage = Stage::of(language, 5);
    let run = stage.start_amid();
    stage.go();
    run.ends_with(0);
    assert_eq!(stage.line("GET invoice:42:total").text(), "100");
    stage.line("DEL invoice:42:total");

    let late = stage.start_amid();
    stage.line("LOCK.BREAK invoice:42 TO TAKER PX 600000");
    stage.let_go();
    late.fails();
    assert!(stage.line("GET invoice:42:total").is_nil());
    assert_eq!(stage.holder("invoice:42", "owner").text(), "TAKER");
}

/// One works, one waits, and the third is refused meanwhile.
pub fn a_deploy(language: &Language) {
    let stage = Stage::of(language, 6);
    stage.one_by_one(|| stage.start().fails());
    assert!(!stage.is_held("deploy"));
}

/// Of two instances the second waits, and then finds nothing to do.
pub fn a_migration(language: &Language) {
    let stage = Stage::of(language, 7);
    let first = stage.start_amid();
    let second = stage.start();
    stage.wait_for_waits(1);
    stage.go();
    first.ends_with(0);
    second.ends_with(0);
    assert_eq!(stage.begun(), 1);
    assert!(!stage.is_held("migration"));
}

/// The second does nothing while the first works; later another one works again.
pub fn a_batch(language: &Language) {
    let stage = Stage::of(language, 8);
    for _ in 0..2 {
        let run = stage.start_amid();
        stage.does_nothing();
        stage.go();
        run.ends_with(0);
        assert!(!stage.is_held("batch"));
    }
}

/// The first work runs beside a reader, the second one alone.
pub fn readers_and_a_rebuild(language: &Language) {
    let stage = Stage::of(language, 9);
    let run = stage.start_amid();
    let ask = |mode: &str| stage.line(&format!("LOCK.ACQUIRE catalogue other {mode} PX 600000"));
    assert!(ask("WRITE").is_nil());
    assert!(!ask("READ").is_nil());
    stage.line("LOCK.RELEASE catalogue other READ");
    stage.go();
    stage.wait_until_begun(2);
    assert!(ask("WRITE").is_nil());
    assert!(ask("READ").is_nil());
    stage.go();
    run.ends_with(0);
    assert!(!stage.is_held("catalogue"));
}

/// A second run does nothing, and the first is stopped at a loss.
pub fn a_long_job(language: &Language) {
    let stage = Stage::of(language, 10);
    let lost = stage.start_amid();
    stage.does_nothing();
    stage.line("LOCK.BREAK rebuild TO TAKER PX 600000");
    lost.fails();
    assert_eq!(stage.holder("rebuild", "owner").text(), "TAKER");
    stage.line("LOCK.BREAK rebuild");

    let run = stage.start_amid();
    stage.go();
    run.ends_with(0);
    assert_eq!(stage.logged("end"), 1, "the first is stopped");
    assert!(!stage.is_held("rebuild"));
}

/// The second half of the work is under the hold of the first.
pub fn a_change_of_process(language: &Language) {
    let stage = Stage::of(language, 11);
    let run = stage.start_amid();
    let hold = || {
        let values = ["owner", "token"].map(|field| stage.holder("release:42", field));
        format!("{values:?}")
    };
    let before = hold();
    stage.go();
    stage.wait_until_begun(2);
    assert_eq!(hold(), before);
    stage.go();
    run.ends_with(0);
    assert!(!stage.is_held("release:42"));
}

/// A run within the minute does nothing, and the lock stays for the rest of it.
pub fn once_a_minute(language: &Language) {
    let stage = Stage::of(language, 12);
    let run = stage.start_amid();
    stage.does_nothing();
    stage.go();
    run.ends_with(0);
    let rest = stage.line("PTTL mail").int();
    assert!((1..=60_000).contains(&rest), "{rest}");
    stage.does_nothing();
}
