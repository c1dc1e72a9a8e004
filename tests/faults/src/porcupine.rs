//! The gate: Porcupine searches for an order of a history's operations that the documentation allows. It is the program
//! of tests/linearizability, which `make porcupine` builds.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::export;
use crate::history::History;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/porcupine");

/// Where the histories are that are refused.
const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/faults/histories");

/// The longest search of one model.
const LIMIT: &str = "-limit=10s";

/// The judge of the histories of some runs.
#[derive(Debug, Default)]
pub struct Porcupine {
    /// The directory in which all histories stay. Without it only those that are refused stay.
    pub keeps: Option<PathBuf>,
}

/// What Porcupine says of a history.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Verdict {
    /// The history was not judged.
    #[default]
    None,
    Accepted,
    /// The searches that reached their limit.
    Undecided(String),
    /// The models that refuse it, and why.
    Refused(String),
}

impl Porcupine {
    /// Judges a history; the file has this name, which no other history that is judged at the same time has.
    ///
    /// # Errors
    /// The file cannot be written, or the program does not run.
    pub fn judge(&self, history: &History, name: &str) -> std::io::Result<Verdict> {
        let dir = self.keeps.as_deref().unwrap_or(Path::new(DIR));
        let path = dir.join(format!("{name}.jsonl"));
        export::write(history, name, None, &path)?;
        let output = Command::new(PROGRAM).arg(LIMIT).arg(&path).output();
        let output = output.map_err(|error| {
            std::io::Error::new(error.kind(), format!("{PROGRAM} (make porcupine): {error}"))
        })?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        let verdict = match output.status.code() {
            Some(0) if text.contains("NOT DECIDED") => Verdict::Undecided(text),
            Some(0) => Verdict::Accepted,
            Some(1) => return Ok(Verdict::Refused(text)),
            _ => {
                let error = String::from_utf8_lossy(&output.stderr);
                return Err(std::io::Error::other(format!("{PROGRAM}: {error}")));
            }
        };
        match self.keeps {
            Some(_) => Ok(verdict),
            None => std::fs::remove_file(path).map(|()| verdict),
        }
    }
}
