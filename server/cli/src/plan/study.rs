//! Runs the policies on a problem: their plans, the validator's findings, the headroom, and a lower bound for any plan.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use gpulet_core::placement::{Exact, Infeasible, Policy};
use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::problem::{Device, DeviceType, Problem, Workload};
use gpulet_core::validate::{SlotPrediction, Validation, validate};
use serde::Serialize;
use variant_plan::each_batch;

/// Largest growth of all rates for which headroom is searched.
const GROWTH_MAX: f64 = 1_000.0;
/// First growth to try; doubled while the devices suffice.
const GROWTH_FIRST: f64 = 0.01;
/// Precision of the headroom, as a fraction of the rates.
const GROWTH_STEP: f64 = 0.000_5;
/// Workloads times devices up to which the headroom of new plans is searched; larger problems take too long.
const GROWTH_SIZE_MAX: usize = 250_000;
/// Workloads up to which the headroom of `exact` is searched.
const SEARCHED_MAX: usize = 24;
/// Workloads up to which a proof is searched.
const PROVED_MAX: usize = 64;
/// Maximum steps of the proof.
const PROOF_NODES: u64 = 5_000;
/// Relative tolerance for sums of floating-point numbers.
const SLACK: f64 = 1e-9;

/// The results of all policies on a problem.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// Each policy with its result, the best first.
    pub entries: Vec<Entry>,
    /// Lower bounds for any plan.
    pub least: Least,
}

/// A policy and its result.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the policy.
    pub policy: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Its plan, or why it found no plan.
    pub outcome: Result<Planned, Infeasible>,
}

/// A plan with the validator's findings.
#[derive(Clone, Debug)]
pub struct Planned {
    pub plan: Plan,
    pub validation: Validation,
    /// Factor by which the rate of each workload alone may grow with the unchanged plan.
    pub headrooms: BTreeMap<String, f64>,
    /// Factor on all rates up to which the plan suffices; `None` for an unsound plan or without load.
    pub growth_unchanged: Option<f64>,
    /// Factor on all rates up to which a new plan of the policy needs no more devices.
    pub growth_replanned: Option<Growth>,
}

/// How far all rates may grow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Factor on the rates.
    pub factor: f64,
    /// Whether the search ended at its limit: the true factor may be larger.
    pub at_bound: bool,
}

/// Lower bounds for the devices and the cost of plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Least {
    /// Devices that the work alone fills, in the best batches that meet the objectives on the best shares. No plan
    /// needs fewer. `None` if the problem is too large.
    pub devices_fluid: Option<f64>,
    /// Lower bound for the cost of plans that `exact` searches.
    pub dedicated: Option<Dedicated>,
}

/// The result of `exact`: plans in which each workload gets whole devices plus at most one gpulet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dedicated {
    /// Lower bound for the cost.
    pub cost_least: f64,
    /// Steps of the search.
    pub nodes: u64,
    /// Whether the search was completed.
    pub complete: bool,
}

impl Planned {
    /// Plans, and validates the plan.
    pub(super) fn find(problem: &Problem, policy: &Policy) -> Result<Self, Infeasible> {
        let mut planned = Self::of(problem, policy.place(problem)?);
        planned.growth_replanned = growth(problem, policy, &planned);
        Ok(planned)
    }

    /// Validates a plan.
    pub(super) fn of(problem: &Problem, plan: Plan) -> Self {
        let validation = validate(problem, &plan);
        let growth_unchanged = validation.headroom(problem).filter(|_| validation.is_sound());
        let headrooms = validation
            .headrooms(problem)
            .into_iter()
            .map(|(name, factor)| (name.to_owned(), factor))
            .collect();
        Self { plan, validation, headrooms, growth_unchanged, growth_replanned: None }
    }

    fn factor(&self) -> f64 {
        let replanned = self.growth_replanned.map(|growth| growth.factor);
        replanned.or(self.growth_unchanged).unwrap_or(0.0)
    }
}

