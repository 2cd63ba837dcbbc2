//! Plans nodes whose models share lanes.
//!
//! On few shared lanes, a long batch makes requests with a short objective late, whichever node they go to. So models are sorted by
//! the time that they can wait, and divided into pools in which every batch leaves the others enough time. A pool needs the lane time of
//! its models and a reserve for uneven traffic. Nodes are dealt out in proportion, and every node of a pool holds all its models: the
//! pickers then use the pool as if it were one machine. Memory that is left holds models of other pools as spares.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::problem::Workload;

use super::inputs::{FleetNode, Inputs};
use super::pool_members::Members;
use super::pool_nodes::{Candidate, KEEP, Need, dealt};
use super::pool_spares::{Held, spares};
use super::pools::{Capacity, Member, Pool, divided, lanes_busy, lanes_for};
use super::{FleetPlan, NotPlanned};
use crate::node_plan::{NodePlan, PlannedModel, Role};

/// Lanes that a pool counts in addition when there are more pools than nodes, doubled until there are fewer.
const PER_POOL: f64 = 0.25;

/// Plans the fleet.
pub(super) fn plan(inputs: &Inputs<'_>, epoch: u64) -> Result<FleetPlan, NotPlanned> {
    let nodes: Vec<&FleetNode> = inputs.accepting().filter(|node| !node.devices.is_empty()).collect();
    let lanes: f64 = nodes.iter().map(|node| node.devices.len() as f64).sum();
    let capacity = Capacity {
        models: nodes.iter().map(|node| node.models_max as usize).min().unwrap_or(0),
        bytes: nodes.iter().map(|node| bytes_of(node)).min().unwrap_or(0),
    };
    let all = Members::new(inputs, &nodes)?;
    let members = &all.mean;
    let pools = match (members.is_empty(), nodes.len()) {
        (true, _) => Vec::new(),
        (false, 0) => return Err(NotPlanned::Impossible("no node accepts models".to_owned())),
        (false, count) => pools(inputs, &all, capacity, (count, lanes / count as f64))?,
    };
    let need = |pool: &Vec<usize>| {
        let members = all.of(pool);
        let least = members.iter().map(|member| member.nodes_min).max().unwrap_or(1);
        Need { lanes: lanes_for(&members), least, worth: all.worth(pool) }
    };
    let needs: Vec<Need> = pools.iter().map(need).collect();
    let dealt = dealt(&needs, &candidates(inputs, &all, &pools, &nodes), inputs.rules.spread);
    let mut plans: BTreeMap<String, NodePlan> = inputs
        .nodes
        .iter()
        .map(|node| (node.name.clone(), NodePlan { epoch, ..NodePlan::default() }))
        .collect();
    let mut add = |node: usize, member: usize, share: f64, role: Role| {
        let model = members.get(member).and_then(|member| inputs.models.get(member.model));
        let plan = nodes.get(node).and_then(|node| plans.get_mut(&node.name));
        if let (Some(model), Some(plan)) = (model, plan) {
            let rate = model.wanted() * share;
            plan.models.push(PlannedModel { model: model.name.clone(), rate, role });
        }
    };
    let copies_max = |member: &Member| {
        let model = inputs.models.get(member.model);
        let listed = model.and_then(|model| inputs.rules.copies_max.get(&model.name));
        listed.copied().unwrap_or(usize::MAX)
    };
    let mut held: Vec<(usize, Vec<usize>)> = (0..nodes.len()).map(|node| (node, Vec::new())).collect();
    for (pool, own) in pools.iter().zip(&dealt) {
        for member in pool {
            let most = members.get(*member).map_or(usize::MAX, copies_max);
            let chosen = if most < own.len() {
                fewer(inputs, members, *member, own, &nodes, &held, most)
            } else {
                own.clone()
            };
            for node in &chosen {
                add(*node, *member, 1.0 / chosen.len() as f64, Role::Serving);
                if let Some((_, models)) = held.get_mut(*node) {
                    models.push(*member);
                }
            }
        }
    }
    let spares_max = |member: &Member| {
        let model = inputs.models.get(member.model);
        let is_none = model.is_some_and(|model| inputs.rules.no_spares.contains(&model.name));
        if is_none { 0 } else { copies_max(member) }
    };
    let numbers = numbers(inputs, members);
    let held = held.into_iter().zip(nodes.iter().zip(&all.node_types));
    let held = held.map(|((number, serving), (node, device_type))| {
        let plan = inputs.in_force.get(&node.name).into_iter().flat_map(|plan| &plan.models);
        let in_force = plan.filter_map(|planned| numbers.get(planned.model.as_str()).copied()).collect();
        Held { node: number, members: all.on(*device_type), serving, in_force }
    });
    let spares =
        spares(members, held.collect(), capacity, spares_max, |left, right| excludes(inputs, left, right));
    for (node, member) in spares {
        add(node, member, 0.0, Role::Spare);
    }
    for plan in plans.values_mut() {
        plan.models.sort_by(|left, right| left.model.cmp(&right.model));
    }
    let mean = lanes / nodes.len().max(1) as f64;
    let needed: f64 = needs.iter().map(|need| need.lanes).sum();
    let wanted: f64 = needs.iter().map(|need| need.lanes.max(need.least as f64 * mean)).sum();
    let used =
        dealt.iter().flatten().filter_map(|node| nodes.get(*node)).map(|node| node.devices.len()).sum();
    Ok(FleetPlan {
        nodes: plans,
        share: if needed > 0.0 { lanes / needed } else { 1.0 },
        devices_used: used,
        devices_wanted: wanted.ceil() as usize,
        lanes_busy: pools.iter().map(|pool| lanes_busy(&all.of(pool))).sum(),
        devices_least: inputs.devices_least(),
        loads: 0,
    })
}

