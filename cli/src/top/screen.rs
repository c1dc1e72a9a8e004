//! The screen of `top`: lines with totals, and a row for each lock.

use std::io::{self, Write};

use crossterm::style::{PrintStyledContent, StyledContent, Stylize};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{cursor, queue};
use redis_lock_client::LockInfo;

use crate::escape::{ascii, cut, fitting, shown, width, word};
use crate::graph::Graph;
use crate::output::table;
use crate::report::{self, span};
use crate::top::sample::{Order, Sample};

/// The longest name that is shown in full.
const NAME: usize = 64;
/// The widths that keys and holders have before the first other column is shown.
const KEY: usize = 24;
const HOLDER: usize = 16;
/// The columns beside those of names with their widths, the most important first.
const NUMBERS: [(&str, usize); 6] = [
    ("WAIT", 6),
    ("WAITERS", 7),
    ("HELD", 6),
    ("LEASE", 6),
    ("MODE", 9),
    ("TOKEN", 16),
];
/// Between two columns.
const GAP: usize = 2;
/// Lines that are not scrolled: three above the rows and one below.
pub const AROUND: usize = 4;

const HELP: &str = "\
w, h, n     order by wait, time held, name
/           filter by a text in key or holder; Esc: all
g           the graph of waits, or the locks
j, k        a row down, up; also the arrows
PgDn, PgUp  a page down, up; Home, End
?           this help
q, Ctrl-C   quit; Ctrl-Z: stop, until fg

HELD is the time since the grant, LEASE its rest, WAIT how
long the first waiter has waited. Columns for which the
terminal is too narrow are left out.";

pub type Line = StyledContent<String>;

/// What is shown in place of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Body {
    #[default]
    Locks,
    Graph,
    Help,
}

/// The contents of the screen.
#[derive(Default)]
pub struct Screen {
    pub server: String,
    pub sample: Sample,
    pub order: Order,
    pub body: Body,
    /// What keys or holders contain.
    pub filter: String,
    pub is_typing: bool,
    /// The rows above the first that is shown.
    pub skipped: usize,
    /// Why the last sample failed, if it did.
    pub trouble: Option<String>,
    /// Whether the terminal shows ASCII only.
    pub is_ascii: bool,
}

impl Screen {
    /// Keeps the order of the rows.
    pub fn update(&mut self, sample: Sample) {
        self.sample = sample;
        self.sample.sort(self.order);
    }

    /// Shows this, or the locks again.
    pub fn toggle(&mut self, body: Body) {
        self.body = match self.body == body {
            true => Body::Locks,
            false => body,
        };
        self.skipped = 0;
    }

    pub fn draw(&mut self, columns: u16, rows: u16) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let lines = self.frame(columns.into(), rows.into());
        for (row, line) in (0..rows).zip(lines) {
            let line = PrintStyledContent(line);
            let clear = Clear(ClearType::UntilNewLine);
            queue!(out, cursor::MoveTo(0, row), clear, line)?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        out.flush()
    }

    /// The lines for a terminal of this size.
    fn frame(&mut self, columns: usize, rows: usize) -> Vec<Line> {
        let mut body = self.body(columns);
        let title = match self.body {
            Body::Locks => Some(body.remove(0)),
            _ => None,
        };
        let room = rows.saturating_sub(AROUND + usize::from(title.is_some()));
        let count = body.len();
        self.skipped = self.skipped.min(count.saturating_sub(room));
        let shown = self.skipped..count.min(self.skipped + room);
        let first = shown.end.min(self.skipped + 1);
        let place = format!("{first}-{} of {count}", shown.end);
        let mut lines = self.head();
        lines.extend(title);
        lines.extend(body.drain(shown));
        lines.resize_with(rows.saturating_sub(1), || String::new().stylize());
        lines.push(self.foot(&place).dim());
        let cut = |line: Line| {
            let text = fitting(self.plain(line.content()).chars(), columns);
            StyledContent::new(*line.style(), text)
        };
        lines.into_iter().map(cut).collect()
    }

    /// A frame with all rows as plain text.
    pub fn text(&self, columns: usize) -> Vec<String> {
        let lines = self.head().into_iter().chain(self.body(columns));
        let mut text: Vec<String> = lines.map(|line| self.plain(line.content())).collect();
        text.push(self.notes());
        text
    }

    fn plain(&self, text: &str) -> String {
        match self.is_ascii {
            true => ascii(text),
            false => text.into(),
        }
    }

