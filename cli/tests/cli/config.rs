//! The configuration: options, the environment and files, and where the password comes from.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use redis_lock_harness::TestServer;

use crate::program::{program, url, Ended, Running, PROGRAM};

/// `redis-lock` of a user with this home and these variables.
fn run(home: &Path, vars: &[(&str, &str)], words: &str) -> Ended {
    let mut command = Command::new(PROGRAM);
    let names = [
        "REDIS_LOCK_URL",
        "REDISCLI_AUTH",
        "XDG_CONFIG_HOME",
        "REDIS_LOCK_CONFIG",
    ];
    for name in names {
        command.env_remove(name);
    }
    command.env("HOME", home).envs(vars.iter().copied());
    Running::of(command.args(words.split(' '))).end()
}

/// The user's file of this home.
fn write(home: &Path, text: &str) -> String {
    let dir = home.join(".config");
    fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join("redis-lock.toml");
    fs::write(&file, text).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("permissions");
    file.display().to_string()
}

const NOWHERE: &str = "redis://127.0.0.1:1";

#[test]
fn an_option_precedes_the_environment_and_that_the_files() {
    let real = TestServer::start();
    let (home, here) = (real.dir(), url(&real));
    write(home, &format!("# where\nserver = \"{here}\"  # here\n"));
    assert_eq!(run(home, &[], "check").code(), 0);
    let env = [("REDIS_LOCK_URL", NOWHERE)];
    assert_eq!(run(home, &env, "check").code(), 69);
    assert_eq!(run(home, &env, &format!("check --server {here}")).code(), 0);
    // One file in place of both.
    let other = home.join("other.toml");
    fs::write(&other, format!("server = '{NOWHERE}'")).expect("a file");
    let env = [("REDIS_LOCK_CONFIG", other.to_str().expect("a path"))];
    assert_eq!(run(home, &env, "check").code(), 69);
}

#[test]
fn the_defaults_of_a_subcommand_are_a_table() {
    let real = TestServer::start();
    let here = url(&real);
    let text = format!(
        "server = [\"{here}\"]\ntimeout = 100\n\n[run]\nconflict-exit-code = 17\nlease = \"40s\"\n"
    );
    write(real.dir(), &text);
    real.conn().line("LOCK.ACQUIRE k other");
    let held = |vars: &[(&str, &str)], words: &str| run(real.dir(), vars, words).code();
    assert_eq!(held(&[], "run -n k true"), 17);
    assert_eq!(
        held(&[("REDIS_LOCK_CONFLICT_EXIT_CODE", "18")], "run -n k true"),
        18
    );
    assert_eq!(
        held(
            &[("REDIS_LOCK_CONFLICT_EXIT_CODE", "18")],
            "run -n -E 19 k true"
        ),
        19
    );
    // Help shows what is in force.
    assert!(run(real.dir(), &[], "run --help")
        .out
        .contains("[default: 40s]"));
}

#[test]
fn an_error_in_a_file_names_the_line() {
    let real = TestServer::start();
    for (text, line, what) in [
        ("timeout = 1\nservr = \"x\"\n", 2, "servr"),
        ("[run]\n\nlese = 1\n", 3, "lese"),
        ("[rnu]\nlease = 1\n", 2, "lease"),
        ("[run]\nowner = \"me\"\n", 2, "owner"),
        ("timeout = 1\nlease = 9\n", 2, "lease"),
        ("timeout = 1\ntimeout\n", 2, "timeout"),
        ("\ntimeout = \"1\n", 2, "timeout"),
        ("timeout = 1 2\n", 1, "timeout"),
        ("timeout = \"soon\"\n", 1, "soon"),
        ("[run]\nlease = \"soon\"\n", 2, "soon"),
    ] {
        let file = write(real.dir(), text);
        let end = run(real.dir(), &[], "run k true");
        assert_eq!(end.code(), 64, "{text}: {}", end.err);
        assert!(
            end.err.contains(&format!("{file}:{line}: ")),
            "{text}: {}",
            end.err
        );
        assert!(end.err.contains(what), "{text}: {}", end.err);
    }
    let end = run(
        real.dir(),
        &[("REDIS_LOCK_CONFIG", "/nonsense/file")],
        "check",
    );
    assert_eq!(end.code(), 64);
    assert!(end.err.contains("/nonsense/file"), "{}", end.err);
}

#[test]
fn a_line_that_is_wrong_is_not_printed() {
    let real = TestServer::start();
    for text in [
        "server = redis://me:s3cret@host\n",
        "redis://me:s3cret@host",
    ] {
        write(real.dir(), text);
        let end = run(real.dir(), &[], "check");
        assert_eq!(end.code(), 64);
        assert!(end.err.contains(":1: not a line of"), "{}", end.err);
        assert!(!end.err.contains("s3cret"), "{}", end.err);
    }
}

