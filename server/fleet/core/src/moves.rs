//! From the plans in force to new plans, a few loads of models at a time.
//!
//! Loading a model takes time and disturbs the node. So new plans are approached in steps, and every step is a plan of its own:
//!
//! - Models and memory stay within the budget of each node.
//! - No model loses its last copy that serves, and no model has fewer ready copies than before: a copy leaves after another one is
//!   ready, unless the new plans want fewer.
//! - At most a given number of copies is started in a minute. Not limited are the first copy of a model, those up to its least number,
//!   and those that replace copies on failed nodes.
//!
//! Where nodes are so full that models would have to swap places, one of them makes a detour over a third node.

mod detour;
mod state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use self::state::State;
use crate::node_plan::{NodePlan, PlannedModel, Role};

/// Time over which starts of copies are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// A node that works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveNode {
    /// Number of its group, from 0. Each group has a limit of its own.
    pub group: usize,
    /// Models that it holds at most.
    pub models_max: usize,
    /// Bytes that its models may take.
    pub memory_bytes: u64,
    /// Models that it is ready to serve.
    pub ready: BTreeSet<String>,
    /// Models that it cannot load.
    pub refused: BTreeSet<String>,
}

/// What moves need to know of a model. Models that are not known take no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveModel {
    /// Bytes of one copy.
    pub bytes: u64,
    /// Copies that are started without a limit.
    pub copies_min: usize,
}

/// What to approach, and within which limits.
#[derive(Clone, Copy)]
pub struct Transition<'a> {
    /// The nodes that work, by name.
    pub nodes: &'a BTreeMap<String, MoveNode>,
    /// The models, by name.
    pub models: &'a BTreeMap<String, MoveModel>,
    /// The plans that are wanted in the end, by node. Each is within the budget of its node.
    pub target: &'a BTreeMap<String, NodePlan>,
    /// Copies that each group starts in a minute at most.
    pub per_minute: &'a [usize],
    /// Whether two models must not be on the same node.
    pub excludes: &'a dyn Fn(&str, &str) -> bool,
    /// Whether a model may be on a node.
    pub allows: &'a dyn Fn(&str, &str) -> bool,
}

/// Plans to put in force now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The plans of all nodes that work, by name.
    pub plans: BTreeMap<String, NodePlan>,
    /// Copies that are started now.
    pub started: usize,
    /// Copies of the plans that are wanted, which are not started yet.
    pub waiting: usize,
    /// Of these, copies for which no way was found: all nodes are too full.
    pub blocked: usize,
}

/// The plans in force, and what was started lately.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    plans: BTreeMap<String, NodePlan>,
    /// Copies that serve by the last step, and those of failed nodes that were not replaced yet, by model.
    held: BTreeMap<String, usize>,
    /// Of these, those of failed nodes.
    lost: BTreeMap<String, usize>,
    /// Ready copies that each model with leaving copies keeps.
    floor: BTreeMap<String, usize>,
    recent: VecDeque<(Duration, usize)>,
}

/// A copy: its node and its model.
type Copy<'a> = (&'a str, &'a PlannedModel);

impl Moves {
    /// Starts from the plans in force of all nodes, also of those that failed.
    #[must_use]
    pub fn new(in_force: BTreeMap<String, NodePlan>) -> Self {
        let mut held: BTreeMap<String, usize> = BTreeMap::new();
        let planned = in_force.values().flat_map(|plan| &plan.models);
        for planned in planned.filter(|planned| planned.role == Role::Serving) {
            *held.entry(planned.model.clone()).or_default() += 1;
        }
        Self { plans: in_force, held, ..Self::default() }
    }

    /// The plans of the last step, or those it started from.
    #[must_use]
    pub const fn plans(&self) -> &BTreeMap<String, NodePlan> {
        &self.plans
    }

