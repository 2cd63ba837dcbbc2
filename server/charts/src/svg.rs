//! SVG elements. Coordinates have one decimal, and texts are escaped.

use std::fmt::Write as _;

use crate::layout::Layout;
use crate::markup::escape;

/// Distance between two lines of keys or of wrapped text.
pub(crate) const LINE: f64 = 17.0;
/// Where the label of a vertical axis ends, with the gap after it.
pub(crate) const LABEL: f64 = 20.0;
/// Distance between a value of a vertical axis and its line of the grid.
pub(crate) const VALUE_GAP: f64 = 8.0;
/// Width of a letter of a title.
const TITLE_LETTER: f64 = 9.0;

/// The elements of a drawing. The methods append elements.
#[derive(Debug, Default)]
pub struct Svg(String);

impl Svg {
    /// Appends markup as it is.
    pub fn raw(&mut self, markup: &str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Ends a line of the file.
    pub fn line(&mut self) -> &mut Self {
        self.raw("\n")
    }

    /// A text. `class` may be empty. `anchor` says what is at `x`: the `start`, the `middle` or the `end`.
    pub fn text(&mut self, class: &str, anchor: &str, x: f64, y: f64, words: &str) -> &mut Self {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let anchor = if anchor.is_empty() { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
        let _ = write!(self.0, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>", escape(words));
        self
    }

    /// The label of a vertical axis, from bottom to top.
    pub fn vertical_label(&mut self, middle: f64, words: &str) -> &mut Self {
        let place = format!("transform=\"translate(12 {middle:.1}) rotate(-90)\" text-anchor=\"middle\"");
        self.raw(&format!("<text {place}>{}</text>", escape(words)))
    }

    /// A path.
    pub fn path(&mut self, class: &str, points: &str) -> &mut Self {
        self.raw(&format!("<path class=\"{class}\" d=\"{points}\"/>"))
    }

    /// A rectangle: left, top, width and height.
    pub fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4]) -> &mut Self {
        let size = format!("width=\"{width:.1}\" height=\"{height:.1}\"");
        self.raw(&format!("<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" {size}/>"))
    }

    /// A bar of a chart with a tooltip: left, top, width and height.
    pub fn bar(&mut self, class: &str, [x, y, width, height]: [f64; 4], tooltip: &str) -> &mut Self {
        let size = format!("width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"");
        let tooltip = escape(tooltip);
        self.raw(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" {size}><title>{tooltip}</title></rect>"
        ))
    }

    /// Starts a group of elements with a tooltip.
    pub fn open_group(&mut self, tooltip: &str) -> &mut Self {
        self.raw(&format!("<g><title>{}</title>", escape(tooltip)))
    }

    /// Ends a group.
    pub fn close_group(&mut self) -> &mut Self {
        self.raw("</g>\n")
    }

    /// A horizontal line of the grid with its value at the left.
    pub fn grid_line(&mut self, left: f64, right: f64, y: f64, value: &str) {
        let points = format!("M{left} {y:.1}H{right:.1}");
        self.path("grid", &points).text("", "end", left - VALUE_GAP, y + 4.0, value).line();
    }

    /// A tick below a horizontal axis, with its value.
    pub fn tick(&mut self, x: f64, bottom: f64, value: &str) {
        let points = format!("M{x:.1} {bottom:.1}v4");
        self.path("frame", &points).text("", "middle", x, bottom + 18.0, value).line();
    }

    /// Words in lines of a width, one below the other; returns the height of all lines.
    pub fn wrapped(
        &mut self,
        layout: &Layout,
        class: &str,
        anchor: &str,
        (x, y): (f64, f64),
        width: f64,
        words: &str,
    ) -> f64 {
        let lines = layout.wrapped(words, width);
        for (number, line) in lines.iter().enumerate() {
            self.text(class, anchor, x, y + LINE * number as f64, line).line();
        }
        LINE * lines.len() as f64
    }

    /// The whole element, with its title and description. A title that is wider than the drawing has several lines.
    pub(crate) fn finish(
        self,
        (title, description): (&str, &str),
        layout: &Layout,
        height: f64,
        style: Option<&str>,
    ) -> String {
        let lines = Layout { letter: TITLE_LETTER, ..*layout }.wrapped(title, layout.width);
        let above = 19.0 * lines.len().saturating_sub(1) as f64;
        let (top, width, height) = (-4.0 - above, layout.width + 16.0, height + 8.0 + above);
        let (title, description) = (escape(title), escape(description));
        let class = if layout.narrow { "narrow" } else { "broad" };
        let mut text = format!(
            "<svg class=\"chart {class}\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-8 {top} {width} {height:.0}\" \
             role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n<desc>{description}</desc>\n"
        );
        if let Some(style) = style {
            let _ = write!(
                text,
                "<style>\n{style}</style>\n<rect class=\"paper\" x=\"-8\" y=\"{top}\" width=\"100%\" height=\"100%\"/>\n"
            );
        }
        for (number, line) in lines.iter().enumerate() {
            let y = 18.0 - above + 19.0 * number as f64;
            let _ = writeln!(text, "<text class=\"title\" x=\"0\" y=\"{y}\">{}</text>", escape(line));
        }
        text + &self.0 + "</svg>\n"
    }
}
