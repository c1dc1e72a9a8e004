//! A server, its exporter, and a Prometheus that scrapes the exporter.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use redis_lock_harness::{page, process, wait_for, Conn, TestServer};
use serde_json::Value;

use crate::files;
use crate::http::{ask, encoded, get};

/// The labels of a line, and its points: Unix time in seconds, value. Values that are no numbers are left out.
pub type Series = (Value, Vec<(f64, f64)>);

/// The name of a figure in Prometheus, and the bound of a histogram's bucket.
pub type Metric = (String, Option<String>);

pub struct Scene {
    pub server: TestServer,
    exporter: Process,
    prometheus: Process,
    dir: tempfile::TempDir,
}

struct Process {
    child: Child,
    port: u16,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The settings are low where a load of seconds is to reach a limit.
const SETTINGS: [(&str, &str); 6] = [
    ("lock.max-waiters", "200"),
    ("lock.max-waiters-per-key", "10"),
    ("lock.max-tickets", "200"),
    ("lock.max-tracked", "40"),
    ("lock.session-lease", "1000"),
    ("maxmemory", "100mb"),
];

impl Scene {
    pub fn start() -> Scene {
        let server = TestServer::start();
        let mut conn = server.conn();
        for (name, value) in SETTINGS {
            let reply = conn.run(["CONFIG", "SET", name, value]);
            assert!(!reply.is_error(), "{name}: {reply:?}");
        }
        // The user of the page, letter by letter.
        let page = page::text("docs/OPERATIONS.md");
        let user = page
            .lines()
            .find(|line| line.trim().starts_with("ACL SETUSER exporter "));
        let reply = conn.line(user.expect("a user for the exporter").trim());
        assert_eq!(reply.text(), "OK");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let exporter = exporter(server.port);
        let prometheus = prometheus(&exporter, &dir);
        Scene {
            server,
            exporter,
            prometheus,
            dir,
        }
    }

    /// The names of all figures of `INFO lock`, as the script has them.
    pub fn fields(&self) -> BTreeSet<String> {
        let info = self.server.conn().line("INFO lock").text();
        let mut names = BTreeSet::new();
        for line in info.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            if value.parse::<u64>().is_ok() {
                names.insert(name.to_string());
                continue;
            }
            for part in value.split(',') {
                let (part, value) = part.split_once('=').expect("name:part=number");
                assert!(value.parse::<u64>().is_ok(), "{line}");
                names.insert(format!("{name}_{part}"));
            }
        }
        assert!(names.contains("lock_waiters"), "{info}");
        names
    }

