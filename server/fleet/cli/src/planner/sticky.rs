//! Places models whose rate or batch times are not known: a number of copies of each, which stay where they are.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::node_plan::{NodePlan, PlannedModel, Role};

use super::site::{MODELS_MAX, Site, Wanted};

/// The plans of nodes with these models, and models without enough nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Placed {
    pub plans: BTreeMap<String, NodePlan>,
    pub unplaced: BTreeMap<String, String>,
    /// Copies of the model that has most.
    pub copies_most: usize,
}

/// Keeps copies where they are as long as their nodes work. New ones go to the nodes with the fewest models. `kept` are models of which no
/// copy is removed, because their nodes were not heard yet. `in_force` are the plans in force.
pub(super) fn place(
    models: &[&Wanted],
    kept: &BTreeSet<String>,
    sites: &[Site<'_>],
    in_force: &BTreeMap<String, NodePlan>,
) -> Placed {
    let mut placed = Placed::default();
    let mut held: BTreeMap<&str, Vec<&Wanted>> = BTreeMap::new();
    for model in models {
        let role = |site: &Site<'_>| {
            let plan = in_force.get(&site.state.name);
            plan.and_then(|plan| plan.model(&model.name)).map(|planned| planned.role)
        };
        let fits = |site: &&Site<'_>| {
            let own = held.get(site.state.name.as_str()).map(Vec::as_slice).unwrap_or_default();
            let bytes: u64 = own.iter().map(|other| other.bytes).sum();
            model.nodes.contains(&site.state.name)
                && own.len() < MODELS_MAX
                && site.memory_bytes.is_none_or(|memory| bytes.saturating_add(model.bytes) <= memory)
                && !own.iter().any(|other| model.excludes(other))
        };
        let mut nodes: Vec<&Site<'_>> = sites.iter().filter(fits).collect();
        let count = |site: &Site<'_>| held.get(site.state.name.as_str()).map_or(0, Vec::len);
        nodes.sort_by_key(|site| (role(site).is_none(), role(site), count(site)));
        let current = nodes.iter().filter(|site| role(site) == Some(Role::Serving)).count();
        // A model that is asked for has a copy, even if it may have none.
        let least = model.copies_min.max(usize::from(model.rate > 0.0));
        let is_kept = kept.contains(&model.name);
        let copies = if is_kept { least.max(current) } else { least };
        let copies = copies.min(model.copies_max);
        placed.copies_most = placed.copies_most.max(copies);
        if nodes.len() < copies {
            let problem = format!("minReplicas is {copies}, and {} nodes fit its constraints", nodes.len());
            placed.unplaced.insert(model.name.clone(), problem);
        }
        let others = nodes.split_off(copies.min(nodes.len()));
        let rate = model.rate * model.factor / nodes.len().max(1) as f64;
        let spares = others.into_iter().filter(|site| is_kept && role(site) == Some(Role::Spare));
        let spares = spares.take(model.copies_max.saturating_sub(nodes.len()));
        let serving = nodes.into_iter().map(|site| (site, rate, Role::Serving));
        let all: Vec<_> = serving.chain(spares.map(|site| (site, 0.0, Role::Spare))).collect();
        for (site, rate, role) in all {
            held.entry(site.state.name.as_str()).or_default().push(model);
            let plan = placed.plans.entry(site.state.name.clone()).or_default();
            plan.models.push(PlannedModel { model: model.name.clone(), rate, role });
        }
    }
    placed
}
