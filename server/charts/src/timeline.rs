//! Batches of lanes in a short window: one row per lane, one box per batch.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::chart::Chart;
use crate::layout::Layout;
use crate::legend;
use crate::style;
use crate::svg::Svg;

const TOP: f64 = 32.0;
const ROW: f64 = 20.0;

/// A batch on a lane.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// Number of the lane.
    pub lane: u32,
    /// The model's name.
    pub model: &'a str,
    /// Index of the model's colour.
    pub colour: usize,
    /// Rows in the batch.
    pub rows: u32,
    /// Start, in milliseconds from the start of the run.
    pub from: f64,
    /// End, in milliseconds from the start of the run.
    pub to: f64,
}

/// The batches of a window.
#[derive(Clone, Debug, Default)]
pub struct Timeline<'a> {
    /// Title of the chart.
    pub title: String,
    /// The batches in any order.
    pub batches: Vec<Batch<'a>>,
}

impl Timeline<'_> {
    fn extent(&self) -> (f64, f64) {
        let from = self.batches.iter().map(|batch| batch.from).fold(f64::INFINITY, f64::min);
        let to = self.batches.iter().map(|batch| batch.to).fold(f64::NEG_INFINITY, f64::max);
        if from < to { (from, to) } else { (0.0, 1.0) }
    }

    fn lanes(&self) -> u32 {
        self.batches.iter().map(|batch| batch.lane.saturating_add(1)).max().unwrap_or(0)
    }

    /// Names and colours of the models, in the order of their numbers; empty for a single model or too many.
    fn keys(&self) -> Vec<(usize, &str)> {
        let models: BTreeMap<usize, &str> =
            self.batches.iter().map(|batch| (batch.colour, batch.model)).collect();
        if (2..=style::COLOURS).contains(&models.len()) { models.into_iter().collect() } else { Vec::new() }
    }
}

impl Chart for Timeline<'_> {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let ((from, to), batches) = (self.extent(), self.batches.len());
        format!("{batches} batches on {} lanes from {from:.2} to {to:.2} milliseconds", self.lanes())
    }

    fn draw(&self, svg: &mut Svg, layout: &Layout) -> f64 {
        let (left, right) = (64.0, layout.width - 14.0);
        let (from, to) = self.extent();
        let axis = Axis::exact(from, to, (left, right));
        let bottom = TOP + ROW * f64::from(self.lanes());
        for lane in 0..self.lanes() {
            let y = TOP + ROW * f64::from(lane);
            svg.path("grid", &format!("M{left} {y:.1}H{right}"));
            svg.text("", "end", left - 8.0, y + 14.0, &format!("lane {lane}")).line();
        }
        for batch in &self.batches {
            draw_batch(svg, &axis, batch, layout);
        }
        let words = "milliseconds from the start of the run; numbers are rows of a batch";
        let below = draw_axis(svg, &axis, (left, right), bottom, words, layout);
        legend::areas(svg, &self.keys(), below, layout)
    }
}

/// Draws the time axis below a chart, with its label, and returns where it ends.
pub(crate) fn draw_axis(
    svg: &mut Svg,
    axis: &Axis,
    (left, right): (f64, f64),
    bottom: f64,
    words: &str,
    layout: &Layout,
) -> f64 {
    let mut free = f64::NEG_INFINITY;
    for tick in axis.ticks() {
        let (at, label) = (axis.pixel(tick), axis.label(tick));
        let half = layout.text(&label) / 2.0;
        if at - half >= free {
            svg.tick(at, bottom, &label);
            free = at + half + 4.0;
        }
    }
    svg.path("frame", &format!("M{left} {bottom:.1}H{right}"));
    let middle = (f64::midpoint(left, right), bottom + 38.0);
    bottom + 30.0 + svg.wrapped(layout, "", "middle", middle, right - left, words)
}

fn draw_batch(svg: &mut Svg, axis: &Axis, batch: &Batch<'_>, layout: &Layout) {
    let (from, to) = (axis.pixel(batch.from), axis.pixel(batch.to));
    let (y, width) = (TOP + ROW * f64::from(batch.lane) + 2.0, (to - from - 0.6).max(0.4));
    let (rows, colour) = (batch.rows.to_string(), batch.colour % style::COLOURS);
    let tooltip = format!("{}: {rows} rows, {:.2} to {:.2} ms", batch.model, batch.from, batch.to);
    svg.bar(&format!("f{colour}"), [from, y, width, ROW - 4.0], &tooltip);
    if width >= layout.text(&rows) + 5.0 {
        svg.text("inside", "middle", f64::midpoint(from, to), y + 12.0, &rows);
    }
    svg.line();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::file;

    #[test]
    fn batches_are_boxes_on_their_lanes() {
        let batch = |lane, model, colour, from, to| Batch { lane, model, colour, rows: 12, from, to };
        let batches = vec![batch(0, "a<b", 0, 10.0, 30.0), batch(1, "c", 1, 12.0, 12.1)];
        let svg = file(&Timeline { title: "lanes".to_owned(), batches });
        assert!(svg.contains("a&lt;b: 12 rows, 10.00 to 30.00 ms") && svg.contains("lane 1"), "{svg}");
        assert!(svg.contains("<desc>2 batches on 2 lanes from 10.00 to 30.00 milliseconds"), "{svg}");
        assert_eq!(svg.matches("class=\"inside\"").count(), 1, "no number in a box too narrow for it");
        assert!(!file(&Timeline::default()).contains("NaN"));
    }
}
