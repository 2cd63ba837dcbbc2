//! Deals the nodes of a fleet out to pools.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::inputs::Spread;

/// A plan keeps what it has while another one is not better than this: models that move have to be loaded.
pub(super) const KEEP: f64 = 1.1;

/// What a pool needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Need {
    /// Mean lanes.
    pub lanes: f64,
    /// Nodes at least.
    pub least: usize,
    /// How much of a mean lane's work a lane of each device type does. 0: the pool must not be on it.
    pub worth: Vec<f64>,
}

/// A node, as it is dealt out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate<'a> {
    pub lanes: f64,
    /// Index of its device type.
    pub device_type: usize,
    /// Of all its lanes.
    pub cost: f64,
    pub zone: &'a str,
    /// By pool: how many of its models the node holds already, and how many of these serve. Pools that are not listed: none.
    pub held: BTreeMap<usize, (usize, usize)>,
}

/// The nodes of each pool, by index. Pools get nodes in proportion to the lanes that they need, at least `least` each while there are
/// enough. With [`Spread::Few`], they get no more than they need. Of the nodes that are left, a pool takes the one that holds most of its
/// models, from a failure domain with few of its nodes.
pub(super) fn dealt(needs: &[Need], nodes: &[Candidate<'_>], spread: Spread) -> Vec<Vec<usize>> {
    let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    let mut counts = Counts::new(needs, nodes).dealt(spread);
    let mut free: Vec<bool> = vec![true; nodes.len()];
    // Nodes that hold models of a pool stay with it; those that hold most of them first.
    let mut claims: Vec<((usize, usize), usize, usize)> = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        claims.extend(node.held.iter().map(|(pool, held)| (*held, *pool, number)));
    }
    claims.sort_by(|left, right| right.0.cmp(&left.0).then((left.1, left.2).cmp(&(right.1, right.2))));
    for (_, pool, number) in claims {
        let (Some(own), Some(is_free)) = (dealt.get_mut(pool), free.get_mut(number)) else { continue };
        let device_type = nodes.get(number).map_or(0, |node| node.device_type);
        let left = counts.get_mut(pool).and_then(|counts| counts.get_mut(device_type));
        if let Some(left) = left.filter(|left| *is_free && **left > 0) {
            *left -= 1;
            *is_free = false;
            own.push(number);
        }
    }
    let mut by_zone: BTreeMap<(usize, &str), Vec<usize>> = BTreeMap::new();
    for (number, node) in nodes.iter().enumerate().rev() {
        if free.get(number).copied().unwrap_or_default() {
            by_zone.entry((node.device_type, node.zone)).or_default().push(number);
        }
    }
    for (own, counts) in dealt.iter_mut().zip(counts) {
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        for node in own.iter().filter_map(|number| nodes.get(*number)) {
            *zones.entry(node.zone).or_default() += 1;
        }
        for (device_type, count) in counts.into_iter().enumerate() {
            for _ in 0..count {
                let rank = |zone: &str, left: usize| {
                    (zones.get(zone).copied().unwrap_or_default(), usize::MAX - left)
                };
                let open = by_zone.range((device_type, "")..(device_type + 1, ""));
                let open = open.filter(|(_, left)| !left.is_empty());
                let place =
                    open.min_by_key(|((_, zone), left)| rank(zone, left.len())).map(|(place, _)| *place);
                let next = place.and_then(|place| Some((place.1, by_zone.get_mut(&place)?.pop()?)));
                let Some((zone, number)) = next else { break };
                *zones.entry(zone).or_default() += 1;
                own.push(number);
            }
        }
        own.sort_unstable();
    }
    dealt
}

/// Nodes of one device type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct OfType {
    nodes: usize,
    /// Of the mean node.
    lanes: f64,
    cost: f64,
    /// The mean of what a lane is worth to the pools, by their needs.
    worth: f64,
}

