//! Draws lines over two axes as SVG. No plotting crate is used: colours must follow the reader's light or dark scheme,
//! which takes classes and a style sheet, and plotting crates write colours into every element.

use std::fmt::Write as _;

use super::axis::Axis;
use super::markup::{escape, number};
use super::style;
use super::svg::{KEY_STEP, Svg};

const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 48.0;
/// Width of an average letter at the size of keys.
const LETTER: f64 = 7.2;
/// Distance between the names of two vertical lines.
const ROW: f64 = 13.0;
/// Most points of a line with a dot on each.
const DOTS: usize = 40;

/// One line of a plot.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its key.
    pub name: String,
    /// Index of its colour. `None` for the colour of references.
    pub colour: Option<usize>,
    /// Whether the line is thicker than the others.
    pub strong: bool,
    /// Horizontal and vertical value, ascending horizontally. NaN interrupts the line.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A line of ordinary strength.
    pub fn new(name: impl Into<String>, colour: Option<usize>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), colour, strong: false, points }
    }
}

/// A value with a line across the plot.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Short label.
    pub name: String,
    /// Position on the axis.
    pub value: f64,
}

impl Reference {
    /// A line across the plot at `value`.
    pub fn new(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), value }
    }
}

/// Lines over two axes.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// Title of the plot.
    pub title: String,
    /// Label of the horizontal axis, with its unit.
    pub horizontal: String,
    /// Label of the vertical axis, with its unit.
    pub vertical: String,
    /// Lines, in the order of their keys.
    pub series: Vec<Series>,
    /// Vertical reference lines.
    pub upright: Vec<Reference>,
    /// Horizontal reference lines.
    pub level: Vec<Reference>,
    /// Ticks of a horizontal axis that is not linear: position and label. If empty, ticks follow from the data.
    pub marks: Vec<(f64, String)>,
    /// Whether coloured series are dots without lines: for values that do not form a sequence.
    pub scattered: bool,
    /// Range of the horizontal axis. `None` takes it from the data.
    pub across: Option<(f64, f64)>,
    /// Range of the vertical axis. `None` takes it from the data, starting at 0.
    pub up: Option<(f64, f64)>,
}

struct Frame {
    x: Axis,
    y: Axis,
    right: f64,
    bottom: f64,
}

impl Plot {
    /// The plot as an SVG element for a page that has the style sheet of plots.
    pub fn element(&self) -> String {
        self.draw(None)
    }

    /// The plot as a file of its own.
    pub fn file(&self) -> String {
        self.draw(Some(style::PLOT))
    }

    fn draw(&self, style: Option<&str>) -> String {
        let frame = self.frame();
        let height = HEIGHT.max(TOP + KEY_STEP * self.series.len() as f64 + 8.0);
        let mut svg = Svg::new(&self.title, WIDTH, height, style);
        self.draw_axes(&mut svg, &frame);
        // Strong lines last, so that nothing hides them.
        let (strong, others): (Vec<_>, Vec<_>) = self.series.iter().partition(|series| series.strong);
        for series in others.into_iter().chain(strong) {
            draw_series(&mut svg, &frame, series, self.scattered);
        }
        self.draw_references(&mut svg, &frame);
        self.draw_keys(&mut svg, &frame);
        svg.finish()
    }

    fn frame(&self) -> Frame {
        let longest = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        let keys = if self.series.len() > 1 { 48.0 + LETTER * longest as f64 } else { 16.0 };
        let (right, bottom) = (WIDTH - keys.min(WIDTH / 3.0), HEIGHT - BOTTOM);
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let across = self.across.unwrap_or_else(|| extent(points().map(|point| point.0)));
        let x = Axis::exact(across.0, across.1, (LEFT, right));
        let y = match self.up {
            Some((from, to)) => Axis::exact(from, to, (bottom, TOP)),
            None => {
                let inside = points().filter(|point| (across.0..=across.1).contains(&point.0));
                let highest = extent(inside.map(|point| point.1)).1;
                let highest = self.level.iter().map(|line| line.value).fold(highest, f64::max);
                Axis::round(0.0, highest, (bottom, TOP))
            }
        };
        Frame { x, y, right, bottom }
    }

