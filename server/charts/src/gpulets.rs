//! Shares of devices over time: one row per device, one box per span of a gpulet. The height of a box is its share of the
//! device, its width the time in force.

use crate::axis::Axis;
use crate::chart::Chart;
use crate::layout::Layout;
use crate::legend;
use crate::style::COLOURS;
use crate::svg::Svg;
use crate::timeline::draw_axis;

const TOP: f64 = 32.0;
/// Height of a device, and of the gap to the next.
const DEVICE: f64 = 56.0;
const GAP: f64 = 10.0;
/// Least height of a box with a name in it.
const LINE: f64 = 14.0;

/// A gpulet while it was in force with the same models.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// First unit of its device.
    pub first: u32,
    /// Number of units.
    pub units: u32,
    /// Seconds from the start of the run.
    pub from: f64,
    /// Seconds from the start of the run to its end.
    pub to: f64,
    /// Its models, as indices of the chart's models.
    pub models: Vec<usize>,
}

/// A device and its gpulets.
#[derive(Clone, Debug, Default)]
pub struct DeviceRow<'a> {
    /// Name of the device.
    pub name: &'a str,
    /// Number of its units.
    pub units: u32,
    /// Its gpulets.
    pub spans: Vec<Span>,
}

/// Devices over time.
#[derive(Clone, Debug, Default)]
pub struct Gpulets<'a> {
    /// Title of the chart.
    pub title: String,
    /// The devices from top to bottom.
    pub devices: Vec<DeviceRow<'a>>,
    /// Names of all models; the index is the colour.
    pub models: Vec<&'a str>,
}

impl Chart for Gpulets<'_> {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let devices =
            self.devices.iter().map(|device| format!("{}: {} gpulets", device.name, device.spans.len()));
        devices.collect::<Vec<_>>().join("; ")
    }

    fn draw(&self, svg: &mut Svg, layout: &Layout) -> f64 {
        let name_max = if layout.narrow { 84.0 } else { 160.0 };
        let widest = self.devices.iter().map(|device| layout.text(device.name)).fold(0.0, f64::max);
        let (left, right) = (widest.min(name_max) + 10.0, layout.width - 14.0);
        let to = self.devices.iter().flat_map(|device| &device.spans).map(|span| span.to).fold(0.0, f64::max);
        let axis = Axis::exact(0.0, to.max(f64::MIN_POSITIVE), (left, right));
        for (row, device) in self.devices.iter().enumerate() {
            let y = TOP + (DEVICE + GAP) * row as f64;
            svg.path("grid", &format!("M{left} {y:.1}H{right}M{left} {:.1}H{right}", y + DEVICE));
            let name = layout.fitting(device.name, name_max);
            svg.text("", "end", left - 8.0, y + DEVICE / 2.0 + 4.0, &name).line();
            for span in &device.spans {
                self.draw_span(svg, &axis, (y, device), span, layout);
            }
        }
        let bottom = TOP + (DEVICE + GAP) * self.devices.len() as f64;
        let below = draw_axis(svg, &axis, (left, right), bottom, "seconds from the start of the run", layout);
        let keys: Vec<(usize, &str)> = self.models.iter().take(COLOURS).copied().enumerate().collect();
        legend::areas(svg, &keys, below, layout)
    }
}

impl Gpulets<'_> {
    fn name(&self, model: usize) -> &str {
        self.models.get(model).copied().unwrap_or("?")
    }

    /// Draws a gpulet as a box, with one stripe for each of its models.
    fn draw_span(
        &self,
        svg: &mut Svg,
        axis: &Axis,
        (top, device): (f64, &DeviceRow<'_>),
        span: &Span,
        layout: &Layout,
    ) {
        let units = f64::from(device.units.max(1));
        let (from, to) = (axis.pixel(span.from), axis.pixel(span.to));
        let y = top + DEVICE * f64::from(span.first) / units;
        let height = (DEVICE * f64::from(span.units) / units - 1.0).max(1.0);
        let width = (to - from - 0.6).max(0.4);
        let stripe = height / span.models.len().max(1) as f64;
        let times = format!("{:.1} to {:.1} s", span.from, span.to);
        let names: Vec<&str> = span.models.iter().map(|model| self.name(*model)).collect();
        let units = format!("{} units from {} on", span.units, span.first);
        svg.open_group(&format!("{}: {units}, {times}: {}", device.name, names.join(", ")));
        for (at, model) in span.models.iter().enumerate() {
            svg.rect(&format!("f{}", model % COLOURS), [from, y + stripe * at as f64, width, stripe]);
        }
        if let [only] = names.as_slice()
            && height >= LINE
            && width >= layout.text(only)
        {
            svg.text("inside", "middle", f64::midpoint(from, to), y + height / 2.0 + 4.0, only);
        }
        svg.close_group();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::file;

    #[test]
    fn gpulets_are_boxes_on_their_devices_in_the_colours_of_their_models() {
        let span =
            |models: &[usize], from| Span { first: 0, units: 2, models: models.to_vec(), from, to: 100.0 };
        let device = |name, spans| DeviceRow { name, units: 2, spans };
        let chart = Gpulets {
            title: "Gpulets".to_owned(),
            devices: vec![device("a&b", vec![span(&[0, 1], 0.0)]), device("c", vec![span(&[1], 50.0)])],
            models: vec!["m", "n"],
        };
        let svg = file(&chart);
        assert!(svg.contains("a&amp;b: 2 units from 0 on, 0.0 to 100.0 s: m, n"), "{svg}");
        assert!(svg.contains("<desc>a&amp;b: 1 gpulets; c: 1 gpulets</desc>"), "{svg}");
        assert_eq!(svg.matches("<g>").count(), 2);
        assert_eq!(svg.matches("class=\"f1\"").count(), 3, "a stripe, a box and a key");
        assert!(!file(&Gpulets::default()).contains("NaN"));
    }
}
