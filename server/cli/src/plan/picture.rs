//! Draws a plan as SVG: one box of share by time for each device, one box in it for each slot, one colour per model.
//!
//! Names are drawn on a light tint of the model's colour, so that they are readable in the light and the dark scheme.
//! The stripe at the left has the full colour.

use gpulet_core::plan::{Gpulet, Slot};
use gpulet_core::problem::{Device, Problem};
use gpulet_core::validate::SlotPrediction;
use sim::page::{COLOURS, KEY_STEP, PLOT, Svg};

use super::format;
use super::reading::PlanQuery;
use super::report::slots;
use super::study::Planned;

const WIDTH: f64 = 1_000.0;
const COLUMNS: usize = 3;
/// Distance of the columns, with the marks of the right one.
const GAP: f64 = 56.0;
/// Space for the marks of the first column.
const LEFT: f64 = 36.0;
const TOP: f64 = 56.0;
/// Height of a device's box.
const BOX: f64 = 220.0;
/// From a box to the one below.
const STEP: f64 = BOX + 66.0;
/// Width of an average letter of a label.
const LETTER: f64 = 6.1;
/// Height of a line of a label.
const LINE: f64 = 13.0;
/// Width of the stripe in full colour.
const STRIPE: f64 = 5.0;
/// Models of one line of the legend.
const KEYS_IN_LINE: usize = 5;

/// Styles in addition to those of plots.
const STYLE: &str = "\
svg.plot .tint{fill-opacity:.2}
svg.plot .free{fill:var(--grid);fill-opacity:.5}
svg.plot .edge{fill:none;stroke:var(--paper);stroke-width:1}
svg.plot text.label{fill:var(--ink);font-size:11px;stroke:none}
svg.plot text.strong{font-weight:600}
";

/// Draws a standalone SVG file. The same plan gives the same bytes.
pub fn picture(query: &PlanQuery, policy: &str, planned: &Planned) -> String {
    let problem = &query.problem;
    let used = planned.plan.devices();
    let devices: Vec<&Device> =
        problem.devices().iter().filter(|device| used.contains(&device.name.as_str())).collect();
    let models = models(problem);
    let rows = devices.len().div_ceil(COLUMNS);
    let keys = TOP + STEP * rows as f64;
    let height = keys + KEY_STEP * models.len().div_ceil(KEYS_IN_LINE) as f64 + 28.0;
    let title = format!(
        "{}: {policy}, {} of {} needed",
        query.name,
        planned.validation.devices_used,
        format::counted(problem.devices().len(), "device")
    );
    let mut svg = Svg::new(&title, WIDTH, height, Some(&format!("{PLOT}{STYLE}")));
    let width = (WIDTH - LEFT - GAP * (COLUMNS - 1) as f64) / COLUMNS as f64;
    let all: Vec<_> = slots(problem, planned).collect();
    for (at, device) in devices.iter().enumerate() {
        let frame = Frame {
            x: LEFT + (width + GAP) * (at % COLUMNS) as f64,
            y: TOP + STEP * (at / COLUMNS) as f64,
            width,
            device,
        };
        let gpulets = planned.plan.gpulets.iter().filter(|gpulet| gpulet.device == device.name);
        frame.draw(&mut svg, &gpulets.collect::<Vec<_>>());
        for (_, gpulet, slot, predicted) in all.iter().filter(|(on, ..)| on.name == device.name) {
            let workload = problem.workloads().iter().find(|workload| workload.name == slot.workload);
            let Some(workload) = workload else { continue };
            let colour = models.iter().position(|model| *model == workload.model).unwrap_or(0) % COLOURS;
            frame.draw_slot(&mut svg, gpulet, slot, &Label { predicted, slo_us: workload.slo_us, colour });
        }
    }
    legend(&mut svg, &models, keys);
    svg.finish()
}

/// The models of the problem, by name.
fn models(problem: &Problem) -> Vec<&str> {
    let mut models: Vec<&str> = problem.workloads().iter().map(|workload| workload.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    models
}

fn legend(svg: &mut Svg, models: &[&str], top: f64) {
    let column = WIDTH / KEYS_IN_LINE as f64;
    let names: Vec<String> =
        models.iter().map(|model| fitting(model, column - 24.0).unwrap_or_default()).collect();
    let keys = names.iter().enumerate().map(|(number, name)| (number % COLOURS, name.as_str()));
    svg.keys(keys, (0.0, top, column), KEYS_IN_LINE);
    let y = top + KEY_STEP * models.len().div_ceil(KEYS_IN_LINE) as f64 + 14.0;
    let words = "height: share of the device; width: time; grey: not allocated; times: worst case from arrival to response, of the objective";
    svg.raw(&format!("<text x=\"0\" y=\"{y:.1}\">{words}</text>\n"));
}

/// The text and colour of a slot's box.
struct Label<'a> {
    predicted: &'a SlotPrediction,
    slo_us: f64,
    colour: usize,
}

