//! The greedy step of AlpaServe: copies are added one by one, guided by the simulator.

use super::{Group, Placement, Problem};
use crate::error::ParallelError;
use crate::profile::Layout;

/// Fills groups of the given layouts with the models of `candidates`.
///
/// Repeat: simulate; the group with the fewest requests gets the model with the most unserved requests that it can hold. If it
/// can hold none, the next group is tried. Stop if no group can hold another copy.
pub(super) fn fill(
    problem: &Problem,
    layouts: &[Layout],
    candidates: &[usize],
) -> Result<Placement, ParallelError> {
    let groups = layouts.iter().map(|layout| Group { layout: *layout, models: Vec::new() });
    let mut placement = Placement { groups: groups.collect() };
    while placement.groups.iter().any(|group| candidates.iter().any(|model| problem.fits(group, *model))) {
        let outcome = problem.run(&placement)?;
        let count = |counts: &[u64], place: usize| counts.get(place).copied().unwrap_or(0);
        let unserved = |model: usize| count(&outcome.offered, model) - count(&outcome.served, model);
        let mut models = candidates.to_vec();
        models.sort_by_key(|model| std::cmp::Reverse(unserved(*model)));
        let mut order: Vec<usize> = (0..placement.groups.len()).collect();
        order.sort_by_key(|group| count(&outcome.dispatched, *group));
        let chosen = order.into_iter().find_map(|number| {
            let group = placement.groups.get(number)?;
            let model = models.iter().find(|model| problem.fits(group, **model))?;
            Some((number, *model))
        });
        let Some((number, model)) = chosen else { break };
        let Some(group) = placement.groups.get_mut(number) else { break };
        let place = group.models.partition_point(|held| *held < model);
        group.models.insert(place, model);
    }
    Ok(placement)
}
