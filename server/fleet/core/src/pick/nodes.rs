//! The nodes that a picker knows, and which lanes it uses for which models.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use router_core::LaneId;

use super::Settings;

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub name: String,
    /// When it last said something. `None`: never, or the connection broke.
    pub heard: Option<Duration>,
    pub was_lost: bool,
    pub draining: bool,
    /// Its ready models, by number, and the pool of lanes that each runs on.
    pub models: BTreeMap<u32, u32>,
    /// Lanes of each pool.
    pub pools: BTreeMap<u32, Vec<LaneId>>,
}

impl Node {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            heard: None,
            was_lost: false,
            draining: false,
            models: BTreeMap::new(),
            pools: BTreeMap::new(),
        }
    }

    /// Whether its lanes are used.
    pub(super) fn takes(&self, now: Duration, settings: &Settings) -> bool {
        let is_fresh = self.heard.is_some_and(|heard| now.saturating_sub(heard) <= settings.stale_after);
        is_fresh && !self.draining
    }

    /// Whether it may take requests, as far as is known.
    pub(super) fn may_take(&self) -> bool {
        !self.was_lost && !self.draining
    }
}

/// The lanes that a picker uses, by model. The pickers divide the nodes with the same models among themselves, each the same way. Where
/// there are too few for that, all of them use all.
pub(super) fn lanes_by_model(
    nodes: &[Node],
    now: Duration,
    settings: &Settings,
) -> BTreeMap<u32, BTreeSet<LaneId>> {
    let mut alike: BTreeMap<Vec<u32>, Vec<&Node>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.takes(now, settings)) {
        alike.entry(node.models.keys().copied().collect()).or_default().push(node);
    }
    let mut lanes: BTreeMap<u32, BTreeSet<LaneId>> = BTreeMap::new();
    let pickers = settings.pickers as usize;
    for nodes in alike.values_mut() {
        nodes.sort_by(|left, right| left.name.cmp(&right.name));
        let is_divided = nodes.len() >= 2 * pickers;
        for (rank, node) in nodes.iter().enumerate() {
            if is_divided && rank % pickers != settings.number as usize {
                continue;
            }
            for (model, pool) in &node.models {
                let pool = node.pools.get(pool).into_iter().flatten();
                lanes.entry(*model).or_default().extend(pool);
            }
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32, models: &[u32]) -> Node {
        Node {
            heard: Some(Duration::ZERO),
            models: models.iter().map(|model| (*model, 0)).collect(),
            pools: BTreeMap::from([(0, vec![LaneId(number)])]),
            ..Node::new(&format!("node-{number}"))
        }
    }

    #[test]
    fn pickers_divide_nodes_with_the_same_models() {
        let nodes: Vec<Node> =
            (0..8).map(|number| node(number, if number < 5 { &[0, 1] } else { &[2] })).collect();
        let of = |number| {
            let settings = Settings { pickers: 2, number, ..Settings::default() };
            lanes_by_model(&nodes, Duration::ZERO, &settings)
        };
        let lanes = |numbers: &[u32]| numbers.iter().map(|number| LaneId(*number)).collect::<BTreeSet<_>>();
        assert_eq!((&of(0)[&0], &of(0)[&1]), (&lanes(&[0, 2, 4]), &lanes(&[0, 2, 4])));
        assert_eq!(of(1)[&0], lanes(&[1, 3]));
        // Three nodes are too few for two pickers.
        assert_eq!((&of(0)[&2], &of(1)[&2]), (&lanes(&[5, 6, 7]), &lanes(&[5, 6, 7])));
    }

    #[test]
    fn nodes_that_are_silent_lost_or_draining_are_not_used() {
        let mut nodes: Vec<Node> = (0..4).map(|number| node(number, &[0])).collect();
        nodes[0].draining = true;
        nodes[1].heard = None;
        let settings = Settings::default();
        nodes[3].heard = Some(settings.stale_after);
        let now = settings.stale_after + Duration::from_millis(1);
        assert_eq!(lanes_by_model(&nodes, now, &settings)[&0], BTreeSet::from([LaneId(3)]));
    }
}
