//! Finds a mix of variants for each family, and a plan for it, at the lowest cost.
//!
//! Starts are the mixes of the fluid program ([`Fluid`]), with requests that take their least time or somewhat more, and single
//! variants. The best start is improved one family at a time. Of plans with the same cost, the one with more headroom is better: the
//! router gives requests better variants than planned while there is less load. Each mix is placed by a placement policy, so interference, memory, replicas and time slices count.

use std::collections::BTreeSet;

use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, Problem};
use gpulet_core::validate::{Validation, validate};

use crate::fluid::Fluid;
use crate::loss::losses;
use crate::mix::{Mix, mixed};
use crate::question::{Demand, Group, Question};
use crate::work::Work;

/// How much longer than its least time a request takes in the fluid programs that give starts.
const FACTORS: [f64; 4] = [1.0, 1.1, 1.25, 1.5];
/// Parts of the way to the best quality that are tried, the largest first.
const PARTS: [f64; 6] = [1.0, 0.8, 0.6, 0.4, 0.2, 0.1];
/// Mixes of a family that are tried, the cheapest in the fluid program first.
const CANDIDATES_MAX: usize = 24;
/// Rounds over all families.
const ROUNDS_MAX: usize = 3;
/// Largest number of plans times workloads times devices.
const EFFORT: usize = 400_000;
const PLANS: (usize, usize) = (12, 400);
/// Most plans that are tried while the server runs.
const PLANS_LIVE: usize = 40;
/// Part of the cost of the current variants that others may cost at most to replace them: loading models takes time.
const SAVED_MIN: f64 = 0.95;
/// Plans of one mix with fewer and fewer spot devices.
const SPOT_ROUNDS: usize = 8;
/// Relative difference below which two costs are equal.
const SAME_COST: f64 = 1e-9;
/// The same of two headrooms.
const SAME_HEADROOM: f64 = 1e-3;

/// A mix of variants with its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The mix of each demand, in the order of [`Question::demands`].
    pub mixes: Vec<Mix>,
    /// The variants as workloads, each with its share of the requests.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// What the validator found.
    pub validation: Validation,
    /// Factor by which all rates may grow, the goal among equal costs.
    headroom: f64,
}

impl Found {
    fn is_better_than(&self, other: &Self) -> bool {
        let same = SAME_COST * other.validation.cost.max(1.0);
        let saved = other.validation.cost - self.validation.cost;
        saved > same || (saved > -same && self.headroom > other.headroom * (1.0 + SAME_HEADROOM))
    }
}

/// The best plan that the search finds; `None` if no mix could be placed soundly, with as little lost with spot devices as is asked.
pub fn plan(question: &Question, policy: &Policy) -> Option<Found> {
    Search::new(question, policy).run()
}

/// As [`plan`], with less effort, and with the variants of the current plan unless others cost at least 5 % less.
pub fn replan(question: &Question, policy: &Policy) -> Option<Found> {
    let mut search = Search::new(question, policy);
    search.plans_left = search.plans_left.min(PLANS_LIVE);
    let kept = current_mixes(question).and_then(|mixes| search.kept(mixes));
    let found = search.run();
    match (kept, found) {
        (Some(kept), Some(found)) if kept.validation.cost * SAVED_MIN > found.validation.cost => Some(found),
        (Some(kept), _) => Some(kept),
        (None, found) => found,
    }
}

/// The mix of each demand in the current plan. `None` without a plan, or if a family has no part of it.
fn current_mixes(question: &Question) -> Option<Vec<Mix>> {
    let current = question.problem().current()?;
    let rate = |entry: usize| {
        let name = question.entries().get(entry).map_or("", |entry| entry.name.as_str());
        current.slots_of(name).map(|(_, slot)| slot.rate).fold(0.0, |sum, rate| sum + rate)
    };
    let of = |demand: &Demand| {
        let rates: Vec<f64> = demand.entries.iter().map(|(entry, _)| rate(*entry)).collect();
        let has_any = rates.len() == 1 || rates.iter().any(|rate| *rate > 0.0);
        has_any.then(|| Mix::of_rates(&rates, demand))
    };
    question.demands().iter().map(of).collect()
}

/// The plan with the highest quality that the search finds on as many devices of each group as `found` uses.
pub fn best_quality(question: &Question, policy: &Policy, found: &Found) -> Found {
    Search::new(question, policy).raise(found)
}