/// The box of a device.
struct Frame<'a> {
    x: f64,
    y: f64,
    width: f64,
    device: &'a Device,
}

impl Frame<'_> {
    fn draw(&self, svg: &mut Svg, gpulets: &[&Gpulet]) {
        let Self { x, y, width, device } = self;
        let by_time = gpulets.iter().any(|gpulet| gpulet.window.is_some());
        let units: u32 = gpulets.iter().map(|gpulet| gpulet.units).sum();
        let given = if by_time { String::new() } else { format::share(units, device.device_type.units) };
        let mut cycles: Vec<f64> = gpulets
            .iter()
            .filter_map(|gpulet| gpulet.duty_us.or(gpulet.window.map(|window| window.period_us)))
            .collect();
        cycles.sort_by(f64::total_cmp);
        cycles.dedup();
        let time = match cycles.as_slice() {
            [] => "time".to_owned(),
            [one] => format!("one cycle of {}", format::time(*one)),
            _ => "one cycle of each".to_owned(),
        };
        let name = fitting(&device.name, width - 50.0).unwrap_or_default();
        let right = x + width;
        svg.text("label strong", "", *x, y - 8.0, &name).text("", "end", right, y - 8.0, &given).line();
        let size = format!("width=\"{width:.1}\" height=\"{BOX}\"");
        svg.raw(&format!("<rect class=\"free\" x=\"{x:.1}\" y=\"{y:.1}\" {size}/>\n"));
        svg.text("", "end", x - 5.0, y + 10.0, "0 %").text("", "end", x - 5.0, y + BOX, "100 %").line();
        svg.text("", "middle", x + width / 2.0, y + BOX + 16.0, &time).line();
    }

    /// Start and end of a slot in its cycle, as fractions of the cycle.
    fn stretch(gpulet: &Gpulet, slot: &Slot) -> (f64, f64) {
        match (gpulet.duty_us, gpulet.window) {
            (Some(duty), _) => {
                let before = gpulet.slots.iter().take_while(|other| !std::ptr::eq(*other, slot));
                let from = before.map(|other| other.budget_us).sum::<f64>() / duty;
                (from, from + slot.budget_us / duty)
            }
            (None, Some(window)) => (
                window.offset_us / window.period_us,
                (window.offset_us + window.length_us) / window.period_us,
            ),
            (None, None) => (0.0, 1.0),
        }
    }

    fn draw_slot(&self, svg: &mut Svg, gpulet: &Gpulet, slot: &Slot, label: &Label<'_>) {
        let (from, to) = Self::stretch(gpulet, slot);
        let (from, to) = (from.clamp(0.0, 1.0), to.clamp(0.0, 1.0));
        let unit = BOX / f64::from(self.device.device_type.units.max(1));
        let (x, width) = (self.x + self.width * from, self.width * (to - from));
        let (y, height) = (self.y + unit * f64::from(gpulet.first_unit), unit * f64::from(gpulet.units));
        let share = format::share(gpulet.units, self.device.device_type.units);
        let times = format!("{} of {}", format::ms(label.predicted.worst_us), format::time(label.slo_us));
        let detail = format!("{share}, batch {}, {times}", slot.batch);
        svg.open_group(&format!("{}: {detail}, {}", slot.workload, format::time_slices(gpulet)));
        let class = format!("f{}", label.colour);
        svg.rect(&format!("{class} tint"), [x, y, width, height]);
        svg.rect(&class, [x, y, STRIPE.min(width), height]);
        svg.rect("edge", [x, y, width, height]).line();
        let available = width - STRIPE - 8.0;
        let whole = format!("{}  {detail}", slot.workload);
        let lines = if whole.chars().count() as f64 * LETTER <= available {
            vec![whole]
        } else if height >= 2.0 * LINE + 2.0 {
            [fitting(&slot.workload, available), fitting(&detail, available)].into_iter().flatten().collect()
        } else {
            fitting(&slot.workload, available).into_iter().collect()
        };
        if height >= LINE - 2.0 {
            let middle = y + height / 2.0 + 4.0 - LINE * (lines.len().saturating_sub(1)) as f64 / 2.0;
            for (number, line) in lines.iter().enumerate() {
                svg.text("label", "", x + STRIPE + 5.0, middle + LINE * number as f64, line).line();
            }
        }
        svg.close_group();
    }
}

/// Truncates text to a width; `None` if fewer than three letters fit.
fn fitting(text: &str, width: f64) -> Option<String> {
    let letters = text.chars().count();
    if letters as f64 * LETTER <= width {
        return Some(text.to_owned());
    }
    let fit = (0..letters).take_while(|count| (*count as f64 + 2.0) * LETTER <= width).count();
    (fit >= 3).then(|| text.chars().take(fit).chain(['…']).collect())
}
