//! Squishy bin packing: which models share a lane, in which batches, so that every one keeps its objective.
//!
//! Nexus' two steps. *Saturate* gives a model whole lanes for as much of its rate as fills them at the largest batch
//! `B` with `2 L(B) <= D`. *Residue* packs what is left over: alone, a residue of rate `r` runs batches of `b`, the
//! largest with `(b - 1) / r + L(b) <= D`, once every `min(b / r, D - L(b))`, its duty cycle; two residues share a
//! lane at the shorter of their cycles, with batches shrunk to what arrives in it (which is why the packing is
//! squishy), if the batches together fit in the cycle.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Nanos;

/// Rows a second that a model is planned for at least, so that it has a lane when its first request comes.
const RATE_LEAST: f64 = 0.1;
/// Row counts that exceed a whole number by less than this are rounded down to it.
const ROWS_ROUNDED: f64 = 1e-3;
/// Rates are scaled down to fit with a precision of 1 in 2 to the power of this.
const SCALE_STEPS: u32 = 8;

/// A model as the packing sees it.
#[derive(Clone, Copy)]
pub struct Demand<'a> {
    /// Rows a second.
    pub rate: f64,
    /// From arrival to deadline, [`Nanos::NEVER`] without one.
    pub slo: Nanos,
    /// Largest batch in rows, at least 1.
    pub max_batch: u32,
    /// Time of a batch by its rows; zero while unknown.
    pub time: &'a dyn Fn(u32) -> Nanos,
}

/// A model on a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Position of its demand in the list.
    pub session: usize,
    /// Rows a second that it gets here.
    pub rate: f64,
    /// Rows a batch.
    pub batch: u32,
}

/// What one lane does, over and over.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The period in which every model runs once.
    pub cycle: Nanos,
    /// Time of all their batches.
    pub busy: Nanos,
    /// The models.
    pub shares: Vec<Share>,
}

impl Node {
    /// Rows a second that the batches of a model hold here, its rate or more.
    pub fn throughput(&self, share: &Share) -> f64 {
        f64::from(share.batch) * 1e9 / self.cycle.0.max(1) as f64
    }

    /// Share of the cycle that batches take, 0 to 1.
    pub fn occupancy(&self) -> f64 {
        self.busy.0 as f64 / self.cycle.0.max(1) as f64
    }
}

/// The largest batch with `2 L(b) <= slo`, at least 1, and the rows a second that it answers on a lane of its own.
pub fn saturate(slo: Nanos, max_batch: u32, time: impl Fn(u32) -> Nanos) -> (u32, f64) {
    let batch = largest(max_batch, |rows| Nanos(time(rows).0.saturating_mul(2)) <= slo);
    (batch, f64::from(batch) * 1e9 / time(batch).0 as f64)
}

/// A rate that does not fill a lane, on a lane of its own.
pub fn residue(demand: &Demand<'_>, session: usize, rate: f64) -> Node {
    let limit = saturate(demand.slo, demand.max_batch, demand.time).0;
    let batch = largest(limit, |rows| {
        let gathered = seconds(f64::from(rows.saturating_sub(1)) / rate);
        gathered.after((demand.time)(rows)) <= demand.slo
    });
    let busy = (demand.time)(batch);
    // An objective below twice the time of one row cannot be kept; such a model takes a lane for itself.
    let cycle = demand.slo.before(busy).min(seconds(f64::from(batch) / rate)).max(busy);
    Node { cycle, busy, shares: vec![Share { session, rate, batch }] }
}