struct Search<'a> {
    question: &'a Question,
    policy: &'a Policy,
    plans_left: usize,
    /// Mixes that were tried already, in millionths.
    seen: BTreeSet<Vec<u32>>,
    best: Option<Found>,
}

impl<'a> Search<'a> {
    fn new(question: &'a Question, policy: &'a Policy) -> Self {
        let size = question.entries().len().saturating_mul(question.problem().devices().len()).max(1);
        let plans_left = (EFFORT / size).clamp(PLANS.0, PLANS.1);
        Self { question, policy, plans_left, seen: BTreeSet::new(), best: None }
    }

    fn run(mut self) -> Option<Found> {
        for mixes in self.starts() {
            self.try_mixes(mixes);
        }
        for _ in 0..ROUNDS_MAX {
            if !self.improve() {
                break;
            }
        }
        self.best
    }

    /// Mixes of the fluid programs, and for each demand its cheapest and its best single variant.
    fn starts(&self) -> Vec<Vec<Mix>> {
        let cheapest = FACTORS.iter().filter_map(|factor| Fluid::cheapest(self.question, *factor));
        let mut starts: Vec<Vec<Mix>> = cheapest.map(|fluid| fluid.mixes).collect();
        let demands = self.question.demands();
        let single = |at: &dyn Fn(&Demand) -> usize| {
            demands.iter().map(|demand| Mix::only(at(demand), demand.entries.len())).collect::<Vec<_>>()
        };
        if let Some(work) = Work::of(self.question) {
            starts.push(single(&|demand| {
                let suits = |at: &usize| Mix::only(*at, demand.entries.len()).suits(demand);
                let cost = |at: &usize| self.fluid_cost(&work, demand, &Mix::only(*at, demand.entries.len()));
                let all = (0..demand.entries.len()).filter(suits);
                all.min_by(|left, right| cost(left).total_cmp(&cost(right))).unwrap_or_else(|| demand.best())
            }));
        }
        starts.push(single(&Demand::best));
        starts
    }

    /// Cost of a mix if each request takes its least time on the cheapest device.
    fn fluid_cost(&self, work: &Work, demand: &Demand, mix: &Mix) -> f64 {
        let of = |entry: usize| {
            let costs = self.question.groups().iter().enumerate();
            let costs = costs.filter_map(|(group, known)| Some(known.cost * work.seconds(entry, group)?));
            costs.fold(f64::INFINITY, f64::min)
        };
        let shares = demand.entries.iter().zip(mix.shares()).filter(|(_, share)| **share > 0.0);
        shares.map(|((entry, _), share)| share * demand.wanted * of(*entry)).sum()
    }

    /// Tries each mix of each family with the others unchanged. Returns whether that found a better plan.
    fn improve(&mut self) -> bool {
        let Some(work) = Work::of(self.question) else { return false };
        let mut has_improved = false;
        for (at, demand) in
            self.question.demands().iter().enumerate().filter(|(_, demand)| demand.entries.len() > 1)
        {
            for candidate in self.candidates(&work, demand) {
                let Some(mut mixes) = self.best.as_ref().map(|best| best.mixes.clone()) else { return false };
                if let Some(mix) = mixes.get_mut(at) {
                    *mix = candidate;
                }
                has_improved |= self.try_mixes(mixes);
            }
        }
        has_improved
    }

    /// Single variants and pairs that have the quality, the cheapest first.
    fn candidates(&self, work: &Work, demand: &Demand) -> Vec<Mix> {
        let count = demand.entries.len();
        let single = (0..count).map(|at| Mix::only(at, count)).filter(|mix| mix.suits(demand));
        let pairs = (0..count).flat_map(|low| (0..count).map(move |high| (low, high)));
        let pairs = pairs.filter_map(|(low, high)| Mix::pair(low, high, demand, demand.quality_mean));
        let mut all: Vec<(f64, Mix)> =
            single.chain(pairs).map(|mix| (self.fluid_cost(work, demand, &mix), mix)).collect();
        all.retain(|(cost, _)| cost.is_finite());
        all.sort_by(|left, right| left.0.total_cmp(&right.0));
        all.truncate(CANDIDATES_MAX);
        all.into_iter().map(|(_, mix)| mix).collect()
    }