/// Of the nodes of a pool, those that have a model which may be on few: where it is in force, and then where few models serve.
fn fewer(
    inputs: &Inputs<'_>,
    members: &[Member],
    member: usize,
    own: &[usize],
    nodes: &[&FleetNode],
    held: &[(usize, Vec<usize>)],
    count: usize,
) -> Vec<usize> {
    let model = members.get(member).and_then(|member| inputs.models.get(member.model));
    let has = |node: &usize| {
        let plan = nodes.get(*node).and_then(|node| inputs.in_force.get(&node.name));
        plan.zip(model).and_then(|(plan, model)| plan.model(&model.name)).map(|planned| planned.role)
    };
    let mut ranked = own.to_vec();
    ranked.sort_by_key(|node| {
        let role = has(node).map_or(2, |role| usize::from(role == Role::Spare));
        (role, held.get(*node).map_or(0, |(_, models)| models.len()), *node)
    });
    ranked.truncate(count);
    ranked
}

/// Whether two models, by index, must not share a device.
fn excludes(inputs: &Inputs<'_>, left: usize, right: usize) -> bool {
    let models = inputs.models.get(left).zip(inputs.models.get(right));
    let has_rules = |model: &Workload| !model.not_with.is_empty();
    models.is_some_and(|(left, right)| (has_rules(left) || has_rules(right)) && left.excludes(right))
}

fn bytes_of(node: &FleetNode) -> u64 {
    node.devices.iter().map(|device| device.memory_bytes.saturating_sub(device.device_type.base_bytes)).sum()
}