/// Both on one lane, if their batches fit in the shorter cycle.
pub fn merge(demands: &[Demand<'_>], node: &Node, other: &Node) -> Option<Node> {
    let cycle = node.cycle.min(other.cycle);
    let mut merged = Node { cycle, busy: Nanos::ZERO, shares: Vec::new() };
    for share in node.shares.iter().chain(&other.shares) {
        let batch = gathered(cycle, share.rate);
        merged.busy = merged.busy.after((demands.get(share.session)?.time)(batch));
        if merged.busy > cycle {
            return None;
        }
        merged.shares.push(Share { batch, ..*share });
    }
    Some(merged)
}

/// As many lanes as it takes.
pub fn pack(demands: &[Demand<'_>]) -> Vec<Node> {
    packed(demands, 1.0)
}

/// Packs the demands onto exactly `lanes` lanes. If they do not fit, all rates are scaled down by the same factor;
/// leftover lanes go to the nodes with the highest load. Empty only without demands or lanes.
pub fn fit(demands: &[Demand<'_>], lanes: usize) -> Vec<Node> {
    if demands.is_empty() || lanes == 0 {
        return Vec::new();
    }
    let full_lanes = |demand: &Demand<'_>| {
        demand.rate.max(RATE_LEAST) / saturate(demand.slo, demand.max_batch, demand.time).1
    };
    let needed: f64 = demands.iter().map(full_lanes).sum();
    let most = if needed > lanes as f64 { lanes as f64 / needed } else { 1.0 };
    let mut nodes = packed(demands, most);
    if nodes.len() > lanes {
        nodes = scaled_down(demands, lanes, most);
    }
    let mut nodes = replicate(demands, nodes, lanes);
    // In the order of the models, so that a plan little changed moves little.
    nodes.sort_by_key(|node| node.shares.iter().map(|share| share.session).min());
    nodes
}

fn packed(demands: &[Demand<'_>], scale: f64) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut residues = Vec::new();
    for (session, demand) in demands.iter().enumerate() {
        let rate = demand.rate.max(RATE_LEAST) * scale;
        let (batch, throughput) = saturate(demand.slo, demand.max_batch, demand.time);
        let full = if throughput.is_finite() { (rate / throughput).floor() } else { 0.0 };
        let busy = (demand.time)(batch);
        let share = Share { session, rate: throughput, batch };
        nodes.extend((0..full as usize).map(|_| Node { cycle: busy, busy, shares: vec![share] }));
        let left = if full > 0.0 { rate - full * throughput } else { rate };
        if full == 0.0 || left > RATE_LEAST * scale {
            residues.push(residue(demand, session, left));
        }
    }
    residues.sort_by(|one, other| other.occupancy().total_cmp(&one.occupancy()));
    let mut shared: Vec<Node> = Vec::new();
    for residue in residues {
        // Batches shrink when cycles do, and smaller batches cost more a row, so occupancies add up at least.
        let fits = |node: &&mut Node| node.occupancy() + residue.occupancy() <= 1.0 + f64::EPSILON;
        let merged =
            shared.iter_mut().filter(fits).filter_map(|node| Some((merge(demands, node, &residue)?, node)));
        let best =
            merged.reduce(|best, next| if next.0.occupancy() > best.0.occupancy() { next } else { best });
        match best {
            Some((merged, node)) => *node = merged,
            None => shared.push(residue),
        }
    }
    nodes.append(&mut shared);
    nodes
}

/// The largest rates that fit; if there are more models than the lanes can take at any rate, they share lanes whose
/// cycles are longer than their objectives allow.
fn scaled_down(demands: &[Demand<'_>], lanes: usize, most: f64) -> Vec<Node> {
    let (mut fits, mut too_much) = (0.0, most);
    let mut best = None;
    let mut nodes = Vec::new();
    for _ in 0..SCALE_STEPS {
        let middle = f64::midpoint(fits, too_much);
        nodes = packed(demands, middle);
        if nodes.len() > lanes {
            too_much = middle;
        } else {
            fits = middle;
            best = Some(std::mem::take(&mut nodes));
        }
    }
    best.unwrap_or_else(|| {
        nodes.sort_by(|one, other| other.occupancy().total_cmp(&one.occupancy()));
        let beyond = nodes.split_off(lanes);
        for (position, node) in beyond.into_iter().enumerate() {
            if let Some(host) = nodes.get_mut(position % lanes) {
                host.shares.extend(node.shares);
                host.busy = host.busy.after(node.busy);
                host.cycle = host.cycle.min(node.cycle).max(host.busy);
            }
        }
        nodes
    })
}

/// Copies nodes, the most loaded first, until every lane has one; those that are alike share their rates evenly.
fn replicate(demands: &[Demand<'_>], nodes: Vec<Node>, lanes: usize) -> Vec<Node> {
    let spare = lanes.saturating_sub(nodes.len());
    // Alike, how many there were, how many there will be.
    let mut groups: Vec<(Node, usize, usize)> = Vec::new();
    for node in nodes {
        match groups.last_mut().filter(|(alike, ..)| *alike == node) {
            Some((_, before, after)) => (*before, *after) = (*before + 1, *after + 1),
            None => groups.push((node, 1, 1)),
        }
    }
    let load_of = |(node, before, after): &(Node, usize, usize)| {
        let load = load(demands, node).max(f64::EPSILON) * *before as f64 / *after as f64;
        // Positive numbers are ordered as their bits are.
        load.to_bits()
    };
    let mut by_load: BinaryHeap<(u64, Reverse<usize>)> =
        groups.iter().enumerate().map(|(position, group)| (load_of(group), Reverse(position))).collect();
    for _ in 0..spare {
        let Some((_, Reverse(position))) = by_load.pop() else { break };
        if let Some(group) = groups.get_mut(position) {
            group.2 += 1;
            by_load.push((load_of(group), Reverse(position)));
        }
    }
    let copies = groups.into_iter().flat_map(|(mut node, before, after)| {
        for share in &mut node.shares {
            share.rate *= before as f64 / after as f64;
        }
        std::iter::repeat_n(node, after)
    });
    copies.collect()
}

/// Lane time that the rates of a node need, which is less than its occupancy where objectives make batches start
/// before they are full.
fn load(demands: &[Demand<'_>], node: &Node) -> f64 {
    let time =
        |share: &Share| demands.get(share.session).map_or(Nanos::ZERO, |demand| (demand.time)(share.batch));
    node.shares.iter().map(|share| share.rate * time(share).0 as f64 / 1e9 / f64::from(share.batch)).sum()
}

/// Rows that arrive in a cycle, rounded up.
fn gathered(cycle: Nanos, rate: f64) -> u32 {
    let rows = cycle.0 as f64 * rate / 1e9;
    let whole = if rows.fract() < ROWS_ROUNDED { rows.floor() } else { rows.ceil() };
    (whole as u32).max(1)
}

/// The largest batch that is fine, if all smaller ones are, at least 1.
fn largest(limit: u32, fine: impl Fn(u32) -> bool) -> u32 {
    if fine(limit) {
        return limit.max(1);
    }
    let (mut fits, mut too_large) = (1, limit.max(2));
    while too_large - fits > 1 {
        let middle = fits.midpoint(too_large);
        if fine(middle) { fits = middle } else { too_large = middle }
    }
    fits
}

/// Beyond what fits it saturates.
fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

#[cfg(test)]
mod tests;