/// How many nodes of each device type each pool gets.
struct Counts<'a> {
    needs: &'a [Need],
    types: Vec<OfType>,
    /// Lanes of the mean node.
    lanes: f64,
    /// By pool and device type: nodes that hold models of the pool.
    held: Vec<Vec<usize>>,
}

impl<'a> Counts<'a> {
    fn new(needs: &'a [Need], nodes: &[Candidate<'_>]) -> Self {
        let count = nodes.iter().map(|node| node.device_type + 1).max().unwrap_or(0);
        let mut types = vec![OfType::default(); count];
        let mut held = vec![vec![0; count]; needs.len()];
        for node in nodes {
            if let Some(of_type) = types.get_mut(node.device_type) {
                of_type.nodes += 1;
                of_type.lanes += node.lanes;
                of_type.cost += node.cost;
            }
            for pool in node.held.keys() {
                let held = held.get_mut(*pool).and_then(|held| held.get_mut(node.device_type));
                held.into_iter().for_each(|held| *held += 1);
            }
        }
        let lanes = types.iter().map(|of_type| of_type.lanes).sum::<f64>() / nodes.len().max(1) as f64;
        let sum: f64 = needs.iter().map(|need| need.lanes).sum();
        for (number, of_type) in types.iter_mut().enumerate() {
            let nodes = of_type.nodes.max(1) as f64;
            (of_type.lanes, of_type.cost) = (of_type.lanes / nodes, of_type.cost / nodes);
            let worth =
                needs.iter().map(|need| need.lanes * need.worth.get(number).copied().unwrap_or_default());
            of_type.worth = worth.sum::<f64>() / sum.max(f64::MIN_POSITIVE);
        }
        Self { needs, types, lanes, held }
    }

    fn dealt(&self, spread: Spread) -> Vec<Vec<usize>> {
        let mut counts = vec![vec![0_usize; self.types.len()]; self.needs.len()];
        let mut left: Vec<usize> = self.types.iter().map(|of_type| of_type.nodes).collect();
        let mut queue: BinaryHeap<(Rank, Reverse<usize>)> = BinaryHeap::new();
        let rank = |pool: usize, counts: &[Vec<usize>]| (self.rank(pool, counts, spread), Reverse(pool));
        queue.extend((0..self.needs.len()).map(|pool| rank(pool, &counts)));
        while let Some((Rank { has_none, lacks_least, strain, .. }, Reverse(pool))) = queue.pop() {
            if spread == Spread::Few && !lacks_least && strain <= 1.0 {
                continue;
            }
            let chosen = self.best(pool, &counts, &left, spread);
            // Late is better than nowhere.
            let any = || (0..left.len()).filter(|_| has_none).max_by_key(|number| left.get(*number));
            let Some(chosen) =
                chosen.or_else(any).filter(|chosen| left.get(*chosen).is_some_and(|left| *left > 0))
            else {
                if spread == Spread::Few && strain > 1.0 {
                    // There is too little: all get their part of it.
                    return self.dealt(Spread::All);
                }
                continue;
            };
            if let Some((left, count)) =
                left.get_mut(chosen).zip(counts.get_mut(pool).and_then(|counts| counts.get_mut(chosen)))
            {
                (*left, *count) = (left.saturating_sub(1), *count + 1);
            }
            queue.push(rank(pool, &counts));
        }
        counts
    }

    /// Mean lanes of the nodes that a pool has.
    fn capacity(&self, pool: usize, counts: &[Vec<usize>]) -> f64 {
        let counts = counts.get(pool).into_iter().flatten().enumerate();
        counts.map(|(number, count)| *count as f64 * self.gain(pool, number)).sum()
    }

    /// Mean lanes of a node of a device type for a pool.
    fn gain(&self, pool: usize, device_type: usize) -> f64 {
        let worth = self.needs.get(pool).and_then(|need| need.worth.get(device_type));
        worth.zip(self.types.get(device_type)).map_or(0.0, |(worth, of_type)| worth * of_type.lanes)
    }

    fn rank(&self, pool: usize, counts: &[Vec<usize>], spread: Spread) -> Rank {
        let Some(need) = self.needs.get(pool) else { return Rank::default() };
        let count: usize = counts.get(pool).into_iter().flatten().sum();
        let (has_none, lacks_least) = (count == 0, count < need.least.max(1));
        let other_types = need.worth.iter().filter(|worth| **worth == 0.0).count();
        let chooses_first = lacks_least || spread == Spread::Few;
        let strain = need.lanes / self.capacity(pool, counts).max(self.lanes / 2.0);
        Rank { has_none, lacks_least, limits: if chooses_first { other_types } else { 0 }, strain }
    }

    /// The device type that a pool gets its next node of: one that does more for it than for the other pools, or, if as few nodes as
    /// possible are used, the cheapest for what it needs.
    fn best(&self, pool: usize, counts: &[Vec<usize>], left: &[usize], spread: Spread) -> Option<usize> {
        let need = self.needs.get(pool)?;
        let lacks = need.lanes - self.capacity(pool, counts);
        let score = |number: usize| {
            let (of_type, gain) = (self.types.get(number)?, self.gain(pool, number));
            let holds = self.held.get(pool).and_then(|held| held.get(number)).copied().unwrap_or_default();
            let has = counts.get(pool).and_then(|counts| counts.get(number)).copied().unwrap_or_default();
            let stays = if holds > has { KEEP } else { 1.0 };
            let used = if lacks > 0.0 { gain.min(lacks) } else { 1.0 };
            let score = match spread {
                Spread::All => gain / (of_type.worth * of_type.lanes).max(f64::MIN_POSITIVE),
                Spread::Few => used / of_type.cost.max(f64::MIN_POSITIVE),
            };
            (gain > 0.0 && left.get(number).is_some_and(|left| *left > 0)).then_some((number, score * stays))
        };
        let scores = (0..self.types.len()).filter_map(score);
        scores
            .max_by(|left, right| left.1.total_cmp(&right.1).then(right.0.cmp(&left.0)))
            .map(|(number, _)| number)
    }
}

