//! Prints the result of a study as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use charts::number;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, Problem};
use gpulet_core::profile::Source;
use node::output;

use super::doubt::{self, Doubt};
use super::families::{self, FamilyStudy};
use super::format;
use super::reading::PlanQuery;
use super::shortage::infeasible_words;
use super::study::{Growth, Least, Planned, Study, best, same_cost, slots};

/// Least unused share of a device that the report names.
const UNUSED_LEAST: f64 = 0.001;
/// Largest number of devices with unused shares that it names.
const UNUSED_NAMED: usize = 8;

/// Prints a study: the problem, a comparison if there are several policies, the best plan with its headroom and
/// violations, and notes about the inputs.
pub fn text(query: &PlanQuery, study: &Study, families: Option<&FamilyStudy>) -> String {
    let mut text = format!("{}\n", headline(query));
    if study.entries.len() > 1 {
        let _ = write!(text, "\n{}", compared(study));
    }
    if let (Some(families), Some(question)) = (families, &query.question) {
        text.push_str(&families::text(question, families));
    }
    for entry in &study.entries {
        if let Err(infeasible) = &entry.outcome {
            let _ = writeln!(text, "{}: no plan: {}", entry.policy, infeasible_words(infeasible));
        }
    }
    if let Some((entry, planned)) = best(study) {
        match families {
            Some(_) => text.push('\n'),
            None => {
                let _ = writeln!(text, "\n{}: {}\n", entry.policy, entry.about);
            }
        }
        text.push_str(&gpulets(query, planned));
        let _ = writeln!(text, "\n{}", needed(&query.problem, planned, &study.least));
        text.push_str(&headroom(&query.problem, planned));
        text.push_str(&unused(planned));
        if let Some(doubt) = Doubt::of(query, study) {
            let _ = writeln!(text, "{}", doubt.words(planned));
        }
        for violation in &planned.validation.violations {
            let _ = writeln!(text, "violation: {violation}");
        }
    }
    for warning in &query.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    for note in notes(query, study) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// One line about the problem.
fn headline(query: &PlanQuery) -> String {
    let problem = &query.problem;
    let mut device_types: BTreeMap<&str, usize> = BTreeMap::new();
    for device in problem.devices() {
        let count = device_types.entry(&device.device_type.name).or_default();
        *count = count.saturating_add(1);
    }
    let device_types: Vec<String> =
        device_types.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let planned = match &query.question {
        None => format::counted(problem.workloads().len(), "workload"),
        Some(question) => {
            let (families, all) = (question.families().len(), question.demands().len());
            let families = if families == 1 { "1 family".to_owned() } else { format!("{families} families") };
            match all.saturating_sub(question.families().len()) {
                0 => families,
                others => format!("{families} and {}", format::counted(others, "workload")),
            }
        }
    };
    format!(
        "{}: {planned} on {}, planned at {} with interference `{}`",
        query.name,
        device_types.join(" and "),
        query.quantile,
        problem.interference().name()
    )
}

fn compared(study: &Study) -> String {
    let header = ["policy", "sound", "devices", "cost", "headroom", "with a new plan", "violations"];
    let rows = study.entries.iter().map(|entry| {
        let mut row = vec![entry.policy.to_string()];
        match &entry.outcome {
            Err(_) => row.extend(["no plan", "-", "-", "-", "-", "-"].map(str::to_owned)),
            Ok(planned) => {
                let validation = &planned.validation;
                let factor = |growth: Growth| growth.factor;
                let percent = |factor: Option<f64>| factor.map_or_else(|| "-".to_owned(), format::growth);
                row.extend([
                    if validation.is_sound() { "yes" } else { "no" }.to_owned(),
                    validation.devices_used.to_string(),
                    number(validation.cost),
                    percent(planned.growth_unchanged),
                    percent(planned.growth_replanned.map(factor)),
                    validation.violations.len().to_string(),
                ]);
            }
        }
        row
    });
    output::table(&header, rows)
}

/// A table of all slots of the plan, by device.
fn gpulets(query: &PlanQuery, planned: &Planned) -> String {
    let problem = &query.problem;
    let by_time =
        planned.plan.gpulets.iter().any(|gpulet| gpulet.duty_us.is_some() || gpulet.window.is_some());
    let mut header = vec!["device", "share", "workload", "batch"];
    if by_time {
        header.push("time slice");
    }
    header.extend(["solo ms", "co-located ms", "worst-case ms", "SLO ms", "capacity/s", "rate/s"]);
    let mut rows = Vec::new();
    let mut last = "";
    for (device, gpulet, slot, predicted) in slots(problem, planned) {
        let wanted = problem.workloads().iter().find(|workload| workload.name == slot.workload);
        let mut row = vec![
            if device.name == last { String::new() } else { device.name.to_string() },
            format::share(gpulet.units, device.device_type.units),
            slot.workload.clone(),
            slot.batch.to_string(),
        ];
        last = &device.name;
        if by_time {
            row.push(format::time_slices(gpulet));
        }
        row.extend([
            format::ms(predicted.solo_us),
            format::ms(predicted.co_located_us),
            format::ms(predicted.worst_us),
            wanted.map_or_else(String::new, |workload| format::ms(workload.slo_us)),
            number(predicted.capacity),
            number(slot.rate),
        ]);
        rows.push(row);
    }
    let mut text = output::table(&header, rows);
    let _ = writeln!(
        text,
        "solo, co-located: {} of a full batch, alone on the device and next to the most demanding batches of other gpulets;\n\
         worst-case: from arrival to response, for a request that just misses a batch",
        query.quantile
    );
    text
}

/// How many devices the plan needs, and how many any plan needs.
fn needed(problem: &Problem, planned: &Planned, least: &Least) -> String {
    let used = planned.validation.devices_used;
    let mut text = format!("devices needed: {used} of {}", problem.devices().len());
    let cost = planned.validation.cost;
    if (cost - used as f64).abs() > 1e-9 {
        let _ = write!(text, ", cost {}", number(cost));
    }
    if !planned.validation.is_sound() {
        text.push_str("; the plan breaks limits, see the violations below");
        return text;
    }
    let fluid = least.devices_fluid.map(|fluid| (fluid, (fluid - 1e-9).ceil()));
    let step = same_cost(problem);
    let dedicated = least.dedicated.zip(step).map(|(found, step)| (found, (found.cost_least / step).round()));
    match (fluid, dedicated) {
        (Some((fluid, whole)), _) if used as f64 <= whole => {
            let _ = write!(text, "; no plan needs fewer: the work alone fills {fluid:.2}");
        }
        (fluid, Some((found, whole))) if used as f64 <= whole => {
            let _ = write!(
                text,
                "; no plan of whole devices plus at most one gpulet per workload needs fewer (`exact`, {})",
                format::counted(usize::try_from(found.nodes).unwrap_or(usize::MAX), "step")
            );
            if let Some((fluid, _)) = fluid {
                let _ = write!(text, "; the work alone fills {fluid:.2}");
            }
        }
        (Some((fluid, whole)), _) => {
            let more = used as f64 - whole.max(1.0);
            let _ = write!(
                text,
                "; at most {} more than the optimum: the work alone fills {fluid:.2}",
                number(more)
            );
        }
        (None, _) => {}
    }
    text
}

fn headroom(problem: &Problem, planned: &Planned) -> String {
    let Some(unchanged) = planned.growth_unchanged else { return String::new() };
    let mut text = format!("headroom: all rates may grow by {} with this plan", format::growth(unchanged));
    if let Some(replanned) = planned.growth_replanned {
        let next = planned.validation.devices_used.saturating_add(1);
        let growth = format::growth(replanned.factor);
        let more = if replanned.at_bound { " or more" } else { "" };
        let _ = write!(text, ", by {growth}{more} with a new plan, before device {next} is needed");
        if next > problem.devices().len() {
            text.push_str(", which does not exist");
        }
    }
    text.push('\n');
    text
}

/// The shares of devices that no gpulet owns, the largest first.
fn unused(planned: &Planned) -> String {
    let mut unused: Vec<(f64, &str)> =
        planned.validation.unused.iter().map(|unused| (unused.share, unused.device.as_str())).collect();
    unused.retain(|(share, _)| *share >= UNUSED_LEAST);
    unused.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(right.1)));
    if unused.is_empty() {
        return String::new();
    }
    let named = unused
        .iter()
        .take(UNUSED_NAMED)
        .map(|(share, device)| format!("{} of {device}", format::percent(*share)));
    let mut text = format!("unused: {}", named.collect::<Vec<_>>().join(", "));
    if let Some(more) = unused.len().checked_sub(UNUSED_NAMED).filter(|more| *more > 0) {
        let _ = write!(text, ", and some of {}", format::counted(more, "more device"));
    }
    text.push('\n');
    text
}

