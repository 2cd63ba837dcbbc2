//! Draws the batches of lanes in a short window: one row per lane, one box per batch.

use std::collections::BTreeMap;

use super::axis::Axis;
use super::style;
use super::svg::{KEY_STEP, Svg};

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
    let height = bottom + 48.0 + KEY_STEP * key_lines as f64;
    let mut svg = Svg::new(title, WIDTH, height, None);
    for lane in 0..lanes {
        let y = TOP + ROW * f64::from(lane);
        svg.path("grid", &format!("M{LEFT} {y:.1}H{RIGHT}"));
        svg.text("", "end", LEFT - 8.0, y + 14.0, &format!("lane {lane}")).line();
    }
    for bar in bars {
        draw_bar(&mut svg, &axis, bar);
    }
    let words = "milliseconds from the start of the run; numbers are rows of a batch";
    draw_axis(&mut svg, &axis, (LEFT, RIGHT), bottom, words);
    svg.keys(keys, (LEFT, bottom + 48.0, (RIGHT - LEFT) / KEYS_IN_LINE as f64), KEYS_IN_LINE);
    Some(svg.finish())
}

/// Draws the time axis below a plot, with its label.
pub(super) fn draw_axis(svg: &mut Svg, axis: &Axis, (left, right): (f64, f64), bottom: f64, words: &str) {
    for tick in axis.ticks() {
        svg.tick(axis.pixel(tick), bottom, &axis.label(tick));
    }
    svg.path("frame", &format!("M{left} {bottom:.1}H{right}"));
    svg.text("", "middle", f64::midpoint(left, right), bottom + 38.0, words).line();
}

fn draw_bar(svg: &mut Svg, axis: &Axis, bar: &Bar<'_>) {
    let (from, to) = (axis.pixel(bar.from), axis.pixel(bar.to));
    let (y, width) = (TOP + ROW * f64::from(bar.lane) + 2.0, (to - from - 0.6).max(0.4));
    let (rows, colour) = (bar.rows.to_string(), bar.colour % style::COLOURS);
    let tooltip = format!("{}: {rows} rows, {:.2} to {:.2} ms", bar.model, bar.from, bar.to);
    svg.bar(&format!("f{colour}"), [from, y, width, ROW - 4.0], &tooltip);
    if width >= DIGIT * (rows.len() + 1) as f64 {
        svg.text("inside", "middle", f64::midpoint(from, to), y + 11.5, &rows);
    }
    svg.line();
}

/// Names and colours of the models, in the order of their numbers; none for a single model or too many.
fn keys<'a>(bars: &[Bar<'a>]) -> Vec<(usize, &'a str)> {
    let models: BTreeMap<usize, &str> = bars.iter().map(|bar| (bar.colour, bar.model)).collect();
    if !(2..=KEYS_MAX).contains(&models.len()) {
        return Vec::new();
    }
    models.into_iter().map(|(colour, name)| (colour % style::COLOURS, name)).collect()
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
