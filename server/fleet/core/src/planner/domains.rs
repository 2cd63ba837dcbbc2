//! Models that may not be on every node get nodes of their own.
//!
//! Models with the same allowed nodes are a domain. Each domain gets some of its allowed nodes, in proportion to its load, and is planned
//! on them without further rules. Domains that do not find a node of their own are merged, and use the nodes that both may use.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::inputs::{FleetNode, Inputs, Rules, Spread};
use super::{FleetPlan, NotPlanned, plan_domain};
use gpulet_core::problem::Workload;

/// Models that may use the same nodes.
#[derive(Clone, Debug, PartialEq)]
struct Domain {
    /// Names of the nodes that accept models and that all of these may be on.
    allowed: BTreeSet<String>,
    models: Vec<Workload>,
}

/// Plans each domain on nodes of its own.
pub(super) fn plan(inputs: &Inputs<'_>, epoch: u64) -> Result<FleetPlan, NotPlanned> {
    let needed: Vec<&Workload> = inputs.models.iter().filter(|model| model.is_needed()).collect();
    if needed.iter().all(|model| !inputs.rules.nodes.contains_key(&model.name)) {
        return plan_domain(inputs, epoch);
    }
    let accepting: BTreeSet<String> = inputs.accepting().map(|node| node.name.clone()).collect();
    let mut domains: BTreeMap<BTreeSet<String>, Vec<Workload>> = BTreeMap::new();
    for model in needed {
        let allowed = inputs.rules.nodes.get(&model.name).unwrap_or(&accepting);
        let allowed: BTreeSet<String> = allowed.intersection(&accepting).cloned().collect();
        if allowed.is_empty() {
            let problem = format!("no node that accepts models may have `{}`", model.name);
            return Err(NotPlanned::Impossible(problem));
        }
        domains.entry(allowed).or_default().push(model.clone());
    }
    let domains = domains.into_iter().map(|(allowed, models)| Domain { allowed, models }).collect();
    let divided = divided(inputs, domains)?;
    let mut total: Option<FleetPlan> = None;
    let mut open: BTreeSet<&str> = inputs.nodes.iter().map(|node| node.name.as_str()).collect();
    let mut parts = Vec::new();
    for (domain, names) in &divided {
        let nodes: Vec<FleetNode> =
            inputs.nodes.iter().filter(|node| names.contains(&node.name)).cloned().collect();
        names.iter().for_each(|name| {
            open.remove(name.as_str());
        });
        parts.push((nodes, domain.models.clone()));
    }
    // Nodes that no domain uses get a plan without models.
    let unused = inputs.nodes.iter().filter(|node| open.contains(node.name.as_str())).cloned().collect();
    parts.push((unused, Vec::new()));
    let rules = Rules { nodes: BTreeMap::new(), ..inputs.rules.clone() };
    for (nodes, models) in &parts {
        let part = plan_domain(&Inputs { nodes, models, rules: &rules, ..inputs.clone() }, epoch)?;
        total = Some(match total {
            None => part,
            Some(total) => joined(total, part),
        });
    }
    total.ok_or_else(|| NotPlanned::Impossible("no node accepts models".to_owned()))
}

fn joined(mut left: FleetPlan, right: FleetPlan) -> FleetPlan {
    left.nodes.extend(right.nodes);
    FleetPlan {
        nodes: left.nodes,
        share: left.share.min(right.share),
        devices_used: left.devices_used + right.devices_used,
        devices_wanted: left.devices_wanted + right.devices_wanted,
        lanes_busy: left.lanes_busy + right.lanes_busy,
        devices_least: left.devices_least + right.devices_least,
        loads: 0,
    }
}