/// Notes about the inputs on which the figures depend.
pub fn notes(query: &PlanQuery, study: &Study) -> Vec<String> {
    let mut notes = Vec::new();
    let mut said: BTreeMap<(&str, &str, &str, &str), Vec<&str>> = BTreeMap::new();
    for profile in &query.profiles {
        let header = profile.header();
        let source = match header.source {
            Source::Measured => "measured",
            Source::TypedIn => "entered manually",
            Source::Synthesised => "synthesised",
            Source::Predicted => "predicted",
        };
        let key = (header.device.as_str(), header.engine.as_str(), source, header.note.as_str());
        said.entry(key).or_default().push(profile.model());
    }
    for ((device, engine, source, note), models) in said {
        let about = if note.is_empty() { String::new() } else { format!(": {note}") };
        notes.push(format!("profiles of {} on {device} ({engine}) are {source}{about}", models.join(", ")));
    }
    for profile in query.profiles.iter().filter(|profile| !profile.repairs().is_empty()) {
        notes.push(format!(
            "profile of {} on {}: {} contradicted adjacent cells and were adjusted",
            profile.model(),
            profile.device(),
            format::counted(profile.repairs().len(), "time")
        ));
    }
    for choice in &query.splits {
        notes.push(format!("{} is {}", choice.workload, choice.reason));
    }
    notes.extend(query.profiles.iter().filter_map(doubt::note));
    if !query.interference_is_set {
        notes.push("interference is not set: the plan assumes no slowdown by co-located batches".to_owned());
    }
    let unknown = best(study).map(|(_, planned)| planned.validation.memory_unknown.join(", "));
    if let Some(models) = unknown.filter(|models| !models.is_empty()) {
        notes.push(format!(
            "memory of {models} was not measured: the plan may need more memory than the devices have"
        ));
    }
    notes
}

/// Memory that a plan uses on a device, as far as it is profiled: base, gpulets, weights once per model, arenas.
pub fn memory_bytes(problem: &Problem, plan: &Plan, device: &Device) -> u64 {
    let mut bytes = device.device_type.base_bytes;
    let mut models: Vec<&str> = Vec::new();
    for gpulet in plan.gpulets.iter().filter(|gpulet| gpulet.device == device.name) {
        bytes = bytes.saturating_add(device.device_type.gpulet_bytes);
        for slot in &gpulet.slots {
            let workload = problem.workloads().iter().find(|workload| workload.name == slot.workload);
            let Some(workload) = workload else { continue };
            let Some(profile) = problem.profile(workload, &device.device_type) else { continue };
            bytes = bytes.saturating_add(profile.arena_bytes(slot.batch).unwrap_or(0));
            if !models.contains(&profile.model()) {
                models.push(profile.model());
                bytes = bytes.saturating_add(profile.weights_bytes().unwrap_or(0));
            }
        }
    }
    bytes
}
