//! The users of every document: each line that makes one is taken from the page by this test, the server takes it, and
//! the user can do what clients and their health checks do.

use std::path::Path;
use std::process::Command;

use crate::commands::acl::has_categories;
use crate::common::page::root;
use crate::common::process;
use crate::common::{module_path, Conn, TestServer};
use crate::docs::acl_example::must;

/// A user as a page makes it: its name, and the rules of all its lines there.
struct User {
    page: String,
    name: String,
    rules: Vec<String>,
}

impl User {
    fn has(&self, rule: &str) -> bool {
        self.rules.iter().any(|own| own == rule)
    }

    fn value_of(&self, prefix: &str) -> Option<&str> {
        self.rules.iter().find_map(|rule| rule.strip_prefix(prefix))
    }

    /// The user can log in; other lines change a user of another page.
    fn is_whole(&self) -> bool {
        self.has("on")
    }

    fn is_application(&self) -> bool {
        self.has("+lock.acquire") || self.has("+@all")
    }
}

/// The files that may make users: those of the repository that are read by people or servers.
fn pages(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let is_other =
            name.starts_with('.') || matches!(&*name, "target" | "node_modules" | "src" | "tests");
        if path.is_dir() {
            if !is_other {
                pages(&path, found);
            }
        } else if ["md", "example", "conf", "yaml", "yml", "acl"]
            .iter()
            .any(|ext| name.ends_with(ext))
        {
            found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().into());
        }
    }
}

/// The words behind `ACL SETUSER` and `user`, to the end of the line or of the code.
fn made_by(line: &str) -> Vec<Vec<String>> {
    let text = line.trim_start();
    let file = text.strip_prefix("user ").into_iter();
    let in_text = text
        .split('`')
        .filter_map(|code| code.strip_prefix("user "));
    let commands = line.split("ACL SETUSER ").skip(1);
    file.chain(in_text)
        .chain(commands)
        .map(|rest| rest.split('`').next().unwrap_or_default())
        .map(|rest| {
            rest.split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        })
        .filter(|words| words.len() > 1 && words[1..].iter().all(|word| is_rule(word)))
        .collect()
}

fn is_rule(word: &str) -> bool {
    matches!(
        word,
        "on" | "off" | "nopass" | "reset" | "resetchannels" | "resetkeys" | "allkeys"
    ) || word.starts_with(['>', '~', '%', '&', '+', '-', '('])
}

fn users() -> Vec<User> {
    let mut found = Vec::new();
    pages(&root(), &mut found);
    found.sort();
    let mut users: Vec<User> = Vec::new();
    for page in found {
        let text = std::fs::read_to_string(root().join(&page)).unwrap();
        for mut words in text.lines().flat_map(made_by) {
            let name = words.remove(0);
            match users
                .iter_mut()
                .find(|user| user.page == page && user.name == name)
            {
                Some(user) => user.rules.extend(words),
                None => users.push(User {
                    page: page.clone(),
                    name,
                    rules: words,
                }),
            }
        }
    }
    users
}

fn login(server: &TestServer, user: &User) -> Conn {
    let mut conn = server.conn();
    let password = user.value_of(">").unwrap_or_default();
    assert_eq!(
        conn.run(["AUTH", &user.name, password]).text(),
        "OK",
        "{}",
        user.page
    );
    conn
}

/// What libraries send before and beside the commands of locks.
fn assert_connects(server: &TestServer, conn: &mut Conn) {
    must(
        conn,
        &[
            "HELLO 2",
            "PING",
            "ECHO x",
            "SELECT 1",
            "SELECT 0",
            "CLIENT SETNAME app",
            "CLIENT ID",
        ],
    );
    if has_categories(server) {
        must(conn, &["CLIENT SETINFO LIB-NAME app"]);
    }
}

