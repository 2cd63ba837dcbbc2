//! AlpaServe's placement (OSDI 2023, section 4.2, algorithms 1 and 2): groups, layouts and copies.

use super::buckets::{buckets, shares};
use super::greedy::fill;
use super::{Placement, Problem, Score, best};
use crate::error::ParallelError;
use crate::profile::Layout;

/// Pipeline stages of a group at most.
const STAGES_MAX: usize = 8;
/// Devices that share the operators of a stage at most.
const OPERATORS_MAX: usize = 4;

/// Layouts to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All, with single devices: what AlpaServe searches.
    All,
    /// Only groups of several devices, to see what splitting gains or costs.
    Split,
}

/// The best placement over all group sizes and layouts, and over ways to share the devices between buckets of models with
/// similar latency.
pub fn place(problem: &Problem) -> Result<Score, ParallelError> {
    place_within(problem, Scope::All)
}

/// The same search over some layouts only.
pub fn place_within(problem: &Problem, scope: Scope) -> Result<Score, ParallelError> {
    problem.check()?;
    let all: Vec<usize> = (0..problem.models.len()).collect();
    let mut scores: Vec<Score> =
        best_of_bucket(problem, &all, problem.cluster.devices, scope)?.into_iter().collect();
    let buckets = buckets(problem);
    if buckets.len() > 1 {
        for share in shares(problem, &buckets) {
            scores.extend(place_buckets(problem, &buckets, &share, scope)?);
        }
    }
    // Without a group of several devices, nothing is left to choose from.
    best(scores).ok_or_else(|| {
        ParallelError::invalid("cluster.devices", "at least 2 to split models", problem.cluster.devices)
    })
}

/// The best placement with a share of the devices for each bucket. `None` if a share is too small for a group.
fn place_buckets(
    problem: &Problem,
    buckets: &[Vec<usize>],
    share: &[usize],
    scope: Scope,
) -> Result<Option<Score>, ParallelError> {
    let mut placement = Placement::default();
    for (models, devices) in buckets.iter().zip(share) {
        let Some(part) = best_of_bucket(problem, models, *devices, scope)? else { return Ok(None) };
        placement.groups.extend(part.placement.groups);
    }
    problem.score(placement).map(Some)
}

/// The best placement of some models on some of the devices. `None` if they are too few for a group.
fn best_of_bucket(
    problem: &Problem,
    models: &[usize],
    devices: usize,
    scope: Scope,
) -> Result<Option<Score>, ParallelError> {
    let mut scores = Vec::new();
    for layouts in groupings(devices, problem.cluster.devices_per_machine, scope) {
        scores.push(problem.score(fill(problem, &layouts, models)?)?);
    }
    Ok(best(scores))
}

/// Layouts of the groups for each way to divide `devices`: groups of 1, 2, 4, ... devices with the same layout. Devices that
/// remain form smaller pipelines.
pub fn groupings(devices: usize, per_machine: usize, scope: Scope) -> Vec<Vec<Layout>> {
    let mut found = Vec::new();
    let sizes =
        std::iter::successors(Some(1_usize), |size| Some(size * 2)).take_while(|size| *size <= devices);
    for size in sizes.filter(|size| *size <= per_machine || size % per_machine == 0) {
        for stages in (1..=size).filter(|stages| size % stages == 0) {
            let layout = Layout { operators: size / stages, stages };
            if stages > STAGES_MAX || layout.operators > OPERATORS_MAX || (scope == Scope::Split && size == 1)
            {
                continue;
            }
            let mut layouts = vec![layout; devices / size];
            let rest = devices % size;
            layouts.extend(
                (0..usize::BITS)
                    .map(|bit| 1_usize << bit)
                    .filter(|size| rest & size != 0)
                    .map(|stages| Layout { operators: 1, stages }),
            );
            found.push(layouts);
        }
    }
    found
}
