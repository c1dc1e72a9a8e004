//! The report: sections with one table each, printed as aligned text while the benchmark runs and written together to
//! `docs/BENCHMARKS.md`, below a header with the environment and the method of the measurement.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{cores, Server};

/// One table of the report and its notes.
pub struct Section {
    /// The heading.
    pub title: String,
    /// The method, in a few sentences.
    pub text: String,
    /// The table's head; the first column is a name, all others are figures.
    pub columns: Vec<String>,
    /// The table's body.
    pub rows: Vec<Vec<String>>,
    /// Below the table, one item each.
    pub notes: Vec<String>,
    /// A picture of the table, as a path relative to `docs/`.
    pub image: Option<String>,
}

impl Section {
    /// The text for a terminal.
    pub fn plain(&self) -> String {
        let mut out = format!("\n{}\n{}\n", self.title, self.text);
        if !self.columns.is_empty() {
            let widths = self.widths();
            for row in std::iter::once(&self.columns).chain(&self.rows) {
                let _ = writeln!(out, "  {}", aligned(row, &widths).trim_end());
            }
        }
        for note in &self.notes {
            let _ = writeln!(out, "  - {note}");
        }
        out
    }

    /// The text for the document.
    pub fn markdown(&self) -> String {
        let mut out = format!("\n## {}\n\n{}\n", self.title, self.text);
        if let Some(image) = &self.image {
            let _ = write!(out, "\n![{}]({image})\n", self.title);
        }
        if !self.columns.is_empty() {
            let rule: String = (1..self.columns.len()).map(|_| "---:|").collect();
            let _ = write!(out, "\n{}|---|{rule}\n", cells(&self.columns));
            self.rows.iter().for_each(|row| out += &cells(row));
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(out, "- {note}");
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = std::iter::once(&self.columns)
                .chain(&self.rows)
                .filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }
}

/// The first cell is left-aligned, the others right-aligned.
fn aligned(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        let _ = match index {
            0 => write!(line, "{cell:<width$}"),
            _ => write!(line, "  {cell:>width$}"),
        };
    }
    line
}

fn cells(row: &[String]) -> String {
    format!("| {} |\n", row.join(" | ").replace('\n', " "))
}

/// The results of `make bench-redisson` are between these marks, at the end of the document.
const REDISSON: [&str; 2] = ["<!-- redisson -->", "<!-- end of redisson -->"];

/// Writes the document to a path below the project, and keeps Redisson's section; `effort` says how long and how often
/// each point was measured.
pub fn write(path: &str, effort: &str, sections: &[Section]) -> io::Result<()> {
    let path = project().join(path);
    let body: String = sections.iter().map(Section::markdown).collect();
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let kept = redisson(&old).map_or(String::new(), |kept| format!("\n{kept}\n"));
    std::fs::write(path, wrapped(&(header(effort)? + &body)) + &kept)
}

/// The width of a line of prose.
const COLUMNS: usize = 120;

/// The document with its prose wrapped at [`COLUMNS`]; tables, headings and images keep their lines.
pub fn wrapped(document: &str) -> String {
    let mut out = String::new();
    for line in document.lines() {
        if line.starts_with(['|', '#', '!']) {
            out += line;
        } else {
            wrap(line, &mut out);
        }
        out.push('\n');
    }
    out
}

/// Appends a paragraph or a list item; further lines of an item are indented.
fn wrap(line: &str, out: &mut String) {
    let indent = if line.starts_with("- ") { "  " } else { "" };
    let mut width = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if width == 0 {
            width = length;
        } else if width + 1 + length <= COLUMNS {
            out.push(' ');
            width += 1 + length;
        } else {
            out.push('\n');
            *out += indent;
            width = indent.len() + length;
        }
        *out += word;
    }
}

/// Redisson's section of a document, with its marks.
fn redisson(document: &str) -> Option<&str> {
    let [begin, end] = REDISSON;
    let begin = document.find(begin)?;
    let length = document.get(begin..)?.find(end)? + end.len();
    document.get(begin..begin + length)
}

