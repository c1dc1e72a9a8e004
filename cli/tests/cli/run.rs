//! The lock around the command: its holder, the environment of the command, the exit status.

use std::process::Command;

use redis_lock_harness::{wait_for, TestServer};

use crate::program::{program, script, start, start_args, url, Running, PROGRAM};

#[test]
fn the_command_has_the_lock_and_its_token() {
    let real = TestServer::start();
    let run = script(
        &real,
        "--owner me",
        "echo $LOCK_KEY $LOCK_OWNER $LOCK_TOKEN",
    );
    let told = run.line();
    let after = run.end();
    let mut conn = real.conn();
    assert!(conn.line("LOCK.INFO k").is_nil());
    let token = conn.line("LOCK.ACQUIRE k other").int();
    let [key, owner, told] = told.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{told}")
    };
    assert_eq!((key, owner, after.code()), ("k", "me", 0));
    assert!(told.parse::<i64>().expect("a token") < token);
}

#[test]
fn the_lock_is_held_while_the_command_runs_and_renewed() {
    let real = TestServer::start();
    let run = script(&real, "--owner me", "echo $LOCK_TOKEN; exec sleep 100");
    let token: i64 = run.line().parse().expect("a token");
    let renewals = real.stat("renewals");
    wait_for("a renewal", || real.stat("renewals") > renewals);
    let info = real.conn().line("LOCK.INFO k");
    let holder = &info.field("holders").expect("holders").list()[0];
    assert_eq!(holder.field("token").expect("a token").int(), token);
    assert_eq!(holder.field("owner").expect("an owner").text(), "me");
    run.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(run.end().code(), 143);
    assert!(real.conn().line("LOCK.INFO k").is_nil());
}

#[test]
fn its_status_is_the_commands_as_flock_has_it() {
    let real = TestServer::start();
    let file = real.dir().join("flock");
    let statuses = |command: &mut Command, scripts: &[&str]| -> Vec<i32> {
        let program = command.get_program().to_os_string();
        let before: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let envs: Vec<_> = command
            .get_envs()
            .map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned)))
            .collect();
        let run = |script: &&str| {
            let mut command = Command::new(&program);
            command.args(&before).args(["sh", "-c", script]);
            for (name, value) in &envs {
                command.env(name, value.clone().unwrap_or_default());
            }
            Running::of(&mut command).end().code()
        };
        scripts.iter().map(run).collect()
    };
    let scripts = [
        "exit 0",
        "exit 1",
        "exit 42",
        "exit 255",
        "kill -TERM $$",
        "kill -KILL $$",
        "kill -INT $$",
    ];
    let expected = [0, 1, 42, 255, 143, 137, 130];
    let ours = statuses(program(&real).args(["run", "k"]), &scripts);
    assert_eq!(ours, expected);
    if has_flock() {
        let theirs = statuses(Command::new("flock").arg(&file), &scripts);
        assert_eq!(ours, theirs);
    }
}

/// A realtime signal has no name.
#[test]
fn a_command_that_a_realtime_signal_ends_has_ended() {
    let real = TestServer::start();
    assert_eq!(script(&real, "", "kill -40 $$").end().code(), 168);
    assert!(real.conn().line("LOCK.INFO k").is_nil());
}

#[test]
fn a_command_that_cannot_be_run_leaves_no_lock_behind() {
    let real = TestServer::start();
    for (command, status) in [("./no-such-thing", 127), ("/etc/passwd", 126)] {
        for options in ["", "--die-with-parent"] {
            let end = start(&real, &format!("run {options} k -- {command}")).end();
            assert_eq!(end.code(), status, "{}", end.err);
            assert!(end.err.contains(command), "{}", end.err);
            assert!(real.conn().line("LOCK.INFO k").is_nil());
        }
    }
}

