//! The pictures below `docs/`: SVG that follows the reader's colour scheme, light or dark, readable also on a page 420
//! pixels wide; every line and bar is labelled directly.

use std::error::Error;
use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::cells::short;

/// One bar.
pub struct Bar {
    /// Its label.
    pub name: String,
    /// Its length, in microseconds.
    pub value: f64,
}

/// Bars of one setting.
pub struct Group {
    /// The setting.
    pub caption: String,
    /// From the top.
    pub bars: Vec<Bar>,
}

/// The hand-offs of a peer with this number of waiters.
pub struct Point {
    /// The number of waiters.
    pub waiters: f64,
    /// The median time of a hand-off.
    pub time_us: f64,
    /// Reads and writes of the server per hand-off.
    pub messages: f64,
}

/// One peer.
pub struct Line {
    /// Its name.
    pub name: String,
    /// By rising number of waiters.
    pub points: Vec<Point>,
}

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), Box<dyn Error + Send + Sync>>;
pub type Pixel = (i32, i32);

/// The name that is drawn in the accent colour.
pub const OURS: &str = "this module";

pub const ACCENT: RGBColor = RGBColor(0, 110, 144);
pub const OTHERS: [RGBColor; 2] = [RGBColor(224, 146, 40), RGBColor(164, 58, 48)];
const QUIET: RGBColor = RGBColor(183, 192, 201);
pub const INK: RGBColor = RGBColor(36, 41, 47);
pub const FAINT: RGBColor = RGBColor(101, 109, 118);
pub const GRID: RGBColor = RGBColor(229, 232, 236);
/// The fourth and the fifth line of a panel.
pub const MORE: [RGBColor; 2] = [RGBColor(92, 122, 60), RGBColor(120, 90, 160)];

/// What each colour is on a dark page; the background, ink and grey are those of docs/architecture.svg.
const DARK: [(RGBColor, &str); 10] = [
    (WHITE, "#0d1117"),
    (INK, "#e6edf3"),
    (FAINT, "#9198a1"),
    (GRID, "#2a313c"),
    (QUIET, "#656c76"),
    (ACCENT, "#3fb0d3"),
    (OTHERS[0], "#e09228"),
    (OTHERS[1], "#e5746a"),
    (MORE[0], "#8fb35f"),
    (MORE[1], "#b094d9"),
];

/// The backend writes a font's size divided by 1.24: these come out as 20, 16 and 15 pixels, of which 15, 12
/// and 11 are left at a width of 420.
const TITLE: f64 = 24.8;
pub const LABEL: f64 = 19.8;
pub const SMALL: f64 = 18.6;

const WIDTH: i32 = 560;

pub fn text(area: &Area, words: &str, size: f64, colour: RGBColor, at: Pixel, from: HPos) -> Drawn {
    let style = ("sans-serif", size).into_font().color(&colour);
    let style = style.pos(Pos::new(from, VPos::Center));
    area.draw(&Text::new(words, at, style))?;
    Ok(())
}

pub fn heading(area: &Area, words: &str, subtitle: &str) -> Drawn {
    area.fill(&WHITE)?;
    let style = ("sans-serif", TITLE, FontStyle::Bold)
        .into_font()
        .color(&INK);
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(words, (24, 28), style))?;
    text(area, subtitle, SMALL, FAINT, (24, 52), HPos::Left)
}

pub fn save(path: &Path, height: i32, draw: impl FnOnce(&Area) -> Drawn) -> io::Result<()> {
    let mut drawn = String::new();
    {
        let size = (WIDTH as u32, height as u32);
        let area = SVGBackend::with_string(&mut drawn, size).into_drawing_area();
        draw(&area).map_err(io::Error::other)?;
        area.present().map_err(io::Error::other)?;
    }
    let (head, body) = drawn.split_once(">\n").unwrap_or_default();
    std::fs::write(path, format!("{head}>\n{}{body}", dark_style()))
}

