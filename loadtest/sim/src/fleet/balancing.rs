//! How requests are spread over nodes: the picker of `fleet-core`, and the methods that it is compared with.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_core::pick::{
    Basis, Effect, NodeNumber, NotPicked, OwnerAnswer, PICKERS_MAX, Picker, Request, Settings, Ticket, Update,
};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use router_core::Gather;

use super::events::Asked;

/// A method of spreading requests over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Balancing {
    /// The picker of `fleet-core`.
    Tessera,
    /// Each node after the other.
    RoundRobin,
    /// The node with the fewest unanswered requests of this picker; equal ones by chance.
    LeastOutstanding,
    /// The better one of two nodes chosen by chance, by unanswered requests of this picker.
    TwoChoices,
    /// The node with the fewest waiting requests in the last view; equal ones by chance. The endpoint picker of the Gateway API
    /// inference extension does this with its queue scorer alone.
    Queue,
}

impl Balancing {
    /// Every method.
    pub const ALL: [Self; 5] =
        [Self::Tessera, Self::RoundRobin, Self::LeastOutstanding, Self::TwoChoices, Self::Queue];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tessera => "tessera",
            Self::RoundRobin => "round-robin",
            Self::LeastOutstanding => "least-outstanding",
            Self::TwoChoices => "two-choices",
            Self::Queue => "queue",
        }
    }

    /// The method of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }
}

/// Where a picker sends a request.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub key: u64,
    /// At least one node, best first.
    pub nodes: Vec<u32>,
    /// The batch that it is part of, if the picker forms batches.
    pub batch: Option<Batch>,
}

/// A batch of a picker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub owner: u32,
    /// That picker's name for it.
    pub id: u64,
    pub rows: u32,
}

impl Batch {
    /// Its mark for nodes. No other batch of the fleet has that number.
    pub(super) fn mark(self) -> Gather {
        let batch = self.id.wrapping_mul(u64::from(PICKERS_MAX)).wrapping_add(u64::from(self.owner));
        Gather { batch, rows: self.rows }
    }
}

/// What a picker decided.
#[derive(Clone, Debug)]
pub(super) enum Decision {
    Sent(Sent),
    Refused {
        key: u64,
        reason: NotPicked,
    },
    /// Another picker is asked.
    Ask {
        owner: u32,
        asked: Asked,
    },
    /// A picker that was asked is told that the request ended.
    AskEnded {
        owner: u32,
        key: u64,
    },
}

/// A new request, as a picker sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct New<'a> {
    pub key: u64,
    pub model: u32,
    pub name: &'a str,
    pub rows: u32,
    pub deadline: Option<u64>,
    pub class: u8,
}

/// A picker, of any method. Nodes are known by their number in the fleet.
#[derive(Debug)]
pub(super) enum Balancer {
    Tessera(Box<Late>),
    Other(Box<Other>),
}

/// The picker of `fleet-core`. It got to know the nodes in the order of their numbers.
#[derive(Debug)]
pub(super) struct Late {
    picker: Picker,
    number: u32,
    tickets: BTreeMap<u64, Ticket>,
}

/// A method that only knows which nodes have a model, and how many requests are there.
#[derive(Debug)]
pub(super) struct Other {
    method: Balancing,
    /// Nodes that have each model, by its number.
    copies: BTreeMap<u32, Vec<u32>>,
    /// Last node of each model.
    last: BTreeMap<u32, u32>,
    /// By node: requests of this picker that are not answered.
    outstanding: Vec<u32>,
    /// By node: requests that wait there, as the node last said.
    waiting: Vec<u64>,
    generator: Xoshiro256PlusPlus,
    names: BTreeMap<String, u32>,
    decisions: Vec<Decision>,
}

