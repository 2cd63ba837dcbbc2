//! The nodes that a picker knows, and which lanes it uses for which models.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use invariant::expected;
use router_core::{LaneClass, LaneId};

use super::Settings;
use super::peers::Peers;

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub name: String,
    pub device_type: LaneClass,
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
            device_type: LaneClass::default(),
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

/// Who forms the batches of a model, and on which lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Division {
    /// The picker that owns the lanes. `None`: no node has the model.
    pub owner: Option<u32>,
    /// The lanes, if this picker owns them.
    pub lanes: BTreeSet<LaneId>,
}

/// The nodes of models that share some of them.
#[derive(Debug, Default)]
struct Group<'a> {
    /// The first of the models' names.
    name: &'a str,
    models: Vec<u32>,
}

/// Divides the lanes among the pickers. Models that share a node are a group with one owner, which alone forms their batches. A
/// spare takes requests only while no node serves its model: used all the time, spares would make the models late that the node
/// serves. Pickers that know the same nodes and pickers divide them in the same way.
pub(super) fn divide(
    nodes: &[Node],
    names: &[String],
    now: Duration,
    settings: &Settings,
    peers: &Peers,
) -> BTreeMap<u32, Division> {
    let used: Vec<&Node> = nodes.iter().filter(|node| node.takes(now, settings)).collect();
    let places = places(&used);
    let mut divided = BTreeMap::new();
    for Group { name, models } in groups(&places, used.len(), names) {
        let owner = peers.owner(name);
        for model in models {
            let at = places.get(&model).into_iter().flatten().filter(|_| owner == settings.number);
            let lanes = at.filter_map(|at| {
                let node = used.get(*at)?;
                node.pools.get(node.models.get(&model)?)
            });
            let lanes = lanes.flatten().copied().collect();
            divided.insert(model, Division { owner: Some(owner), lanes });
        }
    }
    divided
}

/// The nodes of each model, by their places in the list: those that serve it, or else those that have it.
fn places(used: &[&Node]) -> BTreeMap<u32, Vec<usize>> {
    let mut places: BTreeMap<u32, (bool, Vec<usize>)> = BTreeMap::new();
    for (at, node) in used.iter().enumerate() {
        for model in node.models.keys() {
            let is_planned = node.planned.contains(model);
            let place = places.entry(*model).or_default();
            if is_planned && !place.0 {
                *place = (true, Vec::new());
            }
            if is_planned == place.0 {
                place.1.push(at);
            }
        }
    }
    places.into_iter().map(|(model, (_, at))| (model, at)).collect()
}

/// The models, in groups of those that share nodes.
fn groups<'a>(
    places: &BTreeMap<u32, Vec<usize>>,
    nodes: usize,
    names: &'a [String],
) -> impl Iterator<Item = Group<'a>> {
    // Numbers of nodes that are in one group lead to the same number.
    let mut leads: Vec<usize> = (0..nodes).collect();
    for at in places.values() {
        for pair in at.windows(2) {
            if let [one, other] = pair {
                let (one, other) = (root(&mut leads, *one), root(&mut leads, *other));
                if let Some(lead) = leads.get_mut(one.max(other)) {
                    *lead = one.min(other);
                }
            }
        }
    }
    let mut groups: BTreeMap<usize, Group<'a>> = BTreeMap::new();
    for (number, at) in places {
        let place = expected!(at.first().zip(names.get(*number as usize)), "pick.model_without_place");
        let Some((first, name)) = place else { continue };
        let group = groups.entry(root(&mut leads, *first)).or_default();
        group.name = if group.models.is_empty() { name } else { group.name.min(name) };
        group.models.push(*number);
    }
    groups.into_values()
}

