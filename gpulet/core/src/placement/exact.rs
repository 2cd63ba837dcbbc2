//! The best plan in which each part of a workload has a gpulet of its own, and the proof of how good that is.
//!
//! The proof stands on what nobody disputes: neighbours never make anybody faster, so shares alone, packed as well
//! as can be, bound the cost from below. Workloads that no single gpulet serves are given whole devices first, as
//! iGniter does; plans that cut others into several gpulets, or let them take turns in one, are not searched. Right
//! for up to about 25 workloads and as the yardstick for the other policies.

use super::Placement;
use super::demand::{Unplaced, parts};
use super::search::{Limits, least_cost, search, sized};
use super::site::Floor;
use super::tessera::construct::filled;
use crate::plan::Plan;
use crate::problem::Problem;

/// Parts up to which plans are searched for; beyond, the constructive plan of the default policy is held against the
/// bound.
const PARTS_MAX: usize = 128;

/// Gpulets looked at, at most: one to three microseconds each on one core, so that an answer comes within ten seconds
/// whatever is asked.
const LOOKS: u64 = 2_000_000;

/// Branch and bound with a proved gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Steps of the search at most.
    pub nodes: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self { nodes: 200_000 }
    }
}

/// A plan with what is known about better ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Proved {
    /// The plan.
    pub plan: Plan,
    /// What its devices cost.
    pub cost: f64,
    /// What every plan of its class costs at least.
    pub cost_least: f64,
    /// Steps that the search took.
    pub nodes: u64,
    /// Whether the search ended before its limit.
    pub complete: bool,
}

impl Proved {
    /// Cost above the bound, as a part of the bound; 0 is proved optimal.
    pub fn gap(&self) -> f64 {
        if self.cost_least > 0.0 { (self.cost / self.cost_least - 1.0).max(0.0) } else { 0.0 }
    }
}

impl Exact {
    /// The plan with its proof.
    ///
    /// # Errors
    /// The first workload that no search could place.
    pub fn prove(&self, problem: &Problem) -> Result<Proved, super::Infeasible> {
        self.solve(problem).map_err(|unplaced| {
            super::Infeasible::explain(problem, &unplaced, |problem| self.solve(problem).is_ok())
        })
    }

    fn solve(&self, problem: &Problem) -> Result<Proved, Unplaced> {
        let mut floor = Floor::new(problem);
        let sized = sized(&mut floor, parts(problem))?;
        let whole: f64 = floor.sites.iter().map(|site| site.device.cost).sum();
        if sized.len() > PARTS_MAX {
            let cost_least = whole + least_cost(problem, &sized);
            let floor = filled(&floor, &sized)?;
            return Ok(Proved {
                plan: floor.plan(),
                cost: floor.cost(),
                cost_least,
                nodes: 0,
                complete: false,
            });
        }
        let found = search(
            &floor,
            &sized,
            Limits { nodes: self.nodes, looks: LOOKS, cycles: false, below: f64::INFINITY },
        );
        let first = || sized.first().map(|sized| Unplaced::of(sized.part.workload));
        let found = found.ok_or_else(|| first().unwrap_or(Unplaced { workload: String::new() }))?;
        Ok(Proved {
            plan: found.floor.plan(),
            cost: found.cost,
            cost_least: whole + least_cost(problem, &sized),
            nodes: found.nodes,
            complete: found.complete,
        })
    }
}

impl Placement for Exact {
    const NAME: &'static str = "exact";
    const ABOUT: &'static str = "branch and bound: the fewest devices, with a proved gap";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        self.solve(problem).map(|proved| proved.plan)
    }
}
