//! Chooses the node for a request.
//!
//! A picker runs the router of a single server ([`router_core::Router`]) over the lanes of all nodes. Requests wait at the picker, and
//! those of a batch go to a node together, shortly before one of its lanes is expected to be free. So batches are formed from all
//! requests of a model, as on one machine, and not from those that a balancer happened to send to the same node. Nodes should run
//! what they get at once (batching policy `triton` without delay).
//!
//! The picker knows the lanes from what nodes say and from the ends of its own requests, which it sees at once. Pickers divide the nodes
//! with the same models among themselves, so they do not use the same lane. Requests that no view helps with are sent at once, by
//! the rates of the plan: a picker that has just started, or that hears nothing, delays no request.

mod flight;
mod nodes;
mod settings;
mod weights;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use router_core::batch::Policy;
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect as RouterEffect, Effects, Event, LaneClass, LaneId,
    LaneSpec, LaneUp, ModelId, ModelLanes, ModelMove, ModelSpec, Nanos, Outcome, ProfilePoint, Reason,
    RequestId, Router, RouterConfig, ShapeKey, Switch, Tenant,
};

use self::flight::{Ended, Flight, Lane};
use self::nodes::{Node, lanes_by_model};
use self::weights::Weights;
use crate::view::ModelView;

pub use self::settings::{Settings, SettingsError};

/// Nodes of a pick at most: the first, and those to try after it.
pub const CHOICES: usize = 3;

/// Nodes that a picker knows at most.
pub const NODES_MAX: usize = 16_384;

/// Models that a picker knows at most.
pub const MODELS_MAX: u32 = 65_536;

/// Lanes of all nodes at most.
const LANES_MAX: u32 = 65_536;

/// Requests of one model that wait at most.
const QUEUE_MAX: u32 = 65_536;

/// How often silent nodes are looked for.
const SILENCE_CHECK: Duration = Duration::from_millis(100);

/// Bytes of a row that the router is told. Pickers do not see bodies: all requests of a model count as alike.
const ROW_BYTES: u64 = 1;

/// A node, by the order in which the picker got to know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNumber(pub u32);

/// What a node says: everything, or what changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Models that are not listed do not exist on the node.
    pub complete: bool,
    /// The node refuses new requests soon.
    pub draining: bool,
    /// Models that changed.
    pub models: Vec<(String, ModelView)>,
    /// Models that the node has no more.
    pub removed: Vec<String>,
}

/// A request to choose a node for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The caller's name for it, which effects repeat.
    pub key: u64,
    /// Name of its model.
    pub model: &'a str,
    /// Rows along the batch dimension.
    pub rows: u32,
    /// Time by which the answer must be back. `None`: it has no deadline.
    pub deadline: Option<Duration>,
    /// Priority class, 0 first.
    pub class: u8,
}

/// A request that waits or was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(RequestId);

/// What decided where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// It is part of a batch for a lane that is, or soon will be, free.
    Batch {
        /// The batch, unique for this picker.
        id: u64,
        /// Rows of all requests of the batch.
        rows: u32,
    },
    /// The rates of the plan.
    Weights,
}

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a request to the first of these nodes. If that one did not take it, to the next.
    Send {
        /// The caller's name for the request.
        key: u64,
        /// At least one node, best first.
        nodes: Vec<NodeNumber>,
        /// Why there.
        basis: Basis,
    },
    /// Refuse a request.
    Refuse {
        /// The caller's name for the request.
        key: u64,
        /// Why.
        reason: NotPicked,
    },
}

/// Why a request is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum NotPicked {
    /// No node has the model, or is planned to have it.
    #[error("no node has this model")]
    UnknownModel,
    /// The nodes that have the model are draining, lost, or not ready.
    #[error("no node is ready for this model")]
    NoNode,
    /// A router's reason, for example that the deadline cannot be met.
    #[error("{0:?}")]
    Router(Reason),
}

/// More nodes, models or lanes than a picker may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a picker knows at most {NODES_MAX} nodes, {MODELS_MAX} models and {LANES_MAX} lanes")]
pub struct TooMany;

