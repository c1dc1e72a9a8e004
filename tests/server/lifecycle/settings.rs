//! Settings: in `redis.conf`, on the command line, by CONFIG; and the arguments with which the module refuses to load.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::process::spawn;
use crate::common::{free_port, module_path, patience, server_binary, wait_for, Conn, TestServer};

const CENTURY: &str = "3162240000000";

/// Every numeric setting: default, lowest, highest.
pub const NUMBERS: [(&str, &str, &str, &str); 17] = [
    ("lock.default-lease", "30000", "1", CENTURY),
    ("lock.max-lease", CENTURY, "1", CENTURY),
    ("lock.max-wait", CENTURY, "0", CENTURY),
    ("lock.max-waiters", "10000", "0", "1000000"),
    ("lock.max-waiters-per-key", "10000", "0", "1000000"),
    ("lock.max-tickets", "100000", "0", "10000000"),
    (
        "lock.max-wait-bytes",
        "67108864",
        "1048576",
        "1099511627776",
    ),
    ("lock.user-share", "50", "1", "100"),
    ("lock.queue-grace", "1000", "0", "60000"),
    ("lock.max-owner-len", "256", "1", "65536"),
    ("lock.max-tracked", "10000", "0", "10000000"),
    ("lock.final-time", "60000", "0", "3600000"),
    ("lock.max-finals", "100000", "0", "10000000"),
    ("lock.session-lease", "10000", "100", CENTURY),
    ("lock.startup-delay", "0", "0", CENTURY),
    ("lock.free-after", "1", "0", "1000000"),
    ("lock.free-window", "50", "1", "60000"),
];

/// Every yes-or-no setting, with its default.
pub const SWITCHES: [(&str, &str); 3] = [
    ("lock.publish", "yes"),
    ("lock.deadlock-detect", "yes"),
    ("lock.string-holders", "no"),
];

/// A server started from a file, as in production; the harness's own servers get their options as arguments.
pub struct FromFile {
    process: Child,
    port: u16,
    dir: tempfile::TempDir,
    binary: String,
}

impl FromFile {
    pub fn start(binary: &str, config: &str) -> FromFile {
        // Another process may take a free port before the server does: then try the next one.
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let port = free_port();
            let place = dir.path().display();
            let own = format!(
                "port {port}\nbind 127.0.0.1\nsave \"\"\ndir \"{place}\"\nlogfile \"{place}/log\"\n"
            );
            std::fs::write(dir.path().join("server.conf"), own + config).unwrap();
            let process = FromFile::spawn(binary, dir.path());
            let mut server = FromFile {
                process,
                port,
                dir,
                binary: binary.into(),
            };
            server.wait_until_up_or_ended();
            if !server.log().contains("Address already in use") {
                return server;
            }
        }
        panic!("no free port");
    }

    fn spawn(binary: &str, dir: &Path) -> Child {
        let mut command = Command::new(binary);
        command.arg(dir.join("server.conf")).current_dir(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        spawn(command.stderr(Stdio::null())).unwrap()
    }

    fn wait_until_up_or_ended(&mut self) {
        let pid = self.process.id();
        wait_for("the server to start or to give up", || {
            self.process.try_wait().unwrap().is_some()
                || Conn::try_open(self.port).is_some_and(|mut conn| conn.is_ready_as(pid))
        });
    }

    fn restart(&mut self) {
        self.conn().send(["SHUTDOWN"]);
        self.process.wait().unwrap();
        self.process = FromFile::spawn(&self.binary, self.dir.path());
        self.wait_until_up_or_ended();
    }

    pub fn conn(&self) -> Conn {
        Conn::open(self.port)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }
}