fn time(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

impl Balancer {
    pub(super) fn new(
        method: Balancing,
        (settings, pickers): (Settings, u32),
        (nodes, types): (&[String], &[&str]),
        models: &BTreeMap<String, u32>,
        seed: u64,
    ) -> Result<Self, String> {
        if method == Balancing::Tessera {
            let mut picker = Picker::new(settings).map_err(|error| error.to_string())?;
            for (node, device_type) in nodes.iter().zip(types) {
                let node = picker.node(node).map_err(|error| error.to_string())?;
                picker.device_type(Duration::ZERO, node, device_type).map_err(|error| error.to_string())?;
            }
            for other in (0..pickers).filter(|other| *other != settings.number) {
                picker.peer_listed(Duration::ZERO, other);
                picker.peer_heard(Duration::ZERO, other);
            }
            let number = settings.number;
            return Ok(Self::Tessera(Box::new(Late { picker, number, tickets: BTreeMap::new() })));
        }
        let seed = seed.wrapping_mul(64).wrapping_add(u64::from(settings.number));
        Ok(Self::Other(Box::new(Other {
            method,
            copies: BTreeMap::new(),
            last: BTreeMap::new(),
            outstanding: vec![0; nodes.len()],
            waiting: vec![0; nodes.len()],
            generator: Xoshiro256PlusPlus::seed_from_u64(seed),
            names: models.clone(),
            decisions: Vec::new(),
        })))
    }

    pub(super) fn seen(&mut self, now: u64, node: u32, update: &Update) {
        match self {
            Self::Tessera(late) => {
                if late.picker.seen(time(now), NodeNumber(node), update).is_err() {
                    invariant::violated!("sim.fleet_too_large");
                }
            }
            Self::Other(other) => other.seen(node, update),
        }
    }

    /// Takes the planned rate of a model on a node.
    pub(super) fn planned(&mut self, node: u32, model: &str, rate: f64) {
        if let Self::Tessera(late) = self
            && late.picker.planned(NodeNumber(node), model, rate).is_err()
        {
            invariant::violated!("sim.fleet_too_large");
        }
    }

    pub(super) fn lost(&mut self, now: u64, node: u32) {
        match self {
            Self::Tessera(late) => late.picker.lost(time(now), NodeNumber(node)),
            Self::Other(other) => {
                other.copies.values_mut().for_each(|nodes| nodes.retain(|known| *known != node));
            }
        }
    }

    pub(super) fn arrive(&mut self, now: u64, new: &New<'_>) {
        match self {
            Self::Tessera(late) => {
                let New { key, name, rows, class, .. } = *new;
                let deadline = new.deadline.map(time);
                let request = Request { key, model: name, rows, deadline, class, is_asked: false };
                late.arrive(now, &request);
            }
            Self::Other(other) => {
                let nodes = other.pick(new.model);
                other.decisions.push(match nodes.is_empty() {
                    true => Decision::Refused { key: new.key, reason: NotPicked::NoNode },
                    false => Decision::Sent(Sent { key: new.key, nodes, batch: None }),
                });
            }
        }
    }

    /// A request that went to a node ended.
    pub(super) fn ended(&mut self, now: u64, node: u32, key: u64) {
        match self {
            Self::Tessera(late) => {
                if let Some(ticket) = late.tickets.remove(&key) {
                    late.picker.ended(time(now), ticket);
                }
            }
            Self::Other(other) => {
                if let Some(count) = other.outstanding.get_mut(node as usize) {
                    *count = count.saturating_sub(1);
                }
            }
        }
    }

    /// Another picker asks for a request.
    pub(super) fn asked(&mut self, now: u64, asked: &Asked) {
        if let Self::Tessera(late) = self {
            let Asked { key, model, rows, timeout, class, .. } = asked;
            let deadline = timeout.map(|timeout| time(now.saturating_add(timeout)));
            let (key, rows, class) = (*key, *rows, *class);
            late.arrive(now, &Request { key, model, rows, deadline, class, is_asked: true });
        }
    }

    /// The owner answers for a request that it was asked for.
    pub(super) fn owner_answered(&mut self, now: u64, owner: u32, key: u64, answer: OwnerAnswer) {
        if let Self::Tessera(late) = self {
            late.picker.owner_answered(time(now), owner, key, answer);
        }
    }

    /// Another picker gave a sign of life.
    pub(super) fn heard(&mut self, now: u64, picker: u32) {
        if let Self::Tessera(late) = self {
            late.picker.peer_heard(time(now), picker);
        }
    }

    pub(super) fn tick(&mut self, now: u64) {
        if let Self::Tessera(late) = self {
            late.picker.tick(time(now));
        }
    }

    pub(super) fn next_wake(&self) -> Option<u64> {
        match self {
            Self::Tessera(late) => late.picker.next_wake().map(|at| at.as_nanos() as u64),
            Self::Other(_) => None,
        }
    }

    /// The decisions since the last time.
    pub(super) fn decisions(&mut self) -> Vec<Decision> {
        match self {
            Self::Tessera(late) => {
                let effects = late.picker.take_effects();
                let decide = |effect| match effect {
                    Effect::Send { key, nodes, basis } => {
                        let batch = match basis {
                            Basis::Batch { id, rows } => Some(Batch { owner: late.number, id, rows }),
                            Basis::Owner { picker: owner, id, rows } => Some(Batch { owner, id, rows }),
                            Basis::Weights => {
                                // It is not waited for.
                                late.tickets.remove(&key);
                                None
                            }
                        };
                        let nodes = nodes.into_iter().map(|NodeNumber(node)| node).collect();
                        Decision::Sent(Sent { key, nodes, batch })
                    }
                    Effect::Refuse { key, reason } => {
                        late.tickets.remove(&key);
                        Decision::Refused { key, reason }
                    }
                    Effect::Ask { key, picker, model, rows, timeout, class } => {
                        let timeout = timeout.map(|timeout| timeout.as_nanos() as u64);
                        let asked = Asked { asker: late.number, key, model, rows, timeout, class };
                        Decision::Ask { owner: picker, asked }
                    }
                    Effect::AskEnded { key, picker } => Decision::AskEnded { owner: picker, key },
                };
                effects.into_iter().map(decide).collect()
            }
            Self::Other(other) => std::mem::take(&mut other.decisions),
        }
    }
}

impl Late {
    fn arrive(&mut self, now: u64, request: &Request<'_>) {
        if let Some(ticket) = self.picker.arrive(time(now), request) {
            self.tickets.insert(request.key, ticket);
        }
    }
}

impl Other {
    fn seen(&mut self, node: u32, update: &Update) {
        for (name, _) in &update.models {
            let Some(model) = self.names.get(name) else { continue };
            let nodes = self.copies.entry(*model).or_default();
            if let Err(place) = nodes.binary_search(&node) {
                nodes.insert(place, node);
            }
        }
        for name in &update.removed {
            let nodes = self.names.get(name).and_then(|model| self.copies.get_mut(model));
            nodes.into_iter().for_each(|nodes| nodes.retain(|known| *known != node));
        }
        if let Some(waiting) = self.waiting.get_mut(node as usize) {
            *waiting = update.models.iter().map(|(_, view)| view.queued).sum();
        }
    }

    fn pick(&mut self, model: u32) -> Vec<u32> {
        let Some(nodes) = self.copies.get(&model).filter(|nodes| !nodes.is_empty()) else {
            return Vec::new();
        };
        let outstanding =
            |node: u32| u64::from(self.outstanding.get(node as usize).copied().unwrap_or_default());
        let first = match self.method {
            Balancing::RoundRobin | Balancing::Tessera => {
                let last = self.last.get(&model).copied();
                let place = last.map_or(0, |last| nodes.partition_point(|node| *node <= last));
                nodes.get(place).or(nodes.first()).copied()
            }
            Balancing::TwoChoices => {
                let mut draw =
                    || nodes.get(self.generator.random_range(0..nodes.len())).copied().unwrap_or_default();
                let (one, other) = (draw(), draw());
                Some(if outstanding(other) < outstanding(one) { other } else { one })
            }
            Balancing::LeastOutstanding => least(nodes, outstanding, &mut self.generator),
            Balancing::Queue => {
                let waiting = |node: u32| self.waiting.get(node as usize).copied().unwrap_or_default();
                least(nodes, waiting, &mut self.generator)
            }
        };
        let Some(first) = first else { return Vec::new() };
        self.last.insert(model, first);
        if let Some(count) = self.outstanding.get_mut(first as usize) {
            *count += 1;
        }
        let others = nodes.iter().copied().filter(|node| *node != first);
        std::iter::once(first).chain(others.take(2)).collect()
    }
}

/// A node with the least figure; equal ones by chance.
fn least(nodes: &[u32], figure: impl Fn(u32) -> u64, generator: &mut Xoshiro256PlusPlus) -> Option<u32> {
    let least = nodes.iter().map(|node| figure(*node)).min()?;
    let equal = || nodes.iter().copied().filter(|node| figure(*node) == least);
    let place = generator.random_range(0..equal().count().max(1));
    equal().nth(place)
}