    /// Gives what the devices of a plan have left over to better variants.
    fn raise(mut self, found: &Found) -> Found {
        let devices = found.plan.devices();
        let used = |group: &Group| {
            group.devices.iter().filter(|device| devices.contains(&device.as_str())).count() as f64
        };
        let used: Vec<f64> = self.question.groups().iter().map(used).collect();
        let most = found.validation.cost * (1.0 + SAME_COST);
        let mut best = found.clone();
        for factor in FACTORS {
            let Some(goal) = Fluid::best_quality(self.question, &used, factor) else { continue };
            for part in PARTS {
                let mixes: Vec<Mix> =
                    found.mixes.iter().zip(&goal).map(|(own, goal)| own.towards(goal, part)).collect();
                if self.quality(&mixes) <= self.quality(&best.mixes) {
                    break;
                }
                if let Some(placed) = self.placed(mixes).filter(|placed| placed.validation.cost <= most) {
                    best = placed;
                    break;
                }
            }
        }
        best
    }

    /// The plan of the variants that are in use, if they have the quality.
    fn kept(&mut self, mixes: Vec<Mix>) -> Option<Found> {
        let demands = self.question.demands();
        let suit = mixes.iter().zip(demands).all(|(mix, demand)| mix.suits(demand));
        if suit { self.placed(mixes) } else { None }
    }

    /// Places a mix. Returns whether it is better than the best.
    fn try_mixes(&mut self, mixes: Vec<Mix>) -> bool {
        let demands = self.question.demands();
        if self.plans_left == 0 || !mixes.iter().zip(demands).all(|(mix, demand)| mix.suits(demand)) {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a million")]
        let key = mixes.iter().flat_map(Mix::shares).map(|share| (share * 1e6).round() as u32).collect();
        if !self.seen.insert(key) {
            return false;
        }
        let Some(found) = self.placed(mixes) else { return false };
        let is_better = self.best.as_ref().is_none_or(|best| found.is_better_than(best));
        if is_better {
            self.best = Some(found);
        }
        is_better
    }

    /// The plan of a mix, on fewer spot devices if too much were lost with them.
    fn placed(&mut self, mixes: Vec<Mix>) -> Option<Found> {
        let problem = mixed(self.question, &mixes).ok()?;
        let mut fewer: Option<Problem> = None;
        for _ in 0..SPOT_ROUNDS {
            self.plans_left = self.plans_left.saturating_sub(1);
            let on = fewer.as_ref().unwrap_or(&problem);
            let plan = self.policy.find(on)?;
            let validation = validate(&problem, &plan);
            if !validation.is_sound() {
                return None;
            }
            let worst = losses(self.question, &plan).into_iter().fold(0.0, f64::max);
            let lost_max = self.question.spot().lost_max;
            if worst <= lost_max * (1.0 + SAME_COST) {
                let headroom = validation.headroom(&problem).unwrap_or(f64::INFINITY);
                return Some(Found { mixes, problem, plan, validation, headroom });
            }
            fewer = Some(on.on(self.fewer_spot(on, &plan, lost_max / worst)?).ok()?);
        }
        None
    }

    /// The devices without some of the spot devices that the plan uses: `part` of them stay.
    fn fewer_spot(&self, problem: &Problem, plan: &Plan, part: f64) -> Option<Vec<Device>> {
        let spot = &self.question.spot().devices;
        let used = plan.devices();
        let mut lost: Vec<&str> = spot.iter().map(|spot| spot.device.as_str()).collect();
        lost.retain(|device| used.contains(device));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "part of a number of devices"
        )]
        let keep = ((lost.len() as f64 * part) as usize).min(lost.len().checked_sub(1)?);
        let kept = lost.get(..keep)?;
        let is_kept = |device: &Device| {
            spot.iter().all(|spot| spot.device != device.name) || kept.contains(&device.name.as_str())
        };
        Some(problem.devices().iter().filter(|device| is_kept(device)).cloned().collect())
    }

    fn quality(&self, mixes: &[Mix]) -> f64 {
        let demands =
            self.question.demands().iter().zip(mixes).filter(|(demand, _)| demand.entries.len() > 1);
        let (mut sum, mut all) = (0.0, 0.0);
        for (demand, mix) in demands {
            sum += demand.wanted * mix.quality(demand);
            all += demand.wanted;
        }
        if all > 0.0 { sum / all } else { 0.0 }
    }
}