    /// Every figure is among the exporter's, and the exporter's user may run all that it sends.
    pub fn exporter_has(&self, fields: &BTreeSet<String>) {
        let metrics = get(self.exporter.port, "/metrics").expect("metrics");
        let values = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("redis_script_values{"));
        let key = |line: &str| Some(line.split_once("key=\"")?.1.split_once('"')?.0.to_string());
        let names: BTreeSet<String> = values.filter_map(key).collect();
        assert_eq!(names.len(), fields.len(), "{names:?}");
        assert!(metrics.contains("\nredis_exporter_last_scrape_error{err=\"\"} 0\n"));
        let refused = self.server.conn().line("ACL LOG").list();
        assert!(refused.is_empty(), "{refused:?}");
    }

    /// The script of Telegraf's lines returns every figure.
    pub fn telegraf_has(&self, fields: &BTreeSet<String>) {
        let script = files::telegraf_script();
        let reply = self.server.conn().run(["EVAL", &script, "0"]).text();
        let values: Value = serde_json::from_str(&reply).expect("JSON");
        let names = values.as_object().expect("an object").keys();
        let names: BTreeSet<String> = names.map(|name| format!("lock_{name}")).collect();
        assert_eq!(&names, fields);
    }

    /// If `LOCK_OPS_TELEGRAF` names a Telegraf: it sends every figure with the tags of the server, and no other field.
    pub fn telegraf_sends(&self, fields: &BTreeSet<String>) {
        let Some(telegraf) = std::env::var_os("LOCK_OPS_TELEGRAF") else {
            eprintln!("lock-ops: no telegraf in PATH: of its lines, the script alone was run");
            return;
        };
        let config = self.dir.path().join("telegraf.conf");
        std::fs::write(&config, files::telegraf_config(self.server.port)).expect("a file");
        let mut command = Command::new(telegraf);
        let command = process::tame(&mut command).arg("--config").arg(config);
        let output = command.arg("--once").output().expect("telegraf");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !log.contains(" E! "), "{log}");
        let sent = String::from_utf8(output.stdout).expect("text");
        let tags = format!("redis_lock,port={},server=127.0.0.1 ", self.server.port);
        let ours: Vec<_> = sent
            .lines()
            .filter_map(|line| line.strip_prefix(&tags))
            .collect();
        let [line] = ours[..] else {
            panic!("not one line {tags}: {sent}");
        };
        let values = line.split(' ').next().unwrap_or_default().split(',');
        let name = |value: &str| Some(format!("lock_{}", value.split_once('=')?.0));
        let names: BTreeSet<String> = values.filter_map(name).collect();
        assert_eq!(&names, fields);
        assert!(!sent.contains("redis_commands"), "{sent}");
    }

    /// The name and the bound of every figure in Prometheus.
    pub fn metrics(&self) -> BTreeSet<Metric> {
        let gauges = files::gauges();
        let metric = |field: &String| files::metric(field, &gauges);
        self.fields().iter().map(metric).collect()
    }

    /// Prometheus has every figure under its own name, without the labels of the script, and times in seconds.
    pub fn prometheus_has(&self) {
        let longest = self.server.stat("wait_ms_max") as f64 / 1_000.0;
        wait_for("the longest wait, in seconds", || {
            let found = self.instant("redis_lock_wait_seconds_max");
            found[0]["value"][1] == longest.to_string().as_str()
        });
        let found = self.instant("{__name__=~\"redis_lock_.+\"}");
        let mut names = BTreeSet::new();
        for series in &found {
            let labels = series["metric"].as_object().expect("labels");
            let kept = labels.keys().filter(|label| *label != "le");
            let kept: Vec<_> = kept.map(String::as_str).collect();
            let name = labels["__name__"].as_str().expect("a name");
            assert_eq!(kept, ["__name__", "instance", "job"], "{name}");
            let bound = labels.get("le").and_then(Value::as_str);
            names.insert((name.to_string(), bound.map(ToString::to_string)));
        }
        let differ: Vec<_> = names
            .symmetric_difference(&self.metrics())
            .cloned()
            .collect();
        assert!(differ.is_empty(), "{differ:?}");
    }

    /// Every rule was evaluated, without an error, and names figures that `INFO lock` has.
    pub fn rules_are_evaluated(&self) {
        let known = self.metrics();
        let text = page::text("ops/redis-lock.rules.yml");
        let unknown: Vec<_> = files::named(&text)
            .into_iter()
            .filter(|name| known.iter().all(|metric| metric.0 != *name))
            .collect();
        assert!(unknown.is_empty(), "no figures of INFO lock: {unknown:?}");
        wait_for("an evaluation of every rule", || {
            let data = ask(self.prometheus.port, "/api/v1/rules").expect("rules");
            let rules = data["groups"][0]["rules"]
                .as_array()
                .expect("rules")
                .clone();
            assert_eq!(rules.len(), text.matches("- alert: ").count());
            for rule in &rules {
                assert!(rule["lastError"].is_null(), "{rule}");
            }
            rules.iter().all(|rule| rule["health"] == "ok")
        });
    }

    fn instant(&self, query: &str) -> Vec<Value> {
        let path = format!("/api/v1/query?query={}", encoded(query));
        let data = ask(self.prometheus.port, &path).expect("a result");
        data["result"].as_array().expect("series").clone()
    }

    /// The lines of a query between two moments, a point each second.
    ///
    /// # Errors
    /// The error of Prometheus.
    pub fn range(&self, query: &str, (from, to): (f64, f64)) -> Result<Vec<Series>, String> {
        let query = encoded(query);
        let path = format!("/api/v1/query_range?query={query}&start={from}&end={to}&step=1");
        let data = ask(self.prometheus.port, &path)?;
        let lines = data["result"].as_array().expect("series").iter();
        let point = |point: &Value| {
            let value: f64 = point[1].as_str()?.parse().ok()?;
            value.is_finite().then_some((point[0].as_f64()?, value))
        };
        let points = |line: &Value| {
            let values = line["values"].as_array().expect("values");
            values.iter().filter_map(point).collect()
        };
        Ok(lines
            .map(|line| (line["metric"].clone(), points(line)))
            .collect())
    }

    pub fn conn(&self) -> Conn {
        self.server.conn()
    }

    pub fn server_name(&self) -> String {
        let (major, minor, patch) = self.server.version();
        let name = if self.server.is_valkey() {
            "Valkey"
        } else {
            "Redis"
        };
        format!("{name} {major}.{minor}.{patch}")
    }
}

