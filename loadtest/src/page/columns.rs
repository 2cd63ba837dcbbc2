//! Column charts.

use std::fmt::Write as _;

use sim::page::{Axis, escape};

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
        let mut svg = super::opened(self.title, WIDTH, HEIGHT);
        for tick in axis.ticks() {
            let at = axis.pixel(tick);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                axis.label(tick)
            );
        }
        let named = count.div_ceil(NAMES_MAX).max(1);
        for (place, column) in self.columns.iter().enumerate() {
            let (x, y) = (LEFT + step * place as f64, axis.pixel(column.value));
            let _ = write!(
                svg,
                "<rect class=\"f{}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                self.colour % sim::page::COLOURS,
                x + step * 0.1,
                step * 0.8,
                BOTTOM - y,
                escape(&column.more)
            );
            if place.is_multiple_of(named) {
                let (middle, under) = (x + step / 2.0, BOTTOM + 16.0);
                let name = escape(&column.name);
                let _ = write!(
                    svg,
                    "<text x=\"{middle:.1}\" y=\"{under:.1}\" text-anchor=\"middle\">{name}</text>"
                );
            }
            svg.push('\n');
        }
        let middle = f64::midpoint(TOP, BOTTOM);
        let _ = writeln!(
            svg,
            "<path class=\"frame\" d=\"M{LEFT} {BOTTOM}H{right:.1}\"/><text x=\"{LEFT}\" y=\"{:.1}\">{}</text><text transform=\"translate(12 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 36.0,
            escape(self.horizontal),
            escape(self.vertical)
        );
        svg.push_str("</svg>\n");
        svg
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
