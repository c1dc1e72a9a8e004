//! Standard output.

use std::io::{self, Write};

use crate::failure::{Failure, OS};

/// Prints lines. A reader that closes the pipe (`| head`) is not a failure.
pub fn print(lines: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for line in lines {
        match writeln!(out, "{line}") {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => crate::failure::exit(0),
            Err(error) => return Err(Failure::new(OS, error)),
        }
    }
    Ok(())
}