/// The members of each pool.
fn pools(
    inputs: &Inputs<'_>,
    all: &Members,
    capacity: Capacity,
    (nodes, lanes_per_node): (usize, f64),
) -> Result<Vec<Vec<usize>>, NotPlanned> {
    let members = &all.mean;
    let excludes = |left, right| excludes(inputs, left, right);
    let mut best = None;
    // With fewer nodes than pools, pools cost more until there are few enough, and at last any models may share lanes.
    for (mixes, is_fast) in [(false, true), (true, true), (true, false)] {
        let suits = |pools: &[Pool]| {
            let of = |pool: &Pool| pool.members.clone().collect::<Vec<usize>>();
            pools.len() <= nodes && (!is_fast || all.have_fast_nodes(pools.iter().map(of)))
        };
        let mut per_pool = 0.0;
        while best.is_none() && per_pool <= nodes as f64 * lanes_per_node {
            best = divided(members, lanes_per_node, capacity, (mixes, per_pool), excludes)
                .filter(|pools| suits(pools));
            per_pool = if per_pool == 0.0 { PER_POOL } else { 2.0 * per_pool };
        }
    }
    let Some(best) = best else {
        let problem = format!(
            "{} models do not fit on {nodes} nodes with space for {} models and {} bytes each",
            members.len(),
            capacity.models,
            capacity.bytes
        );
        return Err(NotPlanned::Impossible(problem));
    };
    let needed: f64 = best.iter().map(|pool| pool.lanes).sum();
    let best = best.into_iter().map(|pool| pool.members.collect()).collect();
    let kept = in_force(inputs, members, capacity);
    let kept = kept.filter(|pools| pools.len() <= nodes && all.have_fast_nodes(pools.iter().cloned()));
    let lanes = |pools: &[Vec<usize>]| -> f64 {
        let of = |pool: &Vec<usize>| {
            let pool: Vec<Member> = pool.iter().filter_map(|member| members.get(*member).cloned()).collect();
            lanes_for(&pool).max(lanes_per_node)
        };
        pools.iter().map(of).sum()
    };
    Ok(kept.filter(|pools| lanes(pools) <= KEEP * needed).unwrap_or(best))
}

/// Numbers of members by the names of their models.
fn numbers<'a>(inputs: &Inputs<'a>, members: &[Member]) -> BTreeMap<&'a str, usize> {
    members
        .iter()
        .enumerate()
        .filter_map(|(number, member)| Some((inputs.models.get(member.model)?.name.as_str(), number)))
        .collect()
}

/// The pools of the plans in force: sets of models that serve on the same nodes. `None` if the plans are not made of pools or lack a model.
fn in_force(inputs: &Inputs<'_>, members: &[Member], capacity: Capacity) -> Option<Vec<Vec<usize>>> {
    let numbers = numbers(inputs, members);
    let serving = |plan: &NodePlan| -> BTreeSet<usize> {
        let models = plan.models.iter().filter(|planned| planned.role == Role::Serving);
        models.filter_map(|planned| numbers.get(planned.model.as_str()).copied()).collect()
    };
    let in_force = inputs.accepting().filter_map(|node| inputs.in_force.get(&node.name));
    let pools: BTreeSet<BTreeSet<usize>> = in_force.map(serving).filter(|pool| !pool.is_empty()).collect();
    let fits = |pool: &BTreeSet<usize>| {
        let bytes = pool.iter().filter_map(|member| members.get(*member)).map(|member| member.bytes);
        pool.len() <= capacity.models && bytes.sum::<u64>() <= capacity.bytes
    };
    let all: Vec<usize> = pools.iter().flatten().copied().collect();
    let each_once = all.len() == members.len() && all.iter().collect::<BTreeSet<_>>().len() == all.len();
    (each_once && pools.iter().all(fits))
        .then(|| pools.into_iter().map(|pool| pool.into_iter().collect()).collect())
}

fn candidates<'a>(
    inputs: &Inputs<'_>,
    members: &Members,
    pools: &[Vec<usize>],
    nodes: &[&'a FleetNode],
) -> Vec<Candidate<'a>> {
    let mut pool_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, pool) in pools.iter().enumerate() {
        let models = pool.iter().filter_map(|member| inputs.models.get(members.mean.get(*member)?.model));
        pool_of.extend(models.map(|model| (model.name.as_str(), number)));
    }
    let of = |(node, device_type): (&&'a FleetNode, &usize)| {
        let mut held: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for planned in inputs.in_force.get(&node.name).into_iter().flat_map(|plan| &plan.models) {
            if let Some(pool) = pool_of.get(planned.model.as_str()) {
                let (copies, serving) = held.entry(*pool).or_default();
                *copies += 1;
                *serving += usize::from(planned.role == Role::Serving);
            }
        }
        let cost = node.devices.iter().map(|device| device.cost).sum();
        let (lanes, device_type) = (node.devices.len() as f64, *device_type);
        Candidate { lanes, device_type, cost, zone: &node.zone, held }
    };
    nodes.iter().zip(&members.node_types).map(of).collect()
}
