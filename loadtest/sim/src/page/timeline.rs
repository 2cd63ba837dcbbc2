//! Draws the batches of lanes in a short window: one row per lane, one box per batch.

use std::fmt::Write as _;

use super::axis::Axis;
use super::markup::escape;
use super::style;

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 984.0;
const TOP: f64 = 32.0;
const ROW: f64 = 20.0;
/// Narrowest box with its rows written inside, for each digit.
const DIGIT: f64 = 8.0;
/// Keys that stand in a line.
const KEYS_IN_LINE: usize = 6;
/// Models that are told apart by name.
const KEYS_MAX: usize = style::COLOURS;

/// A batch on a lane.
#[derive(Clone, Debug)]
pub(crate) struct Bar<'a> {
    /// Number of the lane.
    pub(crate) lane: u32,
    /// The model's name.
    pub(crate) model: &'a str,
    /// Index of the model's colour.
    pub(crate) colour: usize,
    /// Rows in the batch.
    pub(crate) rows: u32,
    /// Start, in milliseconds from the start of the run.
    pub(crate) from: f64,
    /// End, in milliseconds from the start of the run.
    pub(crate) to: f64,
}

/// Draws the window as an SVG element. `None` without batches.
pub(crate) fn draw(title: &str, bars: &[Bar<'_>]) -> Option<String> {
    let lanes = bars.iter().map(|bar| bar.lane).max()? + 1;
    let from = bars.iter().map(|bar| bar.from).fold(f64::INFINITY, f64::min);
    let to = bars.iter().map(|bar| bar.to).fold(f64::NEG_INFINITY, f64::max);
    let axis = Axis::exact(from, to, (LEFT, RIGHT));
    let bottom = TOP + ROW * f64::from(lanes);
    let keys = keys(bars);
    let key_lines = keys.len().div_ceil(KEYS_IN_LINE);
    let height = bottom + 48.0 + 20.0 * key_lines as f64;
    let mut svg = format!(
        "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\">\n<text class=\"title\" x=\"0\" y=\"18\">{0}</text>\n",
        escape(title)
    );
    for lane in 0..lanes {
        let y = TOP + ROW * f64::from(lane);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">lane {lane}</text>",
            LEFT - 8.0,
            y + 14.0
        );
    }
    for bar in bars {
        draw_bar(&mut svg, &axis, bar);
    }
    draw_axis(&mut svg, &axis, bottom, "milliseconds from the start of the run; numbers are rows of a batch");
    for (number, (name, colour)) in keys.iter().enumerate() {
        let column = (RIGHT - LEFT) / KEYS_IN_LINE as f64;
        let x = LEFT + column * (number % KEYS_IN_LINE) as f64;
        let y = bottom + 48.0 + 20.0 * (number / KEYS_IN_LINE) as f64;
        let _ = writeln!(
            svg,
            "<rect class=\"f{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" rx=\"2\"/><text class=\"key\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 18.0,
            y + 10.0,
            escape(name)
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// Draws the time axis below a plot, with its label.
pub(super) fn draw_axis(svg: &mut String, axis: &Axis, bottom: f64, words: &str) {
    for tick in axis.ticks() {
        let at = axis.pixel(tick);
        let _ = writeln!(
            svg,
            "<path class=\"frame\" d=\"M{at:.1} {bottom:.1}v4\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            axis.label(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<path class=\"frame\" d=\"M{LEFT} {bottom:.1}H{RIGHT}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{words}</text>",
        f64::midpoint(LEFT, RIGHT),
        bottom + 38.0
    );
}

fn draw_bar(svg: &mut String, axis: &Axis, bar: &Bar<'_>) {
    let (from, to) = (axis.pixel(bar.from), axis.pixel(bar.to));
    let (y, width) = (TOP + ROW * f64::from(bar.lane) + 2.0, (to - from - 0.6).max(0.4));
    let (rows, colour) = (bar.rows.to_string(), bar.colour % style::COLOURS);
    let _ = write!(
        svg,
        "<rect class=\"f{colour}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"1.5\"><title>{}: {rows} rows, {:.2} to {:.2} ms</title></rect>",
        ROW - 4.0,
        escape(bar.model),
        bar.from,
        bar.to
    );
    if width >= DIGIT * (rows.len() + 1) as f64 {
        let _ = write!(
            svg,
            "<text class=\"inside\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{rows}</text>",
            f64::midpoint(from, to),
            y + 11.5
        );
    }
    svg.push('\n');
}

/// Names and colours of the models, in the order of their numbers; none for a single model or too many.
fn keys(bars: &[Bar<'_>]) -> Vec<(String, usize)> {
    let models: std::collections::BTreeMap<usize, &str> =
        bars.iter().map(|bar| (bar.colour, bar.model)).collect();
    if !(2..=KEYS_MAX).contains(&models.len()) {
        return Vec::new();
    }
    models.into_iter().map(|(colour, name)| (name.to_owned(), colour % style::COLOURS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_boxes_on_their_lanes() {
        let bar = |lane, model, colour, from, to| Bar { lane, model, colour, rows: 12, from, to };
        let svg = draw("lanes", &[bar(0, "a<b", 0, 10.0, 30.0), bar(1, "c", 1, 12.0, 12.1)]).unwrap();
        assert!(svg.contains("a&lt;b: 12 rows, 10.00 to 30.00 ms") && svg.contains("lane 1"), "{svg}");
        assert_eq!(svg.matches("class=\"inside\"").count(), 1, "no number in a box too narrow for it");
        assert!(draw("lanes", &[]).is_none());
    }
}
