//! Keys of charts: at the end of each line, or below a narrow chart.

use crate::frame::{Frame, TOP};
use crate::layout::Layout;
use crate::series::{Series, sign};
use crate::style::COLOURS;
use crate::svg::{LINE, Svg};

/// Distance between two keys.
const STEP: f64 = 18.0;
/// Width of a key's line, and of the key without its name.
const SWATCH: f64 = 30.0;
const LEADER: f64 = 22.0;
const NAME: f64 = SWATCH + 6.0;
/// Greatest width of a name to the right of a plot.
const NAME_MAX: f64 = 270.0;
/// The part of the frame, from its right edge, in which an end is close enough to its key for a line between them.
const NEAR: f64 = 0.3;

/// Width of the keys to the right of a plot; 0 for a single line, which needs no key: the title names it.
pub(crate) fn width(series: &[Series], layout: &Layout) -> f64 {
    if series.len() < 2 {
        return 0.0;
    }
    let longest = series.iter().map(|series| layout.text(&series.name)).fold(0.0, f64::max);
    LEADER + NAME + longest.min(NAME_MAX) + 4.0
}

/// How far down a plot must reach to have a line for each key.
pub(crate) fn bottom(series: &[Series]) -> f64 {
    TOP + STEP * series.len() as f64
}

/// Draws each key at the height at which its line ends, or as near to it as other keys allow.
pub(crate) fn right(svg: &mut Svg, series: &[Series], scattered: bool, frame: &Frame, layout: &Layout) {
    let ends: Vec<_> = series.iter().map(|series| series.end(frame)).collect();
    let near = frame.right - NEAR * (frame.right - frame.left);
    let wanted: Vec<f64> = ends.iter().map(|end| end.map_or(frame.bottom, |end| end.1)).collect();
    let heights = spread(&wanted, STEP, (TOP + 6.0, frame.bottom));
    for ((series, end), y) in series.iter().zip(&ends).zip(heights) {
        let x = frame.right + LEADER;
        if let Some((from, height)) = end.filter(|end| end.0 >= near && !scattered) {
            let bend = frame.right + 6.0;
            svg.path("leader", &format!("M{from:.1} {height:.1}H{bend:.1}L{:.1} {y:.1}", x - 3.0));
        }
        key(svg, series, scattered, (x, y), &layout.fitting(&series.name, NAME_MAX));
    }
}

/// Draws the keys of a narrow chart in columns, and returns where they end.
pub(crate) fn below(svg: &mut Svg, series: &[Series], scattered: bool, top: f64, layout: &Layout) -> f64 {
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let places = columns(&names, NAME, top, layout);
    for (series, (x, y)) in series.iter().zip(&places) {
        key(svg, series, scattered, (*x, y + 8.0), &layout.fitting(&series.name, layout.width - NAME));
    }
    places.last().map_or(top, |last| last.1 + LINE + 4.0)
}

fn key(svg: &mut Svg, series: &Series, scattered: bool, (x, y): (f64, f64), name: &str) {
    if !scattered || series.colour.is_none() {
        svg.path(&format!("line {}", series.class()), &format!("M{x:.1} {y:.1}h{SWATCH}"));
    }
    if let Some(colour) = series.colour {
        sign(svg, colour, (x + SWATCH / 2.0, y), "");
    }
    let class = if series.strong { "key strong" } else { "key" };
    svg.text(class, "", x + NAME, y + 4.5, name).line();
}

/// Draws keys of areas: the colour and name of each, in columns. Returns where they end.
pub(crate) fn areas(svg: &mut Svg, keys: &[(usize, &str)], top: f64, layout: &Layout) -> f64 {
    let names: Vec<&str> = keys.iter().map(|key| key.1).collect();
    let places = columns(&names, 20.0, top, layout);
    for ((colour, name), (x, y)) in keys.iter().zip(&places) {
        let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"13\" height=\"13\" rx=\"2\"");
        svg.raw(&format!("<rect class=\"f{}\" {place}/>", colour % COLOURS));
        svg.text("key", "", x + 20.0, y + 11.0, &layout.fitting(name, layout.width - 20.0)).line();
    }
    places.last().map_or(top, |last| last.1 + LINE + 4.0)
}

/// Places for names in as many columns of equal width as fit, after `before` for the key itself.
fn columns(names: &[&str], before: f64, top: f64, layout: &Layout) -> Vec<(f64, f64)> {
    let widest = names.iter().map(|name| layout.text(name)).fold(0.0, f64::max) + before + 16.0;
    let count = (layout.width / widest).floor().max(1.0) as usize;
    let column = layout.width / count as f64;
    let place = |at: usize| (column * (at % count) as f64, top + STEP * (at / count) as f64);
    (0..names.len()).map(place).collect()
}

/// Places as near to those that are wanted as possible, at least a step apart and between two limits.
pub(crate) fn spread(wanted: &[f64], step: f64, (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let at = |place: &usize| wanted.get(*place).copied().unwrap_or(bottom);
    order.sort_by(|one, other| at(one).total_cmp(&at(other)));
    let mut heights = Vec::with_capacity(order.len());
    let mut free = top;
    for place in &order {
        let height = at(place).max(free);
        heights.push(height);
        free = height + step;
    }
    let mut limit = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(limit);
        limit = *height - step;
    }
    let mut placed: Vec<(usize, f64)> = order.into_iter().zip(heights).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, height)| height).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_distance_and_their_order() {
        assert_eq!(spread(&[100.0, 10.0, 100.0], 18.0, (0.0, 200.0)), [100.0, 10.0, 118.0]);
        assert_eq!(spread(&[195.0, 196.0, 197.0], 18.0, (0.0, 200.0)), [164.0, 182.0, 200.0]);
        assert_eq!(spread(&[-5.0], 18.0, (6.0, 200.0)), [6.0]);
        assert!(spread(&[], 18.0, (0.0, 1.0)).is_empty());
    }
}