/// The nodes of each domain. Domains without a node of their own are merged.
fn divided(
    inputs: &Inputs<'_>,
    mut domains: Vec<Domain>,
) -> Result<Vec<(Domain, BTreeSet<String>)>, NotPlanned> {
    loop {
        // Those with the fewest nodes choose first.
        domains.sort_by(|left, right| {
            (left.allowed.len(), &left.allowed).cmp(&(right.allowed.len(), &right.allowed))
        });
        let lacking = match dealt(inputs, &domains) {
            Ok(dealt) => return Ok(domains.into_iter().zip(dealt).collect()),
            Err(lacking) => domains.remove(lacking),
        };
        let meets = |domain: &Domain| domain.allowed.intersection(&lacking.allowed).next().is_some();
        let Some(other) = domains.iter_mut().find(|domain| meets(domain)) else {
            let names: Vec<&str> = lacking.models.iter().take(3).map(|model| model.name.as_str()).collect();
            let problem = format!(
                "no node is left for the models that may be on few nodes, such as `{}`",
                names.join("`, `")
            );
            return Err(NotPlanned::Impossible(problem));
        };
        other.allowed = other.allowed.intersection(&lacking.allowed).cloned().collect();
        other.models.extend(lacking.models);
    }
}

/// Nodes of each domain, or the number of a domain that finds none.
fn dealt(inputs: &Inputs<'_>, domains: &[Domain]) -> Result<Vec<BTreeSet<String>>, usize> {
    let needs: Vec<f64> = domains.iter().map(|domain| lanes(inputs, domain)).collect();
    let mut free: Vec<&FleetNode> = inputs.accepting().filter(|node| !node.devices.is_empty()).collect();
    let mut dealt = Vec::new();
    let mut open: f64 = needs.iter().sum();
    for (number, (domain, need)) in domains.iter().zip(&needs).enumerate() {
        let lanes: usize = free.iter().map(|node| node.devices.len()).sum();
        let mean = lanes as f64 / free.len().max(1) as f64;
        let part = if open > 0.0 { need / open } else { 1.0 / (domains.len() - number) as f64 };
        let fair = match inputs.rules.spread {
            Spread::All => (part * free.len() as f64).round(),
            Spread::Few => (need / mean.max(1.0)).ceil().min((part * free.len() as f64).ceil()),
        };
        open -= need;
        let is_last = number + 1 == domains.len();
        let count = if is_last { free.len() } else { (fair as usize).max(least(inputs, domain)) };
        let mut own: Vec<&FleetNode> =
            free.iter().copied().filter(|node| domain.allowed.contains(&node.name)).collect();
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        let mut ranked: Vec<(Reverse<usize>, usize, &FleetNode)> = Vec::new();
        for node in own.drain(..) {
            let in_zone = zones.entry(node.zone.as_str()).or_default();
            ranked.push((Reverse(held(inputs, domain, node)), *in_zone, node));
            *in_zone += 1;
        }
        ranked.sort_by(|left, right| (left.0, left.1, &left.2.name).cmp(&(right.0, right.1, &right.2.name)));
        let chosen: BTreeSet<String> =
            ranked.into_iter().take(count).map(|(_, _, node)| node.name.clone()).collect();
        if chosen.is_empty() {
            return Err(number);
        }
        free.retain(|node| !chosen.contains(&node.name));
        dealt.push(chosen);
    }
    Ok(dealt)
}

/// Models of a domain that a node has.
fn held(inputs: &Inputs<'_>, domain: &Domain, node: &FleetNode) -> usize {
    let Some(plan) = inputs.in_force.get(&node.name) else { return 0 };
    domain.models.iter().filter(|model| plan.model(&model.name).is_some()).count()
}

/// Lanes of its nodes that a domain needs, about.
fn lanes(inputs: &Inputs<'_>, domain: &Domain) -> f64 {
    let allowed = inputs.accepting().filter(|node| domain.allowed.contains(&node.name));
    let busy = inputs.devices_least_on(&domain.models, allowed);
    busy + busy.sqrt()
}

/// Nodes that a domain needs for its copies, by the number of its models and of their copies.
fn least(inputs: &Inputs<'_>, domain: &Domain) -> usize {
    let copies = domain.models.iter().map(|model| model.replicas_min as usize).max().unwrap_or(1);
    let allowed = inputs.accepting().filter(|node| domain.allowed.contains(&node.name));
    let space = allowed.map(|node| node.models_max as usize).min().unwrap_or(1).max(1);
    copies.max(domain.models.len().div_ceil(space)).max(1)
}
