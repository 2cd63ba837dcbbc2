//! The picture of a plan: one box of share by time for each device, one box in it for each slot, one colour per model.

use charts::{DeviceBox, Devices, file};
use gpulet_core::plan::{Gpulet, Slot};
use gpulet_core::problem::{Device, Problem};

use super::format;
use super::reading::PlanQuery;
use super::study::{Planned, slots};

const NOTE: &str = "height: share of the device; width: time; grey: not allocated; \
                    times: worst case from arrival to response, of the objective";

/// Draws a standalone SVG file. The same plan gives the same bytes.
pub fn picture(query: &PlanQuery, policy: &str, planned: &Planned) -> String {
    let problem = &query.problem;
    let title = format!(
        "{}: {policy}, {} of {} needed",
        query.name,
        planned.validation.devices_used,
        format::counted(problem.devices().len(), "device")
    );
    let used = planned.plan.devices();
    let models = models(problem);
    let devices = problem.devices().iter().filter(|device| used.contains(&device.name.as_str()));
    let devices = devices.map(|device| device_box(problem, planned, device, &models)).collect();
    file(&Devices { title, devices, models, note: NOTE.to_owned() })
}

/// The models of the problem, by name.
fn models(problem: &Problem) -> Vec<&str> {
    let mut models: Vec<&str> = problem.workloads().iter().map(|workload| workload.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    models
}

fn device_box(problem: &Problem, planned: &Planned, device: &Device, models: &[&str]) -> DeviceBox {
    let gpulets: Vec<&Gpulet> =
        planned.plan.gpulets.iter().filter(|gpulet| gpulet.device == device.name).collect();
    let by_time = gpulets.iter().any(|gpulet| gpulet.window.is_some());
    let units: u32 = gpulets.iter().map(|gpulet| gpulet.units).sum();
    let total = device.device_type.units;
    let slots = slots(problem, planned).filter(|(on, ..)| on.name == device.name);
    let slots = slots.filter_map(|(_, gpulet, slot, predicted)| {
        let workload = problem.workloads().iter().find(|workload| workload.name == slot.workload)?;
        let share = format::share(gpulet.units, total);
        let times = format!("{} of {}", format::ms(predicted.worst_us), format::time(workload.slo_us));
        let details = vec![share, format!("batch {}", slot.batch), times];
        let unit = |units: u32| f64::from(units) / f64::from(total.max(1));
        Some(charts::Slot {
            name: slot.workload.to_string(),
            more: format!("{}: {}, {}", slot.workload, details.join(", "), format::time_slices(gpulet)),
            details,
            time: time(gpulet, slot),
            share: (unit(gpulet.first_unit), unit(gpulet.first_unit.saturating_add(gpulet.units))),
            colour: models.iter().position(|model| *model == workload.model).unwrap_or(0),
        })
    });
    DeviceBox {
        name: device.name.to_string(),
        allocated: if by_time { String::new() } else { format::share(units, total) },
        time: cycle(&gpulets),
        slots: slots.collect(),
    }
}

/// Label of a device's time axis.
fn cycle(gpulets: &[&Gpulet]) -> String {
    let mut cycles: Vec<f64> = gpulets
        .iter()
        .filter_map(|gpulet| gpulet.duty_us.or(gpulet.window.map(|window| window.period_us)))
        .collect();
    cycles.sort_by(f64::total_cmp);
    cycles.dedup();
    match cycles.as_slice() {
        [] => "time".to_owned(),
        [one] => format!("one cycle of {}", format::time(*one)),
        _ => "one cycle of each".to_owned(),
    }
}

/// Start and end of a slot in its cycle, as fractions of the cycle.
fn time(gpulet: &Gpulet, slot: &Slot) -> (f64, f64) {
    match (gpulet.duty_us, gpulet.window) {
        (Some(duty), _) => {
            let before = gpulet.slots.iter().take_while(|other| !std::ptr::eq(*other, slot));
            let from = before.map(|other| other.budget_us).sum::<f64>() / duty;
            (from, from + slot.budget_us / duty)
        }
        (None, Some(window)) => {
            let end = window.offset_us + window.length_us;
            (window.offset_us / window.period_us, end / window.period_us)
        }
        (None, None) => (0.0, 1.0),
    }
}