impl Entry {
    /// Sound plans first, then unsound plans, then policies without a plan. Plans are ordered by number of violations,
    /// then cost, then devices, then headroom.
    fn order(&self, other: &Self) -> Ordering {
        let class = |entry: &Self| match &entry.outcome {
            Ok(planned) if planned.validation.is_sound() => 0,
            Ok(_) => 1,
            Err(_) => 2,
        };
        let by_class = class(self).cmp(&class(other));
        let (Ok(left), Ok(right)) = (&self.outcome, &other.outcome) else { return by_class };
        let broken = |planned: &Planned| planned.validation.violations.len();
        by_class
            .then_with(|| broken(left).cmp(&broken(right)))
            .then_with(|| left.validation.cost.total_cmp(&right.validation.cost))
            .then_with(|| left.validation.devices_used.cmp(&right.validation.devices_used))
            .then_with(|| right.factor().total_cmp(&left.factor()))
    }
}

/// Runs every policy.
pub fn study(problem: &Problem, policies: Vec<Policy>) -> Study {
    let entry = |policy: Policy| Entry {
        policy: policy.name(),
        about: policy.about(),
        outcome: Planned::find(problem, &policy),
    };
    let mut entries: Vec<Entry> = policies.into_iter().map(entry).collect();
    entries.sort_by(Entry::order);
    let found = entries.first().is_some_and(|entry| entry.outcome.is_ok());
    let least =
        Least { devices_fluid: fluid(problem), dedicated: if found { dedicated(problem) } else { None } };
    Study { entries, least }
}

/// The cost of one device, if all devices cost the same.
pub fn same_cost(problem: &Problem) -> Option<f64> {
    let first = problem.devices().first()?.cost;
    let same = problem.devices().iter().all(|device| device.cost.to_bits() == first.to_bits());
    (same && first > 0.0).then_some(first)
}

/// The first entry, if it has a plan.
pub fn best(study: &Study) -> Option<(&Entry, &Planned)> {
    let entry = study.entries.first()?;
    Some((entry, entry.outcome.as_ref().ok()?))
}

/// Every slot that the validator could predict, with its device and gpulet.
pub fn slots<'a>(
    problem: &'a Problem,
    planned: &'a Planned,
) -> impl Iterator<Item = (&'a Device, &'a Gpulet, &'a Slot, &'a SlotPrediction)> {
    let devices: BTreeMap<&str, &Device> =
        problem.devices().iter().map(|device| (device.name.as_str(), device)).collect();
    let mut predictions = planned.validation.slots.iter().peekable();
    let all =
        planned.plan.gpulets.iter().flat_map(|gpulet| gpulet.slots.iter().map(move |slot| (gpulet, slot)));
    all.filter_map(move |(gpulet, slot)| {
        let device = devices.get(gpulet.device.as_str())?;
        // Slots that the profile does not cover have no prediction. The others are in the plan's order.
        let predicted = predictions.next_if(|predicted| {
            predicted.device == gpulet.device
                && predicted.first_unit == gpulet.first_unit
                && predicted.workload == slot.workload
        })?;
        Some((*device, gpulet, slot, predicted))
    })
}

/// The same problem with all rates multiplied by a factor.
fn scaled(problem: &Problem, factor: f64) -> Option<Problem> {
    let mut rates = problem.workloads().iter().map(|workload| (&workload.name, workload.rate * factor));
    rates.try_fold(problem.clone(), |problem, (name, rate)| problem.with_rate(name, rate).ok())
}

/// The same problem with more devices of the first device's type. A plan that needs too many devices is then counted,
/// without a search for a remedy.
fn with_spares(problem: &Problem, used: usize) -> Option<Problem> {
    let pattern = problem.devices().first()?;
    let spare = |at: usize| Device {
        name: format!("{}+{at}", pattern.name).into(),
        device_type: Arc::clone(&pattern.device_type),
        memory_bytes: pattern.memory_bytes,
        fault_domain: format!("{}+{at}", pattern.name),
        cost: pattern.cost,
    };
    let spares = (0..=used / 4).map(spare);
    problem.on(problem.devices().iter().cloned().chain(spares).collect()).ok()
}

