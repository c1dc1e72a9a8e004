//! The picture of the dashboard's panels, drawn from the figures that `make test-ops SAVE=1` has got from Prometheus.

use std::io;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use serde_json::Value;

use crate::plots::{self, text, Area, Drawn, Pixel};
use crate::timeline::round_up;

/// The picture's file.
pub const DASHBOARD: &str = "dashboard.svg";

/// The panels in the picture, by their titles.
const SHOWN: [&str; 8] = [
    "Waiting requests",
    "Oldest wait",
    "Grants",
    "Time of waits",
    "Time of holds",
    "Ends of waits",
    "Ends of holds",
    "Refusals",
];

/// The lines of a panel: the highest ones.
const MOST: usize = 5;
const COLOURS: [RGBColor; MOST] = [
    plots::ACCENT,
    plots::OTHERS[0],
    plots::OTHERS[1],
    plots::MORE[0],
    plots::MORE[1],
];

const LEFT: i32 = 92;
const WIDTH: i32 = 300;
const HEIGHT: i32 = 120;
/// The distance between two panels.
const STEP: i32 = 196;
const TOP: i32 = 122;

struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    fn most(&self) -> f64 {
        let values = self.points.iter().map(|(_, value)| *value);
        values.fold(0.0, f64::max)
    }
}

/// Draws it, if there are figures.
pub fn draw(figures: &Path, docs: &Path) -> io::Result<()> {
    let figures: Value = match std::fs::read_to_string(figures) {
        Ok(figures) => serde_json::from_str(&figures)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let all = figures["panels"].as_array().cloned().unwrap_or_default();
    let shown = |title: &&str| all.iter().find(|panel| panel["title"] == **title);
    let panels: Vec<&Value> = SHOWN.iter().filter_map(shown).collect();
    let seconds = figures["seconds"].as_f64().unwrap_or(1.0);
    let server = figures["server"].as_str().unwrap_or_default();
    let subtitle = format!("{server}; 24 clients; a scrape each second, rates over ten");
    let height = TOP + STEP * panels.len() as i32 - 20;
    plots::save(&docs.join(DASHBOARD), height, |area| {
        plots::heading(area, "Panels of the dashboard", &subtitle)?;
        for (number, panel) in panels.iter().enumerate() {
            let top = TOP + STEP * number as i32;
            draw_panel(area, top, panel, seconds)?;
        }
        Ok(())
    })
}

fn draw_panel(area: &Area, top: i32, panel: &Value, seconds: f64) -> Drawn {
    let unit = panel["unit"].as_str().unwrap_or_default();
    let lines = lines(panel);
    let most = lines.iter().map(Line::most).fold(0.0, f64::max);
    let scale = round_up(most);
    let x = |at: f64| LEFT + (f64::from(WIDTH) * at / seconds).round() as i32;
    let y = |value: f64| top + HEIGHT - (f64::from(HEIGHT) * value / scale).round() as i32;
    let title = panel["title"].as_str().unwrap_or_default();
    text(
        area,
        title,
        plots::LABEL,
        plots::INK,
        (24, top - 24),
        HPos::Left,
    )?;
    for value in [0.0, scale / 2.0, scale] {
        let ends = [(LEFT, y(value)), (LEFT + WIDTH, y(value))];
        area.draw(&PathElement::new(ends, plots::GRID))?;
        let at = (LEFT - 8, y(value));
        text(
            area,
            &shown(value, unit),
            plots::SMALL,
            plots::FAINT,
            at,
            HPos::Right,
        )?;
    }
    for (at, label) in [(0.0, "0".to_string()), (seconds, format!("{seconds:.0} s"))] {
        let at = (x(at), top + HEIGHT + 18);
        text(area, &label, plots::SMALL, plots::FAINT, at, HPos::Center)?;
    }
    let mut ends = Vec::new();
    for (line, colour) in lines.iter().zip(COLOURS) {
        let path: Vec<Pixel> = line
            .points
            .iter()
            .map(|(at, value)| (x(*at), y(*value)))
            .collect();
        ends.push(path.last().map_or(top, |end| end.1));
        area.draw(&PathElement::new(path, colour.stroke_width(2)))?;
    }
    let left = LEFT + WIDTH + 14;
    let labels = plots::spread(&ends, 21);
    for ((line, colour), y) in lines.iter().zip(COLOURS).zip(labels) {
        let colour = plots::for_words(colour);
        text(
            area,
            &line.name,
            plots::SMALL,
            colour,
            (left, y),
            HPos::Left,
        )?;
    }
    Ok(())
}

/// The lines that are not always 0, the highest ones first.
fn lines(panel: &Value) -> Vec<Line> {
    let lines = panel["lines"].as_array().cloned().unwrap_or_default();
    let point = |point: &Value| Some((point[0].as_f64()?, point[1].as_f64()?));
    let line = |line: &Value| Line {
        name: line["name"].as_str().unwrap_or_default().into(),
        points: line["points"]
            .as_array()
            .map(|points| points.iter().filter_map(point).collect())
            .unwrap_or_default(),
    };
    let mut lines: Vec<Line> = lines.iter().map(line).collect();
    lines.retain(|line| line.most() > 0.0);
    lines.sort_by(|a, b| b.most().total_cmp(&a.most()));
    lines.truncate(MOST);
    lines
}

/// A value in the unit of its panel, in Grafana's words.
fn shown(value: f64, unit: &str) -> String {
    match unit {
        _ if value == 0.0 => "0".into(),
        "s" => plots::duration(value * 1_000_000.0),
        "ops" => format!("{value}/s"),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn the_picture_is_that_of_the_figures() -> io::Result<()> {
        let (project, dir) = (report::project(), tempfile::tempdir()?);
        draw(&project.join("tests/ops/figures.json"), dir.path())?;
        let drawn = std::fs::read_to_string(dir.path().join(DASHBOARD))?;
        let shown = std::fs::read_to_string(project.join("docs").join(DASHBOARD))?;
        assert!(drawn == shown, "lock-bench pictures draws it anew");
        for title in SHOWN {
            assert!(drawn.contains(title), "{title}");
        }
        Ok(())
    }

    #[test]
    fn a_panel_shows_its_highest_lines() {
        let line = |name: &str, value: f64| serde_json::json!({"name": name, "points": [[0.0, value], [1.0, 0.5]]});
        let lines_of = [6.0, 2.0, 3.0, 4.0, 5.0, 1.0].map(|value| line(&value.to_string(), value));
        let panel = serde_json::json!({"lines": lines_of});
        let names: Vec<String> = lines(&panel).into_iter().map(|line| line.name).collect();
        assert_eq!(names, ["6", "5", "4", "3", "2"]);
    }

    #[test]
    fn values_have_the_unit_of_their_panel() {
        assert_eq!(shown(0.0, "s"), "0");
        assert_eq!(shown(0.5, "s"), "500 ms");
        assert_eq!(shown(20.0, "ops"), "20/s");
        assert_eq!(shown(20.0, "short"), "20");
    }
}
