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
    /// Models that the plan sends rows of here.
    pub planned: BTreeSet<u32>,
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
            planned: BTreeSet::new(),
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

/// Which picker owns which models, and the lanes of each model. Nodes that serve the same models are a pool, and each pool belongs to one
/// picker: it alone sends requests there. Spares do not count: they differ from node to node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Division {
    /// By model: the picker that owns most of its nodes.
    pub owners: BTreeMap<u32, u32>,
    /// By model: its lanes on nodes of this picker.
    pub lanes: BTreeMap<u32, BTreeSet<LaneId>>,
}

/// Divides the nodes among the pickers. Pickers that know the same nodes divide them in the same way.
pub(super) fn divide(nodes: &[Node], names: &[String], now: Duration, settings: &Settings) -> Division {
    let name = |model: &u32| names.get(*model as usize).map_or("", String::as_str);
    let mut pools: BTreeMap<Vec<&str>, Vec<&Node>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.takes(now, settings)) {
        let serving = node.models.keys().filter(|model| node.planned.contains(*model));
        let mut serving: Vec<&str> = serving.map(name).collect();
        if serving.is_empty() {
            serving = node.models.keys().map(name).collect();
        }
        serving.sort_unstable();
        pools.entry(serving).or_default().push(node);
    }
    let mut division = Division::default();
    let mut votes: BTreeMap<u32, BTreeMap<u32, usize>> = BTreeMap::new();
    for ((serving, nodes), owner) in pools.into_iter().zip((0..settings.pickers).cycle()) {
        for node in nodes {
            for (model, pool) in &node.models {
                let weight = if serving.contains(&name(model)) { 1_000 } else { 1 };
                *votes.entry(*model).or_default().entry(owner).or_default() += weight;
                if owner == settings.number {
                    let lanes = node.pools.get(pool).into_iter().flatten();
                    division.lanes.entry(*model).or_default().extend(lanes);
                }
            }
        }
    }
    for (model, votes) in votes {
        let owner = votes.into_iter().max_by_key(|(owner, votes)| (*votes, std::cmp::Reverse(*owner)));
        division.owners.extend(owner.map(|(owner, _)| (model, owner)));
    }
    division
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

    fn of(nodes: &[Node], settings: &Settings, now: Duration) -> Division {
        let names: Vec<String> = (0..4).map(|model| format!("m{model}")).collect();
        divide(nodes, &names, now, settings)
    }

    #[test]
    fn each_pool_belongs_to_one_picker() {
        let mut nodes: Vec<Node> =
            (0..8).map(|number| node(number, if number < 5 { &[0, 1] } else { &[2] })).collect();
        // A spare of another pool does not make a pool of its own.
        nodes[0].planned = BTreeSet::from([0, 1]);
        nodes[0].models.insert(2, 0);
        let lanes = |numbers: std::ops::Range<u32>| numbers.map(LaneId).collect::<BTreeSet<_>>();
        let both = [0, 1].map(|number| {
            let settings = Settings { pickers: 2, number, ..Settings::default() };
            of(&nodes, &settings, Duration::ZERO)
        });
        assert_eq!(both[0].owners, BTreeMap::from([(0, 0), (1, 0), (2, 1)]));
        assert_eq!(both[0].owners, both[1].owners);
        assert_eq!((&both[0].lanes[&0], &both[0].lanes[&2]), (&lanes(0..5), &lanes(0..1)));
        assert_eq!((both[1].lanes.get(&0), &both[1].lanes[&2]), (None, &lanes(5..8)));
    }

    #[test]
    fn nodes_that_are_silent_lost_or_draining_are_not_used() {
        let mut nodes: Vec<Node> = (0..4).map(|number| node(number, &[0])).collect();
        nodes[0].draining = true;
        nodes[1].heard = None;
        let settings = Settings::default();
        nodes[3].heard = Some(settings.stale_after);
        let now = settings.stale_after + Duration::from_millis(1);
        assert_eq!(of(&nodes, &settings, now).lanes[&0], BTreeSet::from([LaneId(3)]));
    }
}