    fn head(&self) -> Vec<Line> {
        let sample = &self.sample;
        let (grants, hand_offs) = match sample.rates {
            Some((grants, hand_offs)) => (format!("{grants:.1}"), format!("{hand_offs:.1}")),
            None => ("-".into(), "-".into()),
        };
        let longest = sample.locks.iter().map(|(_, info)| info.longest_wait).max();
        let longest = span(longest.filter(|wait| !wait.is_zero()));
        let trouble = self.trouble.as_deref().unwrap_or_default();
        let (held, waited) = (sample.held(), sample.waited());
        let rates = format!("hand-offs/s {hand_offs}  grants/s {grants}");
        vec![
            format!(
                "redis-lock top   {}",
                cut(&shown(self.server.as_bytes()), NAME)
            )
            .bold(),
            format!(
                "held {held}  waited for {waited}  waiters {}  longest wait {longest}  {rates}",
                sample.waiters
            )
            .stylize(),
            shown(trouble.as_bytes()).red(),
        ]
    }

    fn body(&self, columns: usize) -> Vec<Line> {
        match self.body {
            Body::Locks => self.rows(columns),
            Body::Graph => self.graph(),
            Body::Help => HELP
                .lines()
                .map(|line| line.to_string().stylize())
                .collect(),
        }
    }

    /// The locks that the filter lets through, below the titles of their columns. The names have the room that the
    /// other columns leave, the key first.
    fn rows(&self, columns: usize) -> Vec<Line> {
        let titles = NUMBERS.map(|(title, width)| format!("{title:width$}"));
        let names = ["KEY", "HOLDER"].map(String::from);
        let mut rows: Vec<Vec<String>> = vec![names.into_iter().chain(titles).collect()];
        let mut styles: Vec<fn(String) -> Line> = vec![Stylize::reverse];
        for (key, info) in &self.sample.locks {
            let names = [word(key), report::holders(info)].map(|name| self.plain(&name));
            if names.iter().any(|name| name.contains(&self.filter)) {
                rows.push(names.into_iter().chain(numbers(info)).collect());
                styles.push(match info.waiters {
                    0 => Stylize::stylize,
                    _ => Stylize::yellow,
                });
            }
        }
        let [key, holder] = [0, 1].map(|column| {
            let names = rows.iter().filter_map(|row| row.get(column));
            let longest = names.map(|name| width(name)).max();
            longest.unwrap_or_default().min(NAME)
        });
        let (mut room, mut count) = (columns.saturating_sub(GAP), 2);
        for (_, width) in NUMBERS {
            match room.checked_sub(GAP + width) {
                Some(rest) if rest >= key.min(KEY) + holder.min(HOLDER) => {
                    (room, count) = (rest, count + 1);
                }
                _ => break,
            }
        }
        let key = key.min(room.saturating_sub(holder.min(HOLDER)));
        let holder = holder.min(room.saturating_sub(key));
        for row in &mut rows {
            row.truncate(count);
            for (name, width) in row.iter_mut().zip([key, holder]) {
                *name = cut(name, width);
            }
        }
        let rows = table(&rows).into_iter().zip(styles);
        rows.map(|(row, style)| style(row)).collect()
    }

    /// The lines of the graph that the filter lets through, the chains first.
    fn graph(&self) -> Vec<Line> {
        let locks = self.sample.locks.iter().cloned();
        let locks = locks.map(|(key, info)| ((self.server.clone(), key), info));
        let graph = Graph::of(locks.collect());
        let lines = graph.chain_lines().into_iter().chain(graph.lock_lines());
        let lines = lines.filter(|line| line.contains(&self.filter));
        lines.map(String::stylize).collect()
    }

    fn foot(&self, place: &str) -> String {
        match (self.is_typing, self.filter.as_str()) {
            (true, filter) => format!("/{filter}   {place}"),
            (false, "") => format!("{place}   ? help   q quit   {}", self.notes()),
            (false, filter) => format!("{place}   filter: {filter}   ? help   {}", self.notes()),
        }
    }

    /// The order, and what the rows lack.
    fn notes(&self) -> String {
        let mut notes = format!("by {}", self.order.name());
        if !self.sample.whole {
            notes += "   still looking for held locks";
        }
        if self.sample.left_out > 0 {
            notes += &format!("   {} more locks", self.sample.left_out);
        }
        notes
    }
}

