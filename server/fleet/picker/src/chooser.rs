//! What a picker answers: the nodes that [`fleet_core::pick`] chooses, with their addresses, or what can be done without a choice.
//!
//! Without I/O, and without a clock of its own. A request is refused only for what is known: that no node has its model is known when
//! all nodes say so. Otherwise it goes to any node, which forwards it if it must.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::pick::{
    AskCounts, Basis, CHOICES, Effect, NodeNumber, NotPicked, OwnerAnswer, Picker, Request, Settings,
    SettingsError, Ticket, Update,
};

use crate::nodes::Endpoint;

/// Time after which the request of a ticket counts as ended.
pub const TICKET_TIMEOUT: Duration = Duration::from_secs(60);

/// Bits of a batch id that count batches.
const BATCH_BITS: u32 = 40;
/// Bits above them that tell the runs of a picker apart. Those above tell pickers apart.
const RUN_BITS: u32 = 18;

/// A number whose lowest bits are set.
const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// What decided where a request goes, or who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A batch for a lane that is, or soon will be, free.
    Batch {
        /// Unique among all pickers.
        id: u64,
        /// Rows of all requests of the batch.
        rows: u32,
    },
    /// A batch of the picker that owns the lanes.
    Owner {
        /// Unique among all pickers.
        id: u64,
        /// Rows of all requests of the batch.
        rows: u32,
    },
    /// The rates of the plan.
    Weights,
    /// Any node: the model, or where it is, is not known.
    Any,
}

impl Choice {
    /// The batch that the request is part of, and its rows.
    pub fn batch(self) -> Option<(u64, u32)> {
        match self {
            Self::Batch { id, rows } | Self::Owner { id, rows } => Some((id, rows)),
            Self::Weights | Self::Any => None,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send it to the first of these nodes. None: the gateway chooses.
    Send {
        /// Best first.
        nodes: Vec<Arc<Endpoint>>,
        /// Why there.
        choice: Choice,
        /// Whether its end is awaited.
        is_awaited: bool,
    },
    /// Refuse it.
    Refuse(NotPicked),
}

/// A request to choose nodes for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The caller's name for it.
    pub key: u64,
    /// Its model, if it is known.
    pub model: Option<String>,
    /// Whether it runs the model. Otherwise it asks for its metadata or state, which does not wait for a lane.
    pub runs: bool,
    /// Rows along the batch dimension.
    pub rows: u32,
    /// Time until the answer must be back. `None`: the objective of the model.
    pub timeout: Option<Duration>,
    /// Priority class, 0 first.
    pub class: u8,
    /// Whether another picker asks for it.
    pub is_asked: bool,
}

/// What a chooser decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The answer to the request with this key.
    Answer(u64, Answer),
    /// Another picker is to be asked for this request.
    Ask {
        /// The picker to ask.
        owner: u32,
        /// The request, with its model.
        asked: Asked,
    },
    /// A picker that was asked is to be told that this request ended.
    AskEnded {
        /// The picker that was asked.
        owner: u32,
        /// Key of the request.
        key: u64,
    },
}

/// What is known of the connection to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// It was never heard.
    Unheard,
    /// It says something regularly.
    Heard { last: Duration, draining: bool },
    /// It was heard before.
    Lost,
}

/// A request that waits or is not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    ticket: Ticket,
    /// Whether it ends by [`Chooser::done`].
    is_kept: bool,
}

#[derive(Debug)]
struct Known {
    /// `None`: it was removed from the fleet.
    endpoint: Option<Arc<Endpoint>>,
    link: Link,
}

/// Numbers of nodes for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Heard, and not draining.
    pub connected: usize,
    /// Heard, and draining.
    pub draining: usize,
    /// Not heard.
    pub lost: usize,
    /// Age of the oldest view of a node that is heard.
    pub oldest_view: Duration,
}

