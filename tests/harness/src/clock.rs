//! Servers whose wall clock is wrong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{replace_file, TestServer};

/// From its next start on, the server's wall clock differs from the real one as [`set_clock`] says.
pub fn fake_clock(server: &mut TestServer) {
    let file = clock_file(server);
    share_clock(server, &file);
}

/// From its next start on, the server's wall clock follows this file, which servers may share.
pub fn share_clock(server: &mut TestServer, file: &Path) {
    // A list of LD_PRELOAD is separated by spaces and colons, and the path of the clone may contain them: the loader
    // resolves the path relative to the directory in which the server is started.
    let link = server.dir().join("clock_shim.so");
    if std::fs::symlink_metadata(&link).is_err() {
        std::os::unix::fs::symlink(shim(), &link).expect("a link");
    }
    server.set_env("LD_PRELOAD", "./clock_shim.so");
    server.set_env("LOCK_TEST_CLOCK", &file.to_string_lossy());
}

/// The wall clock of this command, and of what it starts, differs from the real one by the seconds in the returned
/// file, which is in this directory, as is the command's working directory.
pub fn clock_of(command: &mut Command, dir: &Path) -> PathBuf {
    std::os::unix::fs::symlink(shim(), dir.join("clock_shim.so")).expect("a link");
    let file = dir.join("clock");
    write(&file, "0");
    command
        .current_dir(dir)
        .env("LD_PRELOAD", "./clock_shim.so");
    command.env("LOCK_TEST_CLOCK", &file);
    file
}

/// Stops the clock of this file at this time.
pub fn stop_clock(file: &Path, milliseconds: i64) {
    write(file, &format!("={milliseconds}"));
}

/// Sets the difference of a server's clock to the real one; the server may be running.
pub fn set_clock(server: &TestServer, seconds_off: i64) {
    write(&clock_file(server), &seconds_off.to_string());
}

/// The server reads it all the time.
fn write(file: &Path, text: &str) {
    replace_file(file, text.as_bytes()).expect("a file");
}

fn clock_file(server: &TestServer) -> PathBuf {
    server.dir().join("clock")
}

/// The library that is preloaded. (Debian's libfaketime hangs in the start of jemalloc.)
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| build("clock_shim"))
}

/// Compiles a library to preload, next to the test program, which is somewhere below target. It is compiled again when
/// its source is newer.
pub(crate) fn build(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{name}.rs"));
    let program = std::env::current_exe().expect("a program");
    let library = program.with_file_name(format!("{name}.so"));
    let changed = |file: &Path| std::fs::metadata(file).and_then(|file| file.modified());
    let present = changed(&library).ok();
    if present.is_some_and(|built| built > changed(&source).expect("the source")) {
        return library;
    }
    // In a directory of its own: the compiler's intermediate files have the same names in every run, and other tests
    // may be building the library at the same time. The rename leaves the file of running servers as it is.
    let place = tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory");
    let built = place.path().join("shim.so");
    let status = Command::new("rustc")
        .args(["--edition", "2021", "--crate-type", "cdylib"])
        .args(["-O", "-C", "panic=abort", "-o"])
        .args([&built, &source])
        .status();
    assert!(status.expect("rustc").success(), "the shim does not build");
    std::fs::rename(&built, &library).expect("the shim in its place");
    library
}
