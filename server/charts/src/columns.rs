//! Column charts.

use crate::axis::Axis;
use crate::chart::Chart;
use crate::layout::Layout;
use crate::markup::number;
use crate::style::COLOURS;
use crate::svg::{LINE, Svg};

const TOP: f64 = 36.0;
const BOTTOM: f64 = 200.0;
/// Width of the widest column with its gap.
const STEP_MAX: f64 = 64.0;

/// One column.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Label below the column.
    pub name: String,
    /// Height of the column.
    pub value: f64,
    /// Text of its tooltip.
    pub more: String,
}

/// A column chart with its labels.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Title of the chart.
    pub title: String,
    /// Label of the horizontal axis.
    pub horizontal: String,
    /// Label of the vertical axis, with its unit.
    pub vertical: String,
    /// Index of the colour of all columns.
    pub colour: usize,
    /// The columns from left to right.
    pub columns: Vec<Column>,
}

impl Chart for Columns {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let all = self.columns.iter().map(|column| format!("{}: {}", column.name, number(column.value)));
        format!("{} by {}. {}", self.vertical, self.horizontal, all.collect::<Vec<_>>().join("; "))
    }

    fn draw(&self, svg: &mut Svg, layout: &Layout) -> f64 {
        let left = if layout.narrow { 62.0 } else { 76.0 };
        let count = self.columns.len();
        let step = ((layout.width - left - 16.0) / count.max(1) as f64).min(STEP_MAX);
        let right = left + step * count as f64;
        let highest = self.columns.iter().map(|column| column.value).fold(0.0, f64::max);
        let axis = Axis::round(0.0, highest, (BOTTOM, TOP));
        for tick in axis.ticks() {
            svg.grid_line(left, right, axis.pixel(tick), &axis.label(tick));
        }
        let widest = self.columns.iter().map(|column| layout.text(&column.name)).fold(0.0, f64::max) + 6.0;
        let named = (widest / step).ceil().max(1.0) as usize;
        let class = format!("f{}", self.colour % COLOURS);
        for (place, column) in self.columns.iter().enumerate() {
            let (x, y) = (left + step * place as f64, axis.pixel(column.value));
            svg.bar(&class, [x + step * 0.1, y, step * 0.8, BOTTOM - y], &column.more);
            if place.is_multiple_of(named) {
                svg.text("", "middle", x + step / 2.0, BOTTOM + 16.0, &column.name);
            }
            svg.line();
        }
        svg.path("frame", &format!("M{left} {BOTTOM}H{right:.1}"));
        svg.text("", "", left, BOTTOM + 36.0, &self.horizontal);
        svg.vertical_label(f64::midpoint(TOP, BOTTOM), &self.vertical).line();
        BOTTOM + 26.0 + LINE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::file;

    #[test]
    fn a_column_each_and_no_more_names_than_can_be_read() {
        let columns = |count: u32| Columns {
            title: "rows < 5".to_owned(),
            horizontal: "rows".to_owned(),
            vertical: "batches".to_owned(),
            colour: 3,
            columns: (1..=count)
                .map(|rows| Column { name: format!("n{rows}"), value: f64::from(rows), more: String::new() })
                .collect(),
        };
        for (count, names) in [(0, 0), (1, 1), (24, 24), (100, 20)] {
            let svg = file(&columns(count));
            assert_eq!(svg.matches("<rect class=\"f3").count() as u32, count);
            assert_eq!(svg.matches(">n").count(), names, "{svg}");
            assert!(svg.contains("rows &lt; 5") && !svg.contains("NaN"));
        }
    }
}
