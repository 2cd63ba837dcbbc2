//! Plans families with all policies, and compares them.

use std::collections::BTreeMap;

use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::Problem;
use serde::Serialize;
use variant_plan::{Demand, Fluid, Found, Question, losses, plan, published};

use super::super::study::{Entry, Least, Planned, Study};
use super::explain::{Explained, explain};

/// Placement policies that mixes are placed with. The others search or split too long for hundreds of mixes.
pub const PLACED: [&str; 5] = ["tessera", "igniter", "temporal", "gpulet", "gslice"];
/// Relative tolerance for what is lost with spot devices.
const SLACK: f64 = 1e-9;

/// The results of all policies.
#[derive(Clone, Debug)]
pub struct FamilyStudy {
    /// Each policy with its result, the best first.
    pub standings: Vec<Standing>,
    /// Lower bound for the cost of any plan; `None` if the devices do not suffice.
    pub bound: Option<Fluid>,
    /// With `--explain`, of the best plan.
    pub explained: Option<Explained>,
}

/// A policy with its plan.
#[derive(Clone, Debug)]
pub struct Standing {
    pub policy: &'static str,
    pub about: &'static str,
    /// `None` if the devices do not suffice for it.
    pub planned: Option<FamilyPlan>,
}

/// A plan of all families.
#[derive(Clone, Debug)]
pub struct FamilyPlan {
    /// Variants as workloads, each with its share of the requests.
    pub problem: Problem,
    pub planned: Planned,
    /// The variants that serve each demand, the best first.
    pub served: Vec<Served>,
    /// Devices in use by section: type, cost and number.
    pub devices: Vec<Used>,
}

/// Devices of one type and cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Used {
    pub kind: String,
    pub spot: bool,
    pub cost: f64,
    pub used: usize,
    pub of: usize,
}

/// What serves a demand.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Served {
    pub name: String,
    /// Requests per second.
    pub rate: f64,
    /// Mean quality; `None` for a workload without variants.
    pub quality: Option<f64>,
    /// Share of its requests that is lost with spot devices in the long run.
    pub lost: f64,
    pub variants: Vec<Variant>,
}

/// A variant that serves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variant {
    pub model: String,
    pub quality: f64,
    /// Share of the requests.
    pub share: f64,
    pub rate: f64,
    /// Requests per second by type of device.
    pub on: BTreeMap<String, f64>,
}

impl FamilyPlan {
    fn of(question: &Question, problem: Problem, plan: Plan) -> Self {
        let planned = Planned::of(&problem, plan);
        let lost = losses(question, &planned.plan);
        let served = question
            .demands()
            .iter()
            .zip(lost)
            .map(|(demand, lost)| served(question, demand, &planned.plan, lost));
        let used = planned.plan.devices();
        let devices = question.groups().iter().map(|group| Used {
            kind: group.device_type.name.clone(),
            spot: group.lost > 0.0,
            cost: group.cost,
            used: group.devices.iter().filter(|device| used.contains(&device.as_str())).count(),
            of: group.devices.len(),
        });
        Self { served: served.collect(), devices: devices.collect(), problem, planned }
    }

    /// Whether it keeps every objective, and little enough is lost with spot devices.
    pub fn is_sound(&self, question: &Question) -> bool {
        self.planned.validation.is_sound() && self.lost() <= question.spot().lost_max * (1.0 + SLACK)
    }

    /// The largest share of a demand that is lost with spot devices.
    pub fn lost(&self) -> f64 {
        self.served.iter().map(|served| served.lost).fold(0.0, f64::max)
    }

    /// Mean quality over the requests of all families.
    pub fn quality(&self) -> f64 {
        let (mut sum, mut all) = (0.0, 0.0);
        for (rate, quality) in self.served.iter().filter_map(|served| Some((served.rate, served.quality?))) {
            sum += rate * quality;
            all += rate;
        }
        if all > 0.0 { sum / all } else { 0.0 }
    }
}