/// The cells of [`NUMBERS`].
fn numbers(info: &LockInfo) -> [String; NUMBERS.len()] {
    let token = info.holders.iter().filter_map(|holder| holder.token).max();
    [
        span((info.waiters > 0).then_some(info.longest_wait)),
        info.waiters.to_string(),
        span(report::held(info)),
        span(report::lease(info).filter(|_| !info.holders.is_empty())),
        report::mode(info).to_string(),
        token.map_or("-".into(), |token| token.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis_lock_client::Holder;

    use super::*;

    fn lock(key: &[u8], owner: &[u8], held: u64, waiters: u64, wait: u64) -> (Vec<u8>, LockInfo) {
        let mut holder = Holder::default();
        holder.owner = owner.to_vec();
        holder.holds = 1;
        holder.token = Some(17);
        holder.remaining = Some(Duration::from_secs(8));
        holder.held = Some(Duration::from_secs(held));
        let mut info = LockInfo::default();
        info.holders = vec![holder];
        info.waiters = waiters;
        info.longest_wait = Duration::from_secs(wait);
        (key.to_vec(), info)
    }

    fn screen(order: Order, locks: Vec<(Vec<u8>, LockInfo)>) -> Screen {
        let mut sample = Sample {
            locks,
            whole: true,
            rates: Some((12.25, 3.5)),
            waiters: 3,
            left_out: 0,
        };
        sample.sort(order);
        let server = "127.0.0.1:6379/0".into();
        Screen {
            server,
            sample,
            order,
            ..Screen::default()
        }
    }

    fn three(order: Order) -> Screen {
        let locks = vec![
            lock(b"a", b"anna", 5, 0, 0),
            lock(b"b\x1b[2J\xff", b"bert", 3, 2, 4),
            lock(b"c", b"cleo", 70, 1, 2),
        ];
        screen(order, locks)
    }

    #[test]
    fn the_frame_shows_sums_and_rows() {
        let text = three(Order::Wait).text(90);
        let expected = [
            "redis-lock top   127.0.0.1:6379/0",
            "held 3  waited for 2  waiters 3  longest wait 4.0s  hand-offs/s 3.5  grants/s 12.2",
            "",
            "KEY             HOLDER  WAIT    WAITERS  HELD    LEASE   MODE       TOKEN",
            "b\\u{1b}[2J\\xff  bert    4.0s    2        3.0s    8.0s    exclusive  17",
            "c               cleo    2.0s    1        1m10s   8.0s    exclusive  17",
            "a               anna    -       0        5.0s    8.0s    exclusive  17",
            "by wait",
        ];
        assert_eq!(text, expected);
    }

    #[test]
    fn the_rows_are_ordered_as_asked() {
        let keys = |order| -> Vec<char> {
            let text = three(order).text(90);
            let rows = text.iter().skip(4).take(3);
            rows.filter_map(|row| row.chars().next()).collect()
        };
        assert_eq!(keys(Order::Wait), ['b', 'c', 'a']);
        assert_eq!(keys(Order::Held), ['c', 'a', 'b']);
        assert_eq!(keys(Order::Name), ['a', 'b', 'c']);
    }

    #[test]
    fn the_least_important_columns_go_first_and_names_are_cut_in_the_middle() {
        let names = |i: u8| {
            (
                format!("batch:invoices:2026-11-27:eu:{i}"),
                format!("db{i}:4711:{}", "0".repeat(32)),
            )
        };
        let locks = (10..22)
            .map(names)
            .map(|(key, owner)| lock(key.as_bytes(), owner.as_bytes(), 1, 1, 1));
        let screen = screen(Order::Name, locks.collect());
        for (columns, titles) in [
            (200, "KEY HOLDER WAIT WAITERS HELD LEASE MODE TOKEN"),
            (80, "KEY HOLDER WAIT WAITERS HELD LEASE"),
            (60, "KEY HOLDER WAIT WAITERS"),
            (40, "KEY HOLDER"),
        ] {
            let text = screen.text(columns);
            let title: Vec<_> = text[3].split_whitespace().collect();
            assert_eq!(title.join(" "), titles, "{columns}");
            let rows = &text[4..16];
            for (row, i) in rows.iter().zip(10..) {
                assert!(row.chars().count() <= columns, "{row}");
                let cells: Vec<_> = row.split_whitespace().collect();
                assert!(
                    cells[0].starts_with("batch:") && cells[0].ends_with(&format!(":{i}")),
                    "{row}"
                );
                assert!(cells[1].starts_with(&format!("db{i}:")), "{row}");
            }
        }
    }

    #[test]
    fn a_screen_too_small_for_it_shows_what_fits() {
        let mut screen = three(Order::Wait);
        screen.trouble = Some("gone\x1b".into());
        for body in [Body::Locks, Body::Graph, Body::Help] {
            for (columns, rows) in [(0, 0), (1, 1), (10, 3), (40, 4), (200, 50)] {
                screen.body = body;
                screen.skipped = 7;
                let frame = screen.frame(columns, rows);
                assert!(rows == 0 || frame.len() >= rows);
                assert!(frame.iter().all(|line| width(line.content()) <= columns));
            }
        }
        assert!(screen.text(60).contains(&"gone\\u{1b}".into()));
    }
}
