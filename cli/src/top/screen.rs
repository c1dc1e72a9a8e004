//! The screen of `top`: lines with totals, and a row for each lock.

use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

use redis_lock_client::LockInfo;

use crate::escape::cut;
use crate::graph::{Graph, Waited};
use crate::report::{self, span};
use crate::top::sample::{Order, Sample};

/// The longest name that is shown in full.
const NAME: usize = 64;
/// The width of all columns but the two of names.
const NUMBERS: u16 = 9 + 7 + 7 + 7 + 7 + 16 + 7;
/// Lines above and below the rows.
const AROUND: u16 = 5;

/// The contents of the screen.
pub struct Screen<'a> {
    pub server: &'a str,
    pub sample: &'a Sample,
    pub order: Order,
    /// Whether the graph of waits is shown in place of the rows.
    pub is_graph: bool,
    /// Why the last sample failed, if it did.
    pub trouble: Option<&'a str>,
}

impl Screen<'_> {
    pub fn draw(&self, frame: &mut Frame) {
        let areas = Layout::vertical([
            Constraint::Length(3),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .split(frame.area());
        let [head, rows, foot] = areas[..] else {
            return;
        };
        frame.render_widget(Paragraph::new(self.head()), head);
        match self.is_graph {
            true => frame.render_widget(Paragraph::new(self.graph(rows.width)), rows),
            false => frame.render_widget(self.table(), rows),
        }
        frame.render_widget(Paragraph::new(self.foot()), foot);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let sample = self.sample;
        let (grants, hand_offs) = match sample.rates {
            Some((grants, hand_offs)) => (format!("{grants:.1}"), format!("{hand_offs:.1}")),
            None => ("-".into(), "-".into()),
        };
        let longest = sample.locks.iter().map(|(_, info)| info.longest_wait).max();
        let longest = longest.filter(|wait| !wait.is_zero());
        let trouble = self
            .trouble
            .map(|trouble| Line::styled(cut(trouble.as_bytes(), 200), Style::new().fg(Color::Red)));
        let rates = format!("hand-offs/s {hand_offs}   grants/s {grants}");
        vec![
            Line::styled(
                format!("redis-lock top   {}", cut(self.server.as_bytes(), NAME)),
                Style::new().add_modifier(Modifier::BOLD),
            ),
            Line::from(format!(
                "held {}   waited for {}   waiters {}   longest wait {}   {rates}",
                sample.held(),
                sample.waited(),
                sample.waiters,
                span(longest),
            )),
            trouble.unwrap_or_default(),
        ]
    }

    fn table(&self) -> Table<'static> {
        let widths = [
            Constraint::Fill(3),
            Constraint::Length(9),
            Constraint::Fill(3),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(16),
        ];
        let head = [
            "KEY", "MODE", "HOLDER", "HELD", "LEASE", "WAITERS", "WAIT", "TOKEN",
        ];
        let head = Row::new(head).style(Style::new().add_modifier(Modifier::REVERSED));
        let rows = self.sample.locks.iter().map(|(key, info)| row(key, info));
        Table::new(rows, widths).header(head).column_spacing(1)
    }

    /// The lines of the graph: the chains first, as the queues may need more lines than there are.
    fn graph(&self, width: u16) -> Vec<Line<'static>> {
        let locks = self.sample.locks.iter().map(|(key, info)| Waited {
            server: self.server.into(),
            key: key.clone(),
            info: info.clone(),
        });
        let graph = Graph::of(locks.collect());
        let lines = graph.chain_lines().into_iter().chain(graph.lock_lines());
        let cut = |line: String| line.chars().take(width.into()).collect::<String>();
        lines.map(|line| Line::from(cut(line))).collect()
    }

    fn foot(&self) -> Line<'static> {
        let mut notes = vec!["q quit   order: w wait, h held, n name   g graph".to_string()];
        notes.push(match self.order {
            Order::Wait => "(wait)".into(),
            Order::Held => "(held)".into(),
            Order::Name => "(name)".into(),
        });
        if !self.sample.whole {
            notes.push("  still looking for held locks".into());
        }
        if self.sample.left_out > 0 {
            notes.push(format!("  {} more locks", self.sample.left_out));
        }
        Line::styled(notes.join(" "), Style::new().add_modifier(Modifier::DIM))
    }

    /// The width that the longest names need, where no terminal limits it.
    pub fn width(&self) -> u16 {
        let names = self.sample.locks.iter().flat_map(|(key, info)| {
            let holders = report::holders(info).chars().count();
            [cut(key, NAME).chars().count(), holders.min(NAME)]
        });
        let longest = names.max().unwrap_or_default().clamp(NAME / 3, NAME);
        NUMBERS + 2 * u16::try_from(longest).unwrap_or_default()
    }

    /// The same as plain text, all rows of it.
    pub fn text(&self, width: u16) -> String {
        let rows = u16::try_from(self.sample.locks.len()).unwrap_or(u16::MAX);
        let backend = TestBackend::new(width, rows.saturating_add(AROUND));
        let Ok(mut terminal) = Terminal::new(backend) else {
            return String::new();
        };
        if terminal.draw(|frame| self.draw(frame)).is_err() {
            return String::new();
        }
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width.max(1)));
        let text = lines.map(|cells| {
            let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
            line.trim_end().to_string() + "\n"
        });
        text.collect()
    }
}