fn served(question: &Question, demand: &Demand, plan: &Plan, lost: f64) -> Served {
    let mut variants = Vec::new();
    for (entry, quality) in &demand.entries {
        let Some(entry) = question.entries().get(*entry) else { continue };
        let mut on: BTreeMap<String, f64> = BTreeMap::new();
        for (gpulet, slot) in plan.slots_of(&entry.name) {
            let device = question.problem().devices().iter().find(|device| device.name == gpulet.device);
            let kind = device.map_or("", |device| device.device_type.name.as_str());
            *on.entry(kind.to_owned()).or_default() += slot.rate;
        }
        let rate: f64 = on.values().sum();
        if rate > 0.0 {
            variants.push(Variant { model: entry.name.clone(), quality: *quality, share: 0.0, rate, on });
        }
    }
    let all: f64 = variants.iter().map(|variant| variant.rate).sum();
    variants.iter_mut().for_each(|variant| variant.share = variant.rate / all);
    variants.sort_by(|left, right| right.quality.total_cmp(&left.quality));
    let mean = variants.iter().map(|variant| variant.share * variant.quality).sum();
    let is_family = question.families().iter().any(|family| family.name == demand.name);
    Served {
        name: demand.name.clone(),
        rate: demand.rate,
        quality: is_family.then_some(mean),
        lost,
        variants,
    }
}

/// Names of all policies.
pub fn names() -> Vec<&'static str> {
    PLACED.into_iter().chain(published::names()).collect()
}

/// Plans with these policies.
pub fn study(question: &Question, names: &[&'static str], explains: bool) -> FamilyStudy {
    let mut best: Option<(Policy, Found)> = None;
    let mut standings: Vec<Standing> = Vec::new();
    for name in names {
        let (about, plan) = match Policy::named(name) {
            Some(policy) => {
                let found = plan(question, &policy);
                let plan = found.as_ref().map(|found| (found.problem.clone(), found.plan.clone()));
                let is_better = |found: &Found| {
                    best.as_ref().is_none_or(|(_, best)| found.validation.cost < best.validation.cost)
                };
                let about = policy.about();
                if let Some(found) = found.filter(is_better) {
                    best = Some((policy, found));
                }
                (about, plan)
            }
            None => {
                let proposal = published::propose(name, question);
                let plan = proposal.map(|proposal| (proposal.problem, proposal.plan));
                (published::about(name).unwrap_or_default(), plan)
            }
        };
        let planned = plan.map(|(problem, plan)| FamilyPlan::of(question, problem, plan));
        standings.push(Standing { policy: name, about, planned });
    }
    standings.sort_by(|left, right| {
        let ((left, cost), (right, other)) = (left.rank(question), right.rank(question));
        left.cmp(&right).then(cost.total_cmp(&other))
    });
    let bound = Fluid::cheapest(question, 1.0);
    let explained = best.filter(|_| explains).map(|(policy, found)| explain(question, &policy, &found));
    FamilyStudy { standings, bound, explained }
}

impl Standing {
    /// Class and cost: sound plans come first, then unsound ones, then policies without a plan.
    fn rank(&self, question: &Question) -> (u8, f64) {
        let Some(plan) = &self.planned else { return (2, 0.0) };
        (u8::from(!plan.is_sound(question)), plan.planned.validation.cost)
    }
}

impl FamilyStudy {
    /// The best plan, if any.
    pub fn best(&self) -> Option<(&Standing, &FamilyPlan)> {
        let standing = self.standings.first()?;
        Some((standing, standing.planned.as_ref()?))
    }

    /// The best plan as the study of its problem.
    pub fn of_best(&self) -> Option<(Problem, Study)> {
        let (standing, plan) = self.best()?;
        let (policy, about) = (standing.policy, standing.about);
        let entry = Entry { policy, about, outcome: Ok(plan.planned.clone()) };
        Some((plan.problem.clone(), Study { entries: vec![entry], least: Least::default() }))
    }
}