    /// Makes one step. `stored` are the plans that nodes have which were not part of the last step.
    pub fn step(
        &mut self,
        now: Duration,
        stored: &BTreeMap<String, NodePlan>,
        transition: &Transition<'_>,
    ) -> Step {
        while self.recent.pop_front_if(|(at, _)| at.saturating_add(MINUTE) <= now).is_some() {}
        let mut plans = std::mem::take(&mut self.plans);
        let plan = |name: &String| {
            let plan = plans.remove(name).or_else(|| stored.get(name).cloned()).unwrap_or_default();
            (name.clone(), plan)
        };
        let plans = transition.nodes.keys().map(plan).collect();
        let mut state = State::new(transition, plans);
        state.adopt();
        let wanted = state.wanted_copies();
        // Copies that served on nodes which failed since.
        let held =
            self.held.iter().map(|(model, held)| (model.clone(), held.saturating_sub(state.serving(model))));
        self.lost = held.filter(|(model, _)| wanted.contains_key(model.as_str())).collect();
        self.set_floor(&state, &wanted);
        let left = self.leave(&mut state);
        let mut step = Step::default();
        let waiting = self.add(now, &mut state, &mut step);
        if step.started == 0 && !left && !waiting.is_empty() && !state.is_loading() {
            self.detour(now, &mut state, &waiting, &mut step);
        }
        step.waiting = waiting.len();
        let held = |(model, wanted): (&&str, &usize)| {
            let lost = self.lost.get(*model).copied().unwrap_or_default();
            let serving = state.serving(model);
            ((*model).to_owned(), (serving + lost).min(*wanted).max(serving))
        };
        self.held = wanted.iter().map(held).collect();
        self.plans = state.finish();
        step.plans = self.plans.clone();
        step
    }

    /// A model with leaving copies keeps as many ready ones as it had when it had none.
    fn set_floor(&mut self, state: &State<'_>, wanted: &BTreeMap<&str, usize>) {
        let leaving: BTreeSet<String> = state
            .leaving()
            .into_iter()
            .filter(|(_, _, role)| *role == Role::Serving)
            .map(|(_, model, _)| model)
            .collect();
        for (model, count) in wanted {
            let ready = state.ready_serving(model, None);
            let before = self.floor.get(*model).copied().filter(|_| leaving.contains(*model));
            self.floor.insert((*model).to_owned(), before.unwrap_or(ready).min(*count));
        }
        self.floor.retain(|model, _| wanted.contains_key(model.as_str()));
    }

    /// Lets copies leave that may, first those in the way of others. Returns whether one left.
    fn leave(&self, state: &mut State<'_>) -> bool {
        let mut leaving = state.leaving();
        leaving.sort_by_cached_key(|(node, _, _)| !state.is_full_for(node));
        let mut left = false;
        for (node, model, role) in leaving {
            if self.may_leave(state, &node, &model, role) {
                state.drop_or_demote(&node, &model);
                left = true;
            }
        }
        left
    }

    fn may_leave(&self, state: &State<'_>, node: &str, model: &str, role: Role) -> bool {
        if !state.is_wanted(model) {
            return true;
        }
        let least = match role {
            Role::Serving => self.floor.get(model).copied().unwrap_or_default().max(1),
            Role::Spare => 1,
        };
        if state.is_ready(node, model) {
            return state.ready_serving(model, Some(node)) >= least;
        }
        role == Role::Spare || state.serving(model) > 1
    }

    /// Starts copies that fit, as many as the limits allow. Returns those that wait.
    fn add<'a>(&mut self, now: Duration, state: &mut State<'a>, step: &mut Step) -> Vec<Copy<'a>> {
        let mut waiting = Vec::new();
        for (node, planned) in state.missing() {
            let model = planned.model.as_str();
            let serves = planned.role == Role::Serving;
            let is_few = serves && state.serving(model) < state.copies_min(model).max(1);
            let lost = self.lost.get(model).copied().unwrap_or_default();
            let is_due = is_few || serves && lost > 0;
            if !state.fits(node, model) || !is_due && !self.take(now, state, node) {
                waiting.push((node, planned));
                continue;
            }
            if serves {
                self.lost.insert(model.to_owned(), lost.saturating_sub(1));
            }
            state.insert(node, planned.clone());
            step.started += 1;
        }
        waiting
    }

    /// Takes a start of a copy from the limit of a node's group. False: the limit is reached.
    fn take(&mut self, now: Duration, state: &State<'_>, node: &str) -> bool {
        let group = state.group(node);
        let limit = state.limit(group);
        let is_free = self.recent.iter().filter(|(_, other)| *other == group).count() < limit;
        if is_free {
            self.recent.push_back((now, group));
        }
        is_free
    }
}

#[cfg(test)]
mod tests;
