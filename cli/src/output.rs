//! Standard output.

use std::future::pending;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::exit;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use tokio::sync::oneshot;

use crate::escape;
use crate::failure::{Failure, OS};
use crate::os::is_mute;

/// Fails where nothing can be printed.
pub fn must_be_open() -> Result<(), Failure> {
    match is_mute() {
        true => Err(Failure::new(OS, "standard output is closed")),
        false => Ok(()),
    }
}

/// Prints lines. A reader that closes the pipe (`| head`) is not a failure.
pub fn print(lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    must_be_open()?;
    let mut out = io::stdout().lock();
    for line in lines {
        match writeln!(out, "{line}") {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit(0),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Rows of cells with columns as wide as their cells.
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(escape::width(cell));
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| cell.clone() + &" ".repeat(width + 2 - escape::width(cell)))
            .collect();
        line.trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

/// Returns when the reader of standard output has closed the pipe. A file has no reader: then it never returns.
pub async fn closed() {
    let (sender, receiver) = oneshot::channel();
    // Without a thread, the next line finds it.
    let _ = std::thread::Builder::new().spawn(move || {
        let out = io::stdout();
        // Errors are reported without being asked for.
        let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
        while poll(&mut polled, PollTimeout::NONE) == Err(Errno::EINTR) {}
        let [out] = polled;
        if out
            .revents()
            .is_some_and(|seen| seen.contains(PollFlags::POLLERR))
        {
            let _ = sender.send(());
        }
    });
    if receiver.await.is_err() {
        pending().await
    }
}