/// How much a pool is in need of one more node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rank {
    has_none: bool,
    lacks_least: bool,
    /// Device types that it must not be on, where the order decides what is left for it.
    limits: usize,
    strain: f64,
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let lacks = |rank: &Self| (rank.has_none, rank.lacks_least, rank.limits);
        let first = lacks(self).cmp(&lacks(other));
        first.then(self.strain.total_cmp(&other.strain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize) -> Vec<Candidate<'static>> {
        let zone = |number: usize| ["a", "b", "c"][number % 3];
        let node = |number| Candidate {
            lanes: 2.0,
            device_type: 0,
            cost: 1.0,
            zone: zone(number),
            held: BTreeMap::new(),
        };
        (0..count).map(node).collect()
    }

    fn alike(lanes: f64, least: usize) -> Need {
        Need { lanes, least, worth: vec![1.0] }
    }

    /// Nodes of three device types in turn, with these costs.
    fn unlike(count: usize, costs: [f64; 3]) -> Vec<Candidate<'static>> {
        let mut nodes = nodes(count);
        for (number, node) in nodes.iter_mut().enumerate() {
            (node.device_type, node.cost, node.zone) = (number % 3, costs[number % 3], "a");
        }
        nodes
    }

    #[test]
    fn pools_get_the_device_types_that_do_most_for_them() {
        let nodes = unlike(12, [1.0; 3]);
        // The first pool may be on the first type only. The second one gains most on the third type.
        let needs = [
            Need { lanes: 6.0, least: 1, worth: vec![1.5, 0.0, 0.0] },
            Need { lanes: 6.0, least: 1, worth: vec![1.5, 0.8, 0.9] },
            Need { lanes: 6.0, least: 1, worth: vec![1.5, 0.9, 0.6] },
        ];
        let dealt = dealt(&needs, &nodes, Spread::All);
        let types = |pool: usize| {
            let mut counts = [0; 3];
            dealt[pool].iter().for_each(|node| counts[nodes[*node].device_type] += 1);
            counts
        };
        assert!(types(0)[0] >= 2 && types(0)[1..] == [0, 0], "{dealt:?}");
        assert!(types(1)[2] > types(2)[2] && types(2)[1] > types(1)[1], "{dealt:?}");
        assert_eq!(dealt.concat().len(), 12);
    }

    #[test]
    fn every_pool_has_a_node_while_there_are_enough() {
        // Two pools need the only node that is fast enough, and the third one wants three nodes.
        let nodes = unlike(3, [1.0; 3]);
        let fast = Need { lanes: 1.0, least: 1, worth: vec![1.0, 0.0, 0.0] };
        let needs = [fast.clone(), fast, Need { lanes: 30.0, least: 3, worth: vec![1.0; 3] }];
        for spread in [Spread::All, Spread::Few] {
            let dealt = dealt(&needs, &nodes, spread);
            assert_eq!(dealt.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1], "{dealt:?}");
            assert_eq!(dealt[0], [0], "{dealt:?}");
        }
    }

    #[test]
    fn few_nodes_are_the_cheapest_that_suffice() {
        let need = |lanes| [Need { lanes, least: 1, worth: vec![1.0, 0.5, 0.25] }];
        let types = |lanes, costs| {
            let nodes = unlike(12, costs);
            let dealt = dealt(&need(lanes), &nodes, Spread::Few);
            let mut types: Vec<usize> = dealt[0].iter().map(|node| nodes[*node].device_type).collect();
            types.sort_unstable();
            types
        };
        assert_eq!(types(0.5, [10.0, 4.0, 1.0]), [2], "a large device would be idle");
        assert_eq!(types(4.0, [10.0, 4.0, 3.0]), [1, 1, 1, 1]);
        assert_eq!(types(4.0, [7.0, 4.0, 3.0]), [0, 0]);
        assert_eq!(types(100.0, [7.0, 4.0, 3.0]).len(), 12, "too little for all");
    }

    #[test]
    fn nodes_are_dealt_in_proportion_and_over_zones() {
        let nodes = nodes(12);
        let dealt = dealt(&[alike(12.0, 1), alike(6.0, 1), alike(0.1, 3)], &nodes, Spread::All);
        assert_eq!(dealt.iter().map(Vec::len).collect::<Vec<_>>(), [6, 3, 3]);
        for pool in &dealt {
            let zones: std::collections::BTreeSet<&str> = pool.iter().map(|node| nodes[*node].zone).collect();
            assert_eq!(zones.len(), 3, "{dealt:?}");
        }
        let mut all: Vec<usize> = dealt.concat();
        all.sort_unstable();
        assert_eq!(all, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn nodes_stay_with_the_pool_whose_models_they_hold() {
        let mut nodes = nodes(6);
        for number in [1, 4, 5] {
            nodes[number].held = BTreeMap::from([(1, (4, 4))]);
        }
        let dealt = dealt(&[alike(4.0, 1), alike(4.0, 1)], &nodes, Spread::All);
        assert_eq!(dealt, [vec![0, 2, 3], vec![1, 4, 5]]);
    }

    #[test]
    fn pools_on_few_nodes_get_what_they_need_where_they_serve() {
        let mut nodes = nodes(6);
        nodes[0].held = BTreeMap::from([(0, (4, 0))]);
        nodes[4].held = BTreeMap::from([(0, (4, 4))]);
        assert_eq!(dealt(&[alike(2.0, 1), alike(0.1, 2)], &nodes, Spread::Few), [vec![4], vec![0, 2]]);
        assert_eq!(dealt(&[alike(2.1, 1)], &nodes, Spread::Few), [vec![0, 4]]);
    }
}
