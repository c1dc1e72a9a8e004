//! The program of clients/rust/README.md, and the lines of docs/REDLOCK.md, as they stand there: each in a new package,
//! with the lines for `Cargo.toml` of clients/rust/README.md, beside a clone that is called `redis-lock`. Only the
//! address of the server is replaced. A warning of the compiler is a failure.

use std::path::Path;
use std::process::Command;

use redis_lock_harness::page::{block, root};
use redis_lock_harness::process::tame;
use redis_lock_harness::TestServer;

use crate::program::Running;

/// As `cargo new` begins it; outside of every workspace.
const PACKAGE: &str = "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n";

/// What docs/REDLOCK.md leaves out around its lines.
const AROUND: [&str; 2] = [
    "use redis_lock_client::{Error, RedLock, Server};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
",
    "    Ok(())
}

async fn work(_: Vec<(String, u64)>) {}
",
];

const PAGE: &str = "clients/rust/README.md";

/// Builds a program; nothing is fetched: what it needs the client needs, too.
fn build(place: &Path, program: &str) {
    let app = place.join("app");
    std::fs::create_dir_all(app.join("src")).expect("a directory");
    let dependencies = block(PAGE, "toml", "[dependencies]").text;
    std::fs::write(app.join("Cargo.toml"), format!("{PACKAGE}{dependencies}")).expect("a file");
    std::fs::write(app.join("src/main.rs"), program).expect("a file");
    std::fs::copy(root().join("Cargo.lock"), app.join("Cargo.lock")).expect("a file");
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(["build", "--quiet", "--offline"])
        .current_dir(&app);
    // Kept from run to run: the crates below take a while.
    cargo.env(
        "CARGO_TARGET_DIR",
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("samples"),
    );
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
    let built = tame(&mut cargo).output().expect("cargo");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && said.is_empty(), "{said}");
}

#[test]
fn the_programs_of_the_pages_build_and_lock() {
    let real = TestServer::start();
    let place = tempfile::tempdir().expect("a directory");
    let clone = root().canonicalize().expect("this clone");
    std::os::unix::fs::symlink(clone, place.path().join("redis-lock")).expect("a link");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("samples/debug/app");
    let text = block(PAGE, "rust", "use redis_lock_client").text;
    assert!(text.contains("127.0.0.1:6379"), "{text}");
    let text = text.replace("127.0.0.1:6379", &format!("127.0.0.1:{}", real.port));
    build(place.path(), &text);
    let end = Running::of(&mut Command::new(&program)).end();
    assert!(end.ok().starts_with("working under token "));
    assert_eq!((real.stat("grants"), real.stat("grants_released")), (1, 1));
    let lines = block("docs/REDLOCK.md", "rust", "let servers").text;
    build(place.path(), &[AROUND[0], &lines, AROUND[1]].concat());
}