    fn draw_axes(&self, svg: &mut Svg, frame: &Frame) {
        let Frame { x, y, right, bottom } = frame;
        for tick in y.ticks() {
            svg.grid_line(LEFT, *right, y.pixel(tick), &y.label(tick));
        }
        let marks = if self.marks.is_empty() {
            x.ticks().into_iter().map(|tick| (tick, x.label(tick))).collect()
        } else {
            self.marks.clone()
        };
        for (tick, label) in marks.iter().filter(|(tick, _)| (x.from()..=x.to()).contains(tick)) {
            svg.tick(x.pixel(*tick), *bottom, label);
        }
        svg.path("frame", &format!("M{LEFT} {bottom:.1}H{right:.1}")).line();
        svg.text("", "middle", f64::midpoint(LEFT, *right), bottom + 40.0, &self.horizontal).line();
        svg.vertical_label(f64::midpoint(TOP, *bottom), &self.vertical).line();
    }

    fn draw_references(&self, svg: &mut Svg, frame: &Frame) {
        let Frame { x, y, right, bottom } = frame;
        let mut rows: Vec<f64> = Vec::new();
        for line in self.upright.iter().filter(|line| (x.from()..=x.to()).contains(&line.value)) {
            let at = x.pixel(line.value);
            let width = LETTER * line.name.chars().count() as f64;
            let (anchor, shift) = if at + width > *right { ("end", -5.0) } else { ("start", 5.0) };
            let (from, to) = if shift < 0.0 { (at - width, at) } else { (at, at + width) };
            // Overlapping names are drawn one below the other.
            let row = rows.iter().position(|&end| end < from).unwrap_or(rows.len());
            match rows.get_mut(row) {
                Some(end) => *end = to,
                None => rows.push(to),
            }
            svg.path("mark", &format!("M{at:.1} {:.1}V{bottom:.1}", TOP - 10.0));
            svg.text("", anchor, at + shift, TOP - 4.0 + ROW * row as f64, &line.name).line();
        }
        for line in self.level.iter().filter(|line| (y.from()..=y.to()).contains(&line.value)) {
            let at = y.pixel(line.value);
            svg.path("mark", &format!("M{LEFT} {at:.1}H{right:.1}"));
            svg.text("", "end", right - 4.0, at + 14.0, &line.name).line();
        }
    }

    /// Draws one key per line, to the right of the plot. A single line needs none: the title names it.
    fn draw_keys(&self, svg: &mut Svg, frame: &Frame) {
        if self.series.len() < 2 {
            return;
        }
        let from = frame.right + 12.0;
        for (number, series) in self.series.iter().enumerate() {
            let y = TOP + KEY_STEP * number as f64 + 8.0;
            match series.colour.filter(|_| self.scattered) {
                Some(colour) => {
                    let (colour, x) = (colour % style::COLOURS, from + 11.0);
                    svg.raw(&format!("<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"))
                }
                None => svg.path(&format!("line {}", class(series)), &format!("M{from:.1} {y:.1}h22")),
            };
            svg.text("key", "", from + 28.0, y + 4.0, &series.name).line();
        }
    }
}

fn class(series: &Series) -> String {
    let strong = if series.strong { " strong" } else { "" };
    match series.colour {
        Some(colour) => format!("s{}{strong}", colour % style::COLOURS),
        None => format!("plain{strong}"),
    }
}

fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (from, to) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), value| (from.min(value), to.max(value)));
    if from > to { (0.0, 1.0) } else { (from, to) }
}

fn draw_series(svg: &mut Svg, frame: &Frame, series: &Series, scattered: bool) {
    let scattered = scattered && series.colour.is_some();
    let runs = series.points.split(|(x, y)| !x.is_finite() || !y.is_finite());
    let runs: Vec<_> = runs.map(|run| clipped(run, frame.x.from(), frame.x.to())).collect();
    let mut path = String::new();
    for run in runs.iter().filter(|_| !scattered) {
        for (number, (x, y)) in run.iter().enumerate() {
            let command = if number == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", frame.x.pixel(*x), frame.y.pixel(*y));
        }
    }
    let name = escape(&series.name);
    if !path.is_empty() {
        let class = class(series);
        svg.raw(&format!("<path class=\"line {class}\" d=\"{path}\"><title>{name}</title></path>\n"));
    }
    let Some(colour) = series.colour else { return };
    let colour = colour % style::COLOURS;
    let few = runs.iter().map(Vec::len).sum::<usize>() <= DOTS;
    let radius = if scattered { 4.5 } else { 2.5 };
    // A single value has no line: only a dot shows it.
    for (x, y) in runs.iter().filter(|run| few || scattered || run.len() == 1).flatten() {
        let (left, top) = (frame.x.pixel(*x), frame.y.pixel(*y));
        let place = format!("cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"{radius}\"");
        let title = format!("{name}: {} at {}", number(*y), number(*x));
        svg.raw(&format!("<circle class=\"f{colour}\" {place}><title>{title}</title></circle>\n"));
    }
}