/// The settings of a chooser.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Those of the picker.
    pub picker: Settings,
    /// Objectives of models, for requests without a timeout.
    pub objectives: HashMap<String, Duration>,
    /// A number that differs between runs of the same picker.
    pub run: u64,
}

/// Chooses nodes.
#[derive(Debug)]
pub struct Chooser {
    picker: Picker,
    options: Options,
    /// By the picker's numbers.
    nodes: Vec<Known>,
    /// Tickets of requests that wait or are not ended, by their keys.
    tickets: HashMap<u64, Open>,
    /// Keys of requests that end by [`Chooser::done`] or after some time, in the order of that time.
    timeouts: VecDeque<(Duration, u64)>,
    /// Tickets that ran out.
    expired: u64,
    /// Where the next search for any node begins.
    next_any: usize,
    /// The picker's own id of the last batch, and how many batches there were.
    batch: (Option<u64>, u64),
}

impl Chooser {
    /// A chooser that knows no node.
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn new(options: Options) -> Result<Self, SettingsError> {
        Ok(Self {
            picker: Picker::new(options.picker)?,
            options,
            nodes: Vec::new(),
            tickets: HashMap::new(),
            timeouts: VecDeque::new(),
            expired: 0,
            next_any: 0,
            batch: (None, 0),
        })
    }

    /// A node is part of the fleet, with these addresses. `None`: too many nodes or device types.
    pub fn added(&mut self, now: Duration, endpoint: Arc<Endpoint>) -> Option<NodeNumber> {
        let number = self.picker.node(&endpoint.name).ok()?;
        self.picker.device_type(now, number, &endpoint.device_type).ok()?;
        let at = number.0 as usize;
        while self.nodes.len() <= at {
            self.nodes.push(Known { endpoint: None, link: Link::Unheard });
        }
        if let Some(known) = self.nodes.get_mut(at) {
            known.endpoint = Some(endpoint);
        }
        Some(number)
    }

    /// A node was removed from the fleet.
    pub fn removed(&mut self, now: Duration, node: NodeNumber) {
        self.lost(now, node);
        if let Some(known) = self.nodes.get_mut(node.0 as usize) {
            known.endpoint = None;
        }
    }

    /// A node said something. Returns whether all of it could be taken.
    pub fn seen(&mut self, now: Duration, node: NodeNumber, update: &Update) -> bool {
        match self.nodes.get_mut(node.0 as usize) {
            Some(known) if known.endpoint.is_some() => {
                known.link = Link::Heard { last: now, draining: update.draining };
                self.picker.seen(now, node, update).is_ok()
            }
            // A message that was under way when the node was removed.
            _ => true,
        }
    }

    /// The connection to a node broke.
    pub fn lost(&mut self, now: Duration, node: NodeNumber) {
        if let Some(known) = self.nodes.get_mut(node.0 as usize)
            && matches!(known.link, Link::Heard { .. })
        {
            known.link = Link::Lost;
            self.picker.lost(now, node);
        }
    }

    /// The plan sends this many rows a second of a model to a node. Returns whether it could be taken.
    pub fn planned(&mut self, node: NodeNumber, model: &str, rate: f64) -> bool {
        self.picker.planned(node, model, rate).is_ok()
    }

    /// A request arrives. Its answer is among those of [`Chooser::take_decisions`], now or later.
    pub fn arrive(&mut self, now: Duration, asked: &Asked) -> Option<Answer> {
        let Some(model) = asked.model.as_deref() else {
            return Some(self.any());
        };
        if !asked.runs {
            return Some(match self.picker.holders(model) {
                Ok(nodes) => {
                    let nodes = self.endpoints(&nodes);
                    Answer::Send { nodes, choice: Choice::Weights, is_awaited: false }
                }
                Err(reason) if self.is_certain(reason) => Answer::Refuse(reason),
                Err(_) => self.any(),
            });
        }
        let timeout = asked.timeout.or_else(|| self.options.objectives.get(model).copied());
        let request = Request {
            key: asked.key,
            model,
            rows: asked.rows,
            deadline: timeout.map(|timeout| now.saturating_add(timeout)),
            class: asked.class,
            is_asked: asked.is_asked,
        };
        if let Some(ticket) = self.picker.arrive(now, &request) {
            self.tickets.insert(asked.key, Open { ticket, is_kept: false });
        }
        None
    }

