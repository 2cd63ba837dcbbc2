//! Column charts.

use sim::page::{Axis, COLOURS, Svg};

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 200.0;
const HEIGHT: f64 = 246.0;
/// Width of the widest column with its gap.
const STEP_MAX: f64 = 64.0;
/// Number of columns above which only some are labelled.
const NAMES_MAX: usize = 24;

/// One column.
pub(super) struct Column {
    /// Label below the column.
    pub(super) name: String,
    pub(super) value: f64,
    /// Text of its tooltip.
    pub(super) more: String,
}

/// A column chart with its labels.
pub(super) struct Columns<'a> {
    pub(super) title: &'a str,
    pub(super) horizontal: &'a str,
    pub(super) vertical: &'a str,
    pub(super) colour: usize,
    pub(super) columns: Vec<Column>,
}

impl Columns<'_> {
    /// An SVG element for a page that has the style sheet of plots.
    pub(super) fn element(&self) -> String {
        let count = self.columns.len();
        let step = ((WIDTH - LEFT - 16.0) / count.max(1) as f64).min(STEP_MAX);
        let right = LEFT + step * count as f64;
        let highest = self.columns.iter().map(|column| column.value).fold(0.0, f64::max);
        let axis = Axis::round(0.0, highest, (BOTTOM, TOP));
        let mut svg = Svg::new(self.title, WIDTH, HEIGHT, None);
        for tick in axis.ticks() {
            svg.grid_line(LEFT, right, axis.pixel(tick), &axis.label(tick));
        }
        let named = count.div_ceil(NAMES_MAX).max(1);
        let class = format!("f{}", self.colour % COLOURS);
        for (place, column) in self.columns.iter().enumerate() {
            let (x, y) = (LEFT + step * place as f64, axis.pixel(column.value));
            svg.bar(&class, [x + step * 0.1, y, step * 0.8, BOTTOM - y], &column.more);
            if place.is_multiple_of(named) {
                svg.text("", "middle", x + step / 2.0, BOTTOM + 16.0, &column.name);
            }
            svg.line();
        }
        svg.path("frame", &format!("M{LEFT} {BOTTOM}H{right:.1}"));
        svg.text("", "", LEFT, BOTTOM + 36.0, self.horizontal);
        svg.vertical_label(f64::midpoint(TOP, BOTTOM), self.vertical).line();
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_each_and_no_more_names_than_can_be_read() {
        let columns = |count: u32| Columns {
            title: "rows < 5",
            horizontal: "rows",
            vertical: "batches",
            colour: 3,
            columns: (1..=count)
                .map(|rows| Column { name: format!("n{rows}"), value: f64::from(rows), more: String::new() })
                .collect(),
        };
        for (count, names) in [(0, 0), (1, 1), (24, 24), (100, 20)] {
            let svg = columns(count).element();
            assert_eq!(svg.matches("<rect").count() as u32, count);
            assert_eq!(svg.matches(">n").count(), names, "{svg}");
            assert!(svg.contains("rows &lt; 5") && !svg.contains("NaN"));
        }
    }
}
