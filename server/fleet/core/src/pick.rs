//! Chooses the node for a request.
//!
//! A picker runs the router of a single server ([`router_core::Router`]) over the lanes of all nodes. Requests wait at the picker, and
//! those of a batch go to a node together, shortly before one of its lanes is expected to be free. So batches are formed from all
//! requests of a model, as on one machine, and not from those that a balancer happened to send to the same node. Nodes should run
//! what they get at once (batching policy `triton` without delay).
//!
//! The picker knows the lanes from what nodes say and from the ends of its own requests, which it sees at once. Of several pickers, each
//! owns some pools of nodes, so two do not send to the same lane. For a model of another one's pool, a picker asks that one ([`OwnerAnswer`]).
//! Requests that neither views nor an owner help with are sent at once, by the rates of the plan: a picker that has just started, or that
//! hears nothing, delays no request.
//!
//! Pickers that disagree about which of them are there may both own a pool for a while. Both then send batches to its lanes. The batches are
//! smaller, and a lane may hold twice as many, so some requests are late; none is lost or answered twice.

mod asking;
mod asks;
mod flight;
mod learning;
mod nodes;
mod paces;
mod peers;
mod settings;
mod weights;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect as RouterEffect, Effects, Event, LaneClass, LaneId, ModelId,
    Nanos, Outcome, Reason, RequestId, Router, RouterConfig, ShapeKey, Tenant,
};

use self::asks::Asks;
use self::flight::{Ended, Flight};
use self::nodes::Node;
use self::peers::Peers;
use self::weights::Weights;
use crate::batch_times::BatchTimes;
use crate::view::ModelView;

pub use self::asking::OwnerAnswer;
pub use self::asks::AskCounts;
pub use self::peers::{AWAY_AFTER, PICKERS_MAX};
pub use self::settings::{Settings, SettingsError};

/// Nodes of a pick at most: the first, and those to try after it.
pub const CHOICES: usize = 3;

/// Device types that a picker tells apart at most.
pub const DEVICE_TYPES_MAX: usize = 64;

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
    /// Whether another picker asks for it. It is then not asked for elsewhere: one hop at most.
    pub is_asked: bool,
}

/// A request that waits or was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(Held);

/// Where a request waits or is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Held {
    Here(RequestId),
    /// By its key. Another picker was asked.
    Asked(u64),
}

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
    /// It is part of a batch of the picker that owns the lanes.
    Owner {
        /// That picker.
        picker: u32,
        /// The batch, unique for that picker.
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
    /// Ask the picker that owns the lanes of a request's model, and pass its answer to [`Picker::owner_answered`].
    Ask {
        /// The caller's name for the request.
        key: u64,
        /// The picker to ask.
        picker: u32,
        /// Name of its model.
        model: String,
        /// Rows along the batch dimension.
        rows: u32,
        /// Time until the answer must be back.
        timeout: Option<Duration>,
        /// Priority class.
        class: u8,
    },
    /// Tell the picker that was asked for a request that it ended, or is not waited for any more.
    AskEnded {
        /// The caller's name for the request.
        key: u64,
        /// The picker that was asked.
        picker: u32,
    },
    /// Refuse a request.
    Refuse {
        /// The caller's name for the request.
        key: u64,
        /// Why it is refused.
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
    /// Another picker asked for it, and this one does not own the lanes of its model.
    #[error("this picker does not own the lanes of this model")]
    NotOwner,
    /// A router's reason, for example that the deadline cannot be met.
    #[error("{0:?}")]
    Router(Reason),
}

/// More than a picker may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a picker knows at most {NODES_MAX} nodes, {DEVICE_TYPES_MAX} device types, {MODELS_MAX} models and {LANES_MAX} lanes"
)]
pub struct TooMany;

