//! HexGen's second phase: which GPUs form a group. A genetic search, and an enumeration for small pools.

use std::collections::BTreeMap;

use rand::RngExt as _;
use serde::Serialize;

use super::{PipelinePlan, Pool, StageSize, best_pipeline};
use crate::chain_program::Objective;
use crate::error::{ParallelError, positive};
use crate::genetic::{Effort, Generator, Search, search};
use crate::simulation::{Pipeline, Request, System, stage_clocks};

/// Divisions of the GPUs that are enumerated at most.
pub const GROUPINGS_MAX: u64 = 20_000;

/// Requests with which divisions are compared.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Requests of one model (number 0), in order of arrival.
    pub requests: Vec<Request>,
    /// Seconds from arrival to end that a request may take.
    pub objective_s: f64,
}

/// Groups of GPUs, each with a pipeline that holds the whole model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grouping {
    /// The pipelines.
    pub pipelines: Vec<PipelinePlan>,
    /// Share of the requests within the objective, from 0 to 1.
    pub attainment: f64,
    /// What the search minimizes: the share of requests that are not served in time, and a small term for their mean latency.
    pub cost: f64,
}

/// GPUs of each machine in each group.
type Division = Vec<Vec<usize>>;

struct Space<'a> {
    pool: &'a Pool,
    traffic: &'a Traffic,
    objective: Objective,
    /// The best pipeline of each group that was looked at.
    pipelines: BTreeMap<Vec<usize>, Option<PipelinePlan>>,
}

impl<'a> Space<'a> {
    fn new(pool: &'a Pool, traffic: &'a Traffic, objective: Objective) -> Result<Self, ParallelError> {
        pool.check()?;
        positive("traffic.objective_s", traffic.objective_s)?;
        if traffic.requests.is_empty() {
            return Err(ParallelError::invalid("traffic.requests", "at least one", 0));
        }
        Ok(Self { pool, traffic, objective, pipelines: BTreeMap::new() })
    }

    fn pipeline(&mut self, group: &[usize]) -> Option<PipelinePlan> {
        if let Some(known) = self.pipelines.get(group) {
            return known.clone();
        }
        // The pool and the group are checked, so that only a search that is too large fails.
        let found = best_pipeline(self.pool, group, StageSize::PartOfMachine, self.objective).ok().flatten();
        self.pipelines.insert(group.to_vec(), found.clone());
        found
    }

    /// Simulates a division. Groups that cannot hold the model serve nothing.
    fn grouping(&mut self, division: &Division) -> Option<Grouping> {
        let pipelines: Vec<PipelinePlan> = division.iter().filter_map(|group| self.pipeline(group)).collect();
        if pipelines.is_empty() {
            return None;
        }
        let times = |plan: &PipelinePlan| Some(plan.stages.iter().map(|stage| stage.time_s).collect());
        let groups = pipelines.iter().map(|plan| Pipeline { times_s: vec![times(plan)] }).collect();
        let system = System::new(groups, vec![self.traffic.objective_s]).ok()?;
        let outcome = stage_clocks(&system, &self.traffic.requests, 0.0);
        let count = self.traffic.requests.len() as f64;
        let attainment = outcome.served.iter().sum::<u64>() as f64 / count;
        let pairs = self.traffic.requests.iter().zip(&outcome.ends_s);
        let latencies: f64 = pairs.filter_map(|(request, end)| Some((*end)? - request.at_s)).sum();
        let cost = 1.0 - attainment + latencies / count / self.traffic.objective_s / 1e3;
        Some(Grouping { pipelines, attainment, cost })
    }

    fn no_pipeline(&self) -> ParallelError {
        ParallelError::DoesNotFit {
            what: format!("a model of {} layers", self.pool.model.layers),
            problem: "expected a group of GPUs with enough memory for all layers".to_owned(),
        }
    }
}

/// Removes empty groups and brings the others into a fixed order.
fn normalize(division: &mut Division) {
    division.retain(|group| group.iter().any(|gpus| *gpus > 0));
    division.sort_unstable_by(|one, other| other.cmp(one));
}

