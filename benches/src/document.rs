//! The report as a document: a header, sections, and in each section one table for each server. A run replaces the
//! tables of its server in the sections that it has measured. All else stays as it is: other servers, other sections,
//! and the results of `make bench-redisson`.
//!
//! A table is between the marks `<!-- redis 7.0 -->` and `<!-- end of redis 7.0 -->`.

use std::collections::BTreeMap;

use crate::report::Section;

/// The results of `make bench-redisson` are between these marks, at the end of the document.
const REDISSON: [&str; 2] = ["<!-- redisson -->", "<!-- end of redisson -->"];

/// The tables of a section, each with the caption and the remarks of its run, by the server's name.
pub type Tables = BTreeMap<String, String>;

/// A document in its parts.
pub struct Document {
    /// Title and body of each section.
    sections: Vec<(String, String)>,
    /// Redisson's section, with its marks.
    redisson: Option<String>,
}

impl Document {
    /// Takes a document apart; its header is not kept.
    pub fn parse(text: &str) -> Document {
        let redisson = between(text, REDISSON).map(String::from);
        let own = redisson
            .as_deref()
            .map_or_else(|| text.into(), |kept| text.replace(kept, ""));
        let sections = own.split("\n## ").skip(1).map(|section| {
            let (title, body) = section.split_once('\n').unwrap_or((section, ""));
            (title.into(), body.trim().into())
        });
        Document {
            sections: sections.collect(),
            redisson,
        }
    }

    /// Replaces the table of one server in a section, and the section's text. A new section gets its place in the order
    /// of these titles.
    pub fn put(&mut self, section: &Section, server: &str, caption: &str, order: &[&str]) {
        let title = &section.title;
        let at = self.sections.iter().position(|(other, _)| other == title);
        let mut tables = at.map_or_else(Tables::new, |at| tables(&self.sections[at].1));
        tables.insert(server.into(), section.table(caption));
        let body = section.body(&tables);
        match at {
            Some(at) => self.sections[at].1 = body,
            None => self.sections.push((title.clone(), body)),
        }
        let place = |title: &str| order.iter().position(|other| *other == title);
        self.sections
            .sort_by_key(|(title, _)| place(title).unwrap_or(order.len()));
    }

    /// The whole text, below this header.
    pub fn text(&self, header: &str) -> String {
        let mut text = header.to_string();
        for (title, body) in &self.sections {
            text += &format!("\n## {title}\n\n{body}\n");
        }
        if let Some(redisson) = &self.redisson {
            text += &format!("\n{redisson}\n");
        }
        text
    }
}

/// The first line of a server's table.
pub fn mark(server: &str) -> String {
    format!("<!-- {server} -->")
}

/// The line after it.
pub fn end_mark(server: &str) -> String {
    format!("<!-- end of {server} -->")
}

/// The tables in a section's body, without their marks.
fn tables(body: &str) -> Tables {
    let server = |line: &str| {
        Some(
            line.strip_prefix("<!-- ")?
                .strip_suffix(" -->")?
                .to_string(),
        )
    };
    let servers = body.lines().filter_map(server);
    let table = |server: String| {
        let (mark, end) = (mark(&server), end_mark(&server));
        let all = between(body, [&mark, &end])?;
        let table = all.strip_prefix(&mark)?.strip_suffix(&end)?.trim();
        Some((server, table.to_string()))
    };
    servers.filter_map(table).collect()
}

/// The text from the first mark to the second, both included.
fn between<'a>(text: &'a str, [begin, end]: [&str; 2]) -> Option<&'a str> {
    let begin = text.find(begin)?;
    let length = text.get(begin..)?.find(end)? + end.len();
    text.get(begin..begin + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &str, cell: &str) -> Section {
        Section {
            title: title.into(),
            text: "One after the other.".into(),
            columns: vec!["what".into(), "µs".into()],
            rows: vec![vec![cell.into(), "7.2".into()]],
            remarks: vec![format!("Of {cell}.")],
            notes: vec!["A note.".into()],
            image: None,
        }
    }

    const ORDER: [&str; 2] = ["Pairs", "Hand-off"];
    const KEPT: &str = "<!-- redisson -->\n## Redisson\n<!-- end of redisson -->";

    #[test]
    fn a_run_replaces_the_tables_of_its_server_alone() {
        let mut document = Document::parse(&format!("# Benchmarks\n\n{KEPT}\n"));
        document.put(&section("Hand-off", "old"), "redis 7.0", "first", &ORDER);
        document.put(
            &section("Hand-off", "other"),
            "valkey 9.1",
            "second",
            &ORDER,
        );
        document.put(&section("Pairs", "pair"), "valkey 9.1", "second", &ORDER);
        let mut again = Document::parse(&document.text("# Benchmarks\n"));
        again.put(&section("Hand-off", "new"), "redis 7.0", "third", &ORDER);
        let table = |server: &str, caption: &str, cell: &str| {
            format!(
                "<!-- {server} -->\n{caption}\n\n| what | µs |\n|---|---:|\n| {cell} | 7.2 |\n\n- Of {cell}.\n\
                 <!-- end of {server} -->\n"
            )
        };
        let (new, other) = (
            table("redis 7.0", "third", "new"),
            table("valkey 9.1", "second", "other"),
        );
        let pair = table("valkey 9.1", "second", "pair");
        let expected = format!(
            "# Benchmarks\n\n## Pairs\n\nOne after the other.\n\n{pair}\n- A note.\n\n\
             ## Hand-off\n\nOne after the other.\n\n{new}\n{other}\n- A note.\n\n{KEPT}\n"
        );
        assert_eq!(again.text("# Benchmarks\n"), expected);
    }

    #[test]
    fn a_document_is_put_together_as_it_was_taken_apart() {
        let text = format!("# Benchmarks\n\n## Pairs\n\nwords\n\n## Old\n\nmore\n\n{KEPT}\n");
        assert_eq!(Document::parse(&text).text("# Benchmarks\n"), text);
    }
}
