//! Over TLS, with certificates of both sides; where the server can and openssl(1) is there to make them.

use std::path::Path;
use std::process::{Command, Stdio};

use redis_lock_harness::{free_port, TestServer};

use crate::program::{Running, PROGRAM};

/// An authority, and a certificate of 127.0.0.1 by it. False where openssl is not to be had.
fn certify(dir: &Path) -> bool {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let names = "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let lines = [
        format!("req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority -days 2"),
        format!("req {key} -keyout own.key -out own.csr -subj /CN=own {names}"),
        "x509 -req -in own.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out own.crt".into(),
        format!("req -x509 {key} -keyout other.key -out other.crt -subj /CN=other -days 2"),
    ];
    lines.iter().all(|line| {
        let mut openssl = Command::new("openssl");
        openssl.args(line.split_whitespace()).current_dir(dir);
        let quiet = openssl.stdout(Stdio::null()).stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    })
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
    let options = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ];
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
    }
    assert_eq!(real.stat("grants"), 1);
}