fn header(effort: &str) -> io::Result<String> {
    let server = Server::start(&[], &[], false)?.version()?;
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = cores();
    Ok(format!(
        "# Benchmarks\n\n\
         Measured by `make bench`, which rewrites this file; the last section, on Redisson itself, by \
         `make bench-redisson`. Each table has the figures of one run: compare rows with each other rather \
         than with another machine's. [PERFORMANCE.md](PERFORMANCE.md) has the reasons.\n\n\
         | | |\n|---|---|\n\
         | date | {} |\n\
         | server | {server} |\n\
         | module | {} |\n\
         | machine | {}, {cores} cores |\n\
         | kernel | {} |\n\
         | command line | `{}` |\n\
         | effort | {effort} |\n",
        output_of("date", &["-u", "+%Y-%m-%d"]),
        module_version(),
        cpu_model(&cpu).unwrap_or("unknown"),
        kernel(),
        command_line(),
    ))
}

/// The package's version and the commit, or what `LOCK_MODULE` names.
fn module_version() -> String {
    let version = include_str!("../../Cargo.toml")
        .lines()
        .find_map(|line| line.strip_prefix("version = "))
        .map_or("?", |version| version.trim_matches('"'));
    let commit = output_of("git", &["rev-parse", "--short", "HEAD"]);
    let other = std::env::var_os("LOCK_MODULE")
        .map(PathBuf::from)
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    match other {
        Some(file) => format!("{file}, given by LOCK_MODULE"),
        None => format!("redis_lock {version}, commit {commit}"),
    }
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// The command as typed, without the directory of the binary.
pub fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(binary) = words.first_mut() {
        let name = Path::new(binary.as_str()).file_name();
        *binary = name.unwrap_or_default().to_string_lossy().into_owned();
    }
    words.join(" ")
}

/// The kernel and its version, without its builder's suffix.
pub fn kernel() -> String {
    let system = output_of("uname", &["-sr"]);
    system.split('-').next().unwrap_or_default().into()
}

/// The output of a command, in one line; "unknown" if it cannot be run.
fn output_of(command: &str, args: &[&str]) -> String {
    let run = Command::new(command)
        .args(args)
        .current_dir(project())
        .output();
    match run {
        Ok(done) if done.status.success() => {
            String::from_utf8_lossy(&done.stdout).trim().to_string()
        }
        _ => "unknown".into(),
    }
}

/// The project's directory.
pub fn project() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        Section {
            title: "Pairs".into(),
            text: "One after the other.".into(),
            columns: row(["what", "µs"]),
            rows: vec![row(["the module", "7.2"]), row(["a", "12.25"])],
            notes: vec!["A note.".into()],
            image: Some("bench/pairs.svg".into()),
        }
    }

    #[test]
    fn a_terminal_gets_names_to_the_left_and_figures_to_the_right() {
        let text = "\nPairs\nOne after the other.\n  \
                    what           µs\n  \
                    the module    7.2\n  \
                    a           12.25\n  \
                    - A note.\n";
        assert_eq!(section().plain(), text);
    }

    #[test]
    fn the_document_gets_a_table_of_markdown() {
        let text = "\n## Pairs\n\nOne after the other.\n\n![Pairs](bench/pairs.svg)\n\n\
                    | what | µs |\n|---|---:|\n| the module | 7.2 |\n| a | 12.25 |\n\n- A note.\n";
        assert_eq!(section().markdown(), text);
    }

    #[test]
    fn a_section_without_a_table_has_none() {
        let section = Section {
            columns: Vec::new(),
            rows: Vec::new(),
            notes: Vec::new(),
            image: None,
            ..section()
        };
        assert_eq!(section.markdown(), "\n## Pairs\n\nOne after the other.\n");
    }

    #[test]
    fn prose_is_wrapped_and_tables_are_not() {
        let words = ["word"; 30].join(" ");
        let document = format!("- {words}\n| {words} |\n");
        let text = wrapped(&document);
        let lines: Vec<_> = text.lines().map(str::len).collect();
        assert_eq!(lines, [116, 36, 153]);
        assert!(text.contains("\n  word"));
    }

    #[test]
    fn the_section_between_the_marks_stays() {
        let kept = "<!-- redisson -->\n## Redisson\n<!-- end of redisson -->";
        let document = format!("# Benchmarks\n\n{kept}\n\nafter\n");
        assert_eq!(redisson(&document), Some(kept));
        assert_eq!(redisson("# Benchmarks\n"), None);
    }

    #[test]
    fn the_processor_has_a_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nflags\t: fpu\n";
        assert_eq!(cpu_model(text), Some("Some CPU @ 2.50GHz"));
        assert_eq!(cpu_model(""), None);
    }
}
