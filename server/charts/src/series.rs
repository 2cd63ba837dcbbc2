//! The lines and dots of a plot, and the signs that tell them apart without colour.

use std::fmt::Write as _;

use crate::frame::Frame;
use crate::layout::Layout;
use crate::markup::{escape, number};
use crate::style::COLOURS;
use crate::svg::Svg;

/// Most points of a line with a dot on each.
const DOTS: usize = 40;

/// One line of a plot.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its key.
    pub name: String,
    /// Index of its colour, dashes and sign. `None` for the style of references.
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

    /// The classes of its line.
    pub(crate) fn class(&self) -> String {
        let strong = if self.strong { " thick" } else { "" };
        match self.colour {
            Some(colour) => format!("s{}{strong}", colour % COLOURS),
            None => format!("plain{strong}"),
        }
    }

    /// Its values in words.
    pub(crate) fn description(&self) -> String {
        let points: Vec<_> = self.points.iter().filter(|point| point.1.is_finite()).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return format!("{}: no values", self.name);
        };
        let values = || points.iter().map(|point| point.1);
        let (least, most) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let at = |point: &(f64, f64)| format!("{} at {}", number(point.1), number(point.0));
        format!(
            "{}: {} to {}, between {} and {}",
            self.name,
            at(first),
            at(last),
            number(least),
            number(most)
        )
    }

    /// The pieces of the line inside the frame, in units of the drawing.
    fn pieces(&self, frame: &Frame) -> Vec<Vec<(f64, f64)>> {
        let runs = self.points.split(|(x, y)| !x.is_finite() || !y.is_finite());
        runs.map(|run| clipped(run, frame.x.from(), frame.x.to())).filter(|run| !run.is_empty()).collect()
    }

    /// Where the line ends, in units of the drawing.
    pub(crate) fn end(&self, frame: &Frame) -> Option<(f64, f64)> {
        let pieces = self.pieces(frame);
        pieces.last()?.last().map(|(x, y)| (frame.x.pixel(*x), frame.y.pixel(*y)))
    }

    /// Draws the line, unless values do not form a sequence, and a dot on each of a few points.
    pub(crate) fn draw(&self, svg: &mut Svg, frame: &Frame, scattered: bool) {
        let pieces = self.pieces(frame);
        let name = escape(&self.name);
        let scattered = scattered && self.colour.is_some();
        let mut path = String::new();
        for piece in pieces.iter().filter(|_| !scattered) {
            for (number, (x, y)) in piece.iter().enumerate() {
                let command = if number == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{command}{:.1} {:.1}", frame.x.pixel(*x), frame.y.pixel(*y));
            }
        }
        if !path.is_empty() {
            let class = self.class();
            svg.raw(&format!("<path class=\"line {class}\" d=\"{path}\"><title>{name}</title></path>\n"));
        }
        let Some(colour) = self.colour else { return };
        let few = pieces.iter().map(Vec::len).sum::<usize>() <= DOTS;
        // A single value has no line: only a dot shows it.
        for (x, y) in pieces.iter().filter(|piece| few || scattered || piece.len() == 1).flatten() {
            let (left, top) = (frame.x.pixel(*x), frame.y.pixel(*y));
            let title = format!("{name}: {} at {}", number(*y), number(*x));
            if scattered {
                sign(svg, colour, (left, top), &title);
            } else {
                let (colour, place) =
                    (colour % COLOURS, format!("cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"2.2\""));
                svg.raw(&format!("<circle class=\"f{colour}\" {place}><title>{title}</title></circle>\n"));
            }
        }
    }

    /// Draws signs on the line. Each of `count` lines has them at other places, so they show even where lines coincide.
    pub(crate) fn draw_signs(
        &self,
        svg: &mut Svg,
        frame: &Frame,
        (place, count): (usize, usize),
        layout: &Layout,
    ) {
        let Some(colour) = self.colour else { return };
        let pieces = self.pieces(frame);
        let times = if layout.narrow { 3 } else { 5 };
        for time in 0..times {
            let share = (f64::from(time) + (place as f64 + 0.5) / count.max(1) as f64) / f64::from(times);
            let x = frame.x.from() + share * (frame.x.to() - frame.x.from());
            if let Some(y) = pieces.iter().find_map(|piece| height(piece, x)) {
                sign(svg, colour, (frame.x.pixel(x), frame.y.pixel(y)), &escape(&self.name));
            }
        }
    }
}

/// The height of a line at `x`, if it reaches there.
fn height(points: &[(f64, f64)], x: f64) -> Option<f64> {
    points.windows(2).find_map(|pair| match pair {
        [one, other] if one.0 <= x && x <= other.0 && one.0 < other.0 => {
            Some(one.1 + (x - one.0) / (other.0 - one.0) * (other.1 - one.1))
        }
        _ => None,
    })
}

/// Draws the sign of a colour, with a tooltip that is markup: one of seven shapes.
pub(crate) fn sign(svg: &mut Svg, colour: usize, (x, y): (f64, f64), tooltip: &str) {
    let shape = match colour % 7 {
        0 => "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
        1 => "m-4-4h8v8h-8z",
        2 => "m0-5.5l5 9h-10z",
        3 => "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
        4 => "m0 5.5l-5-9h10z",
        5 => "m-1.7-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
        _ => {
            "m0-2.2l2.6-2.6l2.2 2.2l-2.6 2.6l2.6 2.6l-2.2 2.2l-2.6-2.6l-2.6 2.6l-2.2-2.2l2.6-2.6l-2.6-2.6l2.2-2.2z"
        }
    };
    let title = if tooltip.is_empty() { String::new() } else { format!("<title>{tooltip}</title>") };
    let colour = colour % COLOURS;
    svg.raw(&format!("<path class=\"sign f{colour}\" d=\"M{x:.1} {y:.1}{shape}\">{title}</path>\n"));
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

    #[test]
    fn lines_are_clipped_at_the_edges() {
        let line = [(0.0, 0.0), (2.0, 2.0), (10.0, 10.0)];
        assert_eq!(clipped(&line, 1.0, 4.0), [(1.0, 1.0), (2.0, 2.0), (4.0, 4.0)]);
        assert_eq!(clipped(&line, 3.0, 4.0), [(3.0, 3.0), (4.0, 4.0)]);
        assert_eq!(clipped(&line, -5.0, -1.0), []);
    }

    #[test]
    fn a_line_has_a_height_between_its_points_only() {
        let line = [(1.0, 10.0), (3.0, 20.0)];
        assert_eq!(
            (height(&line, 2.0), height(&line, 0.9), height(&line[..1], 1.0)),
            (Some(15.0), None, None)
        );
    }

    #[test]
    fn values_are_told_in_words() {
        let series = Series::new("a", None, vec![(1.0, 5.0), (2.0, f64::NAN), (3.0, 9.0), (4.0, 1.0)]);
        assert_eq!(series.description(), "a: 5 at 1 to 1 at 4, between 1 and 9");
        assert_eq!(Series::new("b", None, Vec::new()).description(), "b: no values");
    }
}
