//! Explanations as text.

use std::fmt::Write as _;

use charts::number;
use gpulet_core::plan::Plan;
use gpulet_core::problem::Workload;
use node::output;

use super::explain::{Attempt, Binding, Explained};
use super::format;
use super::pipelines::{PlannedPipeline, SplitBy};
use super::reading::PlanQuery;
use super::report::memory_bytes;
use super::splitting;
use crate::split_setting::split_setting;

/// Explains every workload with its slots, then the devices.
pub fn text(query: &PlanQuery, plan: &Plan, explained: &[Explained]) -> String {
    let mut text = String::new();
    for choice in &query.splits {
        text.push_str(&splitting::text(choice));
    }
    for pipeline in &query.pipelines {
        text.push_str(&divided(pipeline));
    }
    for workload in query.problem.workloads() {
        let slots: Vec<&Explained> =
            explained.iter().filter(|explained| explained.workload == workload.name).collect();
        let _ = writeln!(text, "\n{}", heading(workload));
        if slots.is_empty() {
            text.push_str(if workload.is_needed() {
                "  not placed\n"
            } else {
                "  has no load and replicas_min = 0: not placed\n"
            });
        }
        for slot in slots {
            text.push_str(&paragraph(slot, workload));
        }
    }
    text.push_str(&devices(query, plan));
    text
}

/// How the objective of a pipeline is divided, and why.
fn divided(pipeline: &PlannedPipeline) -> String {
    let PlannedPipeline { name, slo_us, rate, stages, .. } = pipeline;
    let mut text =
        format!("\n{name}: {} requests per second within {}, ", number(*rate), format::time(*slo_us));
    text.push_str(match pipeline.split {
        SplitBy::FewestDevices => "divided so that its stages need the fewest devices\n",
        SplitBy::Even => "divided evenly\n",
        SplitBy::Given => "divided as the file says\n",
    });
    let filled = |devices: Option<f64>| devices.map_or_else(|| "too short".to_owned(), number);
    let rows = stages.iter().map(|stage| {
        let budget = format::ms(slo_us * stage.share);
        vec![
            stage.name.clone(),
            number(stage.rows),
            format::percent(stage.share),
            budget,
            filled(stage.devices),
        ]
    });
    let header = ["stage", "rows", "share", "budget ms", "devices"];
    text.push_str(&output::table(&header, rows));
    let _ = writeln!(
        text,
        "  its work fills {} devices; with even shares {}",
        filled(pipeline.devices),
        filled(pipeline.devices_even)
    );
    let shares = stages.iter().map(|stage| (stage.name.as_str(), stage.share));
    let _ = writeln!(text, "  split = {}", split_setting(shares));
    text
}

fn heading(workload: &Workload) -> String {
    let mut text = format!(
        "{}: {} requests per second within {}",
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
        let _ = write!(text, ", for {} requests per second", number(predicted.rate));
    }
    if !slot.shares_time_with.is_empty() {
        let _ = write!(text, ", sharing time with {}", format::listed(&slot.shares_time_with));
    }
    text.push('\n');
    let _ = write!(text, "  a full batch takes {} solo", format::time(predicted.solo_us));
    if slot.co_located.is_empty() {
        text.push_str(", without co-located models");
    } else {
        let more = predicted.co_located_us / predicted.solo_us;
        let _ = write!(
            text,
            ", {} co-located with {} (+{})",
            format::time(predicted.co_located_us),
            format::listed(&slot.co_located),
            format::growth(more)
        );
    }
    let _ = writeln!(
        text,
        ";\n  answered within {} in the worst case, {:.0} % of its objective; serves up to {} per second",
        format::time(predicted.worst_us),
        (100.0 * predicted.worst_us / slot.slo_us).floor(),
        number(predicted.capacity)
    );
    let _ = writeln!(text, "  {}", least(slot));
    let _ = writeln!(text, "  {}", binding(slot));
    text
}

/// Says how much of the share is needed.
fn least(slot: &Explained) -> String {
    let Some(least) = slot.units_least else {
        return "this share does not suffice".to_owned();
    };
    let shown = |units: u32| format::share(units, slot.units_total);
    let mut text = if least < slot.units && !slot.shares_time_with.is_empty() {
        format!("needs {} for its own time slices; the share is for all models in the gpulet", shown(least))
    } else if least < slot.units {
        format!("needs {}; the rest is headroom", shown(least))
    } else {
        "needs the whole share".to_owned()
    };
    if let Some(alone) = slot.units_least_alone.filter(|alone| *alone < least) {
        let _ = write!(text, "; alone on the device, {} would suffice", shown(alone));
    }
    text
}

/// Says why the next smaller share does not suffice.
fn binding(slot: &Explained) -> String {
    let share = |attempt: &Attempt| format::share(attempt.units, slot.units_total);
    let Some(attempt) = &slot.below else {
        return match slot.binds {
            Binding::Profile => "the profile does not cover smaller shares".to_owned(),
            _ => "this is the smallest share of the device".to_owned(),
        };
    };
    let (on, worst) = (share(attempt), format::time(attempt.worst_us));
    match slot.binds {
        Binding::Time if !attempt.worst_us.is_finite() => format!(
            "limited by time: on {on}, a batch of {} takes {}, longer than its window",
            attempt.batch,
            format::time(attempt.co_located_us)
        ),
        Binding::Time => format!(
            "limited by time: on {on}, a batch of {} takes {}, so a request may take {worst}",
            attempt.batch,
            format::time(attempt.co_located_us)
        ),
        Binding::Rate => format!(
            "limited by rate: on {on}, no batch that meets the objective serves more than {} per second (batches of {}, answered within {worst})",
            number(attempt.capacity),
            attempt.batch
        ),
        Binding::Memory => format!(
            "limited by memory: on {on}, it needs batches of {}, and the device has no memory for them",
            attempt.batch
        ),
        Binding::TimeSlices => format!(
            "limited by cycle: on {on}, its batch takes {}, and one batch of each model takes longer than the cycle",
            format::time(attempt.co_located_us)
        ),
        Binding::Profile | Binding::Smallest => "the profile does not cover smaller shares".to_owned(),
    }
}

fn devices(query: &PlanQuery, plan: &Plan) -> String {
    let mut text = String::new();
    let used = plan.devices();
    let devices = query.problem.devices().iter();
    for device in devices.filter(|device| used.contains(&device.name.as_str())) {
        let gpulets = plan.gpulets.iter().filter(|gpulet| gpulet.device == device.name);
        // Gpulets with windows share the same units by time.
        let spatial = gpulets.clone().all(|gpulet| gpulet.window.is_none());
        let units: u32 = gpulets.clone().map(|gpulet| gpulet.units).sum();
        let allocated = if spatial {
            format!("{} of its units allocated", format::share(units, device.device_type.units))
        } else {
            format::counted(gpulets.count(), "window")
        };
        let memory = memory_bytes(&query.problem, plan, device);
        let _ = write!(text, "\n{}: {allocated}", device.name);
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
