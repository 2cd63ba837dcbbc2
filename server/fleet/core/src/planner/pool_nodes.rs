//! Deals the nodes of a fleet out to pools.

use std::collections::BTreeMap;

use super::inputs::Spread;

/// A node, as it is dealt out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate<'a> {
    pub lanes: f64,
    pub zone: &'a str,
    /// By pool: how many of its models the node holds already, and how many of these serve. Pools that are not listed: none.
    pub held: BTreeMap<usize, (usize, usize)>,
}

/// The nodes of each pool, by index. Pools get nodes in proportion to the lanes that they need, at least `least` each while there are
/// enough. With [`Spread::Few`], they get no more than they need. Of the nodes that are left, a pool takes the one that holds most of its
/// models, from a failure domain with few of its nodes.
pub(super) fn dealt(needs: &[(f64, usize)], nodes: &[Candidate<'_>], spread: Spread) -> Vec<Vec<usize>> {
    let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    let counts = counts(needs, nodes, spread);
    let mut free: Vec<bool> = vec![true; nodes.len()];
    // Nodes that hold models of a pool stay with it; those that hold most of them first.
    let mut claims: Vec<((usize, usize), usize, usize)> = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        claims.extend(node.held.iter().map(|(pool, held)| (*held, *pool, number)));
    }
    claims.sort_by(|left, right| right.0.cmp(&left.0).then((left.1, left.2).cmp(&(right.1, right.2))));
    for (_, pool, number) in claims {
        let (Some(own), Some(is_free)) = (dealt.get_mut(pool), free.get_mut(number)) else { continue };
        if *is_free && own.len() < counts.get(pool).copied().unwrap_or_default() {
            *is_free = false;
            own.push(number);
        }
    }
    let mut by_zone: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, node) in nodes.iter().enumerate().rev() {
        if free.get(number).copied().unwrap_or_default() {
            by_zone.entry(node.zone).or_default().push(number);
        }
    }
    for (own, count) in dealt.iter_mut().zip(counts) {
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        for node in own.iter().filter_map(|number| nodes.get(*number)) {
            *zones.entry(node.zone).or_default() += 1;
        }
        while own.len() < count {
            let rank =
                |zone: &&str, left: usize| (zones.get(zone).copied().unwrap_or_default(), usize::MAX - left);
            let open = by_zone.iter().filter(|(_, left)| !left.is_empty());
            let zone = open.min_by_key(|(zone, left)| rank(zone, left.len())).map(|(zone, _)| *zone);
            let next = zone.and_then(|zone| Some((zone, by_zone.get_mut(zone)?.pop()?)));
            let Some((zone, number)) = next else { break };
            *zones.entry(zone).or_default() += 1;
            own.push(number);
        }
        own.sort_unstable();
    }
    dealt
}

/// How many nodes each pool gets.
fn counts(needs: &[(f64, usize)], nodes: &[Candidate<'_>], spread: Spread) -> Vec<usize> {
    let lanes: f64 = nodes.iter().map(|node| node.lanes).sum();
    let mean = lanes / nodes.len().max(1) as f64;
    let mut counts = vec![0_usize; needs.len()];
    let mut queue: std::collections::BinaryHeap<(Rank, std::cmp::Reverse<usize>)> =
        std::collections::BinaryHeap::new();
    for (pool, need) in needs.iter().enumerate() {
        queue.push((Rank::of(*need, 0, mean), std::cmp::Reverse(pool)));
    }
    for _ in nodes {
        let Some((rank, std::cmp::Reverse(pool))) = queue.pop() else { break };
        if spread == Spread::Few && !rank.lacks_least && rank.strain <= 1.0 {
            break;
        }
        let (Some(count), Some(need)) = (counts.get_mut(pool), needs.get(pool)) else { break };
        *count += 1;
        queue.push((Rank::of(*need, *count, mean), std::cmp::Reverse(pool)));
    }
    counts
}

/// How much a pool is in need of one more node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rank {
    lacks_least: bool,
    strain: f64,
}

impl Rank {
    fn of((lanes, least): (f64, usize), count: usize, lanes_per_node: f64) -> Self {
        Self {
            lacks_least: count < least.max(1),
            strain: lanes / (count as f64 * lanes_per_node).max(lanes_per_node / 2.0),
        }
    }
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.lacks_least.cmp(&other.lacks_least).then(self.strain.total_cmp(&other.strain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize) -> Vec<Candidate<'static>> {
        let zones = ["a", "b", "c"];
        let node = |number: usize| Candidate { lanes: 2.0, zone: zones[number % 3], held: BTreeMap::new() };
        (0..count).map(node).collect()
    }

    #[test]
    fn nodes_are_dealt_in_proportion_and_over_zones() {
        let nodes = nodes(12);
        let dealt = dealt(&[(12.0, 1), (6.0, 1), (0.1, 3)], &nodes, Spread::All);
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
        let dealt = dealt(&[(4.0, 1), (4.0, 1)], &nodes, Spread::All);
        assert_eq!(dealt, [vec![0, 2, 3], vec![1, 4, 5]]);
    }

    #[test]
    fn pools_on_few_nodes_get_what_they_need_where_they_serve() {
        let mut nodes = nodes(6);
        nodes[0].held = BTreeMap::from([(0, (4, 0))]);
        nodes[4].held = BTreeMap::from([(0, (4, 4))]);
        assert_eq!(dealt(&[(2.0, 1), (0.1, 2)], &nodes, Spread::Few), [vec![4], vec![0, 2]]);
        assert_eq!(dealt(&[(2.1, 1)], &nodes, Spread::Few), [vec![0, 4]]);
    }
}