#[test]
fn without_a_grant_the_status_is_that_of_flock() {
    let real = TestServer::start();
    real.conn().line("LOCK.ACQUIRE k other");
    let code = |options: &str| script(&real, options, "echo never").end();
    for (options, status) in [
        ("-n", 1),
        ("--nonblock", 1),
        ("--wait 0", 1),
        ("-w 0.1", 1),
        ("-n -E 7", 7),
        ("-w 0.05 --conflict-exit-code 0", 0),
    ] {
        let end = code(options);
        assert_eq!(
            (end.code(), end.out.as_str(), end.err.as_str()),
            (status, "", ""),
            "{options}"
        );
        assert_eq!(real.waits(), 0);
    }
    assert!(code("-n --verbose").err.contains("not to be had"));
    if has_flock() {
        let file = real.dir().join("flock");
        let holder = Running::of(Command::new("flock").arg(&file).args([
            "sh",
            "-c",
            "echo up; exec sleep 100",
        ]));
        holder.line();
        for (options, status) in [
            (&["-n"][..], 1),
            (&["-w", "0.1"], 1),
            (&["-n", "-E", "7"], 7),
        ] {
            let end = Running::of(Command::new("flock").args(options).arg(&file).arg("true")).end();
            assert_eq!(end.code(), status);
        }
    }
}

#[test]
fn a_waiting_command_is_started_after_the_grant() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LOCK.ACQUIRE k other");
    let mut runs: Vec<Running> = Vec::new();
    for options in ["", "--wait 60"] {
        runs.push(script(&real, options, "echo got"));
        real.wait_for_waits(runs.len() as u64);
    }
    assert!(runs.iter_mut().all(Running::is_running));
    conn.line("LOCK.RELEASE k other");
    for run in runs {
        assert_eq!(run.end().ok(), "got\n");
    }
}

#[test]
fn readers_share_and_a_writer_does_not() {
    let real = TestServer::start();
    let reader = || script(&real, "--shared", "echo up; exec sleep 100");
    let (one, two) = (reader(), reader());
    assert_eq!((one.line(), two.line()), ("up".into(), "up".into()));
    assert_eq!(
        real.conn()
            .line("LOCK.INFO k")
            .field("mode")
            .expect("a mode")
            .text(),
        "read"
    );
    assert_eq!(script(&real, "-x -n", "echo never").end().code(), 1);
    let plain = script(&real, "-n", "echo never").end();
    assert_eq!(plain.code(), 65);
    assert!(
        plain.err.contains("--shared or --exclusive"),
        "{}",
        plain.err
    );
    let writer = script(&real, "--exclusive", "echo got");
    real.wait_for_waits(1);
    for reader in [one, two] {
        reader.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(reader.end().code(), 143);
    }
    assert_eq!(writer.end().ok(), "got\n");
}

#[test]
fn what_the_command_leaves_running_is_without_the_lock() {
    let real = TestServer::start();
    let run = script(&real, "", "sleep 100 >/dev/null 2>&1 & echo $!");
    let left = run.line();
    assert_eq!(run.end().code(), 0);
    assert!(crate::program::is_alive(&left));
    assert!(real.conn().line("LOCK.INFO k").is_nil());
    let left = nix::unistd::Pid::from_raw(left.parse().expect("a pid"));
    nix::sys::signal::kill(left, nix::sys::signal::Signal::SIGKILL).expect("a signal");
}

#[test]
fn names_are_any_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let real = TestServer::start();
    let key = b"\xff\x1b[31m \n";
    let args = ["run", "--verbose", "--owner", "o\u{7f}", "--"].map(OsStr::new);
    let after = [
        OsStr::from_bytes(key),
        OsStr::new("sh"),
        OsStr::new("-c"),
        OsStr::new("printf %s \"$LOCK_KEY\" | od -An -tx1"),
    ];
    let end = crate::program::start_args(&real, args.into_iter().chain(after)).end();
    assert_eq!(end.out.trim(), "ff 1b 5b 33 31 6d 20 0a", "{}", end.err);
    assert!(
        end.err.contains("\\xff\\u{1b}[31m \\n: held"),
        "{}",
        end.err
    );
}

