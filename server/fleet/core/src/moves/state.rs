//! The plans of one step, as they change.

use std::collections::{BTreeMap, BTreeSet};

use invariant::expected;

use super::{MoveNode, Transition};
use crate::node_plan::{NodePlan, PlannedModel, Role};

/// The plans of all nodes that work.
pub(super) struct State<'a> {
    transition: Transition<'a>,
    plans: BTreeMap<String, NodePlan>,
    /// Models that the new plans want, with the nodes on which they serve.
    wanted: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> State<'a> {
    pub(super) fn new(transition: &Transition<'a>, plans: BTreeMap<String, NodePlan>) -> Self {
        let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (node, plan) in transition.target.iter().filter(|(node, _)| transition.nodes.contains_key(*node))
        {
            for planned in &plan.models {
                let nodes = wanted.entry(planned.model.as_str()).or_default();
                if planned.role == Role::Serving {
                    nodes.insert(node.as_str());
                }
            }
        }
        Self { transition: *transition, plans, wanted }
    }

    /// Takes over what needs no load: epochs, rates, gpulets, and spares that are to serve.
    pub(super) fn adopt(&mut self) {
        for (node, plan) in &mut self.plans {
            let Some(target) = self.transition.target.get(node) else { continue };
            (plan.epoch, plan.gpulets) = (target.epoch, target.gpulets.clone());
            for planned in &mut plan.models {
                match target.model(&planned.model) {
                    Some(wanted) if wanted.role == Role::Serving => planned.clone_from(wanted),
                    _ => {}
                }
            }
        }
    }

    /// Copies that serve in the end, by model.
    pub(super) fn wanted_copies(&self) -> BTreeMap<&'a str, usize> {
        self.wanted.iter().map(|(model, nodes)| (*model, nodes.len())).collect()
    }

    pub(super) fn is_wanted(&self, model: &str) -> bool {
        self.wanted.get(model).is_some_and(|nodes| !nodes.is_empty())
    }

    fn node(&self, node: &str) -> Option<&'a MoveNode> {
        self.transition.nodes.get(node)
    }

    fn bytes(&self, model: &str) -> u64 {
        self.transition.models.get(model).map_or(0, |model| model.bytes)
    }

    pub(super) fn copies_min(&self, model: &str) -> usize {
        self.transition.models.get(model).map_or(0, |model| model.copies_min)
    }

    pub(super) fn group(&self, node: &str) -> usize {
        self.node(node).map_or(0, |node| node.group)
    }

    pub(super) fn limit(&self, group: usize) -> usize {
        self.transition.per_minute.get(group).copied().unwrap_or_default()
    }

    pub(super) fn is_ready(&self, node: &str, model: &str) -> bool {
        self.node(node).is_some_and(|node| node.ready.contains(model))
    }

    /// Whether a copy is on its way, and was not refused.
    pub(super) fn is_loading(&self) -> bool {
        self.plans.iter().any(|(name, plan)| {
            let Some(node) = expected!(self.node(name), "moves.unknown_node") else { return false };
            let loads = |model: &String| !node.ready.contains(model) && !node.refused.contains(model);
            plan.models.iter().any(|planned| loads(&planned.model))
        })
    }

    /// Copies that serve by the plans.
    pub(super) fn serving(&self, model: &str) -> usize {
        self.serving_on(model).count()
    }

    fn serving_on<'b>(&'b self, model: &'b str) -> impl Iterator<Item = &'b str> {
        let serves = move |plan: &NodePlan| plan.model(model).is_some_and(|own| own.role == Role::Serving);
        self.plans.iter().filter(move |(_, plan)| serves(plan)).map(|(node, _)| node.as_str())
    }

    /// Copies that serve and are ready, without the one on a node.
    pub(super) fn ready_serving(&self, model: &str, without: Option<&str>) -> usize {
        let others = self.serving_on(model).filter(|node| Some(*node) != without);
        others.filter(|node| self.is_ready(node, model)).count()
    }

    /// Copies that do not serve on their node in the end but do now, and spares that the new plans do not have there.
    pub(super) fn leaving(&self) -> Vec<(String, String, Role)> {
        let mut leaving = Vec::new();
        for (node, plan) in &self.plans {
            let target = self.transition.target.get(node);
            for planned in &plan.models {
                let stays = match target.and_then(|target| target.model(&planned.model)) {
                    Some(wanted) => wanted.role == planned.role,
                    None => false,
                };
                if !stays {
                    leaving.push((node.clone(), planned.model.clone(), planned.role));
                }
            }
        }
        leaving
    }

    /// Copies that are not in the plans yet: those that serve before spares, and those with a high rate first.
    pub(super) fn missing(&self) -> Vec<(&'a str, &'a PlannedModel)> {
        let mut missing: Vec<(&str, &PlannedModel)> = Vec::new();
        for (node, target) in self.transition.target {
            let Some(plan) = self.plans.get(node) else { continue };
            let open = target.models.iter().filter(|planned| plan.model(&planned.model).is_none());
            missing.extend(open.map(|planned| (node.as_str(), planned)));
        }
        missing.sort_by(|(_, left), (_, right)| {
            left.role.cmp(&right.role).then_with(|| right.rate.total_cmp(&left.rate))
        });
        missing
    }

    /// Whether a copy that the new plans want does not fit on a node now.
    pub(super) fn is_full_for(&self, node: &str) -> bool {
        let target = self.transition.target.get(node);
        target.is_some_and(|target| {
            let plan = self.plans.get(node);
            let is_open =
                |planned: &&PlannedModel| plan.is_some_and(|plan| plan.model(&planned.model).is_none());
            target.models.iter().filter(is_open).any(|planned| !self.fits(node, &planned.model))
        })
    }

    /// Whether a model fits on a node in addition to those of its plan.
    pub(super) fn fits(&self, node: &str, model: &str) -> bool {
        let held = self.plans.get(node).into_iter().flat_map(|plan| &plan.models);
        self.fits_with(node, model, held.map(|planned| planned.model.as_str()))
    }

    fn fits_with<'b>(&self, node: &str, model: &str, held: impl Iterator<Item = &'b str>) -> bool {
        let Some(budget) = expected!(self.node(node), "moves.unknown_node") else { return false };
        let (mut count, mut bytes) = (1, self.bytes(model));
        for other in held {
            if (self.transition.excludes)(model, other) {
                return false;
            }
            count += 1;
            bytes = bytes.saturating_add(self.bytes(other));
        }
        count <= budget.models_max && bytes <= budget.memory_bytes
    }

    /// Whether a copy on a node leaves it in the end, and serves now.
    pub(super) fn blocks(&self, node: &str) -> Vec<String> {
        let leaving = self.leaving().into_iter();
        let serving = leaving.filter(|(other, _, role)| other == node && *role == Role::Serving);
        serving.map(|(_, model, _)| model).collect()
    }

    /// A node with space for a copy for a while, next to all that serves there now and in the end.
    pub(super) fn space_for(&self, model: &str) -> Option<String> {
        let fits = |(node, plan): &(&String, &NodePlan)| {
            let serves = |planned: &&PlannedModel| planned.role == Role::Serving;
            let target = self.transition.target.get(*node).into_iter().flat_map(|target| &target.models);
            let both: BTreeSet<&str> =
                plan.models.iter().chain(target).filter(serves).map(|own| own.model.as_str()).collect();
            let is_refused = self.node(node).is_some_and(|node| node.refused.contains(model));
            !both.contains(model)
                && !is_refused
                && (self.transition.allows)(model, node)
                && self.fits_with(node, model, both.into_iter())
        };
        self.plans.iter().find(fits).map(|(node, _)| node.clone())
    }

    /// Spares of a node, those of the new plans last.
    pub(super) fn spares(&self, node: &str) -> Vec<String> {
        let stays = |model: &str| {
            self.transition.target.get(node).is_some_and(|target| target.model(model).is_some())
        };
        let plan = self.plans.get(node).into_iter().flat_map(|plan| &plan.models);
        let spares = plan.filter(|planned| planned.role == Role::Spare);
        let mut spares: Vec<String> = spares.map(|planned| planned.model.clone()).collect();
        spares.sort_by_key(|model| stays(model));
        spares
    }

    pub(super) fn insert(&mut self, node: &str, planned: PlannedModel) {
        if let Some(plan) = self.plans.get_mut(node) {
            plan.models.retain(|own| own.model != planned.model);
            plan.models.push(planned);
        }
    }

    pub(super) fn remove(&mut self, node: &str, model: &str) {
        if let Some(plan) = self.plans.get_mut(node) {
            plan.models.retain(|own| own.model != model);
        }
    }

    /// A copy leaves, or becomes the spare that the new plan wants.
    pub(super) fn drop_or_demote(&mut self, node: &str, model: &str) {
        let wanted = self.transition.target.get(node).and_then(|target| target.model(model)).cloned();
        match wanted {
            Some(wanted) => self.insert(node, wanted),
            None => self.remove(node, model),
        }
    }

    /// The plans, with their models by name.
    pub(super) fn finish(mut self) -> BTreeMap<String, NodePlan> {
        for plan in self.plans.values_mut() {
            plan.models.sort_by(|left, right| left.model.cmp(&right.model));
        }
        self.plans
    }
}
