//! The report: sections with one table each, printed as aligned text while the benchmark runs and put into
//! `benches/results/servers.md` (see `document`), each table below a line that states the environment of its run.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::document::{end_mark, mark, Document, Tables};
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
    /// Below the table, one item each: findings of this run.
    pub remarks: Vec<String>,
    /// Below the tables of all servers: the method, and what the words mean.
    pub notes: Vec<String>,
    /// A picture of the table, as a path relative to the report.
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
        for note in self.remarks.iter().chain(&self.notes) {
            let _ = writeln!(out, "  - {note}");
        }
        out
    }

    /// A page's section with this table alone.
    pub fn markdown(&self) -> String {
        let lists = items(&self.remarks) + &items(&self.notes);
        format!(
            "\n## {}\n\n{}{}{lists}",
            self.title,
            self.intro(),
            self.figures()
        )
    }

    /// For the document: the table of one server, between the line that states its run and the remarks.
    pub fn table(&self, caption: &str) -> String {
        let table = format!("{caption}\n{}{}", self.figures(), items(&self.remarks));
        wrapped(&table).trim_end().into()
    }

    /// For the document: all below the heading, with the tables of all servers.
    pub fn body(&self, tables: &Tables) -> String {
        let mut out = wrapped(&self.intro());
        for (server, table) in tables {
            let _ = write!(out, "\n{}\n{table}\n{}\n", mark(server), end_mark(server));
        }
        out += &wrapped(&items(&self.notes));
        out.trim_end().into()
    }

    /// The text and the picture.
    fn intro(&self) -> String {
        let image = self.image.as_ref();
        let image = image.map(|image| format!("\n![{}]({image})\n", self.title));
        format!("{}\n{}", self.text, image.unwrap_or_default())
    }

    fn figures(&self) -> String {
        if self.columns.is_empty() {
            return String::new();
        }
        let rule: String = (1..self.columns.len()).map(|_| "---:|").collect();
        let rows: String = self.rows.iter().map(|row| cells(row)).collect();
        format!("\n{}|---|{rule}\n{rows}", cells(&self.columns))
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

/// A list below a table.
fn items(items: &[String]) -> String {
    let lines: String = items.iter().map(|item| format!("- {item}\n")).collect();
    match lines.as_str() {
        "" => String::new(),
        lines => format!("\n{lines}"),
    }
}

fn cells(row: &[String]) -> String {
    format!("| {} |\n", row.join(" | ").replace('\n', " "))
}

/// The environment of a run.
pub struct Run {
    /// The server's name and its release, under which the document keeps its tables: "redis 7.0".
    server: String,
    /// All of it, in a line.
    caption: String,
}

impl Run {
    /// The present environment; starts a server for its version.
    pub fn now() -> io::Result<Run> {
        let version = Server::start(&[], &[], false)?.version()?;
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let caption = format!(
            "**{version}**: {}; {}, {} cores, {}; {}",
            module_version(),
            cpu_model(&cpu).unwrap_or("unknown processor"),
            cores(),
            kernel(),
            output_of("date", &["-u", "+%Y-%m-%d"]),
        );
        Ok(Run {
            server: release(&version),
            caption,
        })
    }
}

/// "redis 7.0" of "redis 7.0.15".
pub fn release(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Puts the sections of a run into the document at a path below the project; `order` has the titles of all sections.
pub fn write(
    path: &str,
    method: &str,
    run: &Run,
    sections: &[Section],
    order: &[&str],
) -> io::Result<()> {
    let path = project().join(path);
    let mut document = Document::parse(&std::fs::read_to_string(&path).unwrap_or_default());
    for section in sections {
        document.put(section, &run.server, &run.caption, order);
    }
    std::fs::write(path, document.text(&header(method)))
}

fn header(method: &str) -> String {
    wrapped(&format!(
        "# Benchmarks\n\n\
         Measured by `make bench`; the last section, on Redisson itself, by `make bench-redisson`. A run of `make \
         bench` measures the servers of `SERVERS` (without it: this machine's) in the parts of `PART` (without it: \
         all), and replaces their tables here. So the tables of a section may come from several runs: above each is \
         its server, the module, the machine and the day. Compare the rows of one table rather than those of two: \
         on another day other guests of the machine can make it three times as slow, which a large ± shows. \
         Pictures show the first server. [PERFORMANCE.md](../../docs/PERFORMANCE.md) has the reasons.\n\n{method}"
    ))
}

/// The width of a line of prose.
const COLUMNS: usize = 120;

/// The document with its prose wrapped at [`COLUMNS`]; tables, headings, images and marks keep their lines.
pub fn wrapped(document: &str) -> String {
    let mut out = String::new();
    for line in document.lines() {
        if line.starts_with(['|', '#', '!', '<']) {
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
            remarks: vec!["A remark.".into()],
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
                    - A remark.\n  \
                    - A note.\n";
        assert_eq!(section().plain(), text);
    }

    #[test]
    fn the_document_gets_a_table_of_markdown() {
        let table = "**redis 7.0.15**\n\n\
                     | what | µs |\n|---|---:|\n| the module | 7.2 |\n| a | 12.25 |\n\n- A remark.";
        assert_eq!(section().table("**redis 7.0.15**"), table);
        let tables = Tables::from([("redis 7.0".into(), "table".into())]);
        let body = "One after the other.\n\n![Pairs](bench/pairs.svg)\n\n\
                    <!-- redis 7.0 -->\ntable\n<!-- end of redis 7.0 -->\n\n- A note.";
        assert_eq!(section().body(&tables), body);
    }

    #[test]
    fn a_page_gets_the_section_with_its_heading() {
        let text = "\n## Pairs\n\nOne after the other.\n\n![Pairs](bench/pairs.svg)\n\n\
                    | what | µs |\n|---|---:|\n| the module | 7.2 |\n| a | 12.25 |\n\n- A remark.\n\n- A note.\n";
        assert_eq!(section().markdown(), text);
    }

    #[test]
    fn a_section_without_a_table_has_none() {
        let section = Section {
            columns: Vec::new(),
            rows: Vec::new(),
            remarks: Vec::new(),
            notes: Vec::new(),
            image: None,
            ..section()
        };
        assert_eq!(section.markdown(), "\n## Pairs\n\nOne after the other.\n");
        assert_eq!(section.table("**redis 7.0.15**"), "**redis 7.0.15**");
    }

    #[test]
    fn tables_are_kept_by_release() {
        assert_eq!(release("redis 7.0.15"), "redis 7.0");
        assert_eq!(release("valkey 9.1.2"), "valkey 9.1");
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
    fn the_processor_has_a_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nflags\t: fpu\n";
        assert_eq!(cpu_model(text), Some("Some CPU @ 2.50GHz"));
        assert_eq!(cpu_model(""), None);
    }
}