/// The rules that replace the attributes of colour on a dark page.
fn dark_style() -> String {
    let rule = |(colour, dark): &(RGBColor, &str)| {
        let words = for_words(*colour);
        let mut names = vec![hex(*colour)];
        if *colour != WHITE {
            names.push(hex(words));
        }
        let of = |property: &str| {
            let selectors: Vec<_> = names
                .iter()
                .map(|name| format!("[{property}=\"{name}\"]"))
                .collect();
            format!("{} {{ {property}: {dark} }}\n", selectors.join(", "))
        };
        of("fill") + &of("stroke")
    };
    let rules: String = DARK.iter().map(rule).collect();
    format!("<style>@media (prefers-color-scheme: dark) {{\n{rules}}}</style>\n")
}

/// As the backend writes a colour.
fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Horizontal bars in groups: the server's time for an acquire and a release.
pub fn pair_cost(path: &Path, groups: &[Group], subtitle: &str) -> io::Result<()> {
    const TOP: i32 = 92;
    const STEP: i32 = 32;
    const NAMES_END: i32 = 270;
    const LONGEST: f64 = 200.0;
    let values = groups.iter().flat_map(|group| &group.bars);
    let most = values.map(|bar| bar.value).fold(0.0, f64::max);
    let rows: usize = groups.iter().map(|group| group.bars.len() + 1).sum();
    let gaps = 10 * groups.len() as i32;
    save(path, TOP + STEP * rows as i32 + gaps - 8, |area| {
        heading(area, "Server CPU for one acquire and release", subtitle)?;
        let mut y = TOP;
        for group in groups {
            text(area, &group.caption, SMALL, FAINT, (24, y), HPos::Left)?;
            for bar in &group.bars {
                y += STEP;
                let ours = bar.name.starts_with(OURS);
                let colour = if ours { ACCENT } else { QUIET };
                let end = NAMES_END + (bar.value / most * LONGEST).round() as i32;
                let corners = [(NAMES_END, y - 11), (end, y + 11)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                let name = (NAMES_END - 10, y);
                text(area, &bar.name, LABEL, INK, name, HPos::Right)?;
                let value = format!("{} µs", short(bar.value));
                text(area, &value, LABEL, INK, (end + 8, y), HPos::Left)?;
            }
            y += STEP + 10;
        }
        Ok(())
    })
}

/// Two panels over the number of waiters: how long a hand-off takes, and how many messages.
pub fn hand_offs(path: &Path, lines: &[Line]) -> io::Result<()> {
    let subtitle = "One lock, by the number of clients that wait; logarithmic scales";
    save(path, 2 * PANEL_STEP + 82, |area| {
        heading(area, "Hand-off", subtitle)?;
        let time = Panel::new(122, lines, |point| point.time_us);
        let title = "From the release to the next one's grant (p50)";
        time.draw(area, title, lines, duration)?;
        let messages = Panel::new(122 + PANEL_STEP, lines, |point| point.messages);
        messages.draw(area, "Messages of the server per hand-off", lines, plain)
    })
}

pub fn duration(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{} µs", plain(us)),
        us if us < 1_000_000.0 => format!("{} ms", plain(us / 1_000.0)),
        us => format!("{} s", plain(us / 1_000_000.0)),
    }
}

/// Two significant digits, or all before the point.
fn plain(value: f64) -> String {
    if value < 9.95 && (value - value.round()).abs() > 0.05 {
        format!("{value:.1}")
    } else {
        short(value.round())
            .trim_end_matches(".00")
            .trim_end_matches(".0")
            .into()
    }
}

const PANEL_LEFT: i32 = 92;
const PANEL_HEIGHT: i32 = 230;
const PANEL_WIDTH: f64 = 300.0;
/// The distance between two panels.
const PANEL_STEP: i32 = 330;

/// Two logarithmic scales, from one power of ten to another.
struct Panel {
    top: i32,
    of: fn(&Point) -> f64,
    x_decades: (i32, i32),
    y_decades: (i32, i32),
}

impl Panel {
    fn new(top: i32, lines: &[Line], of: fn(&Point) -> f64) -> Panel {
        let points = || lines.iter().flat_map(|line| &line.points);
        Panel {
            top,
            of,
            x_decades: decades(points().map(|point| point.waiters)),
            y_decades: decades(points().map(of)),
        }
    }

    fn x(&self, waiters: f64) -> i32 {
        PANEL_LEFT + (PANEL_WIDTH * share(waiters, self.x_decades)).round() as i32
    }

    fn y(&self, value: f64) -> i32 {
        let height = f64::from(PANEL_HEIGHT);
        self.bottom() - (height * share(value, self.y_decades)).round() as i32
    }

