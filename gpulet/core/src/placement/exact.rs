//! Finds the cheapest plan in which each part of a workload has its own gpulet, with a proven bound on the cost.
//!
//! The bound assumes only that co-location never makes a batch faster. The best packing of the solo shares is
//! therefore a lower bound on the cost. Workloads that no single gpulet can serve get whole devices first, as in
//! iGniter. The search excludes plans that split other workloads into several gpulets, or put several workloads into
//! one gpulet. It suits up to about 25 workloads, and serves as the reference for the other policies.

use super::Placement;
use super::demand::{Unplaced, parts};
use super::search::{Limits, least_cost, search, sized};
use super::site::Floor;
use super::tessera::construct::filled;
use crate::plan::Plan;
use crate::problem::Problem;

/// Largest number of parts that is searched. Above it, the constructive plan of the default policy is compared with
/// the bound.
const PARTS_MAX: usize = 128;

/// Largest number of gpulets that are evaluated. Each takes one to three microseconds on one core, so the search ends
/// within ten seconds.
const LOOKS: u64 = 2_000_000;

/// Branch and bound with a proven gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Largest number of search steps.
    pub nodes: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self { nodes: 200_000 }
    }
}

/// A plan with a bound on the cost of better plans.
#[derive(Clone, Debug, PartialEq)]
pub struct Proved {
    /// The plan.
    pub plan: Plan,
    /// Cost of its devices.
    pub cost: f64,
    /// Lower bound on the cost of every plan of its class.
    pub cost_least: f64,
    /// Search steps taken.
    pub nodes: u64,
    /// Whether the search ended before its limit.
    pub complete: bool,
}

impl Proved {
    /// Returns the cost above the bound, relative to the bound; 0 is proven optimal.
    pub fn gap(&self) -> f64 {
        if self.cost_least > 0.0 { (self.cost / self.cost_least - 1.0).max(0.0) } else { 0.0 }
    }
}

impl Exact {
    /// Returns the plan with its proof.
    ///
    /// # Errors
    /// The first workload that the search could not place.
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
            // One node proves the empty plan of a problem without parts.
            Limits { nodes: self.nodes.max(1), looks: LOOKS, cycles: false, below: f64::INFINITY },
        );
        let found = found.ok_or_else(|| {
            sized.first().map_or_else(Unplaced::unknown, |sized| Unplaced::of(sized.part.workload))
        })?;
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