fn has_flock() -> bool {
    Command::new("flock").arg("--version").output().is_ok()
}

/// The environment says under which locks a process was started; whether they are held, the server says.
#[test]
fn a_lock_that_the_environment_names_is_one_only_while_it_is_held() {
    let real = TestServer::start();
    let mut conn = real.conn();
    let told = script(&real, "--owner me", "echo $LOCK_HELD").end().ok();
    let below = |options: &str| {
        let mut command = program(&real);
        // A busy server has ten seconds to say who holds the lock.
        let words = ["run", "--timeout", "200"].into_iter();
        let words = words.chain(options.split_whitespace());
        let words = words.chain(["k", "echo", "inner"]);
        Running::of(command.args(words).env("LOCK_HELD", told.trim())).end()
    };
    // The run above has ended: the lock is free, and then another's.
    for options in ["-n", "-n --reentrant"] {
        assert_eq!(below(options).ok(), "inner\n", "{options}");
    }
    assert!(conn.line("EXISTS k").int() == 0);
    for owner in ["other", "me"] {
        conn.line(&format!("LOCK.ACQUIRE k {owner} PX 600000"));
        for options in ["-n", "-n --reentrant"] {
            assert_eq!(below(options).code(), 1, "{options} beside {owner}");
        }
        conn.line(&format!("LOCK.RELEASE k {owner}"));
    }
    // The run above has lost it, and goes on.
    let inner = format!("'{PROGRAM}' run -n --reentrant k echo inner; echo $?");
    let steal =
        format!("'{PROGRAM}' break k >&2; '{PROGRAM}' acquire --owner other k >&2; {inner}");
    assert_eq!(script(&real, "--keep", &steal).end().out, "1\n");
    conn.line("LOCK.RELEASE k other");
    // The server does not say who holds it.
    let silent = format!("'{PROGRAM}' run -n k echo inner; echo $?");
    conn.line("ACL SETUSER default -lock.info");
    let end = script(&real, "", &silent).end();
    assert_eq!(end.out, "64\n");
    let silent = silent.replace("-n", "-n --reentrant");
    let end = script(&real, "", &silent).end();
    assert_eq!(end.out, "77\n");
    assert!(end.err.contains("+lock.info"), "{}", end.err);
}

/// A lock for several holders is waited for only where this program's own holds are in the way.
/// The variables of the outer run stay, and those of all are in LOCK_HELD.
#[test]
fn a_run_below_another_has_variables_of_its_own_by_a_prefix() {
    let real = TestServer::start();
    let names = "echo $LOCK_KEY $IN_LOCK_KEY $IN_LOCK_KEY_HEX ${IN_LOCK_HELD-none}
        test $LOCK_TOKEN -lt $IN_LOCK_TOKEN; echo $?; echo $LOCK_OWNER $IN_LOCK_OWNER; set -- $LOCK_HELD; echo $#";
    let inner = [
        PROGRAM, "run", "--prefix", "IN_", "--owner", "in", "j", "--", "sh", "-c", names,
    ];
    let outer = ["run", "--owner", "out", "k", "--"];
    let end = start_args(&real, outer.into_iter().chain(inner)).end();
    assert_eq!(end.ok(), "k j 6a none\n0\nout in\n2\n");
    // The wait for itself is refused whatever the names are.
    let below = |owner: &'static str| {
        let outer = ["run", "--prefix", "OUT_", "--owner", "out", "k", "--"];
        let inner = [PROGRAM, "run", "-n", "--owner", owner, "k", "--", "true"];
        start_args(&real, outer.into_iter().chain(inner))
            .end()
            .code()
    };
    // The release of the same owner would be that of both.
    assert_eq!((below("out"), below("in")), (64, 64));
}

