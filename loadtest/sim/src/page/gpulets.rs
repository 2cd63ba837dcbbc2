//! Draws plans over time: one row per device, one box per gpulet. Its height is its share, its width the time in force.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::axis::Axis;
use super::markup::number;
use super::style;
use super::svg::{KEY_STEP, Svg};
use super::timeline::draw_axis;
use crate::report::{GpuletSpan, PartitionFigures};

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 984.0;
const TOP: f64 = 32.0;
/// Height of a device, and of the gap to the next.
const DEVICE: f64 = 56.0;
const GAP: f64 = 10.0;
/// Upper bound on the devices that are drawn.
const DEVICES_MAX: usize = 24;
/// Keys that stand in a line.
const KEYS_IN_LINE: usize = 6;
/// Width of a letter in a box, and the least height of a box with letters.
const LETTER: f64 = 7.0;
const LINE: f64 = 13.0;

/// Draws the plot. `None` without gpulets. `models` holds all names, in the order of the workload.
pub(super) fn draw(figures: &PartitionFigures, models: &[&str]) -> Option<String> {
    let spans = &figures.gpulets;
    let to = spans.iter().map(|span| span.to_s).reduce(f64::max)?;
    let mut units: BTreeMap<&str, u32> = BTreeMap::new();
    for span in spans {
        let own = units.entry(&span.device).or_default();
        *own = (*own).max(span.first_unit.saturating_add(span.units));
    }
    let axis = Axis::exact(0.0, to.max(f64::MIN_POSITIVE), (LEFT, RIGHT));
    let drawn = units.len().min(DEVICES_MAX);
    let bottom = TOP + (DEVICE + GAP) * drawn as f64;
    let key_lines = models.len().min(style::COLOURS).div_ceil(KEYS_IN_LINE);
    let height = bottom + 48.0 + KEY_STEP * key_lines as f64;
    let mut svg = Svg::new("Gpulets in force, over time", WIDTH, height, None);
    for (row, (device, units)) in units.iter().take(DEVICES_MAX).enumerate() {
        let y = TOP + (DEVICE + GAP) * row as f64;
        svg.path("grid", &format!("M{LEFT} {y:.1}H{RIGHT}M{LEFT} {:.1}H{RIGHT}", y + DEVICE));
        svg.text("", "end", LEFT - 8.0, y + DEVICE / 2.0 + 4.0, device).line();
        for span in spans.iter().filter(|span| span.device == *device) {
            draw_box(&mut svg, &axis, (y, f64::from((*units).max(1))), span, models);
        }
    }
    draw_axis(&mut svg, &axis, (LEFT, RIGHT), bottom, "seconds from the start of the run");
    let keys = models.iter().take(style::COLOURS).copied().enumerate();
    svg.keys(keys, (LEFT, bottom + 48.0, (RIGHT - LEFT) / KEYS_IN_LINE as f64), KEYS_IN_LINE);
    Some(svg.finish())
}

/// Draws a gpulet as a box, with one stripe for each of its models.
fn draw_box(svg: &mut Svg, axis: &Axis, (top, units): (f64, f64), span: &GpuletSpan, models: &[&str]) {
    let GpuletSpan { device, first_unit, units: own, from_s, to_s, models: names } = span;
    let (from, to) = (axis.pixel(*from_s), axis.pixel(*to_s));
    let y = top + DEVICE * f64::from(*first_unit) / units;
    let height = (DEVICE * f64::from(*own) / units - 1.0).max(1.0);
    let width = (to - from - 0.6).max(0.4);
    let stripe = height / names.len().max(1) as f64;
    let times = format!("{from_s:.1} to {to_s:.1} s");
    svg.open_group(&format!("{device}: {own} units from {first_unit} on, {times}: {}", names.join(", ")));
    for (at, name) in names.iter().enumerate() {
        let colour = models.iter().position(|model| model == name).unwrap_or(0) % style::COLOURS;
        svg.rect(&format!("f{colour}"), [from, y + stripe * at as f64, width, stripe]);
    }
    if let [only] = names.as_slice()
        && height >= LINE
        && width >= LETTER * only.chars().count() as f64
    {
        svg.text("inside", "middle", f64::midpoint(from, to), y + height / 2.0 + 4.0, only);
    }
    svg.close_group();
}

/// The caption of the plot.
pub(super) fn caption(figures: &PartitionFigures) -> String {
    let mut text = format!(
        "A box is a gpulet; its height is its share of the device. The models of a striped box run one after \
         another. {} of {} devices at most, {} on average ({} device hours), {} tables in force.",
        figures.devices_most,
        figures.devices,
        number(figures.devices_mean),
        number(figures.device_seconds / 3_600.0),
        figures.changes
    );
    if figures.share_least < 1.0 {
        let _ = write!(
            text,
            " The devices were too few at times: plans were for {} % of what was wanted at least.",
            number(100.0 * figures.share_least)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpulets_are_boxes_on_their_devices_in_the_colours_of_their_models() {
        let span = |device: &str, models: &[&str], from_s, to_s| GpuletSpan {
            device: device.into(),
            first_unit: 0,
            units: 2,
            models: models.iter().map(|&name| name.to_owned()).collect(),
            from_s,
            to_s,
        };
        let figures = PartitionFigures {
            policy: "tessera".to_owned(),
            scaling: "attainment".to_owned(),
            plan: None,
            devices: 3,
            devices_most: 2,
            devices_mean: 1.5,
            device_seconds: 150.0,
            cost_seconds: 150.0,
            changes: 2,
            failures: 0,
            unplanned: 0,
            share_least: 0.5,
            problem: None,
            steps: Vec::new(),
            gpulets: vec![span("a&b", &["m", "n"], 0.0, 100.0), span("c", &["n"], 50.0, 100.0)],
            interference: Vec::new(),
            decisions: Vec::new(),
        };
        let svg = draw(&figures, &["m", "n"]).unwrap();
        assert!(svg.contains("a&amp;b: 2 units from 0 on, 0.0 to 100.0 s: m, n"), "{svg}");
        assert_eq!(svg.matches("<g>").count(), 2);
        assert_eq!(svg.matches("class=\"f1\"").count(), 3, "a stripe, a box and a key");
        assert!(
            caption(&figures).contains("2 of 3 devices at most, 1.50 on average"),
            "{}",
            caption(&figures)
        );
        assert!(caption(&figures).contains("for 50"));
        assert!(draw(&PartitionFigures { gpulets: Vec::new(), ..figures }, &[]).is_none());
    }
}
