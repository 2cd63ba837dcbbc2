//! How a chart becomes an element of a page or a file.

use crate::layout::Layout;
use crate::style;
use crate::svg::Svg;

/// A chart: its name, a description for those who do not see it, and its drawing.
pub trait Chart {
    /// Its title.
    fn title(&self) -> &str;
    /// What it shows, in words.
    fn description(&self) -> String;
    /// Draws everything but the title, and returns the height. The title ends above 24.
    fn draw(&self, svg: &mut Svg, layout: &Layout) -> f64;
}

/// A chart as markup for a page with the style sheet: once for wide and once for narrow windows.
pub fn element(chart: &impl Chart) -> String {
    [Layout::BROAD, Layout::NARROW].iter().map(|layout| drawn(chart, layout, None)).collect()
}

/// A chart as an SVG file of its own.
pub fn file(chart: &impl Chart) -> String {
    drawn(chart, &Layout::BROAD, Some(style::of_charts()))
}

fn drawn(chart: &impl Chart, layout: &Layout, style: Option<&str>) -> String {
    let mut svg = Svg::default();
    let height = chart.draw(&mut svg, layout);
    svg.finish((chart.title(), &chart.description()), layout, height, style)
}