/// Chooses nodes for requests.
#[derive(Debug)]
pub struct Picker {
    settings: Settings,
    router: Router,
    router_effects: Effects,
    nodes: Vec<Node>,
    node_numbers: BTreeMap<String, u32>,
    /// By name; the empty one is that of nodes whose type is not known.
    device_types: BTreeMap<String, LaneClass>,
    models: Vec<Model>,
    model_names: Vec<String>,
    model_numbers: BTreeMap<String, u32>,
    flight: Flight,
    peers: Peers,
    asks: Asks,
    next_lane: u32,
    /// Numbers of lanes that were removed.
    free_lanes: Vec<LaneId>,
    /// Whether lanes or models of nodes changed since they were last divided.
    is_changed: bool,
    silence_checked: Duration,
    effects: Vec<Effect>,
}

#[derive(Debug, Default)]
struct Model {
    weights: Weights,
    /// By device type. Empty before a node said how long batches take: the router does not know the model.
    times: BTreeMap<LaneClass, BatchTimes>,
    lanes: BTreeSet<LaneId>,
    /// The other picker that owns its lanes.
    owner: Option<u32>,
}

impl Model {
    /// Time of a batch on lanes of a device type, or on those of another one if it is not known there.
    fn time(&self, device_type: LaneClass, rows: u32) -> Duration {
        let times = self.times.get(&device_type).or_else(|| self.times.values().next());
        times.map_or(Duration::ZERO, |times| times.of(rows))
    }
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
            device_types: BTreeMap::from([(String::new(), LaneClass::default())]),
            models: Vec::new(),
            model_names: Vec::new(),
            model_numbers: BTreeMap::new(),
            flight: Flight::default(),
            peers: Peers::new(settings.number),
            asks: Asks::default(),
            next_lane: 0,
            free_lanes: Vec::new(),
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
        self.model_names.push(name.to_owned());
        self.model_numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Number of requests that wait or are not answered.
    pub fn unfinished(&self) -> usize {
        self.flight.unfinished() + self.asks.len()
    }

