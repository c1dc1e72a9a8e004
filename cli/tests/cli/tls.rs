//! Over TLS, with certificates of both sides; where the server can.

use std::process::Command;

use redis_lock_harness::{free_port, tls, TestServer};

use crate::program::{Running, PROGRAM};

/// A server's certificate that is trusted itself, without an authority.
#[test]
fn a_certificate_may_vouch_for_itself() {
    let plain = TestServer::start();
    let dir = plain.dir().join("own");
    std::fs::create_dir(&dir).expect("a directory");
    let can = !plain.conn().line("CONFIG GET tls-port").list().is_empty();
    if !can {
        eprintln!("not run: no TLS in this server");
        return;
    }
    for (name, host, is_expired) in [
        ("own", "127.0.0.1", false),
        ("other", "127.0.0.1", false),
        ("named", "example.com", false),
        ("old", "127.0.0.1", true),
    ] {
        tls::self_signed(&dir, name, host, is_expired);
    }
    let cases = [
        ("own", "own", 0, ""),
        ("own", "other", 64, "CaUsedAsEndEntity"),
        ("named", "named", 64, "not valid for name"),
        ("old", "old", 64, "certificate expired"),
    ];
    for (shown, trusted, status, why) in cases {
        let port = free_port();
        let options = tls::options_of(port, &dir, shown, shown, "no");
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let real = TestServer::with(&options);
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--server", &format!("rediss://127.0.0.1:{port}")]);
        let believed = dir.join(format!("{trusted}.crt"));
        command.arg("--cacert").arg(believed).args(["k", "true"]);
        let end = Running::of(&mut command).end();
        assert_eq!(end.code(), status, "{shown} {trusted}: {}", end.err);
        assert!(end.err.contains(why), "{shown} {trusted}: {}", end.err);
        assert_eq!(real.stat("grants"), u64::from(status == 0));
    }
}

#[test]
fn both_sides_show_certificates() {
    let plain = TestServer::start();
    let dir = plain.dir().join("certificates");
    std::fs::create_dir(&dir).expect("a directory");
    let can = !plain.conn().line("CONFIG GET tls-port").list().is_empty();
    if !can {
        eprintln!("not run: no TLS in this server");
        return;
    }
    tls::issue(&dir, &["own"]);
    tls::self_signed(&dir, "other", "127.0.0.1", false);
    let file = |name: &str| dir.join(name).display().to_string();
    let (cert, key, ca) = (file("own.crt"), file("own.key"), file("ca.crt"));
    let port = free_port();
    let options = tls::options_of(port, &dir, "own", "ca", "yes");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let real = TestServer::with(&options);
    let url = format!("rediss://127.0.0.1:{port}");
    let run = |options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .env("REDIS_LOCK_URL", &url)
            .args(["run"])
            .args(options);
        Running::of(command.args(["k", "--", "sh", "-c", "echo $LOCK_TOKEN"])).end()
    };
    let token = run(&["--cacert", &ca, "--cert", &cert, "--key", &key]).ok();
    assert!(token.trim().parse::<u64>().is_ok(), "{token}");
    assert_eq!(real.stat("grants"), 1);
    let other = file("other.crt");
    for options in [
        &["--cacert", &ca][..],
        &["--cacert", &other, "--cert", &cert, "--key", &key],
        &[
            "--cacert",
            &ca,
            "--cert",
            &other,
            "--key",
            &file("other.key"),
        ],
        &[],
    ] {
        let end = run(options);
        assert_eq!(
            (end.code(), end.out.as_str()),
            (64, ""),
            "{options:?}: {}",
            end.err
        );
        let asks = options == ["--cacert", &ca];
        let says = end.err.contains("asks for a client's certificate");
        assert_eq!(says, asks, "{options:?}: {}", end.err);
    }
    assert_eq!(real.stat("grants"), 1);
}
