//! Bar charts: horizontal bars with the name on the left, or above it if narrow, and the amount on the right.

use crate::axis::Axis;
use crate::chart::Chart;
use crate::layout::Layout;
use crate::style::COLOURS;
use crate::svg::Svg;

const TOP: f64 = 32.0;
/// Greatest width of the names.
const NAME_MAX: f64 = 320.0;

/// One bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Name of the bar.
    pub name: String,
    /// Length of the bar.
    pub value: f64,
    /// Label of the amount, to the right of the bar.
    pub amount: String,
    /// Text of its tooltip; the name if empty.
    pub more: String,
    /// Index of its colour.
    pub colour: usize,
}

/// A bar chart.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Title of the chart.
    pub title: String,
    /// The bars from top to bottom.
    pub bars: Vec<Bar>,
}

impl Chart for Bars {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let all: Vec<String> = self.bars.iter().map(|bar| format!("{}: {}", bar.name, bar.amount)).collect();
        all.join("; ")
    }

    fn draw(&self, svg: &mut Svg, layout: &Layout) -> f64 {
        let widest =
            |text: fn(&Bar) -> &str| self.bars.iter().map(|bar| layout.text(text(bar))).fold(0.0, f64::max);
        let left = if layout.narrow { 0.0 } else { (widest(|bar| &bar.name) + 12.0).min(NAME_MAX) };
        let row = if layout.narrow { 44.0 } else { 28.0 };
        let amount = widest(|bar| &bar.amount) + 10.0;
        let highest = self.bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
        let axis = Axis::exact(0.0, highest, (left, (layout.width - amount).max(left + 20.0)));
        for (place, bar) in self.bars.iter().enumerate() {
            let mut y = TOP + row * place as f64;
            if layout.narrow {
                svg.text("key", "", 0.0, y + 12.0, &layout.fitting(&bar.name, layout.width));
                y += 16.0;
            } else {
                svg.text("key", "end", left - 8.0, y + 18.0, &layout.fitting(&bar.name, NAME_MAX - 12.0));
            }
            let end = axis.pixel(bar.value).max(left + 1.0);
            let more = if bar.more.is_empty() { &bar.name } else { &bar.more };
            svg.bar(&format!("f{}", bar.colour % COLOURS), [left, y + 4.0, end - left, 20.0], more);
            svg.text("", "", end + 8.0, y + 18.0, &bar.amount).line();
        }
        TOP + row * self.bars.len() as f64 + 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::element;

    #[test]
    fn a_bar_each_in_both_layouts_and_a_description_of_all() {
        let bar = |name: &str, value| Bar {
            name: name.to_owned(),
            value,
            amount: format!("{value} ms"),
            ..Bar::default()
        };
        let bars =
            Bars { title: "By <reason>".to_owned(), bars: vec![bar("late", 3.0), bar("refused", 0.0)] };
        let svg = element(&bars);
        assert_eq!((svg.matches("<rect").count(), svg.matches("<svg").count()), (4, 2));
        assert!(
            svg.contains("<desc>late: 3 ms; refused: 0 ms</desc>") && svg.contains("By &lt;reason&gt;"),
            "{svg}"
        );
        assert!(!element(&Bars::default()).contains("NaN"));
    }
}