    fn bottom(&self) -> i32 {
        self.top + PANEL_HEIGHT
    }

    fn draw(&self, area: &Area, title: &str, lines: &[Line], show: fn(f64) -> String) -> Drawn {
        let right = PANEL_LEFT + PANEL_WIDTH as i32;
        text(area, title, LABEL, INK, (24, self.top - 28), HPos::Left)?;
        for decade in self.y_decades.0..=self.y_decades.1 {
            let value = 10_f64.powi(decade);
            let y = self.y(value);
            area.draw(&PathElement::new([(PANEL_LEFT, y), (right, y)], GRID))?;
            text(
                area,
                &show(value),
                SMALL,
                FAINT,
                (PANEL_LEFT - 8, y),
                HPos::Right,
            )?;
        }
        for decade in self.x_decades.0..=self.x_decades.1 {
            let value = 10_f64.powi(decade);
            let at = (self.x(value), self.bottom() + 18);
            text(area, &plain(value), SMALL, FAINT, at, HPos::Center)?;
        }
        let middle = (PANEL_LEFT + right) / 2;
        text(
            area,
            "waiters",
            SMALL,
            FAINT,
            (middle, self.bottom() + 40),
            HPos::Center,
        )?;
        let colours = colours(lines);
        // The module's line is broad and drawn first; the others are thin and drawn over it, and the one that comes
        // close to it is dashed: where two lines coincide, both are visible.
        for (line, colour) in lines.iter().zip(&colours) {
            let path: Vec<Pixel> = line.points.iter().map(|point| self.at(point)).collect();
            let (width, size) = if line.name == OURS { (7, 7) } else { (3, 4) };
            let strokes = match *colour == OTHERS[0] {
                true => dashes(&path),
                false => vec![path.clone()],
            };
            for stroke in strokes {
                area.draw(&PathElement::new(stroke, colour.stroke_width(width)))?;
            }
            for at in path {
                area.draw(&Circle::new(at, size, colour.filled()))?;
            }
        }
        self.name_lines(area, lines, &colours, show)
    }

    fn at(&self, point: &Point) -> Pixel {
        (self.x(point.waiters), self.y((self.of)(point)))
    }

    /// Names and last values at the ends of the lines.
    fn name_lines(
        &self,
        area: &Area,
        lines: &[Line],
        colours: &[RGBColor],
        show: fn(f64) -> String,
    ) -> Drawn {
        let ends = lines.iter().map(|line| line.points.last());
        let wanted: Vec<i32> = ends
            .map(|end| end.map_or(self.bottom(), |end| self.at(end).1))
            .collect();
        let left = PANEL_LEFT + PANEL_WIDTH as i32 + 14;
        for ((line, colour), y) in lines.iter().zip(colours).zip(spread(&wanted, 42)) {
            let last = line
                .points
                .last()
                .map_or_else(String::new, |end| show((self.of)(end)));
            let colour = for_words(*colour);
            text(area, &line.name, SMALL, colour, (left, y - 9), HPos::Left)?;
            text(area, &last, SMALL, colour, (left, y + 9), HPos::Left)?;
        }
        Ok(())
    }
}

fn colours(lines: &[Line]) -> Vec<RGBColor> {
    let mut others = OTHERS.iter().cycle();
    let colour = |line: &Line| {
        if line.name == OURS {
            ACCENT
        } else {
            *others.next().unwrap_or(&INK)
        }
    };
    lines.iter().map(colour).collect()
}

/// Dark enough for text on white.
pub fn for_words(RGBColor(red, green, blue): RGBColor) -> RGBColor {
    let darker = |part: u8| (f64::from(part) * 0.72).round() as u8;
    RGBColor(darker(red), darker(green), darker(blue))
}

/// A path as pieces of ten pixels, each with a gap of eight behind it.
fn dashes(path: &[Pixel]) -> Vec<Vec<Pixel>> {
    let mut dashes = Vec::new();
    for ends in path.windows(2) {
        let (dx, dy) = (ends[1].0 - ends[0].0, ends[1].1 - ends[0].1);
        let length = f64::from(dx).hypot(f64::from(dy));
        let along = |way: f64| {
            let share = (way / length).min(1.0);
            let step = |from: i32, by: i32| from + (f64::from(by) * share).round() as i32;
            (step(ends[0].0, dx), step(ends[0].1, dy))
        };
        let mut way = 0.0;
        while way < length {
            dashes.push(vec![along(way), along(way + 10.0)]);
            way += 18.0;
        }
    }
    dashes
}