/// Holds and waits with a ticket, as the packages do.
fn assert_locks(server: &TestServer, user: &User, key: &str) {
    let (mut conn, mut subscriber) = (login(server, user), login(server, user));
    assert_connects(server, &mut conn);
    must(&mut subscriber, &["SUBSCRIBE lock:tickets:1"]);
    assert!(
        conn.line(&format!("LOCK.ACQUIRE {key} o PX 600000 ONCE"))
            .int()
            > 0
    );
    assert_eq!(conn.line(&format!("LOCK.RENEW {key} o PX 600000")).int(), 1);
    let waits = format!("LOCK.ACQUIRE {key} p PX 600000 BLOCK 0 NOTIFY lock:tickets:1 t");
    assert_eq!(
        conn.line(&waits).text(),
        "QUEUED",
        "{}: {}",
        user.page,
        user.name
    );
    must(&mut conn, &[&format!("LOCK.RELEASE {key} o")]);
    let message = subscriber.recv().list()[2].text();
    assert!(message.starts_with("granted "), "{message}");
    must(&mut conn, &[&format!("LOCK.RELEASE {key} p")]);
    must(
        &mut conn,
        &[
            &format!("LOCK.ACQUIRE {key} p READ"),
            &format!("LOCK.RELEASE {key} p"),
        ],
    );
}

/// The command line, built beside the module, with a database and a lock that it waits for.
fn assert_command_line(server: &TestServer, user: &User, key: &str) {
    let program = module_path().with_file_name("redis-lock");
    if !program.is_file() {
        println!("skipped: no {}", program.display());
        return;
    }
    let mut holder = server.conn();
    holder.line("SELECT 1");
    holder.line(&format!("LOCK.ACQUIRE {key} holder PX 600000"));
    let password = user.value_of(">").unwrap_or_default();
    let url = format!(
        "redis://{}:{password}@127.0.0.1:{}/1",
        user.name, server.port
    );
    let mut command = Command::new(program);
    command.args(["run", "--server", &url, key, "--", "true"]);
    let mut child = process::spawn(&mut command).unwrap();
    server.wait_for_stat("tickets", 1);
    holder.line(&format!("LOCK.RELEASE {key} holder"));
    assert!(
        child.wait().unwrap().success(),
        "{}: {}",
        user.page,
        user.name
    );
}

#[test]
fn the_user_of_every_document_can_be_used_as_written() {
    let users = users();
    for (page, name) in [
        ("README.md", "app"),
        ("users.acl.example", "app"),
        ("users.acl.example", "redlock"),
        ("docs/OPERATIONS.md", "exporter"),
        ("docs/OPERATIONS.md", "probe"),
        ("packaging/compose/server.conf", "exporter"),
    ] {
        let is_there = users
            .iter()
            .any(|user| user.page == page && user.name == name);
        assert!(is_there, "{page} has no user {name} any more");
    }
    for user in users {
        let what = format!("{}: {} {:?}", user.page, user.name, user.rules);
        println!("{what}");
        let server = TestServer::start();
        let rules = user.rules.iter().map(String::as_str);
        let set = server
            .conn()
            .run(["ACL", "SETUSER", &user.name].into_iter().chain(rules));
        let newer = user
            .rules
            .iter()
            .any(|rule| rule.contains("@lock") || rule.contains("setinfo"));
        assert!(
            !set.is_error() || (newer && !has_categories(&server)),
            "{what}: {set:?}"
        );
        if !user.is_whole() || user.name == "default" {
            continue;
        }
        let mut conn = login(&server, &user);
        must(&mut conn, &["PING"]);
        if user.is_application() {
            let key = user.value_of("~").unwrap_or("k").replace('*', "1");
            assert_locks(&server, &user, &key);
            assert_command_line(&server, &user, &key);
        } else if user.has("+@connection") {
            assert_connects(&server, &mut conn);
        }
        if user.has("~health") {
            must(&mut conn, &["LOCK.INFO health"]);
        }
        if user.has("+eval") {
            let script = std::fs::read_to_string(root().join("ops/redis-lock.lua")).unwrap();
            assert!(conn.run(["EVAL", &script, "0"]).is_array(), "{what}");
            must(
                &mut conn,
                &[
                    "SLOWLOG GET 1",
                    "LATENCY LATEST",
                    "CONFIG GET maxmemory",
                    "INFO ALL",
                ],
            );
        }
    }
}