    /// Takes the decisions since the last time.
    pub fn take_decisions(&mut self, mut each: impl FnMut(Decision)) {
        for effect in self.picker.take_effects() {
            match effect {
                Effect::Send { key, nodes, basis } => {
                    let choice = match basis {
                        Basis::Batch { id, rows } => Choice::Batch { id: self.batch_id(id), rows },
                        Basis::Owner { id, rows, .. } => Choice::Owner { id, rows },
                        Basis::Weights => {
                            // Another picker may have been asked for it before.
                            self.tickets.remove(&key);
                            Choice::Weights
                        }
                    };
                    let is_awaited = self.tickets.contains_key(&key);
                    let nodes = self.endpoints(&nodes);
                    each(Decision::Answer(key, Answer::Send { nodes, choice, is_awaited }));
                }
                Effect::Refuse { key, reason } => {
                    self.tickets.remove(&key);
                    let answer = if self.is_certain(reason) { Answer::Refuse(reason) } else { self.any() };
                    each(Decision::Answer(key, answer));
                }
                Effect::Ask { key, picker, model, rows, timeout, class } => {
                    let asked =
                        Asked { key, model: Some(model), runs: true, rows, timeout, class, is_asked: false };
                    each(Decision::Ask { owner: picker, asked });
                }
                Effect::AskEnded { key, picker } => each(Decision::AskEnded { owner: picker, key }),
            }
        }
    }

    fn endpoints(&self, nodes: &[NodeNumber]) -> Vec<Arc<Endpoint>> {
        nodes.iter().filter_map(|node| self.nodes.get(node.0 as usize)?.endpoint.clone()).collect()
    }

    /// The id of a batch for nodes. The effects of a batch come one after the other.
    fn batch_id(&mut self, id: u64) -> u64 {
        if self.batch.0 != Some(id) {
            self.batch = (Some(id), self.batch.1.wrapping_add(1));
        }
        let high = (u64::from(self.options.picker.number) << RUN_BITS) | (self.options.run & low(RUN_BITS));
        (high << BATCH_BITS) | (self.batch.1 & low(BATCH_BITS))
    }

    /// Whether a reason cannot come from what the picker does not know.
    fn is_certain(&self, reason: NotPicked) -> bool {
        let members = || self.nodes.iter().filter(|node| node.endpoint.is_some());
        let works = |node: &Known| matches!(node.link, Link::Heard { draining: false, .. });
        match reason {
            _ if members().next().is_none() => false,
            NotPicked::UnknownModel => members().all(|node| matches!(node.link, Link::Heard { .. })),
            // A node that was heard before is most likely starting again. Another node would say that it does not know the model. But
            // other nodes may still reach one that drains, and all that are lost.
            NotPicked::NoNode => {
                members().any(works) && members().all(|node| works(node) || node.link == Link::Lost)
            }
            NotPicked::Router(_) | NotPicked::NotOwner => true,
        }
    }

