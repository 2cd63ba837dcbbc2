//! Bar charts: horizontal bars with the name on the left and the amount on the right.

use sim::page::{Axis, COLOURS, Svg};

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
    /// Text of its tooltip; empty for its name.
    pub(super) more: String,
    pub(super) colour: usize,
}

/// The bars as an SVG element for a page that has the style sheet of plots.
pub(super) fn draw(title: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
    let left = (LETTER * longest as f64 + 12.0).min(NAME_MAX);
    let highest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let axis = Axis::exact(0.0, highest, (left, WIDTH - AMOUNT));
    let mut svg = Svg::new(title, WIDTH, TOP + ROW * bars.len() as f64 + 8.0, None);
    for (place, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * place as f64;
        let end = axis.pixel(bar.value).max(left + 1.0);
        let more = if bar.more.is_empty() { &bar.name } else { &bar.more };
        svg.text("key", "end", left - 8.0, y + 18.0, &bar.name);
        svg.bar(&format!("f{}", bar.colour % COLOURS), [left, y + 4.0, end - left, ROW - 8.0], more);
        svg.text("", "", end + 8.0, y + 18.0, &bar.amount).line();
    }
    svg.finish()
}
