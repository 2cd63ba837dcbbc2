//! The result of a study as one line of JSON. Times are in microseconds, rates in requests per second.

use std::collections::BTreeMap;

use gpulet_core::placement::Infeasible;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, Workload};
use gpulet_core::profile::{Quantile, RowShape, Source};
use gpulet_core::validate::{SlotPrediction, Unused, Violation};
use serde::Serialize;

use super::doubt::Doubt;
use super::explain::Explained;
use super::families::{FamiliesLine, FamilyStudy};
use super::pipelines::PlannedPipeline;
use super::reading::PlanQuery;
use super::report::{memory_bytes, notes};
use super::shortage::infeasible_words;
use super::splitting::SplitChoice;
use super::study::{Entry, Growth, Least, Study, best};

/// The JSON object of a study.
#[derive(Serialize)]
struct Answer<'a> {
    problem: &'a str,
    quantile: Quantile,
    interference: &'a str,
    devices: Vec<DeviceLine<'a>>,
    workloads: &'a [Workload],
    /// How the objectives of pipelines are divided. Their stages are workloads.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pipelines: &'a [PlannedPipeline],
    /// Whether workloads with `parallel = "auto"` are planned whole or in stages, which are pipelines.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    splits: &'a [SplitChoice],
    /// Families, with the plans of all policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    families: Option<FamiliesLine<'a>>,
    profiles: Vec<ProfileLine<'a>>,
    least: &'a Least,
    /// Policies with their plans, the best first.
    policies: Vec<PolicyLine<'a>>,
    /// What the doubt about predicted cells costs the best plan; left out without such cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<Doubt>,
    /// Explanation of the best plan, with `--explain`.
    explained: Option<&'a [Explained]>,
    /// Why the times may not hold for these workloads.
    warnings: &'a [String],
    notes: Vec<String>,
}

#[derive(Serialize)]
struct DeviceLine<'a> {
    name: &'a str,
    kind: &'a str,
    units: u32,
    fault_domain: &'a str,
    cost: f64,
    memory_bytes: u64,
    /// Memory that the best plan uses, as far as it is profiled.
    memory_bytes_planned: u64,
}

#[derive(Serialize)]
struct ProfileLine<'a> {
    model: &'a str,
    device: &'a str,
    engine: &'a str,
    source: Source,
    note: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    shapes: &'a [RowShape],
    repairs: usize,
    /// Number of cells, and of those that were predicted and not measured.
    cells: usize,
    predicted: usize,
}

#[derive(Serialize)]
struct PolicyLine<'a> {
    policy: &'a str,
    about: &'a str,
    sound: bool,
    devices_used: Option<usize>,
    cost: Option<f64>,
    /// Factor on all rates up to which the unchanged plan suffices.
    growth_unchanged: Option<f64>,
    /// The same for a new plan on as many devices.
    growth_replanned: Option<Growth>,
    /// Factor on the rate of each workload alone up to which the unchanged plan suffices.
    headrooms: Option<&'a BTreeMap<String, f64>>,
    /// Share of each used device that no gpulet owns.
    unused: &'a [Unused],
    violations: &'a [Violation],
    /// The violations as text.
    broken: Vec<String>,
    /// Predictions for the slots of the plan, in the plan's order.
    predicted: &'a [SlotPrediction],
    memory_unknown: &'a [String],
    plan: Option<&'a Plan>,
    infeasible: Option<&'a Infeasible>,
    /// The reason why planning failed, as text.
    why_not: Option<String>,
}

impl<'a> From<&'a Entry> for PolicyLine<'a> {
    fn from(entry: &'a Entry) -> Self {
        let planned = entry.outcome.as_ref().ok();
        let validation = planned.map(|planned| &planned.validation);
        let violations = validation.map_or(&[][..], |validation| validation.violations.as_slice());
        Self {
            policy: entry.policy,
            about: entry.about,
            sound: validation.is_some_and(|validation| validation.is_sound()),
            devices_used: validation.map(|validation| validation.devices_used),
            cost: validation.map(|validation| validation.cost),
            growth_unchanged: planned.and_then(|planned| planned.growth_unchanged),
            growth_replanned: planned.and_then(|planned| planned.growth_replanned),
            headrooms: planned.map(|planned| &planned.headrooms),
            unused: validation.map_or(&[][..], |validation| validation.unused.as_slice()),
            violations,
            broken: violations.iter().map(Violation::to_string).collect(),
            predicted: validation.map_or(&[][..], |validation| validation.slots.as_slice()),
            memory_unknown: validation.map_or(&[][..], |validation| validation.memory_unknown.as_slice()),
            plan: planned.map(|planned| &planned.plan),
            infeasible: entry.outcome.as_ref().err(),
            why_not: entry.outcome.as_ref().err().map(infeasible_words),
        }
    }
}

/// One line of JSON.
pub fn json(
    query: &PlanQuery,
    study: &Study,
    explained: Option<&[Explained]>,
    families: Option<&FamilyStudy>,
) -> Result<String, serde_json::Error> {
    let problem = &query.problem;
    let plan = best(study).map(|(_, planned)| &planned.plan);
    let planned = |device: &Device| {
        let used = plan.filter(|plan| plan.gpulets.iter().any(|gpulet| gpulet.device == device.name));
        used.map_or(0, |plan| memory_bytes(problem, plan, device))
    };
    serde_json::to_string(&Answer {
        problem: &query.name,
        quantile: query.quantile,
        interference: problem.interference().name(),
        devices: problem
            .devices()
            .iter()
            .map(|device| DeviceLine {
                name: &device.name,
                kind: &device.device_type.name,
                units: device.device_type.units,
                fault_domain: &device.fault_domain,
                cost: device.cost,
                memory_bytes: device.memory_bytes,
                memory_bytes_planned: planned(device),
            })
            .collect(),
        workloads: problem.workloads(),
        pipelines: &query.pipelines,
        splits: &query.splits,
        profiles: query
            .profiles
            .iter()
            .map(|profile| ProfileLine {
                model: profile.model(),
                device: profile.device(),
                engine: &profile.header().engine,
                source: profile.header().source,
                note: &profile.header().note,
                shapes: profile.shapes(),
                repairs: profile.repairs().len(),
                cells: profile.cells().len(),
                predicted: profile.predicted().count(),
            })
            .collect(),
        families: families
            .zip(query.question.as_ref())
            .map(|(families, question)| FamiliesLine::of(question, families)),
        least: &study.least,
        policies: study.entries.iter().map(PolicyLine::from).collect(),
        doubt: Doubt::of(query, study),
        explained,
        warnings: &query.warnings,
        notes: notes(query, study),
    })
}