/// How much all rates may grow before the policy needs more devices, by doubling, then bisection.
fn growth(problem: &Problem, policy: &Policy, planned: &Planned) -> Option<Growth> {
    let loaded = problem.workloads().iter().any(|workload| workload.rate > 0.0);
    let size = problem.workloads().len().saturating_mul(problem.devices().len());
    let searches = matches!(policy, Policy::Exact(_)) && problem.workloads().len() > SEARCHED_MAX;
    if !loaded || !planned.validation.is_sound() || size > GROWTH_SIZE_MAX || searches {
        return None;
    }
    let (used, cost) = (planned.validation.devices_used, planned.validation.cost);
    let extended = with_spares(problem, used)?;
    let suffice = |growth: f64| {
        let Some(problem) = scaled(&extended, 1.0 + growth) else { return false };
        let Ok(plan) = policy.place(&problem) else { return false };
        let validation = validate(&problem, &plan);
        validation.is_sound() && validation.devices_used <= used && validation.cost <= cost * (1.0 + SLACK)
    };
    let (mut low, mut high) = (0.0, GROWTH_FIRST);
    while suffice(high) {
        low = high;
        high *= 2.0;
        if low > GROWTH_MAX {
            return Some(Growth { factor: 1.0 + low, at_bound: true });
        }
    }
    while high - low > GROWTH_STEP * (1.0 + low) {
        let middle = f64::midpoint(low, high);
        if suffice(middle) { low = middle } else { high = middle }
    }
    let unchanged = planned.growth_unchanged.unwrap_or(1.0);
    Some(Growth { factor: (1.0 + low).max(unchanged), at_bound: false })
}

fn dedicated(problem: &Problem) -> Option<Dedicated> {
    if problem.workloads().len() > PROVED_MAX {
        return None;
    }
    let proved = Exact { nodes: PROOF_NODES }.prove(problem).ok()?;
    let cost_least = if proved.complete { proved.cost } else { proved.cost_least };
    Some(Dedicated { cost_least, nodes: proved.nodes, complete: proved.complete })
}

/// The types of the devices, each once.
pub(super) fn kinds(problem: &Problem) -> Vec<&DeviceType> {
    let mut kinds: Vec<&DeviceType> = Vec::new();
    for device in problem.devices() {
        if kinds.iter().all(|known| known.name != device.device_type.name) {
            kinds.push(&device.device_type);
        }
    }
    kinds
}

/// Devices that the work alone fills. In every plan, a request that just misses a batch waits for that batch and its
/// own, so a batch may take at most half the objective. Co-located batches only add to its time.
fn fluid(problem: &Problem) -> Option<f64> {
    let kinds = kinds(problem);
    let mut lookups = 0_usize;
    let mut devices = 0.0;
    for workload in problem.workloads().iter().filter(|workload| workload.rate > 0.0) {
        let mut least = f64::INFINITY;
        for kind in &kinds {
            least = least.min(seconds_least(problem, workload, kind, &mut lookups)?);
        }
        if least.is_finite() {
            devices += workload.wanted() * least;
        }
    }
    Some(devices)
}

/// The fewest seconds of a whole device that a request of the workload takes; `None` after too many lookups.
fn seconds_least(
    problem: &Problem,
    workload: &Workload,
    kind: &DeviceType,
    lookups: &mut usize,
) -> Option<f64> {
    let mut least = f64::INFINITY;
    let is_complete = each_batch(problem, (workload, workload.slo_us), kind, lookups, |_, seconds| {
        least = least.min(seconds);
    });
    is_complete.then_some(least)
}
