//! TLS, users, sockets: how a server may be reached.

use std::path::Path;
use std::process::Command;

use redis_lock_client::{Certificates, Error, Lock, Released, Server};
use redis_lock_harness::{free_port, server_binary, tls, TestServer};

use crate::servers::{at, patient, PATIENT};
use crate::{lock, until_free, LEASE};

/// Whether the server was built with TLS: otherwise it does not know the setting.
fn has_tls() -> bool {
    let output = Command::new(server_binary())
        .args(["--tls-port", "0", "--no-such-setting", "1"])
        .output()
        .unwrap();
    !String::from_utf8_lossy(&output.stderr).contains("tls-port")
}

fn read(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(name)).unwrap()
}

/// A server with TLS, and its TLS port.
fn tls_server(dir: &Path, clients: &str) -> (TestServer, u16) {
    tls::issue(dir, &["server", "client"]);
    let port = free_port();
    let options = tls::options_of(port, dir, "server", "ca", clients);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let real = TestServer::with(&options);
    (real, port)
}

fn tls_client(port: u16, certificates: Certificates) -> Server {
    let server = Server::builder(&format!("rediss://127.0.0.1:{port}"));
    let server = server.certificates(certificates);
    server.response_timeout(PATIENT).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_certificate_by_an_authority_of_ones_own() {
    if !has_tls() {
        return eprintln!("skipped: the server was built without TLS");
    }
    let dir = tempfile::tempdir().unwrap();
    let (real, port) = tls_server(dir.path(), "no");
    let believed = Certificates::new().authorities(read(dir.path(), "ca.crt"));
    let guard = lock(&tls_client(port, believed)).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    // An untrusted certificate is an error at once: this wait has no limit.
    let stranger = patient(&format!("rediss://127.0.0.1:{port}"));
    let error = lock(&stranger).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error}");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_the_clients_certificate() {
    if !has_tls() {
        return eprintln!("skipped: the server was built without TLS");
    }
    let dir = tempfile::tempdir().unwrap();
    let (real, port) = tls_server(dir.path(), "yes");
    let believed = Certificates::new().authorities(read(dir.path(), "ca.crt"));
    let certificate = read(dir.path(), "client.crt");
    let known = believed
        .clone()
        .client(certificate, read(dir.path(), "client.key"));
    let holder = lock(&tls_client(port, known));
    let guard = holder.acquire().await.unwrap();
    let unknown = lock(&tls_client(port, believed));
    let error = unknown.acquire().await.unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error}");
    let broken = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----";
    for nonsense in [broken, "no PEM", ""] {
        let nonsense = Certificates::new().authorities(nonsense);
        let error = lock(&tls_client(port, nonsense)).acquire().await;
        assert!(matches!(error, Err(Error::Config { .. })), "{error:?}");
    }
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

/// What the crate needs, and nothing else.
const RULES: &str = "+lock.acquire +lock.renew +lock.release ~jobs:*";

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_do_what_is_needed_and_nothing_else() {
    let real = TestServer::start();
    let mut admin = real.conn();
    let made = admin.line(&format!("ACL SETUSER app reset on >p@ss:w/rd {RULES}"));
    assert_eq!(made.text(), "OK");
    let url = |user: &str| format!("redis://{user}@127.0.0.1:{}", real.port);
    let app = patient(&url("app:p%40ss%3Aw%2Frd"));
    assert!(!app.name().contains("app") && !format!("{app:?}").contains("p%40"));
    let lock = Lock::new(&app, "jobs:1").lease(LEASE);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);

    let refused = |result: Result<_, Error>| match result {
        Err(Error::Refused { code, .. }) => code,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("not refused"),
    };
    let elsewhere = Lock::new(&app, "other");
    assert_eq!(refused(elsewhere.acquire().await.map(drop)), "NOPERM");
    let stranger = patient(&url("app:wrong"));
    let result = Lock::new(&stranger, "jobs:1").acquire().await;
    assert_eq!(refused(result.map(drop)), "WRONGPASS");
    admin.line("ACL SETUSER default off");
    let without_login = patient(&format!("redis://127.0.0.1:{}", real.port));
    let result = Lock::new(&without_login, "jobs:1").acquire().await;
    assert_eq!(refused(result.map(drop)), "NOAUTH");
    admin.line("ACL SETUSER default on");
}

