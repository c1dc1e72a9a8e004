//! Over TLS, with certificates of both sides; where the server can and openssl(1) is there to make them.

use std::path::Path;
use std::process::{Command, Stdio};

use redis_lock_harness::{free_port, TestServer};

use crate::program::{Running, PROGRAM};

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn openssl(dir: &Path, line: &str) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(line.split_whitespace()).current_dir(dir);
    let quiet = openssl.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// An authority, and a certificate of 127.0.0.1 by it. False where openssl is not to be had.
fn certify(dir: &Path) -> bool {
    let names = "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let lines = [
        format!("req -x509 {KEY} -keyout ca.key -out ca.crt -subj /CN=authority -days 2"),
        format!("req {KEY} -keyout own.key -out own.csr -subj /CN=own {names}"),
        "x509 -req -in own.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out own.crt".into(),
        format!("req -x509 {KEY} -keyout other.key -out other.crt -subj /CN=other -days 2"),
    ];
    lines.iter().all(|line| openssl(dir, line))
}

/// The options of a server at this port, with this certificate and key, which trusts this authority.
fn with_tls<'a>(port: &'a str, cert: &'a str, key: &'a str, ca: &'a str) -> [&'a str; 8] {
    [
        "--tls-port",
        port,
        "--tls-cert-file",
        cert,
        "--tls-key-file",
        key,
        "--tls-ca-cert-file",
        ca,
    ]
}

/// A server's certificate that is trusted itself, without an authority.
#[test]
fn a_certificate_may_vouch_for_itself() {
    let plain = TestServer::start();
    let dir = plain.dir().join("own");
    std::fs::create_dir(&dir).expect("a directory");
    let can = !plain.conn().line("CONFIG GET tls-port").list().is_empty();
    let made = |name: &str, names: &str, days: i32| {
        let names =
            format!("-addext subjectAltName={names} -addext basicConstraints=critical,CA:TRUE");
        let signed =
            format!("-req -in {name}.csr -signkey {name}.key -copy_extensions copy -days {days}");
        openssl(
            &dir,
            &format!("req {KEY} -keyout {name}.key -out {name}.csr -subj /CN=own {names}"),
        ) && openssl(&dir, &format!("x509 {signed} -out {name}.crt"))
    };
    if !can || !made("own", "IP:127.0.0.1", 2) {
        eprintln!("not run: no TLS in this server, or no openssl");
        return;
    }
    assert!(made("other", "IP:127.0.0.1", 2) && made("named", "DNS:example.com", 2));
    assert!(made("old", "IP:127.0.0.1", -1));
    let cases = [
        ("own", "own", 0, ""),
        ("own", "other", 64, "CaUsedAsEndEntity"),
        ("named", "named", 64, "not valid for name"),
        ("old", "old", 64, "Expired"),
    ];
    let file = |name: &str, kind: &str| dir.join(format!("{name}.{kind}")).display().to_string();
    for (shown, trusted, status, why) in cases {
        let port = free_port().to_string();
        let (cert, key) = (file(shown, "crt"), file(shown, "key"));
        let options = with_tls(&port, &cert, &key, &cert);
        let options = [&options[..], &["--tls-auth-clients", "no"]].concat();
        let real = TestServer::with(&options);
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--server", &format!("rediss://127.0.0.1:{port}")]);
        command.args(["--cacert", &file(trusted, "crt"), "k", "true"]);
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
    if !can || !certify(&dir) {
        eprintln!("not run: no TLS in this server, or no openssl");
        return;
    }
    let file = |name: &str| dir.join(name).display().to_string();
    let (port, cert, key, ca) = (
        free_port().to_string(),
        file("own.crt"),
        file("own.key"),
        file("ca.crt"),
    );
    let real = TestServer::with(&with_tls(&port, &cert, &key, &ca));
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
