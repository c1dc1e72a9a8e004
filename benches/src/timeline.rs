//! The pictures of the long runs (`make long-run`): memory and latency of each minute, one picture for each server.

use std::io;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use serde_json::Value;

use crate::plots::{self, text, Area, Drawn, Pixel};

const LEFT: i32 = 92;
const WIDTH: i32 = 300;
const HEIGHT: i32 = 180;
/// The distance between two panels.
const STEP: i32 = 272;
const TOP: i32 = 122;

/// The figures of a minute.
struct Minute {
    run: u64,
    minute: f64,
    /// In MB: with empty queues, the most under load, resident.
    memory: [f64; 3],
    /// In µs, in the order of `LATENCY`.
    latency: [f64; 4],
    server: String,
}

/// A line of a panel, its colour and its width.
type Style = (&'static str, RGBColor, u32);

const MEMORY: [Style; 3] = [
    ("queues empty", plots::ACCENT, 3),
    ("under load", plots::OTHERS[0], 2),
    ("resident", plots::FAINT, 2),
];
const LATENCY: [Style; 4] = [
    ("PING, p99.9", plots::OTHERS[0], 2),
    ("pair, p99.9", plots::ACCENT, 3),
    ("pair, p50", plots::ACCENT, 3),
    ("PING, p50", plots::OTHERS[0], 2),
];

/// Draws `long-run-SERVER.svg` for each `long-run-SERVER.jsonl`.
pub fn draw(figures: &Path, docs: &Path) -> io::Result<()> {
    for file in std::fs::read_dir(figures)? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(name) = name.strip_suffix(".jsonl") else {
            continue;
        };
        let minutes = read(&std::fs::read_to_string(&path)?)?;
        if name.starts_with("long-run-") && !minutes.is_empty() {
            picture(&docs.join(format!("{name}.svg")), &minutes)?;
        }
    }
    Ok(())
}

fn read(lines: &str) -> io::Result<Vec<Minute>> {
    let mut minutes = Vec::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line)?;
        let minute = &line["minute"];
        if minute.is_null() {
            continue;
        }
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let megabytes = |name: &str| number(&minute[name]) / 1e6;
        minutes.push(Minute {
            run: minute["run"].as_u64().unwrap_or(0),
            minute: number(&minute["minute"]),
            memory: ["settled", "used_most", "rss"].map(megabytes),
            latency: [("ping", 2), ("pair", 2), ("pair", 0), ("ping", 0)]
                .map(|(name, quantile)| number(&minute[name][quantile])),
            server: minute["server"].as_str().unwrap_or_default().into(),
        });
    }
    Ok(minutes)
}

fn picture(path: &Path, minutes: &[Minute]) -> io::Result<()> {
    let server = minutes.last().map_or("", |minute| &minute.server);
    let subtitle = format!("{server}; each minute; a gap is a new process");
    plots::save(path, TOP + 2 * STEP - 20, |area| {
        plots::heading(area, "A long run of one server", &subtitle)?;
        let most = minutes.iter().flat_map(|minute| minute.memory);
        let top = round_up(most.fold(0.0, f64::max));
        let memory = Panel {
            top: TOP,
            minutes,
            share: &|value| value / top,
        };
        let marks = [0.0, top / 2.0, top].map(|value| (value, format!("{value} MB")));
        memory.draw(area, "Memory", &marks)?;
        memory.lines(
            area,
            &MEMORY,
            |minute, line| minute.memory[line],
            |value| format!("{value:.1} MB"),
        )?;
        let values = minutes.iter().flat_map(|minute| minute.latency);
        let decades = plots::decades(values);
        let latency = Panel {
            top: TOP + STEP,
            minutes,
            share: &|value| plots::share(value, decades),
        };
        let marks: Vec<_> = (decades.0..=decades.1)
            .map(|decade| 10_f64.powi(decade))
            .map(|value| (value, plots::duration(value)))
            .collect();
        latency.draw(
            area,
            "Acquire and release (pair), and PING beside it",
            &marks,
        )?;
        latency.lines(
            area,
            &LATENCY,
            |minute, line| minute.latency[line],
            plots::duration,
        )
    })
}

/// 1, 2 or 5 times a power of ten.
pub fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

/// Lines over the minutes.
struct Panel<'a> {
    top: i32,
    minutes: &'a [Minute],
    /// The height of a value, from 0 to 1.
    share: &'a dyn Fn(f64) -> f64,
}