fn row(key: &[u8], info: &LockInfo) -> Row<'static> {
    let token = info.holders.iter().filter_map(|holder| holder.token).max();
    let waits = info.waiters > 0;
    let row = Row::new([
        cut(key, NAME),
        info.mode.to_string(),
        report::holders(info).chars().take(NAME).collect(),
        span(report::held(info)),
        span(report::lease(info).filter(|_| !info.holders.is_empty())),
        info.waiters.to_string(),
        span(waits.then_some(info.longest_wait)),
        token.map_or("-".into(), |token| token.to_string()),
    ]);
    match waits {
        true => row.style(Style::new().fg(Color::Yellow)),
        false => row,
    }
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
        holder.lease = Some(Duration::from_secs(8));
        holder.held = Some(Duration::from_secs(held));
        let mut info = LockInfo::default();
        info.holders = vec![holder];
        info.waiters = waiters;
        info.longest_wait = Duration::from_secs(wait);
        (key.to_vec(), info)
    }

    fn text(order: Order) -> String {
        let mut sample = Sample {
            locks: vec![
                lock(b"a", b"anna", 5, 0, 0),
                lock(b"b\x1b[2J\xff", b"bert", 3, 2, 4),
                lock(b"c", b"cleo", 70, 1, 2),
            ],
            whole: true,
            rates: Some((12.25, 3.5)),
            waiters: 3,
            left_out: 0,
        };
        sample.sort(order);
        let screen = Screen {
            server: "127.0.0.1:6379/0",
            sample: &sample,
            order,
            is_graph: false,
            trouble: None,
        };
        screen.text(90)
    }

    #[test]
    fn the_frame_shows_sums_and_rows() {
        let text = text(Order::Wait);
        let expected = [
            "redis-lock top   127.0.0.1:6379/0",
            "held 3   waited for 2   waiters 3   longest wait 4.0s   hand-offs/s 3.5   grants/s 12.2",
            "",
            "KEY             MODE      HOLDER          HELD    LEASE   WAITERS WAIT    TOKEN",
            "b\\u{1b}[2J\\xff  exclusive bert            3.0s    8.0s    2       4.0s    17",
            "c               exclusive cleo            1m10s   8.0s    1       2.0s    17",
            "a               exclusive anna            5.0s    8.0s    0       -       17",
            "q quit   order: w wait, h held, n name   g graph (wait)",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn the_rows_are_ordered_as_asked() {
        let keys = |order| -> Vec<char> {
            let text = text(order);
            let rows = text.lines().skip(4).take(3);
            rows.filter_map(|row| row.chars().next()).collect()
        };
        assert_eq!(keys(Order::Wait), ['b', 'c', 'a']);
        assert_eq!(keys(Order::Held), ['c', 'a', 'b']);
        assert_eq!(keys(Order::Name), ['a', 'b', 'c']);
    }

    #[test]
    fn a_screen_too_small_for_it_shows_what_fits() {
        let sample = Sample {
            locks: vec![lock(b"key", b"owner", 1, 1, 1)],
            ..Sample::default()
        };
        let screen = Screen {
            server: "s",
            sample: &sample,
            order: Order::Wait,
            is_graph: false,
            trouble: Some("gone\x1b"),
        };
        for (width, height) in [(1, 1), (10, 3), (40, 4), (200, 50)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            terminal.draw(|frame| screen.draw(frame)).expect("a frame");
        }
        assert!(screen.text(60).contains("gone\\u{1b}"));
    }
}