/// The number that a node's number leads to.
fn root(leads: &mut [usize], mut at: usize) -> usize {
    while let Some(next) = leads.get(at).copied().filter(|next| *next != at) {
        let after = leads.get(next).copied().unwrap_or(next);
        if let Some(lead) = leads.get_mut(at) {
            *lead = after;
        }
        at = next;
    }
    at
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

    fn names() -> Vec<String> {
        (0..4).map(|model| format!("m{model}")).collect()
    }

    /// The lanes of a picker that is alone.
    fn alone(nodes: &[Node], names: &[String], now: Duration) -> BTreeMap<u32, BTreeSet<LaneId>> {
        let divided = divide(nodes, names, now, &Settings::default(), &Peers::new(0));
        divided.into_iter().map(|(model, division)| (model, division.lanes)).collect()
    }

    fn lanes(numbers: std::ops::Range<u32>) -> BTreeSet<LaneId> {
        numbers.map(LaneId).collect()
    }

    #[test]
    fn a_spare_is_used_only_while_no_node_serves_its_model() {
        let mut nodes: Vec<Node> =
            (0..8).map(|number| node(number, if number < 5 { &[0, 1] } else { &[2] })).collect();
        nodes.iter_mut().take(5).for_each(|node| node.planned = BTreeSet::from([0, 1]));
        nodes[0].models.insert(2, 0);
        nodes[5..].iter_mut().for_each(|node| node.planned = BTreeSet::from([2]));
        let served = alone(&nodes, &names(), Duration::ZERO);
        assert_eq!((&served[&0], &served[&1], &served[&2]), (&lanes(0..5), &lanes(0..5), &lanes(5..8)));
        nodes[5..].iter_mut().for_each(|node| node.heard = None);
        assert_eq!(alone(&nodes, &names(), Duration::ZERO)[&2], lanes(0..1), "it takes over");
    }

    #[test]
    fn models_that_share_a_node_have_one_owner_which_has_all_their_lanes() {
        // Pairs of models, of which each has two nodes.
        let names: Vec<String> = (0..40).map(|model| format!("m{model:02}")).collect();
        let mut nodes: Vec<Node> =
            (0..40).map(|number| node(number, &[number / 2 * 2, number / 2 * 2 + 1])).collect();
        let divided = |nodes: &[Node]| {
            [0, 1].map(|number| {
                let mut peers = Peers::new(number);
                peers.list(Duration::ZERO, 1 - number);
                peers.refresh(Duration::ZERO);
                let settings = Settings { number, ..Settings::default() };
                divide(nodes, &names, Duration::ZERO, &settings, &peers)
            })
        };
        let both = divided(&nodes);
        for model in 0..40 {
            let of_both = both.each_ref().map(|division| &division[&model]);
            assert_eq!(of_both[0].owner, of_both[1].owner);
            assert_eq!(of_both[0].owner, both[0][&(model ^ 1)].owner);
            let owner = of_both[0].owner.unwrap() as usize;
            assert_eq!(of_both[owner].lanes, alone(&nodes, &names, Duration::ZERO)[&model]);
            assert_eq!(of_both[1 - owner].lanes, BTreeSet::new());
        }
        let owned = |owner| both[0].values().filter(|division| division.owner == Some(owner)).count();
        assert!(owned(0) > 10 && owned(1) > 10, "{} and {}", owned(0), owned(1));
        // A node that serves a model of each pair makes one group of them.
        nodes.push(node(40, &(0..40).step_by(2).collect::<Vec<_>>()));
        let owners: BTreeSet<Option<u32>> =
            divided(&nodes)[0].values().map(|division| division.owner).collect();
        assert_eq!(owners.len(), 1);
    }

    #[test]
    fn nodes_that_are_silent_lost_or_draining_are_not_used() {
        let mut nodes: Vec<Node> = (0..4).map(|number| node(number, &[0])).collect();
        nodes[0].draining = true;
        nodes[1].heard = None;
        let settings = Settings::default();
        nodes[3].heard = Some(settings.stale_after);
        let now = settings.stale_after + Duration::from_millis(1);
        assert_eq!(alone(&nodes, &names(), now)[&0], BTreeSet::from([LaneId(3)]));
    }
}