    /// Some nodes in turn: those that are heard and stay before others.
    fn any(&mut self) -> Answer {
        let count = self.nodes.len();
        let mut ranked: Vec<(u8, usize)> = Vec::new();
        let mut best = 0;
        for step in 0..count {
            let at = (self.next_any + step) % count;
            let Some(known) = self.nodes.get(at).filter(|known| known.endpoint.is_some()) else { continue };
            let rank = match known.link {
                Link::Heard { draining: false, .. } => 0,
                Link::Unheard => 1,
                Link::Heard { draining: true, .. } => 2,
                Link::Lost => 3,
            };
            ranked.push((rank, at));
            best += usize::from(rank == 0);
            if best == CHOICES {
                break;
            }
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        if let Some((_, first)) = ranked.first() {
            self.next_any = first + 1;
        }
        let best = ranked.into_iter().take(CHOICES);
        let nodes = best.filter_map(|(_, at)| self.nodes.get(at)?.endpoint.clone()).collect();
        Answer::Send { nodes, choice: Choice::Any, is_awaited: false }
    }

    /// Another picker is part of the fleet.
    pub fn peer_listed(&mut self, now: Duration, picker: u32) {
        self.picker.peer_listed(now, picker);
    }

    /// Another picker is not part of the fleet any more.
    pub fn peer_unlisted(&mut self, now: Duration, picker: u32) {
        self.picker.peer_unlisted(now, picker);
    }

    /// Another picker gave a sign of life.
    pub fn peer_heard(&mut self, now: Duration, picker: u32) {
        self.picker.peer_heard(now, picker);
    }

    /// The connection to another picker ended. `is_stopping`: it said that it stops.
    pub fn peer_lost(&mut self, now: Duration, picker: u32, is_stopping: bool) {
        match is_stopping {
            true => self.picker.peer_stops(now, picker),
            false => self.picker.peer_lost(now, picker),
        }
    }

    /// A picker answered for a request that it was asked for.
    pub fn owner_answered(&mut self, now: Duration, picker: u32, key: u64, answer: OwnerAnswer) {
        self.picker.owner_answered(now, picker, key, answer);
    }

    /// How requests ended that other pickers were asked for.
    pub fn ask_counts(&self) -> AskCounts {
        self.picker.ask_counts()
    }

    /// A request ended: it was answered or refused, or its client left.
    pub fn ended(&mut self, now: Duration, key: u64) {
        if let Some(open) = self.tickets.remove(&key) {
            self.picker.ended(now, open.ticket);
        }
    }

    /// A request ends by [`Chooser::done`], or counts as ended after [`TICKET_TIMEOUT`].
    pub fn keep(&mut self, now: Duration, key: u64) {
        if let Some(open) = self.tickets.get_mut(&key) {
            open.is_kept = true;
            self.timeouts.push_back((now.saturating_add(TICKET_TIMEOUT), key));
        }
    }

    /// The request of a ticket ended. Others than those that were kept end by themselves.
    pub fn done(&mut self, now: Duration, key: u64) {
        if self.tickets.get(&key).is_some_and(|open| open.is_kept) {
            self.ended(now, key);
        }
    }

    /// Answers that a request which waits goes to any node now, when this process is about to end.
    pub fn release(&mut self, now: Duration, key: u64) -> Answer {
        self.ended(now, key);
        self.any()
    }

    /// When [`Chooser::tick`] must be called next, at the latest.
    pub fn next_wake(&self) -> Option<Duration> {
        let timeout = self.timeouts.front().map(|(at, _)| *at);
        self.picker.next_wake().into_iter().chain(timeout).min()
    }

    /// Time passed.
    pub fn tick(&mut self, now: Duration) {
        while let Some((_, key)) = self.timeouts.pop_front_if(|(at, _)| *at <= now) {
            if self.tickets.contains_key(&key) {
                self.expired += 1;
                self.ended(now, key);
            }
        }
        self.picker.tick(now);
    }

    /// Tickets that ran out since the last time.
    pub fn take_expired(&mut self) -> u64 {
        std::mem::take(&mut self.expired)
    }

    /// How many nodes are in which state.
    pub fn counts(&self, now: Duration) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for known in self.nodes.iter().filter(|known| known.endpoint.is_some()) {
            match known.link {
                Link::Heard { last, draining } => {
                    *if draining { &mut counts.draining } else { &mut counts.connected } += 1;
                    counts.oldest_view = counts.oldest_view.max(now.saturating_sub(last));
                }
                Link::Unheard | Link::Lost => counts.lost += 1,
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests;