/// Chooses nodes for requests.
#[derive(Debug)]
pub struct Picker {
    settings: Settings,
    router: Router,
    router_effects: Effects,
    nodes: Vec<Node>,
    node_numbers: BTreeMap<String, u32>,
    models: Vec<Model>,
    model_numbers: BTreeMap<String, u32>,
    flight: Flight,
    next_lane: u32,
    /// Whether lanes or models of nodes changed since they were last divided.
    is_changed: bool,
    silence_checked: Duration,
    effects: Vec<Effect>,
}

#[derive(Debug, Default)]
struct Model {
    weights: Weights,
    /// Time of a batch of one row, and of each further row. `None` before a node said it: the router does not know the model.
    times: Option<(Duration, Duration)>,
    lanes: BTreeSet<LaneId>,
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl Picker {
    /// A picker that knows no node.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        let config = RouterConfig {
            max_requests: settings.requests_max,
            max_models: MODELS_MAX,
            max_lanes: LANES_MAX,
            queued_bytes_limit: u64::MAX,
            records: 0,
            ..RouterConfig::default()
        };
        let fault = |error: router_core::ConfigError| SettingsError {
            setting: "requests_max",
            problem: error.to_string(),
        };
        Ok(Self {
            settings,
            router: Router::new(config).map_err(fault)?,
            router_effects: Effects::default(),
            nodes: Vec::new(),
            node_numbers: BTreeMap::new(),
            models: Vec::new(),
            model_numbers: BTreeMap::new(),
            flight: Flight::default(),
            next_lane: 0,
            is_changed: false,
            silence_checked: Duration::ZERO,
            effects: Vec::new(),
        })
    }

    /// The name of a node.
    pub fn node_name(&self, node: NodeNumber) -> Option<&str> {
        self.nodes.get(node.0 as usize).map(|node| node.name.as_str())
    }

    /// The number of a node, which the picker gets to know if it did not.
    ///
    /// # Errors
    /// If it knows too many.
    pub fn node(&mut self, name: &str) -> Result<NodeNumber, TooMany> {
        if let Some(number) = self.node_numbers.get(name) {
            return Ok(NodeNumber(*number));
        }
        let number =
            u32::try_from(self.nodes.len()).ok().filter(|_| self.nodes.len() < NODES_MAX).ok_or(TooMany)?;
        self.nodes.push(Node::new(name));
        self.node_numbers.insert(name.to_owned(), number);
        Ok(NodeNumber(number))
    }

    fn know_model(&mut self, name: &str) -> Result<u32, TooMany> {
        if let Some(number) = self.model_numbers.get(name) {
            return Ok(*number);
        }
        let number =
            u32::try_from(self.models.len()).ok().filter(|number| *number < MODELS_MAX).ok_or(TooMany)?;
        self.models.push(Model::default());
        self.model_numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Number of requests that wait or are not answered.
    pub fn unfinished(&self) -> usize {
        self.flight.unfinished()
    }

    /// Takes the effects of the calls since the last time.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes what a node says.
    ///
    /// # Errors
    /// If there are too many models or lanes; the others are taken.
    pub fn seen(&mut self, now: Duration, node: NodeNumber, update: &Update) -> Result<(), TooMany> {
        let mut outcome = Ok(());
        if update.complete {
            let listed: BTreeSet<&str> = update.models.iter().map(|(name, _)| name.as_str()).collect();
            let gone = |(name, number): (&String, &u32)| (!listed.contains(name.as_str())).then_some(*number);
            let gone: Vec<u32> = self.model_numbers.iter().filter_map(gone).collect();
            gone.into_iter().for_each(|model| self.model_gone(node, model));
        }
        for name in &update.removed {
            if let Some(model) = self.model_numbers.get(name).copied() {
                self.model_gone(node, model);
            }
        }
        let Some(state) = self.nodes.get_mut(node.0 as usize) else { return outcome };
        let was_used = state.takes(now, &self.settings);
        (state.heard, state.was_lost, state.draining) = (Some(now), false, update.draining);
        self.is_changed |= was_used != state.takes(now, &self.settings);
        for (name, view) in &update.models {
            let seen = self.know_model(name).and_then(|model| self.model_seen(now, node, model, view));
            outcome = outcome.and(seen);
        }
        self.divide(now);
        outcome
    }

    fn model_gone(&mut self, node: NodeNumber, model: u32) {
        if let Some(state) = self.nodes.get_mut(node.0 as usize) {
            self.is_changed |= state.models.remove(&model).is_some();
        }
        if let Some(model) = self.models.get_mut(model as usize) {
            model.weights.remove(node);
        }
    }

    fn model_seen(
        &mut self,
        now: Duration,
        node: NodeNumber,
        model: u32,
        view: &ModelView,
    ) -> Result<(), TooMany> {
        if !view.ready || view.lanes == 0 {
            self.model_gone(node, model);
            return Ok(());
        }
        let Some(state) = self.nodes.get_mut(node.0 as usize) else { return Ok(()) };
        self.is_changed |= state.models.insert(model, view.pool) != Some(view.pool);
        let known = state.pools.get(&view.pool).map_or(0, Vec::len);
        if known != view.lanes as usize {
            let old = state.pools.remove(&view.pool).unwrap_or_default();
            let count = view.lanes.min(LANES_MAX);
            let to = self.next_lane.checked_add(count).ok_or(TooMany)?;
            let new: Vec<LaneId> = (self.next_lane..to).map(LaneId).collect();
            self.next_lane = to;
            state.pools.insert(view.pool, new.clone());
            self.is_changed = true;
            self.lanes_gone(now, &old);
            self.flight.lanes.extend(new.iter().map(|lane| (*lane, Lane::new(node))));
            let up = |lane: &LaneId| LaneUp {
                spec: LaneSpec::new(*lane, LaneClass::default()),
                after: Vec::new(),
            };
            let switch = Switch { up: new.iter().map(up).collect(), drain: Vec::new(), models: Vec::new() };
            self.feed(now, Event::Switch(&switch));
        }
        self.times_seen(now, node, model, view);
        Ok(())
    }

    /// The router gets to know a model with the times of the first node that has measured it. It learns from there.
    fn times_seen(&mut self, now: Duration, node: NodeNumber, model: u32, view: &ModelView) {
        let Some(entry) = self.models.get_mut(model as usize) else { return };
        entry.weights.set(node, None);
        if entry.times.is_some() || view.single_time.is_zero() {
            return;
        }
        let largest = view.max_batch.max(1);
        // `row_time` is the time a row in a batch of the best size.
        let further = view.row_time.saturating_mul(largest).saturating_sub(view.single_time);
        let further = further.checked_div(largest.saturating_sub(1)).unwrap_or_default();
        entry.times = Some((view.single_time, further));
        let point = |rows: u32| ProfilePoint {
            rows,
            row_bytes: ROW_BYTES,
            time: nanos(view.single_time.saturating_add(further.saturating_mul(rows.saturating_sub(1)))),
        };
        let sizes =
            std::iter::successors(Some(1_u32), |size| size.checked_mul(2)).take_while(|size| *size < largest);
        let spec = ModelSpec {
            model: ModelId(model),
            max_batch: largest,
            queue_limit: QUEUE_MAX,
            class_limits: Vec::new(),
            rate_limit: Default::default(),
            policy: Policy::default(),
            lanes: ModelLanes::Only(Vec::new()),
            profile: sizes.chain([largest]).map(point).collect(),
            measured_on: LaneClass::default(),
            preemptible: false,
        };
        self.is_changed = true;
        self.feed(now, Event::ModelUp(&spec));
    }

    /// The connection to a node broke. Its lanes are not used until it says something again.
    pub fn lost(&mut self, now: Duration, node: NodeNumber) {
        let Some(state) = self.nodes.get_mut(node.0 as usize) else { return };
        (state.heard, state.was_lost) = (None, true);
        state.models.clear();
        let lanes: Vec<LaneId> = std::mem::take(&mut state.pools).into_values().flatten().collect();
        self.is_changed = true;
        self.divide(now);
        self.lanes_gone(now, &lanes);
    }

    fn lanes_gone(&mut self, now: Duration, lanes: &[LaneId]) {
        for lane in lanes {
            self.flight.remove_lane(*lane);
            self.feed(now, Event::LaneDown(*lane));
        }
    }

    /// Takes the planned rate of a model on a node, in rows a second, for the time without views.
    ///
    /// # Errors
    /// If the picker knows too many models.
    pub fn planned(&mut self, node: NodeNumber, model: &str, rate: f64) -> Result<(), TooMany> {
        let model = self.know_model(model)?;
        if let Some(model) = self.models.get_mut(model as usize) {
            model.weights.set(node, Some(rate));
        }
        Ok(())
    }

    /// Moves the models to the lanes that this picker uses now.
    fn divide(&mut self, now: Duration) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let mut wanted = lanes_by_model(&self.nodes, now, &self.settings);
        let mut moves = Vec::new();
        for (number, model) in (0..).zip(&mut self.models) {
            let lanes = wanted.remove(&number).unwrap_or_default();
            if model.times.is_some() && model.lanes != lanes {
                let to = ModelLanes::Only(lanes.iter().copied().collect());
                moves.push(ModelMove { model: ModelId(number), lanes: to, times: Vec::new() });
                model.lanes = lanes;
            }
        }
        if !moves.is_empty() {
            let switch = Switch { up: Vec::new(), drain: Vec::new(), models: moves };
            self.feed(now, Event::Switch(&switch));
        }
    }

    /// A request arrives. Effects say where it goes, now or later.
    pub fn arrive(&mut self, now: Duration, request: &Request<'_>) -> Option<Ticket> {
        let Some(model) = self.model_numbers.get(request.model).copied() else {
            self.effects.push(Effect::Refuse { key: request.key, reason: NotPicked::UnknownModel });
            return None;
        };
        let has_lanes = self.models.get(model as usize).is_some_and(|model| !model.lanes.is_empty());
        let id = if has_lanes { self.flight.insert(request.key, self.settings.requests_max) } else { None };
        let Some(id) = id else {
            self.send_by_weight(request.key, model);
            return None;
        };
        let deadline = request.deadline.map(|deadline| nanos(deadline.saturating_sub(self.settings.travel)));
        let arrival = Arrival {
            request: id,
            model: ModelId(model),
            class: Class::new(request.class),
            tenant: Tenant::default(),
            shape: ShapeKey::default(),
            rows: request.rows,
            bytes: ROW_BYTES.saturating_mul(u64::from(request.rows)),
            deadline,
            timeout_action: Default::default(),
        };
        self.feed(now, Event::Arrive(arrival));
        Some(Ticket(id))
    }

    fn send_by_weight(&mut self, key: u64, model: u32) {
        let nodes = &self.nodes;
        let takes = |node: NodeNumber| nodes.get(node.0 as usize).is_some_and(Node::may_take);
        let model = self.models.get_mut(model as usize);
        let chosen = model.map(|model| model.weights.next(takes, CHOICES)).unwrap_or_default();
        self.effects.push(match chosen.is_empty() {
            true => Effect::Refuse { key, reason: NotPicked::NoNode },
            false => Effect::Send { key, nodes: chosen, basis: Basis::Weights },
        });
    }

    /// A request ended: it was answered or refused by its node, or the client left.
    pub fn ended(&mut self, now: Duration, Ticket(request): Ticket) {
        match self.flight.ended(now, request, self.settings.travel) {
            Ended::Nothing => {}
            Ended::Waiting => self.feed(now, Event::Cancel(request)),
            Ended::Batch { lane, batch, is_released } => {
                if !is_released {
                    self.feed(now, Event::BatchDone(BatchReport { lane, batch, ok: true }));
                }
                self.flight.forget(batch);
            }
        }
    }

    /// When [`Picker::tick`] must be called next, at the latest.
    pub fn next_wake(&self) -> Option<Duration> {
        let timer = self.router.next_wake().map(|at| Duration::from_nanos(at.0));
        let silence = self.nodes.iter().any(|node| node.heard.is_some());
        let silence = silence
            .then(|| self.silence_checked.saturating_add(self.settings.stale_after.max(SILENCE_CHECK)));
        [self.flight.next_release(), timer, silence].into_iter().flatten().min()
    }

    /// Time passed.
    pub fn tick(&mut self, now: Duration) {
        while let Some((lane, batch)) = self.flight.release(now, self.settings.travel) {
            self.feed(now, Event::BatchDone(BatchReport { lane, batch, ok: true }));
        }
        if now.saturating_sub(self.silence_checked) >= SILENCE_CHECK {
            self.silence_checked = now;
            let settings = self.settings;
            let silent = |node: &Node| node.heard.is_some() && !node.draining && !node.takes(now, &settings);
            if self.nodes.iter().any(silent) {
                self.is_changed = true;
                self.divide(now);
            }
        }
        if self.router.next_wake().is_some_and(|at| at <= nanos(now)) {
            self.feed(now, Event::Tick);
        }
    }

    fn feed(&mut self, now: Duration, event: Event<'_>) {
        self.router.handle(nanos(now), event, &mut self.router_effects);
        let mut effects = std::mem::take(&mut self.router_effects);
        for effect in &effects {
            match *effect {
                RouterEffect::Dispatch { lane, batch, model, rows, members } => {
                    self.send(now, (lane, batch), (model, rows), effects.members(members));
                }
                RouterEffect::Finish { request, outcome, reason } if outcome != Outcome::Done => {
                    self.not_sent(request, reason);
                }
                RouterEffect::Finish { .. }
                | RouterEffect::Preempt { .. }
                | RouterEffect::Retired(_)
                | RouterEffect::Switched
                | RouterEffect::LaneIdle(_) => {}
                RouterEffect::SwitchRefused(_) => invariant::violated!("pick.switch_refused"),
            }
        }
        effects.clear();
        self.router_effects = effects;
    }

    fn send(
        &mut self,
        now: Duration,
        (lane, batch): (LaneId, BatchId),
        (model, rows): (ModelId, u32),
        requests: &[RequestId],
    ) {
        let known = self.models.get(model.0 as usize);
        let times = known.and_then(|model| model.times).unwrap_or_default();
        let time = times.0.saturating_add(times.1.saturating_mul(rows.saturating_sub(1)));
        let lanes = known.map(|model| &model.lanes);
        let others = lanes.into_iter().flatten().filter_map(|lane| self.flight.lanes.get(lane));
        let mut others: Vec<(Duration, NodeNumber)> = others.map(|lane| (lane.ends, lane.node)).collect();
        others.sort_unstable();
        let times = (time, self.settings.travel);
        let Some((first, keys)) = self.flight.send(now, (lane, batch), requests, times) else {
            invariant::violated!("pick.batch_on_unknown_lane");
            return;
        };
        let mut nodes = vec![first];
        for (_, node) in others {
            if nodes.len() < CHOICES && !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        let basis = Basis::Batch { id: batch.0, rows };
        for (key, _) in keys {
            self.effects.push(Effect::Send { key, nodes: nodes.clone(), basis });
        }
    }

    /// The router ended a request that waited. It goes out by weight if only the picker's own bounds or views are the reason.
    fn not_sent(&mut self, request: RequestId, reason: Reason) {
        let Some(key) = self.flight.refuse(request) else { return };
        self.effects.push(Effect::Refuse {
            key,
            reason: match reason {
                Reason::NoLane | Reason::UnknownModel | Reason::LaneFailed | Reason::LaneFailedTwice => {
                    NotPicked::NoNode
                }
                reason => NotPicked::Router(reason),
            },
        });
    }
}

#[cfg(test)]
mod tests;