/// What is refused at the login is refused on any other connection, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_costs_one_connection() {
    let real = TestServer::start();
    let mut conn = real.conn();
    for user in [
        "ACL SETUSER app on >secret ~* +lock.acquire",
        "ACL SETUSER gone off >secret",
    ] {
        assert_eq!(conn.line(user).text(), "OK");
    }
    let mut received = || {
        let stats = conn.line("INFO stats").text();
        let (_, count) = stats.split_once("total_connections_received:").unwrap();
        count.lines().next().unwrap().parse::<u64>().unwrap()
    };
    for (login, place, what) in [
        ("app:wrong@", "", "WRONGPASS"),
        ("gone:secret@", "", "WRONGPASS"),
        (
            "app:secret@",
            "/3",
            "no permissions to run the 'select' command",
        ),
        ("", "/99", "DB index is out of range"),
    ] {
        let server = patient(&format!("redis://{login}127.0.0.1:{}{place}", real.port));
        for lock in [lock(&server), lock(&server).session()] {
            let before = received();
            let error = lock.acquire().await.unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            assert_eq!(received() - before, 1, "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_by_its_socket_and_a_database_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket").to_string_lossy().into_owned();
    let real = TestServer::with(&["--unixsocket", &socket]);
    let server = patient(&format!("redis+unix://{socket}?db=3"));
    assert_eq!(server.name(), format!("{socket}/3"));
    let guard = lock(&server).acquire().await.unwrap();
    let mut conn = real.conn();
    conn.line("SELECT 3");
    assert_eq!(conn.line("EXISTS k").int(), 1);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_port_that_speaks_something_else_asks_whether_it_does() {
    const HINT: &str = "does the port speak Redis, and TLS only for rediss://?";
    let refusal = |url: String| async move {
        let server = patient(&url);
        let lock = lock(&server);
        lock.acquire().await.unwrap_err().to_string()
    };
    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = web.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in web.incoming() {
            let mut socket = socket.unwrap();
            let _ = std::io::Read::read(&mut socket, &mut [0; 1024]);
            let answer = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
            let _ = std::io::Write::write_all(&mut socket, answer);
        }
    });
    let error = refusal(format!("redis://127.0.0.1:{port}")).await;
    assert!(error.contains(HINT), "{error}");
    let error = refusal(format!("rediss://127.0.0.1:{port}")).await;
    assert!(error.contains(HINT), "{error}");

    if !has_tls() {
        println!("not run: this server was built without TLS");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_real, port) = tls_server(dir.path(), "no");
    let error = refusal(format!("redis://127.0.0.1:{port}")).await;
    assert!(error.contains(HINT), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_credentials_is_asked_for_each_connection() {
    let real = TestServer::start();
    let made = "ACL SETUSER app on >first ~* +lock.acquire +lock.renew +lock.release";
    assert_eq!(real.conn().line(made).text(), "OK");
    let password = std::sync::Arc::new(std::sync::Mutex::new("first"));
    let source = password.clone();
    let source = move || (Some("app".into()), source.lock().unwrap().to_string());
    let server = at(real.port).credentials(source);
    let server = server.response_timeout(PATIENT);
    let server = server.build().unwrap();
    let guard = lock(&server).acquire().await.unwrap();
    real.conn().line("ACL SETUSER app <first >second");
    *password.lock().unwrap() = "second";
    real.conn().line("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    *password.lock().unwrap() = "wrong";
    real.conn().line("CLIENT KILL TYPE normal SKIPME yes");
    let error = lock(&server).acquire().await.unwrap_err();
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
}
