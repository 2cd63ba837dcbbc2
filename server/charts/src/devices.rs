//! Devices as boxes of share by time, with one box in it for each slot.
//!
//! Names are drawn on a light tint of the model's colour, so that they are readable in the light and the dark scheme.
//! The stripe at the left has the full colour. A label that does not fit into its box is listed below the device, and
//! a number leads to it: no number is shortened.

use crate::chart::Chart;
use crate::layout::Layout;
use crate::legend::{self, spread};
use crate::style::COLOURS;
use crate::svg::{LINE, Svg};

/// Distance of the columns, with the marks of the right one and numbers of the left one.
const GAP: f64 = 60.0;
/// Space for the marks of the first column.
const LEFT: f64 = 44.0;
const TOP: f64 = 60.0;
/// Height of a device's box.
const BOX: f64 = 226.0;
/// Height of a line of a label.
const LABEL: f64 = 14.0;
/// Width of the stripe in full colour, and of it with the margins of a label.
const STRIPE: f64 = 5.0;
const MARGINS: f64 = STRIPE + 8.0;
/// Distance of two numbers next to a device.
const NUMBERS: f64 = 15.0;
/// Width of an average letter of a label, by its width elsewhere.
const LABEL_LETTER: f64 = 0.93;

/// A share of a device for some time.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    /// Name of its workload.
    pub name: String,
    /// Its figures, each of which stays in one line.
    pub details: Vec<String>,
    /// Text of its tooltip.
    pub more: String,
    /// Start and end in the cycle, 0 to 1.
    pub time: (f64, f64),
    /// Start and end of the share, 0 to 1.
    pub share: (f64, f64),
    /// Index of the colour.
    pub colour: usize,
}

/// A device and its slots.
#[derive(Clone, Debug, Default)]
pub struct DeviceBox {
    /// Name of the device.
    pub name: String,
    /// What is allocated of it, in words.
    pub allocated: String,
    /// Label of the time axis.
    pub time: String,
    /// Its slots.
    pub slots: Vec<Slot>,
}

/// Devices as boxes.
#[derive(Clone, Debug, Default)]
pub struct Devices<'a> {
    /// Title of the chart.
    pub title: String,
    /// The devices in reading order.
    pub devices: Vec<DeviceBox>,
    /// Names of the models; the index is the colour.
    pub models: Vec<&'a str>,
    /// How to read the chart.
    pub note: String,
}

impl Chart for Devices<'_> {
    fn title(&self) -> &str {
        &self.title
    }

    fn description(&self) -> String {
        let device = |device: &DeviceBox| {
            let slots: Vec<String> = device.slots.iter().map(Slot::words).collect();
            format!("{}: {}", device.name, slots.join("; "))
        };
        self.devices.iter().map(device).collect::<Vec<_>>().join(". ")
    }

    fn draw(&self, svg: &mut Svg, layout: &Layout) -> f64 {
        let columns = self.columns(layout);
        let width = column(layout, columns);
        let mut y = TOP;
        for row in self.devices.chunks(columns) {
            let frames = row.iter().enumerate().map(|(at, device)| {
                let frame = Frame { x: LEFT + (width + GAP) * at as f64, y, width, device, layout: *layout };
                frame.draw(svg)
            });
            y = frames.fold(y, f64::max) + 38.0;
        }
        let keys: Vec<(usize, &str)> = self.models.iter().copied().enumerate().collect();
        let below = legend::areas(svg, &keys, y - 20.0, layout);
        below + svg.wrapped(layout, "", "", (0.0, below + 14.0), layout.width, &self.note)
    }
}

impl Devices<'_> {
    /// Three columns, if there are as many devices, and fewer if less than two thirds of the labels fit into their boxes.
    fn columns(&self, layout: &Layout) -> usize {
        let most = if layout.narrow { 1 } else { self.devices.len().clamp(1, 3) };
        let slots: Vec<&Slot> = self.devices.iter().flat_map(|device| &device.slots).collect();
        let fitting = |columns: &usize| {
            let width = column(layout, *columns);
            let fit = slots.iter().filter(|slot| slot.label(width, layout).is_some()).count();
            3 * fit >= 2 * slots.len()
        };
        (1..=most).rev().find(fitting).unwrap_or(most)
    }
}

/// Width of a device's box.
fn column(layout: &Layout, columns: usize) -> f64 {
    (layout.width - LEFT - GAP * (columns - 1) as f64 - 20.0) / columns as f64
}