#[test]
fn an_empty_variable_is_as_none_but_for_the_server() {
    let real = TestServer::start();
    let here = url(&real);
    // As an editor of Windows writes it.
    write(
        real.dir(),
        &format!("\u{feff}server = \"{here}\"\r\n[run]\r\nlease = 40\r\n"),
    );
    let empty = [
        "CONFIG",
        "TIMEOUT",
        "USER",
        "PASSWORD_FROM",
        "CACERT",
        "WAIT",
        "LEASE",
        "AT_MOST",
    ];
    let names = empty.map(|name| format!("REDIS_LOCK_{name}"));
    let vars = names.each_ref().map(|name| (name.as_str(), ""));
    let end = run(real.dir(), &vars, "run k echo ran");
    assert_eq!((end.err.as_str(), end.out.as_str()), ("", "ran\n"));
    assert_eq!(
        run(real.dir(), &[("REDIS_LOCK_URL", "")], "check").code(),
        64
    );
}

#[test]
fn a_password_that_is_no_text_is_not_left_out() {
    let real = TestServer::start();
    let mut command = program(&real);
    let password = OsStr::from_bytes(b"pass\xffword");
    let end = Running::of(command.arg("check").env("REDISCLI_AUTH", password)).end();
    assert_eq!(end.code(), 64);
    assert!(
        end.err.contains("REDISCLI_AUTH is not UTF-8"),
        "{}",
        end.err
    );
}

#[test]
fn the_password_comes_from_a_file_or_a_command() {
    let real = TestServer::start();
    let (home, here) = (real.dir(), url(&real));
    real.conn().line("ACL SETUSER app on >se#cret ~* &* +@all");
    let file = home.join("password");
    fs::write(&file, "se#cret\n").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("permissions");
    let file = file.display();
    let good = [
        format!("--user app --password-from {file}"),
        "--user app --password-from |echo${IFS}se#cret".into(),
    ];
    for words in good {
        let end = run(
            home,
            &[("REDIS_LOCK_URL", &here)],
            &format!("check {words}"),
        );
        assert_eq!((end.code(), end.err.as_str()), (0, ""), "{words}");
    }
    write(
        home,
        &format!("server = '{here}'\nuser = 'app'\npassword-from = '{file}'\n"),
    );
    assert_eq!(run(home, &[], "check").code(), 0);
    // The environment precedes the file, an option the environment.
    let wrong = [("REDISCLI_AUTH", "wrong")];
    assert_eq!(run(home, &wrong, "check").code(), 77);
    assert_eq!(
        run(home, &wrong, &format!("check --password-from {file}")).code(),
        0
    );
    // Where the parent ignores the ends of children.
    let mut shell = Command::new("bash");
    let script =
        format!("trap '' CHLD; exec '{PROGRAM}' check --user app --password-from '|echo se#cret'");
    shell.args(["-c", &script]).env("REDIS_LOCK_URL", &here);
    let end = Running::of(&mut shell).end();
    assert_eq!(end.code(), 0, "{}", end.err);
    for (source, what) in [
        ("|exit${IFS}3", "exit status: 3"),
        ("/nonsense/x", "/nonsense/x"),
    ] {
        let end = run(home, &[], &format!("check --password-from {source}"));
        assert_eq!(end.code(), 64, "{}", end.err);
        assert!(end.err.contains(what), "{}", end.err);
    }
}

#[test]
fn a_password_that_others_can_read_is_warned_of() {
    let real = TestServer::start();
    let (home, here) = (real.dir(), url(&real));
    let file = write(
        home,
        &format!("server = '{}'\n", here.replace("//", "//default:x@")),
    );
    let warning = format!("{file}: other users can read the password in it");
    let end = run(home, &[], "check");
    assert_eq!(end.code(), 0, "{}", end.err);
    assert!(end.err.contains(&warning), "{}", end.err);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("permissions");
    assert_eq!(run(home, &[], "check").err, "");
    let file = write(home, &format!("server = '{here}'\n"));
    assert_eq!(run(home, &[], "check").err, "");
    let end = run(home, &[], &format!("check --password-from {file}"));
    assert!(end.err.contains(&warning), "{}", end.err);
}

#[test]
#[cfg(target_os = "linux")]
fn a_password_in_an_argument_is_not_shown_by_ps() {
    let real = TestServer::start();
    real.conn().line("ACL SETUSER app on >sec:r@t ~* &* +@all");
    let server = url(&real).replace("//", "//app:sec:r@t@");
    let other = TestServer::start();
    other.conn().line("ACL SETUSER app on >sec:r@t ~* &* +@all");
    let both = format!("{server} {}", url(&other).replace("//", "//app:sec:r@t@"));
    for (key, options) in [
        ("a", &["--server", &server][..]),
        ("b", &[&format!("--server={server}")]),
        ("c", &["--server", &both, "--all"]),
    ] {
        let command = [key, "sh", "-c", "echo up; exec sleep 100"];
        let mut program = program(&real);
        let run = Running::of(program.arg("run").args(options).args(command));
        assert_eq!(run.line(), "up");
        let shown = fs::read_to_string(format!("/proc/{}/cmdline", run.pid())).expect("a process");
        let all = shown.contains("redis://app:*******@127.0.0.1:") && shown.contains("\0echo up;");
        assert!(all && !shown.contains("sec"), "{shown}");
    }
}
