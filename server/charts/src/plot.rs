//! Lines over two axes. No plotting crate is used: colours must follow the reader's light or dark scheme, which takes
//! classes and a style sheet, and plotting crates write colours into every element.

use crate::axis::Axis;
use crate::chart::{Chart, element, file};
use crate::frame::{Frame, TOP};
use crate::layout::Layout;
use crate::legend;
use crate::series::Series;
use crate::svg::{LABEL, LINE, Svg, VALUE_GAP};

/// Distance between the names of two vertical lines.
const ROW: f64 = 14.0;

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

impl Chart for Plot {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let lines = self.series.iter().map(Series::description);
        let marks = self.upright.iter().chain(&self.level);
        let marks = marks.map(|mark| format!("{}: {}", mark.name, crate::markup::number(mark.value)));
        let all: Vec<String> = lines.chain(marks).collect();
        format!("{} against {}. {}", self.vertical, self.horizontal, all.join("; "))
    }

    fn draw(&self, svg: &mut Svg, layout: &Layout) -> f64 {
        let frame = self.frame(layout);
        let below = self.draw_axes(svg, &frame, layout);
        // The thick line is below the others and solid lines are below dashed ones, so each shows where they coincide.
        let mut order: Vec<&Series> = self.series.iter().collect();
        order.sort_by_key(|series| (!series.strong, series.colour.map_or(0, |colour| 1 + colour % 6)));
        for series in order {
            series.draw(svg, &frame, self.scattered);
        }
        if self.series.len() > 1 && !self.scattered {
            for (place, series) in self.series.iter().enumerate() {
                series.draw_signs(svg, &frame, (place, self.series.len()), layout);
            }
        }
        self.draw_references(svg, &frame, layout);
        if self.series.len() < 2 {
            below
        } else if layout.narrow {
            legend::below(svg, &self.series, self.scattered, below + 4.0, layout)
        } else {
            legend::right(svg, &self.series, self.scattered, &frame, layout);
            below
        }
    }
}

impl Plot {
    /// The plot as markup for a page that has the style sheet.
    pub fn element(&self) -> String {
        element(self)
    }

    /// The plot as a file of its own.
    pub fn file(&self) -> String {
        file(self)
    }

    fn frame(&self, layout: &Layout) -> Frame {
        let keys = legend::width(&self.series, layout);
        let bottom = if layout.narrow { 260.0 } else { legend::bottom(&self.series).max(352.0) };
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let across = self.across.unwrap_or_else(|| extent(points().map(|point| point.0)));
        let y = match self.up {
            Some((from, to)) => Axis::exact(from, to, (bottom, TOP)),
            None => {
                let inside = points().filter(|point| (across.0..=across.1).contains(&point.0));
                let highest = extent(inside.map(|point| point.1)).1;
                let highest = self.level.iter().map(|line| line.value).fold(highest, f64::max);
                Axis::round(0.0, highest, (bottom, TOP))
            }
        };
        let values = y.ticks().into_iter().map(|tick| layout.text(&y.label(tick))).fold(0.0, f64::max);
        let (least, right) =
            if layout.narrow { (62.0, layout.width - 14.0) } else { (76.0, layout.width - keys.max(16.0)) };
        let left = f64::max(least, LABEL + values + VALUE_GAP);
        let x = Axis::exact(across.0, across.1, (left, right));
        Frame { x, y, left, right, bottom }
    }

    /// Draws the axes, and returns where they end.
    fn draw_axes(&self, svg: &mut Svg, frame: &Frame, layout: &Layout) -> f64 {
        let Frame { x, y, left, right, bottom } = frame;
        for tick in y.ticks() {
            svg.grid_line(*left, *right, y.pixel(tick), &y.label(tick));
        }
        let marks = if self.marks.is_empty() {
            x.ticks().into_iter().map(|tick| (tick, x.label(tick))).collect()
        } else {
            self.marks.clone()
        };
        let mut free = f64::NEG_INFINITY;
        for (tick, label) in marks.iter().filter(|(tick, _)| (x.from()..=x.to()).contains(tick)) {
            let (at, half) = (x.pixel(*tick), layout.text(label) / 2.0);
            if at - half >= free {
                svg.tick(at, *bottom, label);
                free = at + half + 4.0;
            }
        }
        svg.path("frame", &format!("M{left} {bottom:.1}H{right:.1}")).line();
        svg.vertical_label(f64::midpoint(TOP, *bottom), &self.vertical).line();
        let middle = (f64::midpoint(*left, *right), bottom + 38.0);
        bottom + 38.0 - LINE + 8.0 + svg.wrapped(layout, "", "middle", middle, right - left, &self.horizontal)
    }

    fn draw_references(&self, svg: &mut Svg, frame: &Frame, layout: &Layout) {
        let Frame { x, y, left, right, bottom } = frame;
        let mut rows: Vec<f64> = Vec::new();
        for line in self.upright.iter().filter(|line| (x.from()..=x.to()).contains(&line.value)) {
            let at = x.pixel(line.value);
            let width = layout.text(&line.name);
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
            svg.path("mark", &format!("M{left} {at:.1}H{right:.1}"));
            svg.text("", "end", right - 4.0, at + 14.0, &line.name).line();
        }
    }
}

fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (from, to) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), value| (from.min(value), to.max(value)));
    if from > to { (0.0, 1.0) } else { (from, to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let series = |name: &str, colour, points: &[(f64, f64)]| Series {
            strong: colour == Some(0),
            ..Series::new(name, colour, points.to_vec())
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
            "class=\"line s0 thick\"",
            "s1\"",
            "prefers-color-scheme",
            "<desc>% against offered/s. deadline: 1 at 0 to 0.500 at 10, between 0.500 and 1; triton",
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
        let line = |svg: &str| svg.lines().find(|line| line.contains("\"line s0")).map(str::to_owned);
        let path = line(&plot.file()).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 2), "{path}");
        plot.scattered = true;
        plot.marks = vec![(1.0, "<one>".to_owned()), (99.0, "outside".to_owned())];
        let svg = plot.file();
        assert!(line(&svg).is_none() && svg.matches("class=\"sign").count() == 7, "{svg}");
        assert!(svg.contains("&lt;one&gt;") && !svg.contains("outside"), "{svg}");
    }

    #[test]
    fn lines_that_coincide_have_signs_at_different_places() {
        let line = |name: &str, colour| Series::new(name, Some(colour), vec![(0.0, 1.0), (10.0, 1.0)]);
        let plot = Plot { series: vec![line("a", 0), line("b", 1)], ..Plot::default() };
        let places: std::collections::BTreeSet<String> = plot
            .file()
            .split("class=\"sign")
            .skip(1)
            .filter_map(|sign| Some(sign.split_once(" d=\"M")?.1.split('m').next()?.to_owned()))
            .collect();
        assert_eq!(places.len(), 2 * 5 + 2, "five signs a line and two keys: {places:?}");
    }

    #[test]
    fn long_values_do_not_touch_the_label_of_their_axis() {
        let series = Series::new("a", Some(0), vec![(0.0, 0.0), (1.0, 4e9)]);
        let plot = Plot { vertical: "rows/s".to_owned(), series: vec![series], ..Plot::default() };
        for layout in [Layout::BROAD, Layout::NARROW] {
            let width = layout.text("4,000,000,000");
            assert!(plot.frame(&layout).left - VALUE_GAP - width >= LABEL, "{layout:?}");
        }
    }

    #[test]
    fn an_empty_plot_is_still_a_plot() {
        let file = Plot::default().file();
        assert!(file.starts_with("<svg") && file.ends_with("</svg>\n") && !file.contains("NaN"));
    }
}
