//! Bar charts: horizontal bars with the name on the left and the amount on the right.

use std::fmt::Write as _;

use sim::page::{Axis, escape};

const WIDTH: f64 = 1_000.0;
const TOP: f64 = 32.0;
const ROW: f64 = 28.0;
/// Width of an average letter.
const LETTER: f64 = 6.8;
/// Width of the amount behind the longest bar.
const AMOUNT: f64 = 150.0;
/// Greatest width of the names.
const NAME_MAX: f64 = 320.0;

/// One bar.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    /// Label of the amount, to the right of the bar.
    pub(super) amount: String,
    /// Text of its tooltip; empty for no tooltip.
    pub(super) more: String,
    pub(super) colour: usize,
}

/// The bars as an SVG element for a page that has the style sheet of plots.
pub(super) fn draw(title: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
    let left = (LETTER * longest as f64 + 12.0).min(NAME_MAX);
    let highest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let axis = Axis::exact(0.0, highest, (left, WIDTH - AMOUNT));
    let height = TOP + ROW * bars.len() as f64 + 8.0;
    let mut svg = super::opened(title, WIDTH, height);
    for (place, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * place as f64;
        let end = axis.pixel(bar.value).max(left + 1.0);
        let more = if bar.more.is_empty() { &bar.name } else { &bar.more };
        let _ = writeln!(
            svg,
            "<text class=\"key\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect class=\"f{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"><title>{}</title></rect><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left - 8.0,
            y + 18.0,
            escape(&bar.name),
            bar.colour % sim::page::COLOURS,
            y + 4.0,
            end - left,
            ROW - 8.0,
            escape(more),
            end + 8.0,
            y + 18.0,
            escape(&bar.amount)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_amounts() {
        let bar = |name: &str, value, more: &str| Bar {
            name: name.to_owned(),
            value,
            amount: format!("{value}"),
            more: more.to_owned(),
            colour: 15,
        };
        let svg = draw(
            "a < b",
            &[bar("full", 100.0, "he said: \"no\""), bar("half", 50.0, ""), bar("none", 0.0, "")],
        );
        let widths: Vec<f64> = svg
            .split("width=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((widths[0] / widths[1] - 2.0).abs() < 0.01 && widths[2] == 1.0, "{widths:?}");
        assert!(
            svg.contains("a &lt; b")
                && svg.contains("he said: &quot;no&quot;")
                && svg.contains("class=\"f1\"")
        );
    }
}