impl Slot {
    fn words(&self) -> String {
        format!("{}: {}", self.name, self.details.join(", "))
    }

    /// The lines of its label in a device of a width; `None` if they do not fit.
    fn label(&self, width: f64, layout: &Layout) -> Option<Vec<String>> {
        let (width, height) =
            (width * (self.time.1 - self.time.0) - MARGINS, BOX * (self.share.1 - self.share.0));
        let letter = layout.letter * LABEL_LETTER;
        let lines = |per_line: usize| {
            let count = self.details.len().div_ceil(per_line.max(1));
            let details = self.details.chunks(per_line.max(1)).enumerate().map(|(at, part)| {
                let end = if at + 1 < count { "," } else { "" };
                format!("{}{end}", part.join(", "))
            });
            [self.name.clone()].into_iter().chain(details).collect::<Vec<String>>()
        };
        let whole = vec![format!("{}  {}", self.name, self.details.join(", "))];
        let all = [whole].into_iter().chain((1..=self.details.len()).rev().map(lines));
        let fits = |lines: &Vec<String>| {
            let widest = lines.iter().map(|line| letter * line.chars().count() as f64).fold(0.0, f64::max);
            widest <= width && LABEL * lines.len() as f64 <= height + 1.0
        };
        all.into_iter().find(fits)
    }
}

/// The box of a device.
struct Frame<'a> {
    x: f64,
    y: f64,
    width: f64,
    device: &'a DeviceBox,
    layout: Layout,
}

