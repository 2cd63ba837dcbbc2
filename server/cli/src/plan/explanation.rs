//! Explanations as text.

use std::fmt::Write as _;

use gpulet_core::plan::Plan;
use gpulet_core::problem::Workload;
use sim::page::number;

use super::explain::{Attempt, Binding, Explained};
use super::format;
use super::reading::Question;
use super::report::memory_bytes;

/// Every workload with its slots, then the devices.
pub fn text(question: &Question, plan: &Plan, explained: &[Explained]) -> String {
    let mut text = String::new();
    for workload in question.problem.workloads() {
        let slots: Vec<&Explained> =
            explained.iter().filter(|explained| explained.workload == workload.name).collect();
        let _ = writeln!(text, "\n{}", heading(workload));
        if slots.is_empty() {
            text.push_str(if workload.is_needed() {
                "  has no place in this plan\n"
            } else {
                "  has no load and need not be anywhere (replicas_min = 0): not placed\n"
            });
        }
        for slot in slots {
            text.push_str(&paragraph(slot, workload));
        }
    }
    text.push_str(&devices(question, plan));
    text
}

fn heading(workload: &Workload) -> String {
    let mut text = format!(
        "{}: {} requests a second within {}",
        workload.name,
        number(workload.rate),
        format::time(workload.slo_us)
    );
    if workload.headroom > 1.0 {
        let _ = write!(text, ", planned for {}", number(workload.wanted()));
    }
    if workload.replicas_min > 1 {
        let _ = write!(text, ", in {} fault domains", workload.replicas_min);
    }
    text
}

fn paragraph(slot: &Explained, workload: &Workload) -> String {
    let predicted = &slot.predicted;
    let mut text = format!(
        "  {} of {} ({} of {} units) in batches of up to {}",
        format::share(slot.units, slot.units_total),
        slot.device,
        slot.units,
        slot.units_total,
        slot.batch
    );
    if (predicted.rate - workload.wanted()).abs() > 1e-6 * workload.wanted() {
        let _ = write!(text, ", for {} a second of it", number(predicted.rate));
    }
    if !slot.turns_with.is_empty() {
        let _ = write!(text, ", by turns with {}", format::listed(&slot.turns_with));
    }
    text.push('\n');
    let _ = write!(text, "  a full batch takes {} alone", format::time(predicted.solo_us));
    if slot.beside.is_empty() {
        text.push_str(", and there is nobody beside it");
    } else {
        let more = predicted.co_located_us / predicted.solo_us;
        let _ = write!(
            text,
            ", {} beside {} (+{})",
            format::time(predicted.co_located_us),
            format::listed(&slot.beside),
            format::growth(more)
        );
    }
    let _ = writeln!(
        text,
        ";\n  answered after {} at worst, {:.0} % of its objective; serves up to {} a second",
        format::time(predicted.worst_us),
        (100.0 * predicted.worst_us / slot.slo_us).floor(),
        number(predicted.capacity)
    );
    let _ = writeln!(text, "  {}", least(slot));
    let _ = writeln!(text, "  {}", binding(slot));
    text
}

/// How much of the share is needed.
fn least(slot: &Explained) -> String {
    let Some(least) = slot.units_least else {
        return "this share does not do".to_owned();
    };
    let shown = |units: u32| format::share(units, slot.units_total);
    let mut text = if least < slot.units && !slot.turns_with.is_empty() {
        format!("its own turns need {}; the share is that of all who take turns", shown(least))
    } else if least < slot.units {
        format!("needs {}; the rest was left over, and is room to grow", shown(least))
    } else {
        "needs all of that share".to_owned()
    };
    if let Some(alone) = slot.units_least_alone.filter(|alone| *alone < least) {
        let _ = write!(text, "; with the device to itself {} would do", shown(alone));
    }
    text
}

/// What is wrong with less.
fn binding(slot: &Explained) -> String {
    let share = |attempt: &Attempt| format::share(attempt.units, slot.units_total);
    let Some(attempt) = &slot.below else {
        return match slot.binds {
            Binding::Profile => "nothing is known about smaller shares".to_owned(),
            _ => "that is the smallest share that the device gives".to_owned(),
        };
    };
    let (on, worst) = (share(attempt), format::time(attempt.worst_us));
    match slot.binds {
        Binding::Time if !attempt.worst_us.is_finite() => format!(
            "time binds: on {on} a batch of {} takes {}, which is longer than its window",
            attempt.batch,
            format::time(attempt.co_located_us)
        ),
        Binding::Time => format!(
            "time binds: on {on} a batch of {} takes {}, so a request may wait {worst}",
            attempt.batch,
            format::time(attempt.co_located_us)
        ),
        Binding::Rate => format!(
            "rate binds: on {on} no batch that is in time serves more than {} a second (batches of {}, answered after {worst})",
            number(attempt.capacity),
            attempt.batch
        ),
        Binding::Memory => format!(
            "memory binds: on {on} it would need batches of {}, and the device has no memory for them",
            attempt.batch
        ),
        Binding::Turns => format!(
            "turns bind: on {on} its turn would take {}, and all turns together more than the cycle",
            format::time(attempt.co_located_us)
        ),
        Binding::Profile | Binding::Smallest => "nothing is known about smaller shares".to_owned(),
    }
}

fn devices(question: &Question, plan: &Plan) -> String {
    let mut text = String::new();
    let used = plan.devices();
    let devices = question.problem.devices().iter();
    for device in devices.filter(|device| used.contains(&device.name.as_str())) {
        let gpulets = plan.gpulets.iter().filter(|gpulet| gpulet.device == device.name);
        // Gpulets that take turns in time own the same units.
        let side_by_side = gpulets.clone().all(|gpulet| gpulet.window.is_none());
        let units: u32 = gpulets.clone().map(|gpulet| gpulet.units).sum();
        let room = if side_by_side {
            format!("{} of its units given away", format::share(units, device.device_type.units))
        } else {
            format::counted(gpulets.count(), "window")
        };
        let memory = memory_bytes(&question.problem, plan, device);
        let _ = write!(text, "\n{}: {room}", device.name);
        if memory > 0 {
            let _ = write!(
                text,
                ", {} of {} of memory",
                format::bytes(memory),
                format::bytes(device.memory_bytes)
            );
        }
    }
    text.push('\n');
    text
}