    /// Takes the effects of the calls since the last time.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// A request arrives. Effects say where it goes, now or later.
    pub fn arrive(&mut self, now: Duration, request: &Request<'_>) -> Option<Ticket> {
        let Some(model) = self.model_numbers.get(request.model).copied() else {
            self.effects.push(Effect::Refuse { key: request.key, reason: NotPicked::UnknownModel });
            return None;
        };
        let known = self.models.get(model as usize);
        let has_lanes = known.is_some_and(|model| !model.lanes.is_empty());
        let most = self.settings.requests_max;
        let id = match has_lanes {
            true => self.flight.insert(request.key, (model, request.is_asked), most),
            false => None,
        };
        let Some(id) = id else {
            let owner = known.and_then(|model| model.owner).filter(|_| !has_lanes);
            if request.is_asked {
                self.effects.push(Effect::Refuse { key: request.key, reason: NotPicked::NotOwner });
            } else if let Some(owner) = owner {
                return self.ask(now, (model, owner), request);
            } else {
                self.send_by_weight(request.key, model);
            }
            return None;
        };
        // The timeout of an asked request is as old as the message with it, and the answer takes as long.
        let way = if request.is_asked { self.hops() } else { Duration::ZERO };
        let way = way.saturating_add(self.settings.travel);
        let deadline = request.deadline.map(|deadline| nanos(deadline.saturating_sub(way)));
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
            pipeline: None,
        };
        self.feed(now, Event::Arrive(arrival));
        Some(Ticket(Held::Here(id)))
    }

    /// Time of two messages between pickers, if there are others.
    fn hops(&self) -> Duration {
        if self.peers.is_empty() { Duration::ZERO } else { self.settings.hop.saturating_mul(2) }
    }

    /// See [`Settings::travel`]; for the requests that take longest.
    fn travel(&self) -> Duration {
        self.settings.travel.saturating_add(self.hops())
    }

    fn send_by_weight(&mut self, key: u64, model: u32) {
        let chosen = self.by_weight(model);
        self.effects.push(match chosen.is_empty() {
            true => Effect::Refuse { key, reason: NotPicked::NoNode },
            false => Effect::Send { key, nodes: chosen, basis: Basis::Weights },
        });
    }

    fn by_weight(&mut self, model: u32) -> Vec<NodeNumber> {
        let nodes = &self.nodes;
        let takes = |node: NodeNumber| nodes.get(node.0 as usize).is_some_and(Node::may_take);
        let model = self.models.get_mut(model as usize);
        model.map(|model| model.weights.next(takes, CHOICES)).unwrap_or_default()
    }

    /// Nodes that have a model, for a request that does not run it, such as one for its metadata. Best first.
    ///
    /// # Errors
    /// If no node has it.
    pub fn holders(&mut self, model: &str) -> Result<Vec<NodeNumber>, NotPicked> {
        let model = self.model_numbers.get(model).copied().ok_or(NotPicked::UnknownModel)?;
        Some(self.by_weight(model)).filter(|nodes| !nodes.is_empty()).ok_or(NotPicked::NoNode)
    }

    /// A request ended: it was answered or refused by its node, or the client left.
    pub fn ended(&mut self, now: Duration, Ticket(held): Ticket) {
        let request = match held {
            Held::Here(request) => request,
            Held::Asked(key) => return self.ask_ended(key),
        };
        match self.flight.ended(now, request, self.travel()) {
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
        let own = [self.flight.next_release(), timer, silence];
        let others = [self.asks.next_wake(), self.peers.next_wake()];
        own.into_iter().chain(others).flatten().min()
    }

    /// Time passed.
    pub fn tick(&mut self, now: Duration) {
        self.tick_asks(now);
        let travel = self.travel();
        while let Some((lane, batch)) = self.flight.release(now, travel) {
            self.feed(now, Event::BatchDone(BatchReport { lane, batch, ok: true }));
        }
        if now.saturating_sub(self.silence_checked) >= SILENCE_CHECK {
            self.silence_checked = now;
            let settings = self.settings;
            let silent = |node: &Node| node.heard.is_some() && !node.draining && !node.takes(now, &settings);
            if self.nodes.iter().any(silent) {
                self.is_changed = true;
                self.redivide(now);
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
        let device_type = self.flight.lanes.get(&lane).map(|lane| lane.device_type).unwrap_or_default();
        let time = known.map_or(Duration::ZERO, |model| model.time(device_type, rows));
        let lanes = known.map(|model| &model.lanes);
        let times = (time, self.travel());
        let Some((first, keys)) = self.flight.send(now, (lane, batch), (model.0, requests), times) else {
            invariant::violated!("pick.batch_on_unknown_lane");
            return;
        };
        let mut nodes = vec![first];
        while nodes.len() < CHOICES {
            let others = lanes.into_iter().flatten().filter_map(|lane| self.flight.lanes.get(lane));
            let others = others.filter(|lane| !nodes.contains(&lane.node));
            let Some(next) = others.min_by_key(|lane| (lane.ends, lane.node)) else { break };
            nodes.push(next.node);
        }
        let basis = Basis::Batch { id: batch.0, rows };
        for key in keys {
            self.effects.push(Effect::Send { key, nodes: nodes.clone(), basis });
        }
    }

    /// The router ended a request that waited. It goes out by weight if only the picker's own bounds or views are the reason.
    fn not_sent(&mut self, request: RequestId, reason: Reason) {
        let Some((key, model, is_asked)) = self.flight.refuse(request) else { return };
        let is_without_lane = matches!(
            reason,
            Reason::NoLane | Reason::UnknownModel | Reason::LaneFailed | Reason::LaneFailedTwice
        );
        let reason = match (is_without_lane, is_asked) {
            (false, _) => NotPicked::Router(reason),
            (true, true) => NotPicked::NotOwner,
            (true, false) => return self.send_by_weight(key, model),
        };
        self.effects.push(Effect::Refuse { key, reason });
    }
}

#[cfg(test)]
mod tests;