/// The powers of ten around these values.
pub fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let (least, most) = values
        .filter(|value| *value > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
            (least.min(value), most.max(value))
        });
    if most == 0.0 {
        return (0, 1);
    }
    let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    (first, last.max(first + 1))
}

/// The position of a value between two powers of ten, from 0 to 1.
pub fn share(value: f64, (first, last): (i32, i32)) -> f64 {
    (value.log10() - f64::from(first)) / f64::from(last - first)
}

/// The wanted heights with at least this distance between them: a label that is too close to one below it is moved
/// upwards.
pub fn spread(wanted: &[i32], room: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    // Of equal heights, the earlier one is above.
    order.sort_by_key(|at| wanted[*at]);
    let mut placed = wanted.to_vec();
    for pair in (1..order.len()).rev() {
        let (above, below) = (order[pair - 1], order[pair]);
        placed[above] = placed[above].min(placed[below] - room);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_reach_from_one_power_of_ten_to_another() {
        assert_eq!(decades([4.0, 27_000.0].into_iter()), (0, 5));
        assert_eq!(decades([10.0].into_iter()), (1, 2));
        assert_eq!(decades([].into_iter()), (0, 1));
        assert_eq!(share(100.0, (1, 3)), 0.5);
    }

    #[test]
    fn names_that_are_too_close_are_pushed_apart() {
        assert_eq!(spread(&[300, 300, 100], 30), [270, 300, 100]);
        assert_eq!(spread(&[300, 310, 305], 30), [250, 310, 280]);
    }

    #[test]
    fn a_dashed_line_ends_where_the_line_does() {
        let drawn = dashes(&[(0, 0), (25, 0)]);
        assert_eq!(drawn, [[(0, 0), (10, 0)], [(18, 0), (25, 0)]]);
    }

    #[test]
    fn values_are_shown_with_their_units() {
        let shown: Vec<String> = [7.26, 41.7, 2_234.0, 241_000.0].map(duration).into();
        assert_eq!(shown, ["7.3 µs", "42 µs", "2.2 ms", "241 ms"]);
        assert_eq!(plain(27_015.2), "27,015");
        assert_eq!(plain(4.0), "4");
    }

    #[test]
    fn pictures_name_everything_in_them() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let bar = |name: &str, value| Bar {
            name: name.into(),
            value,
        };
        let bars = dir.path().join("bars.svg");
        pair_cost(
            &bars,
            &[Group {
                caption: "no AOF".into(),
                bars: vec![bar("SET NX PX, DEL", 4.2), bar("this module", 6.1)],
            }],
            "on a server",
        )?;
        let point = |waiters, time_us, messages| Point {
            waiters,
            time_us,
            messages,
        };
        let line = |name: &str, points| Line {
            name: name.into(),
            points,
        };
        let crowds = dir.path().join("crowds.svg");
        hand_offs(
            &crowds,
            &[
                line(OURS, vec![point(1.0, 40.0, 4.0), point(1_000.0, 42.0, 4.0)]),
                line(
                    "herd",
                    vec![point(1.0, 80.0, 13.0), point(1_000.0, 19_000.0, 3_000.0)],
                ),
            ],
        )?;
        let (bars, crowds) = (
            std::fs::read_to_string(bars)?,
            std::fs::read_to_string(crowds)?,
        );
        for name in ["SET NX PX, DEL", OURS, "4.20 µs", "on a server", "no AOF"] {
            assert!(bars.contains(name), "{name}");
        }
        for name in ["herd", OURS, "42 µs", "19 ms", "3,000", "waiters"] {
            assert!(crowds.contains(name), "{name}");
        }
        // Every colour has one for dark pages.
        for drawn in [bars, crowds] {
            let (style, body) = drawn.split_once("</style>").unwrap_or_default();
            for colour in body.split("\"#").skip(1).map(|rest| &rest[..6]) {
                assert!(style.contains(&format!("\"#{colour}\"")), "{colour}");
            }
        }
        Ok(())
    }
}
