//! What goes to standard output.

use std::io::{self, Write};

use crate::failure::{Failure, OS};

/// Lines of it. A reader that has seen enough (`| head`) is no failure.
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