impl Search for Space<'_> {
    type Candidate = Division;

    fn draw(&mut self, generator: &mut Generator) -> Division {
        let machines = self.pool.machines.len();
        let total: usize = self.pool.gpus().iter().sum();
        let mut division = vec![vec![0; machines]; generator.random_range(1..=total.clamp(1, 8))];
        for (machine, gpus) in self.pool.gpus().into_iter().enumerate() {
            for _ in 0..gpus {
                let group = generator.random_range(0..division.len());
                if let Some(count) = division.get_mut(group).and_then(|group| group.get_mut(machine)) {
                    *count += 1;
                }
            }
        }
        normalize(&mut division);
        division
    }

    /// The better parent; HexGen varies one division by split, merge and swap only.
    fn cross(&mut self, one: &Division, _: &Division, _: &mut Generator) -> Division {
        one.clone()
    }

    fn mutate(&mut self, division: &mut Division, generator: &mut Generator) {
        for _ in 0..generator.random_range(1..=3) {
            let (from, to) =
                (generator.random_range(0..division.len()), generator.random_range(0..division.len()));
            match generator.random_range(0..3) {
                0 => {
                    let Some(group) = division.get_mut(from) else { continue };
                    let part: Vec<usize> =
                        group.iter().map(|gpus| generator.random_range(0..=*gpus)).collect();
                    group.iter_mut().zip(&part).for_each(|(gpus, part)| *gpus -= part);
                    division.push(part);
                }
                1 if from != to => {
                    let moved = division.swap_remove(from.max(to));
                    if let Some(group) = division.get_mut(from.min(to)) {
                        group.iter_mut().zip(moved).for_each(|(gpus, moved)| *gpus += moved);
                    }
                }
                _ => {
                    let machine = generator.random_range(0..self.pool.machines.len());
                    let source = division.get_mut(from).and_then(|group| group.get_mut(machine));
                    let Some(gpus) = source.filter(|gpus| **gpus > 0) else { continue };
                    *gpus -= 1;
                    if let Some(gpus) = division.get_mut(to).and_then(|group| group.get_mut(machine)) {
                        *gpus += 1;
                    }
                }
            }
            normalize(division);
        }
    }

    fn cost(&mut self, division: &Division) -> f64 {
        self.grouping(division).map_or(f64::INFINITY, |grouping| grouping.cost)
    }
}

/// The division that HexGen's genetic search finds. `objective` is that of each pipeline. The same seed gives the same division.
pub fn genetic_groups(
    pool: &Pool,
    traffic: &Traffic,
    objective: Objective,
    effort: Effort,
    seed: u64,
) -> Result<Grouping, ParallelError> {
    effort.check()?;
    let mut space = Space::new(pool, traffic, objective)?;
    let known = vec![vec![pool.gpus()]];
    let found = search(&mut space, known, effort, seed).and_then(|(division, _)| space.grouping(&division));
    found.ok_or_else(|| space.no_pipeline())
}

/// The best division by enumeration, for small pools.
pub fn best_groups(pool: &Pool, traffic: &Traffic, objective: Objective) -> Result<Grouping, ParallelError> {
    let mut space = Space::new(pool, traffic, objective)?;
    let mut divisions = Vec::new();
    divide(&pool.gpus(), &pool.gpus(), &mut Vec::new(), &mut divisions)?;
    let mut best: Option<Grouping> = None;
    for division in &divisions {
        let found = space.grouping(division);
        best = match (best, found) {
            (Some(best), Some(found)) if found.cost < best.cost => Some(found),
            (None, found) => found,
            (best, _) => best,
        };
    }
    best.ok_or_else(|| space.no_pipeline())
}

/// All ways to divide `left` into groups, each not above the one before in lexicographic order.
fn divide(
    left: &[usize],
    most: &[usize],
    before: &mut Division,
    found: &mut Vec<Division>,
) -> Result<(), ParallelError> {
    if left.iter().all(|gpus| *gpus == 0) {
        let got = u64::try_from(found.len()).unwrap_or(u64::MAX);
        if got >= GROUPINGS_MAX {
            return Err(ParallelError::TooLarge {
                field: "groupings".to_owned(),
                most: GROUPINGS_MAX,
                got: got + 1,
            });
        }
        found.push(before.clone());
        return Ok(());
    }
    let mut group = left.to_vec();
    loop {
        if group.as_slice() <= most && group.iter().any(|gpus| *gpus > 0) {
            let rest: Vec<usize> = left.iter().zip(&group).map(|(left, used)| left - used).collect();
            before.push(group.clone());
            divide(&rest, &group, before, found)?;
            before.pop();
        }
        // The next smaller group in lexicographic order.
        let Some(place) = group.iter().rposition(|gpus| *gpus > 0) else { return Ok(()) };
        if let Some(gpus) = group.get_mut(place) {
            *gpus -= 1;
        }
        for (gpus, left) in group.iter_mut().zip(left).skip(place + 1) {
            *gpus = *left;
        }
    }
}
