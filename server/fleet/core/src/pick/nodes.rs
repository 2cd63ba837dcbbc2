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

/// The lanes that a picker uses, by model. Nodes that serve the same models are a pool, and each pool belongs to one picker: it alone forms
/// batches there. A spare takes requests only while no node of the picker serves its model: used all the time, spares would make the
/// models late that the node serves. Pickers that know the same nodes divide them in the same way.
pub(super) fn lanes_by_model(
    nodes: &[Node],
    names: &[String],
    now: Duration,
    settings: &Settings,
) -> BTreeMap<u32, BTreeSet<LaneId>> {
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
    let owned = pools.into_values().skip(settings.number as usize).step_by(settings.pickers as usize);
    let owned: Vec<&Node> = owned.flatten().collect();
    let lanes_of = |is_planned: bool| {
        let mut lanes: BTreeMap<u32, BTreeSet<LaneId>> = BTreeMap::new();
        for node in &owned {
            for (model, pool) in &node.models {
                if node.planned.contains(model) == is_planned {
                    lanes.entry(*model).or_default().extend(node.pools.get(pool).into_iter().flatten());
                }
            }
        }
        lanes
    };
    let mut lanes = lanes_of(false);
    lanes.extend(lanes_of(true));
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

    fn of(nodes: &[Node], settings: &Settings, now: Duration) -> BTreeMap<u32, BTreeSet<LaneId>> {
        let names: Vec<String> = (0..4).map(|model| format!("m{model}")).collect();
        lanes_by_model(nodes, &names, now, settings)
    }

    #[test]
    fn each_pool_belongs_to_one_picker() {
        let mut nodes: Vec<Node> =
            (0..8).map(|number| node(number, if number < 5 { &[0, 1] } else { &[2] })).collect();
        // A spare of another pool does not make a pool of its own.
        nodes.iter_mut().take(5).for_each(|node| node.planned = BTreeSet::from([0, 1]));
        nodes[0].models.insert(2, 0);
        let lanes = |numbers: std::ops::Range<u32>| numbers.map(LaneId).collect::<BTreeSet<_>>();
        let both = [0, 1].map(|number| {
            let settings = Settings { pickers: 2, number, ..Settings::default() };
            of(&nodes, &settings, Duration::ZERO)
        });
        assert_eq!((&both[0][&0], &both[0][&1], &both[0][&2]), (&lanes(0..5), &lanes(0..5), &lanes(0..1)));
        assert_eq!((both[1].get(&0), &both[1][&2]), (None, &lanes(5..8)));
        // One picker owns all, and leaves the spare alone as long as nodes serve its model.
        let all = of(&nodes, &Settings::default(), Duration::ZERO);
        nodes[5..].iter_mut().for_each(|node| node.planned = BTreeSet::from([2]));
        let planned = of(&nodes, &Settings::default(), Duration::ZERO);
        assert_eq!((&planned[&2], &planned[&0]), (&lanes(5..8), &all[&0]));
        nodes[5..].iter_mut().for_each(|node| node.heard = None);
        assert_eq!(of(&nodes, &Settings::default(), Duration::ZERO)[&2], lanes(0..1), "it takes over");
    }

    #[test]
    fn nodes_that_are_silent_lost_or_draining_are_not_used() {
        let mut nodes: Vec<Node> = (0..4).map(|number| node(number, &[0])).collect();
        nodes[0].draining = true;
        nodes[1].heard = None;
        let settings = Settings::default();
        nodes[3].heard = Some(settings.stale_after);
        let now = settings.stale_after + Duration::from_millis(1);
        assert_eq!(of(&nodes, &settings, now)[&0], BTreeSet::from([LaneId(3)]));
    }
}
