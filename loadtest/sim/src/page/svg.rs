//! SVG elements. Coordinates have one decimal, and texts are escaped.

use std::fmt::Write as _;

use super::markup::escape;

/// Distance between two lines of keys.
pub const KEY_STEP: f64 = 20.0;

/// A drawing in the style of plots. The methods append elements.
#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    /// Starts a drawing with a title, in a page that has the style sheet of plots, or with its own `style` as a file.
    pub fn new(title: &str, width: f64, height: f64, style: Option<&str>) -> Self {
        let style = style.map_or_else(String::new, |style| {
            let paper = "<rect class=\"paper\" x=\"-8\" y=\"-4\" width=\"100%\" height=\"100%\"/>";
            format!("<style>\n{style}</style>\n{paper}\n")
        });
        let (title, width, height) = (escape(title), width + 16.0, height + 8.0);
        Self(format!(
            "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-8 -4 {width} {height}\" role=\"img\" \
             aria-label=\"{title}\">\n{style}<text class=\"title\" x=\"0\" y=\"18\">{title}</text>\n"
        ))
    }

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
        self.path("grid", &points).text("", "end", left - 8.0, y + 4.0, value).line();
    }

    /// A tick below a horizontal axis, with its value.
    pub fn tick(&mut self, x: f64, bottom: f64, value: &str) {
        let points = format!("M{x:.1} {bottom:.1}v4");
        self.path("frame", &points).text("", "middle", x, bottom + 18.0, value).line();
    }

    /// Keys: the colour and name of each, in lines of `in_line` keys.
    pub fn keys<'a>(
        &mut self,
        keys: impl IntoIterator<Item = (usize, &'a str)>,
        (left, top, column): (f64, f64, f64),
        in_line: usize,
    ) {
        for (number, (colour, name)) in keys.into_iter().enumerate() {
            let x = left + column * (number % in_line) as f64;
            let y = top + KEY_STEP * (number / in_line) as f64;
            let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" rx=\"2\"");
            self.raw(&format!("<rect class=\"f{colour}\" {place}/>"));
            self.text("key", "", x + 18.0, y + 10.0, name).line();
        }
    }

    /// The whole element.
    pub fn finish(mut self) -> String {
        self.raw("</svg>\n");
        self.0
    }
}