impl Frame<'_> {
    /// Draws the device, and returns where it ends.
    fn draw(&self, svg: &mut Svg) -> f64 {
        let Self { x, y, width, device, layout } = self;
        let right = x + width;
        let name = layout.fitting(&device.name, width - layout.text(&device.allocated) - 12.0);
        svg.text("label strong", "", *x, y - 8.0, &name)
            .text("", "end", right, y - 8.0, &device.allocated)
            .line();
        svg.rect("free", [*x, *y, *width, BOX]).line();
        svg.text("", "end", x - 5.0, y + 11.0, "0 %").text("", "end", x - 5.0, y + BOX, "100 %").line();
        let mut listed = Vec::new();
        for slot in &device.slots {
            let label = slot.label(*width, layout);
            if label.is_none() {
                listed.push(slot);
            }
            self.draw_slot(svg, slot, &label.unwrap_or_else(|| vec![listed.len().to_string()]));
        }
        let below = self.draw_leaders(svg, &listed);
        svg.text("", "middle", x + width / 2.0, below + 16.0, &device.time).line();
        let mut end = below + 22.0;
        for (number, slot) in listed.iter().enumerate() {
            // A figure stays in one line.
            let details = slot.details.join(",\n").replace(' ', "\u{a0}").replace('\n', " ");
            let words = format!("{} {}: {details}", number + 1, slot.name);
            end += svg.wrapped(layout, "label", "", (*x, end + 14.0), *width, &words);
        }
        end
    }

    /// Left, top, width and height of a slot.
    fn place(&self, slot: &Slot) -> [f64; 4] {
        let (from, to) = (slot.time.0.clamp(0.0, 1.0), slot.time.1.clamp(0.0, 1.0));
        let (top, bottom) = slot.share;
        [self.x + self.width * from, self.y + BOX * top, self.width * (to - from), BOX * (bottom - top)]
    }

    /// Whether a number fits into the box of a slot.
    fn holds_number([_, _, width, height]: [f64; 4]) -> bool {
        width >= STRIPE + 14.0 && height >= LABEL - 2.0
    }

    fn draw_slot(&self, svg: &mut Svg, slot: &Slot, lines: &[String]) {
        let [x, y, width, height] = self.place(slot);
        let class = format!("f{}", slot.colour % COLOURS);
        svg.open_group(&slot.more);
        svg.rect(&format!("{class} tint"), [x, y, width, height]);
        svg.rect(&class, [x, y, STRIPE.min(width), height]);
        svg.rect("edge", [x, y, width, height]).line();
        if lines.len() > 1 || Self::holds_number([x, y, width, height]) {
            let middle = y + height / 2.0 + 4.0 - LABEL * lines.len().saturating_sub(1) as f64 / 2.0;
            for (number, line) in lines.iter().enumerate() {
                svg.text("label", "", x + STRIPE + 5.0, middle + LABEL * number as f64, line).line();
            }
        }
        svg.close_group();
    }

    /// Draws the numbers that do not fit into their boxes, with lines to them, and returns where they end.
    fn draw_leaders(&self, svg: &mut Svg, listed: &[&Slot]) -> f64 {
        let numbered = listed.iter().enumerate().map(|(number, slot)| (number + 1, self.place(slot)));
        let outside: Vec<(usize, [f64; 4])> =
            numbered.filter(|(_, place)| !Self::holds_number(*place)).collect();
        // Boxes that are too narrow have their numbers below the device, flat ones to the right of it.
        let (narrow, flat): (Vec<_>, Vec<_>) =
            outside.into_iter().partition(|(_, place)| place[2] < STRIPE + 14.0);
        let (right, bottom) = (self.x + self.width, self.y + BOX);
        let wanted: Vec<f64> = narrow.iter().map(|(_, [x, _, width, _])| x + width / 2.0).collect();
        for ((number, _), (at, to)) in
            narrow.iter().zip(wanted.iter().zip(spread(&wanted, NUMBERS, (self.x, right + NUMBERS))))
        {
            svg.path("leader", &format!("M{at:.1} {bottom:.1}L{to:.1} {:.1}", bottom + 6.0));
            svg.text("label", "middle", to, bottom + 17.0, &number.to_string()).line();
        }
        let wanted: Vec<f64> = flat.iter().map(|(_, [_, y, _, height])| y + height / 2.0).collect();
        for ((number, _), (at, to)) in
            flat.iter().zip(wanted.iter().zip(spread(&wanted, LABEL, (self.y, bottom))))
        {
            svg.path("leader", &format!("M{right:.1} {at:.1}L{:.1} {to:.1}", right + 6.0));
            svg.text("label", "", right + 8.0, to + 4.0, &number.to_string()).line();
        }
        if narrow.is_empty() { bottom } else { bottom + LINE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::file;

    fn slot(name: &str, time: (f64, f64), share: (f64, f64)) -> Slot {
        let details = ["100 %", "batch 12", "8.27 of 10 ms"].map(str::to_owned).to_vec();
        Slot { name: name.to_owned(), details, more: format!("{name}, always"), time, share, colour: 1 }
    }

    fn drawn(slots: Vec<Slot>) -> String {
        let device = DeviceBox {
            name: "gpu-0".to_owned(),
            time: "one cycle of 12 ms".to_owned(),
            slots,
            ..DeviceBox::default()
        };
        file(&Devices {
            title: "a < b".to_owned(),
            devices: vec![device],
            models: vec!["m"],
            note: "a note".to_owned(),
        })
    }

    #[test]
    fn one_device_has_the_whole_width_and_its_labels_are_complete() {
        let svg = drawn(vec![slot("resnet", (0.0, 1.0), (0.0, 1.0))]);
        assert!(svg.contains(">resnet  100 %, batch 12, 8.27 of 10 ms</text>"), "{svg}");
        assert!(svg.contains("class=\"free\" x=\"44.0\" y=\"60.0\" width=\"880.0\""), "{svg}");
        assert!(
            svg.contains("<desc>gpu-0: resnet: 100 %, batch 12, 8.27 of 10 ms</desc>")
                && svg.contains("a note")
        );
    }

    #[test]
    fn labels_have_more_lines_in_narrow_boxes_and_are_listed_where_they_do_not_fit() {
        let svg = drawn(vec![
            slot("wide", (0.0, 0.8), (0.0, 1.0)),
            slot("narrower", (0.8, 0.94), (0.0, 1.0)),
            slot("thin", (0.94, 0.95), (0.0, 1.0)),
            slot("number", (0.95, 1.0), (0.0, 1.0)),
        ]);
        for text in [
            ">narrower<",
            ">8.27 of 10 ms<",
            ">1 thin: 100\u{a0}%, batch\u{a0}12, 8.27\u{a0}of\u{a0}10\u{a0}ms<",
            ">2 number: ",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("class=\"leader\"").count(), 1, "the number of `number` fits into its box");
        let flat = drawn(
            (0..40)
                .map(|at| slot("flat", (0.0, 1.0), (f64::from(at) / 40.0, f64::from(at + 1) / 40.0)))
                .collect(),
        );
        assert_eq!(flat.matches("class=\"leader\"").count(), 40);
        assert!(!flat.contains('…') && !svg.contains('…'));
    }

    #[test]
    fn nothing_is_drawn_as_nothing() {
        assert!(!file(&Devices::default()).contains("NaN"));
    }
}