impl Drop for FromFile {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn loads(arguments: &str) -> String {
    loads_from(&module_path(), arguments)
}

fn loads_from(module: &Path, arguments: &str) -> String {
    let module = module.display();
    format!("enable-module-command yes\nloadmodule \"{module}\" {arguments}\n")
}

fn get(conn: &mut Conn, name: &str) -> String {
    conn.run(["CONFIG", "GET", name])
        .field(name)
        .unwrap()
        .text()
}

fn set(conn: &mut Conn, name: &str, value: &str) -> bool {
    !conn.run(["CONFIG", "SET", name, value]).is_error()
}

#[test]
fn every_setting_has_its_default_and_can_be_changed_within_its_range() {
    let server = TestServer::start();
    let mut c = server.conn();
    assert_eq!(
        c.line("CONFIG GET lock.*").list().len(),
        2 * (NUMBERS.len() + SWITCHES.len())
    );
    for (name, default, lowest, highest) in NUMBERS {
        assert_eq!(get(&mut c, name), default, "{name}");
        for value in [lowest, highest, default] {
            assert!(set(&mut c, name, value), "{name} {value}");
            assert_eq!(get(&mut c, name), value, "{name}");
        }
        let below = (lowest.parse::<i64>().unwrap() - 1).to_string();
        let above = (highest.parse::<i64>().unwrap() + 1).to_string();
        for value in [&below, &above, "", "many", "1.5", "9223372036854775808"] {
            assert!(!set(&mut c, name, value), "{name} {value:?}");
            assert_eq!(get(&mut c, name), default, "{name}");
        }
    }
    for (name, default) in SWITCHES {
        assert_eq!(get(&mut c, name), default, "{name}");
        for (value, good) in [("no", true), ("maybe", false), ("1", false), ("yes", true)] {
            assert_eq!(set(&mut c, name, value), good, "{name} {value}");
        }
    }
}

#[test]
fn config_rewrite_keeps_the_settings() {
    // CONFIG REWRITE writes the module's path without quotes, so it must not contain a space.
    let links = tempfile::tempdir_in("/tmp").unwrap();
    let module = links.path().join("lock.so");
    std::os::unix::fs::symlink(module_path().canonicalize().unwrap(), &module).unwrap();
    let mut server = FromFile::start(&server_binary(), &loads_from(&module, ""));
    let mut c = server.conn();
    let value = |i: i64, lowest: &str, highest: &str| {
        let (lowest, highest) = (lowest.parse().unwrap(), highest.parse().unwrap());
        (100 + i).clamp(lowest, highest).to_string()
    };
    for (i, (name, _, lowest, highest)) in (0..).zip(NUMBERS) {
        assert!(set(&mut c, name, &value(i, lowest, highest)));
    }
    set(&mut c, "lock.publish", "no");
    assert_eq!(c.line("CONFIG REWRITE").text(), "OK");
    server.restart();
    let mut c = server.conn();
    for (i, (name, _, lowest, highest)) in (0..).zip(NUMBERS) {
        assert_eq!(get(&mut c, name), value(i, lowest, highest), "{name}");
    }
    assert_eq!(get(&mut c, "lock.publish"), "no");
    // It now starts with a startup delay.
    assert!(c.line("LOCK.ACQUIRE k o BLOCK 0").int() > 0);
    assert!(c.line("PTTL k").int() <= 100);
}

#[test]
fn settings_of_the_configuration_file_apply() {
    let config = loads("") + "lock.default-lease 5000\nlock.publish no\n";
    let server = FromFile::start(&server_binary(), &config);
    let mut c = server.conn();
    assert_eq!(get(&mut c, "lock.default-lease"), "5000");
    assert_eq!(get(&mut c, "lock.publish"), "no");
    assert_eq!(get(&mut c, "lock.max-waiters"), "10000");
}

#[test]
fn a_setting_out_of_its_range_stops_the_start() {
    for line in ["lock.default-lease 0\n", "lock.no-such-setting 1\n"] {
        let mut server = FromFile::start(&server_binary(), &(loads("") + line));
        assert!(server.has_ended(), "{line}: {}", server.log());
        assert!(!server.log().contains("REPORT"), "{}", server.log());
    }
}

#[test]
fn settings_of_the_command_line_apply() {
    let options = ["--lock.default-lease", "5000", "--lock.publish", "no"];
    let server = TestServer::with(&options);
    let mut c = server.conn();
    assert_eq!(get(&mut c, "lock.default-lease"), "5000");
    assert_eq!(get(&mut c, "lock.publish"), "no");
    c.line("LOCK.ACQUIRE k o");
    assert!((1..=5_000).contains(&c.line("PTTL k").int()));
}

#[test]
fn settings_come_with_module_loadex() {
    let server = TestServer::without_module(&[]);
    let mut c = server.conn();
    let path = module_path();
    let load = ["MODULE", "LOADEX", path.to_str().unwrap(), "CONFIG"];
    for refused in [["lock.default-lease", "0"], ["lock.unknown", "1"]] {
        assert!(c.run([&load[..], &refused].concat()).is_error());
        assert!(
            c.line("LOCK.HELP").error().starts_with("ERR unknown"),
            "the server goes on without it"
        );
    }
    let config = ["lock.default-lease", "5000"];
    assert_eq!(c.run([&load[..], &config].concat()).text(), "OK");
    assert_eq!(get(&mut c, "lock.default-lease"), "5000");
    assert_eq!(get(&mut c, "lock.max-waiters"), "10000");
}

/// Settings of former versions: a line of the log each, and no obstacle.
#[test]
fn settings_that_have_gone_are_named_and_ignored() {
    let gone = [
        ("drain", "no"),
        ("redisson-scripts", "yes"),
        ("top-names", "1000"),
    ];
    let lines: String = gone
        .iter()
        .map(|(name, value)| format!("lock.{name} {value}\n"))
        .collect();
    let mut server = FromFile::start(&server_binary(), &(loads("") + &lines));
    for (name, _) in gone {
        let about = format!("the setting lock.{name} has gone");
        let told = own_lines(&server.log())
            .into_iter()
            .filter(|line| line.contains(&about));
        assert_eq!(told.count(), 1, "{}", server.log());
    }
    let mut c = server.conn();
    assert!(c.line("LOCK.ACQUIRE k o").int() > 0);
    assert_eq!(
        c.line("CONFIG GET lock.*").list().len(),
        2 * (NUMBERS.len() + SWITCHES.len())
    );
    for (name, value) in gone {
        let refused = c
            .run(["CONFIG", "SET", &format!("lock.{name}"), value])
            .error();
        assert!(refused.contains("has gone"), "{refused}");
    }
    assert!(!server.has_ended());
}

/// The log lines of the module itself.
pub fn own_lines(log: &str) -> Vec<String> {
    log.lines()
        .filter_map(|line| line.split_once("<module> lock: "))
        .map(|(_, text)| text.to_string())
        .collect()
}

const NO_ARGUMENTS: &str =
    "not loaded: the module takes no arguments; settings are lock.* in redis.conf";

#[test]
fn module_arguments_are_refused_with_one_line_in_the_log() {
    let server = TestServer::without_module(&[]);
    let mut c = server.conn();
    for arguments in [&["5000"][..], &["lock.default-lease", "5000"], &[""]] {
        let before = own_lines(&server.log()).len();
        let path = module_path();
        let load = ["MODULE", "LOAD", path.to_str().unwrap()];
        assert!(c.run([&load[..], arguments].concat()).is_error());
        assert_eq!(own_lines(&server.log())[before..], [NO_ARGUMENTS]);
        assert!(c.line("LOCK.HELP").is_error());
    }
    let load = ["MODULE", "LOAD", module_path().to_str().unwrap()].map(str::to_string);
    assert_eq!(c.run(load).text(), "OK", "and then it is loaded without");
}

#[test]
fn module_arguments_stop_a_start() {
    let mut server = FromFile::start(&server_binary(), &loads("default-lease=5000"));
    assert!(server.has_ended(), "{}", server.log());
    assert_eq!(own_lines(&server.log()), [NO_ARGUMENTS]);
}

#[test]
fn servers_that_are_too_old_refuse_the_module_with_one_sentence() {
    let servers = std::env::var("LOCK_OLD_SERVERS").unwrap_or_default();
    if servers.is_empty() {
        println!("skipped: LOCK_OLD_SERVERS names no server");
    }
    for binary in servers.split(':').filter(|binary| !binary.is_empty()) {
        let mut server = FromFile::start(binary, "");
        let mut c = server.conn();
        c.set_read_timeout(patience());
        let load = ["MODULE", "LOAD", module_path().to_str().unwrap()].map(str::to_string);
        assert!(c.run(load).is_error(), "{binary}");
        let log = server.log();
        let lines: Vec<&str> = log.lines().filter(|l| l.contains("not loaded: ")).collect();
        assert_eq!(lines.len(), 1, "{binary}: {log}");
        let sentence = "this module needs Redis 7.0 or Valkey 8.0 at least";
        assert!(lines[0].contains(sentence), "{binary}: {log}");
        assert!(c.is_ready() && !server.has_ended(), "{binary} goes on");
    }
}

#[test]
fn a_limit_on_idle_connections_is_warned_of() {
    let warnings = |server: &TestServer| server.log().matches("SESSION holds are released").count();
    // It matters from the first SESSION on.
    let server = TestServer::with(&["--timeout", "300"]);
    assert_eq!(warnings(&server), 0);
    for _ in 0..2 {
        server.conn().line("LOCK.ACQUIRE k o SESSION");
        assert_eq!(warnings(&server), 1);
    }
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("CONFIG SET timeout 60");
    c.line("CONFIG SET timeout 0");
    c.line("LOCK.ACQUIRE k o SESSION");
    for (setting, expected) in [
        ("timeout 0", 0),
        ("TIMEOUT 600", 1),
        ("maxclients 100 timeout 0", 1),
    ] {
        assert_eq!(c.line(&format!("CONFIG SET {setting}")).text(), "OK");
        assert_eq!(warnings(&server), expected, "{setting}");
    }
}

/// The module reads settings of the server only when these have changed, and a SESSION or a waiter depends on them.
#[test]
fn a_change_of_a_setting_leaves_no_trace_of_the_module() {
    let server = TestServer::start();
    let mut c = server.conn();
    for line in [
        "CONFIG SET slowlog-log-slower-than 0",
        "CONFIG RESETSTAT",
        "SLOWLOG RESET",
    ] {
        assert_eq!(c.line(line).text(), "OK");
    }
    let settings = [
        "maxmemory-samples 6",
        "lock.queue-grace 900",
        "timeout 600",
        "client-output-buffer-limit=normal 1mb 0 0",
    ];
    for setting in settings {
        let (name, value) = setting.split_once(['=', ' ']).unwrap();
        assert_eq!(
            c.run(["CONFIG", "SET", name, value]).text(),
            "OK",
            "{setting}"
        );
    }
    let logged = c.line("SLOWLOG GET").list();
    let logged = logged.iter().map(|entry| entry.list()[3].list());
    let logged: Vec<String> = logged
        .map(|words| words[0].text() + " " + &words[1].text())
        .collect();
    let mut expected = vec!["CONFIG SET"; settings.len()];
    expected.push("SLOWLOG RESET");
    assert_eq!(logged, expected);
    // RESETSTAT, SLOWLOG RESET, four CONFIG SET, SLOWLOG GET.
    assert_eq!(server.info_field("stats", "total_commands_processed"), "7");
    let stats = c.line("INFO commandstats").text();
    assert!(!stats.contains("config|get"), "{stats}");
}
