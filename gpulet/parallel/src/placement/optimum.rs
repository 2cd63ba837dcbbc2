//! The best placement by enumeration, for small problems: what the greedy search is compared with.

use super::{Group, Placement, Problem, Score, best};
use crate::error::ParallelError;
use crate::profile::Layout;

/// Placements that are simulated at most.
pub const PLACEMENTS_MAX: u64 = 200_000;

/// Simulates every placement whose groups take at most all devices, and keeps the best one. Unlike AlpaServe's search, groups
/// may differ in size and layout, and a group may hold fewer models than fit.
pub fn enumerate(problem: &Problem) -> Result<Score, ParallelError> {
    problem.check()?;
    let mut groups = Vec::new();
    for layout in layouts(problem) {
        subsets(problem, Group { layout, models: Vec::new() }, 0, &mut groups)?;
    }
    let mut walk = Walk { problem, groups: &groups, simulated: 0, best: None };
    walk.extend(&mut Vec::new(), 0, problem.cluster.devices)?;
    walk.best.ok_or_else(|| ParallelError::DoesNotFit {
        what: "a model".to_owned(),
        problem: format!("expected one that fits {} bytes on each device", problem.cluster.memory_bytes),
    })
}

fn layouts(problem: &Problem) -> Vec<Layout> {
    let all = problem.profiles.iter().flat_map(|profile| profile.layouts().map(|(layout, _)| layout));
    let mut layouts: Vec<Layout> = all.filter(|layout| layout.devices() <= problem.cluster.devices).collect();
    layouts.sort_unstable();
    layouts.dedup();
    layouts
}

/// All groups of one layout that hold at least one model and fit.
fn subsets(
    problem: &Problem,
    group: Group,
    from: usize,
    found: &mut Vec<Group>,
) -> Result<(), ParallelError> {
    for model in from..problem.models.len() {
        if problem.fits(&group, model) {
            let mut larger = group.clone();
            larger.models.push(model);
            check(found.len())?;
            found.push(larger.clone());
            subsets(problem, larger, model + 1, found)?;
        }
    }
    Ok(())
}

fn check(count: usize) -> Result<(), ParallelError> {
    let got = u64::try_from(count).unwrap_or(u64::MAX);
    if got < PLACEMENTS_MAX {
        return Ok(());
    }
    Err(ParallelError::TooLarge { field: "placements".to_owned(), most: PLACEMENTS_MAX, got: got + 1 })
}

struct Walk<'a> {
    problem: &'a Problem,
    groups: &'a [Group],
    simulated: usize,
    best: Option<Score>,
}

impl Walk<'_> {
    /// Adds groups in ascending order, so that no placement is simulated twice.
    fn extend(&mut self, chosen: &mut Vec<Group>, from: usize, devices: usize) -> Result<(), ParallelError> {
        for (number, group) in self.groups.iter().enumerate().skip(from) {
            let Some(left) = devices.checked_sub(group.layout.devices()) else { continue };
            chosen.push(group.clone());
            check(self.simulated)?;
            self.simulated += 1;
            let score = self.problem.score(Placement { groups: chosen.clone() })?;
            self.best = best(self.best.take().into_iter().chain([score]));
            self.extend(chosen, number, left)?;
            chosen.pop();
        }
        Ok(())
    }
}