#[test]
fn a_shared_lock_or_a_permit_below_ones_own_is_a_wait_for_itself_where_no_other_can_end_it() {
    let real = TestServer::start();
    let inner = |options: &str| format!("'{PROGRAM}' run {options} k echo inner; echo $?");
    for (above, below, out) in [
        ("-x", "--shared", "64\n"),
        ("--shared", "-x", "64\n"),
        ("--shared", "--shared", "inner\n0\n"),
        ("--permits 1", "--permits 1", "64\n"),
        ("--permits 2", "--permits 2", "inner\n0\n"),
    ] {
        assert_eq!(
            script(&real, above, &inner(below)).end().out,
            out,
            "{above}, {below}"
        );
        real.conn().line("FLUSHALL");
    }
    let third = inner(&format!("--permits 2 k -- '{PROGRAM}' run --permits 2"));
    assert_eq!(script(&real, "--permits 2", &third).end().out, "64\n");
}

#[test]
fn a_run_below_a_run_of_the_same_key_is_refused_or_takes_no_hold() {
    let real = TestServer::start();
    let nested = |options: &str| {
        let inner = format!("'{PROGRAM}' run {options} k echo inner; echo $?");
        script(&real, "--owner me", &inner).end()
    };
    for options in ["", "-n", "--wait 1", "--owner other", "--owner me"] {
        let end = nested(options);
        assert_eq!(end.out, "64\n", "{options}");
        assert!(end.err.contains("would wait for itself"), "{}", end.err);
    }
    assert_eq!(nested("--reentrant").ok(), "inner\n0\n");
    // Another server, another key, another kind of hold.
    let server = TestServer::start();
    let other = format!(
        "'{PROGRAM}' run --server {} k echo inner; echo $?",
        url(&server)
    );
    assert_eq!(script(&real, "", &other).end().ok(), "inner\n0\n");
    let other = format!("'{PROGRAM}' run j echo inner; echo $?");
    assert_eq!(script(&real, "", &other).end().ok(), "inner\n0\n");
    let shared = format!("'{PROGRAM}' run --shared k echo inner; echo $?");
    assert_eq!(script(&real, "--shared", &shared).end().ok(), "inner\n0\n");
    // With another lock between them; and a lock for several commands waits no less.
    for inner in [
        format!("run -n j '{PROGRAM}' run k echo never"),
        "acquire k".into(),
    ] {
        let end = script(&real, "", &format!("'{PROGRAM}' {inner}; echo $?")).end();
        assert_eq!(end.out, "64\n", "{}", end.err);
    }
    // Under another name of the server; and a permit.
    for (outer, inner) in [
        ("", ""),
        ("--and j", "--and i"),
        ("--permits 1", "--permits 1"),
    ] {
        let server = format!("redis://localhost:{}", real.port);
        let inner = format!("'{PROGRAM}' run {inner} --server {server} k echo never; echo $?");
        let end = script(&real, outer, &inner).end();
        assert_eq!(end.out, "64\n", "{}", end.err);
    }
    assert_eq!(
        start_args(&real, ["run", "", "--", "echo", "outer"])
            .end()
            .ok(),
        "outer\n"
    );
}

#[test]
fn a_wait_says_what_it_waits_for() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("CLIENT SETNAME nightly");
    conn.line("LOCK.ACQUIRE k holder");
    let mut before = real.conn();
    before.send_line("LOCK.ACQUIRE k first BLOCK 0");
    real.wait_for_waits(1);
    let run = script(&real, "", "echo ran");
    let said = run.complaint();
    assert!(said.starts_with("redis-lock: k: waiting for "), "{said}");
    assert!(
        said.contains(", held by holder, token ") && said.contains("(nightly)"),
        "{said}"
    );
    assert!(said.ends_with("; 1 before this one"), "{said}");
    let quiet = script(&real, "-q --wait 1.5", "").end();
    assert_eq!((quiet.code(), quiet.err.as_str()), (1, ""));
    let at_once = script(&real, "-n -v", "").end();
    assert!(
        at_once.err.contains("not to be had: held by holder, "),
        "{}",
        at_once.err
    );
    conn.line("LOCK.RELEASE k holder");
    conn.line("LOCK.RELEASE k first");
    assert_eq!(run.end().ok(), "ran\n");
}