/// A program that `tests/ops/run.sh` has found or fetched.
fn tool(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} is not set: use make test-ops"))
        .into()
}

fn exporter(server: u16) -> Process {
    let mut command = Command::new(tool("LOCK_OPS_EXPORTER"));
    let address = format!("redis://127.0.0.1:{server}");
    // As the environment of Debian's unit: docs/OPERATIONS.md.
    command.env("REDIS_ADDR", address);
    command.env("REDIS_USER", "exporter");
    command.env("REDIS_PASSWORD", "change-me-exporter");
    command.arg("-script");
    command.arg(page::root().join("ops/redis-lock.lua"));
    started(
        &mut command,
        "-web.listen-address",
        "/metrics",
        "the exporter",
    )
}

fn prometheus(exporter: &Process, dir: &tempfile::TempDir) -> Process {
    let rules = page::root().join("ops/redis-lock.rules.yml");
    let mut config = page::text("ops/prometheus.yml");
    let target = format!("127.0.0.1:{}", exporter.port);
    let changes = [
        ("localhost:9121", target.as_str()),
        (
            "scrape_interval: 15s",
            "scrape_interval: 1s\n  evaluation_interval: 1s",
        ),
        (
            "- redis-lock.rules.yml",
            &format!("- '{}'", rules.display()),
        ),
    ];
    for (from, to) in changes {
        assert!(config.contains(from), "{from} in ops/prometheus.yml");
        config = config.replace(from, to);
    }
    let path = dir.path().join("prometheus.yml");
    std::fs::write(&path, config).expect("a file");
    let mut command = Command::new(tool("LOCK_OPS_PROMETHEUS"));
    command.arg(format!("--config.file={}", path.display()));
    command.arg(format!(
        "--storage.tsdb.path={}",
        dir.path().join("data").display()
    ));
    let prometheus = started(
        &mut command,
        "--web.listen-address",
        "/-/ready",
        "Prometheus",
    );
    wait_for("the first scrape", || {
        let path = format!("/api/v1/query?query={}", encoded("redis_lock_waiters"));
        let data = ask(prometheus.port, &path);
        data.is_ok_and(|data| !data["result"][0].is_null())
    });
    prometheus
}

/// Starts a program on a free port and waits until it serves this page.
fn started(command: &mut Command, option: &str, page: &str, name: &str) -> Process {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    command.arg(format!("{option}=127.0.0.1:{port}"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = process::spawn(command).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut process = Process { child, port };
    wait_for(name, || {
        let ended = process.child.try_wait().expect("a child");
        assert!(ended.is_none(), "{name} has ended: {ended:?}");
        get(port, page).is_some()
    });
    process
}