/// The part of a line between two vertical edges, clipped where it crosses them.
fn clipped(points: &[(f64, f64)], from: f64, to: f64) -> Vec<(f64, f64)> {
    let mut inside: Vec<(f64, f64)> = Vec::new();
    let mut previous: Option<(f64, f64)> = None;
    for &point in points {
        if let Some(before) = previous {
            for edge in [from, to] {
                if before.0 < edge && edge < point.0 {
                    let share = (edge - before.0) / (point.0 - before.0);
                    inside.push((edge, before.1 + share * (point.1 - before.1)));
                }
            }
        }
        if (from..=to).contains(&point.0) {
            inside.push(point);
        }
        previous = Some(point);
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let series = |name: &str, colour, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            colour,
            strong: colour == Some(0),
            points: points.to_vec(),
        };
        Plot {
            title: "Attainment <b>".to_owned(),
            horizontal: "offered/s".to_owned(),
            vertical: "%".to_owned(),
            series: vec![
                series("deadline", Some(0), &[(0.0, 1.0), (10.0, 0.5)]),
                series("triton & co", Some(15), &[(0.0, 1.0), (10.0, f64::NAN)]),
            ],
            upright: vec![Reference { name: "the workload".to_owned(), value: 5.0 }],
            level: vec![Reference { name: "99 %".to_owned(), value: 0.99 }],
            ..Plot::default()
        }
    }

    #[test]
    fn a_plot_shows_what_it_was_given_and_nothing_from_elsewhere() {
        let file = plot().file();
        for text in [
            "Attainment &lt;b&gt;",
            "triton &amp; co",
            "the workload",
            "99 %",
            "class=\"line s0 strong\"",
            "s1\"",
            "prefers-color-scheme",
        ] {
            assert!(file.contains(text), "{text} in {file}");
        }
        assert_eq!(file.matches("http").count(), 1, "the name space alone");
        assert!(!file.contains("NaN") && !file.contains("inf"), "{file}");
        assert!(!plot().element().contains("<style>"));
        assert_eq!(plot().file(), file);
    }

    #[test]
    fn nan_interrupts_its_line() {
        let mut plot = plot();
        plot.series[0].points = vec![(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0), (10.0, 1.0)];
        let lines = |svg: &str| svg.matches("<title>deadline</title>").count();
        let svg = plot.element();
        let path = svg.lines().find(|line| line.contains("<title>deadline</title>")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 2), "{path}");
        plot.scattered = true;
        plot.marks = vec![(1.0, "<one>".to_owned()), (99.0, "outside".to_owned())];
        let svg = plot.element();
        assert!(lines(&svg) == 0 && svg.matches("r=\"4.5\"").count() == 7, "{svg}");
        assert!(svg.contains("&lt;one&gt;") && !svg.contains("outside"), "{svg}");
    }

    #[test]
    fn an_empty_plot_is_still_a_plot() {
        let file = Plot::default().file();
        assert!(file.starts_with("<svg") && file.ends_with("</svg>\n") && !file.contains("NaN"));
    }

    #[test]
    fn lines_are_clipped_at_the_edges() {
        let line = [(0.0, 0.0), (2.0, 2.0), (10.0, 10.0)];
        assert_eq!(clipped(&line, 1.0, 4.0), [(1.0, 1.0), (2.0, 2.0), (4.0, 4.0)]);
        assert_eq!(clipped(&line, 3.0, 4.0), [(3.0, 3.0), (4.0, 4.0)]);
        assert_eq!(clipped(&line, -5.0, -1.0), []);
    }
}