impl Panel<'_> {
    fn x(&self, minute: f64) -> i32 {
        let last = self.minutes.last().map_or(1.0, |last| last.minute);
        LEFT + (f64::from(WIDTH) * minute / last.max(1.0)).round() as i32
    }

    fn y(&self, value: f64) -> i32 {
        let share = (self.share)(value).clamp(0.0, 1.0);
        self.top + HEIGHT - (f64::from(HEIGHT) * share).round() as i32
    }

    fn draw(&self, area: &Area, title: &str, marks: &[(f64, String)]) -> Drawn {
        let (right, bottom) = (LEFT + WIDTH, self.top + HEIGHT);
        text(
            area,
            title,
            plots::LABEL,
            plots::INK,
            (24, self.top - 28),
            HPos::Left,
        )?;
        for (value, label) in marks {
            let y = self.y(*value);
            area.draw(&PathElement::new([(LEFT, y), (right, y)], plots::GRID))?;
            text(
                area,
                label,
                plots::SMALL,
                plots::FAINT,
                (LEFT - 8, y),
                HPos::Right,
            )?;
        }
        let last = self.minutes.last().map_or(0.0, |last| last.minute);
        let ends = [(0.0, "0".to_string()), (last, format!("{last} minutes"))];
        for (minute, label) in ends {
            let at = (self.x(minute), bottom + 18);
            text(area, &label, plots::SMALL, plots::FAINT, at, HPos::Center)?;
        }
        Ok(())
    }

    /// The lines of all runs, with names and last values at their ends.
    fn lines<const LINES: usize>(
        &self,
        area: &Area,
        styles: &[Style; LINES],
        of: fn(&Minute, usize) -> f64,
        show: fn(f64) -> String,
    ) -> Drawn {
        for run in self.minutes.chunk_by(|a, b| a.run == b.run) {
            for (line, (_, colour, width)) in styles.iter().enumerate() {
                let at = |minute: &Minute| (self.x(minute.minute), self.y(of(minute, line)));
                let path: Vec<Pixel> = run.iter().map(at).collect();
                area.draw(&PathElement::new(path, colour.stroke_width(*width)))?;
            }
        }
        let Some(last) = self.minutes.last() else {
            return Ok(());
        };
        let ends: [i32; LINES] = std::array::from_fn(|line| self.y(of(last, line)));
        let left = LEFT + WIDTH + 14;
        for (line, y) in plots::spread(&ends, 42).into_iter().enumerate() {
            let (name, colour, _) = styles[line];
            let colour = plots::for_words(colour);
            text(area, name, plots::SMALL, colour, (left, y - 9), HPos::Left)?;
            let value = show(of(last, line));
            text(
                area,
                &value,
                plots::SMALL,
                colour,
                (left, y + 9),
                HPos::Left,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn the_pictures_are_those_of_the_figures() -> io::Result<()> {
        let (project, dir) = (report::project(), tempfile::tempdir()?);
        draw(&project.join("tests/faults/figures"), dir.path())?;
        for file in std::fs::read_dir(dir.path())? {
            let file = file?;
            let shown = project.join("docs").join(file.file_name());
            let (drawn, shown) = (std::fs::read(file.path())?, std::fs::read(shown)?);
            assert!(drawn == shown, "lock-bench pictures draws {file:?} anew");
        }
        Ok(())
    }

    #[test]
    fn a_picture_has_every_line_of_every_run() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let minute = |run: u32, minute: u32| {
            format!(
                "{{\"minute\":{{\"run\":{run},\"minute\":{minute},\"server\":\"Redis 8.6.3\",\"settled\":1500000,\
                 \"used_most\":3000000,\"rss\":14000000,\"ping\":[100,2,300,4],\"pair\":[200,2,4200,4]}}}}\n"
            )
        };
        let stop = "{\"stop\":{\"run\":1,\"minute\":2}}\n";
        let lines = [
            minute(1, 1),
            minute(1, 2),
            stop.into(),
            minute(2, 3),
            minute(2, 4),
        ];
        std::fs::write(dir.path().join("long-run-x.jsonl"), lines.concat())?;
        draw(dir.path(), dir.path())?;
        let drawn = std::fs::read_to_string(dir.path().join("long-run-x.svg"))?;
        for label in [
            "Redis 8.6.3",
            "1.5 MB",
            "14.0 MB",
            "20 MB",
            "300 µs",
            "4.2 ms",
            "4 minutes",
        ] {
            assert!(drawn.contains(label), "{label}");
        }
        let lines = drawn.matches("<polyline").count();
        // Two runs of seven lines; three marks of memory and those from 100 µs to 10 ms.
        assert_eq!(lines, 2 * 7 + 3 + 3);
        Ok(())
    }

    #[test]
    fn scales_end_at_a_round_number() {
        assert_eq!([0.3, 1.0, 14.2, 38.0].map(round_up), [1.0, 1.0, 20.0, 50.0]);
    }
}
