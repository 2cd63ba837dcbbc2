//! A fleet in virtual time: nodes, each with a router of its own, pickers with views that are old, a leader that plans, a network with
//! delays, and faults. Routers, pickers and the planner are the code that runs in a real fleet.
//!
//! Events at the same moment have a fixed order: faults, nodes, what the leader notices, what nodes say, models that are loaded,
//! requests that reach a node, answers that reach a picker, and the timers of pickers. New requests come after all of them.

mod balancing;
mod events;
mod faults;
mod figures;
mod node;
mod placement;
mod requests;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use fleet_core::moves::Moves;
use fleet_core::node_plan::NodePlan;
use fleet_core::pick::{Settings, Update};
use invariant::{Violation, expected};
use router_core::batch::{BatchOptions, Policy};
use router_core::{ConfigError, ModelId, ModelSpec, RouterConfig};
use workload::{Arrivals, ExecutionNoise, Extent, Fleet, Workload, WorkloadError};

use self::balancing::Balancer;
use self::events::{Events, Message, What};
use self::figures::Figures;
use self::node::Node;
use self::placement::Placement;
use crate::error::{Breach, Broken, SimError};
use crate::inflight::Request;
use crate::setup::Setup;

pub use self::balancing::Balancing;
pub use self::figures::FleetReport;

/// Time after which a gateway asks another picker if one does not answer, in nanoseconds.
const PICKER_TIMEOUT: u64 = 100_000_000;

/// Time between two signs of life of a picker, in nanoseconds.
const SIGNS: u64 = 5_000_000;

/// Nodes that a gateway tries for one request at most.
const TRIES: usize = 3;

/// Batching policy of nodes behind pickers that form the batches: it runs what it gets.
pub const BEHIND_PICKER: &str = "triton";

struct PickerState {
    balancer: Balancer,
    is_up: bool,
    /// When gateways know that it is not.
    avoided_from: u64,
    /// When its timer is set.
    wake: u64,
    /// What reached it while it was stopped.
    waiting: Vec<Message>,
    /// Requests that others asked for, by key, with the asker.
    asked: BTreeMap<u64, u32>,
}

/// A run of a fleet.
pub struct FleetSimulation {
    workload: Workload,
    fleet: Fleet,
    setup: Setup,
    config: RouterConfig,
    /// By device type, the models with their batch times.
    specs: Vec<Vec<ModelSpec>>,
    node_names: Vec<String>,
    node_numbers: BTreeMap<String, u32>,
    nodes: Vec<Node>,
    pickers: Vec<PickerState>,
    next_picker: u32,
    placement: Placement,
    /// The plans that nodes got last, also those of nodes that failed.
    in_force: BTreeMap<String, NodePlan>,
    /// The plans that are wanted in the end, and the way there.
    target: BTreeMap<String, NodePlan>,
    moves: Moves,
    next_approach: u64,
    is_leader_up: bool,
    /// By node: whether the leader knows it to be there.
    known: Vec<bool>,
    noise: ExecutionNoise,
    figures: Figures,
    events: Events,
    /// Requests at a picker, by key, with its number.
    held: BTreeMap<u64, (Request, u32)>,
    next_key: u64,
    now: u64,
    end: u64,
    /// States that cannot happen and that this process had reached before the run.
    violations_before: Vec<Violation>,
}

fn unusable(field: &'static str, problem: &str) -> SimError {
    ConfigError::new(field, problem.to_owned()).into()
}

impl FleetSimulation {
    /// Creates a run. The first plan is in force and all its models are loaded.
    ///
    /// # Errors
    /// If the workload has no fleet, no duration or no profiles, or if no plan exists.
    pub fn new(workload: &Workload, setup: &Setup, balancing: Balancing) -> Result<Self, SimError> {
        let fleet = workload.fleet.clone().ok_or_else(|| unusable("fleet", "missing"))?;
        let Extent::Time(end) = workload.extent else {
            return Err(unusable("duration", "missing: a fleet is simulated for a time"));
        };
        let lanes = workload.lanes.count / fleet.nodes;
        let policy = match balancing {
            Balancing::Tessera => Policy::new(BEHIND_PICKER, &BatchOptions::default())?,
            _ => setup.policy.clone(),
        };
        let specs = fleet.types.iter().map(|one| {
            let models = (0..).zip(&workload.models).map(|(id, model)| {
                let spec = setup.spec(ModelId(id), model, 1.0 / one.speed_of(&model.name))?;
                Ok(ModelSpec { policy: policy.clone(), ..spec })
            });
            models.collect::<Result<Vec<_>, WorkloadError>>()
        });
        let specs = specs.collect::<Result<Vec<_>, _>>()?;
        let config = setup.router(workload, lanes)?;
        let names: Vec<String> = (0..fleet.nodes).map(|node| format!("node-{node:05}")).collect();
        let models: BTreeMap<String, u32> =
            (0..).zip(&workload.models).map(|(number, model)| (model.name.clone(), number)).collect();
        let nodes = (0..fleet.nodes).map(|node| Node::new(&config, node * lanes, lanes));
        let nodes = nodes.collect::<Result<_, _>>().map_err(|breach| broken(breach, workload, setup, 0))?;
        let picker = |number: u32| {
            let travel = Duration::from_nanos(2 * fleet.network);
            let hop = Duration::from_nanos(fleet.network);
            let settings = Settings { number, travel, hop, ..Settings::default() };
            let settings = (settings, fleet.pickers);
            let types: Vec<&str> = (0..fleet.nodes)
                .filter_map(|node| fleet.types.get(fleet.type_of(node)))
                .map(|one| one.name.as_str())
                .collect();
            let nodes = (names.as_slice(), types.as_slice());
            let balancer = Balancer::new(balancing, settings, nodes, &models, workload.seed)
                .map_err(|problem| unusable("fleet", &problem))?;
            let (waiting, asked) = (Vec::new(), BTreeMap::new());
            let (avoided_from, wake) = (u64::MAX, u64::MAX);
            Ok(PickerState { balancer, is_up: true, avoided_from, wake, waiting, asked })
        };
        let mut simulation = Self {
            pickers: (0..fleet.pickers).map(picker).collect::<Result<_, SimError>>()?,
            next_picker: 0,
            nodes,
            placement: Placement::new(workload, &fleet, &names).map_err(|error| unusable("fleet", &error))?,
            in_force: BTreeMap::new(),
            target: BTreeMap::new(),
            moves: Moves::default(),
            next_approach: 0,
            is_leader_up: true,
            known: vec![true; fleet.nodes as usize],
            noise: ExecutionNoise::new(workload)?,
            figures: Figures::new(balancing.name(), (workload.warmup, end), workload.models.len())
                .map_err(|error| unusable("report", &error.to_string()))?,
            events: Events::default(),
            held: BTreeMap::new(),
            next_key: 0,
            now: 0,
            node_numbers: (0..).zip(&names).map(|(number, name)| (name.clone(), number)).collect(),
            node_names: names,
            workload: workload.clone(),
            setup: setup.clone(),
            fleet,
            config,
            specs,
            end,
            violations_before: invariant::violations(),
        };
        simulation.begin().map_err(|breach| simulation.broken(breach))?;
        Ok(simulation)
    }

    fn begin(&mut self) -> Result<(), Breach> {
        self.plan(true)?;
        for fault in self.fleet.faults.clone() {
            self.events.push(fault.at, What::Fault(fault));
        }
        for node in 0..self.fleet.nodes {
            // The pickers know the first views when the traffic begins.
            let update = self.signals(node);
            for picker in 0..self.fleet.pickers {
                self.tell(picker, Message::Seen { node, update: Rc::clone(&update) });
            }
            let offset = self.fleet.signals * u64::from(node + 1) / u64::from(self.fleet.nodes);
            self.events.push(offset, What::Sample(node));
        }
        if self.fleet.pickers > 1 {
            self.events.push(SIGNS, What::Signs);
        }
        Ok(())
    }

    /// Runs to the end of the traffic and until every request ended.
    ///
    /// # Errors
    /// [`SimError::Broken`] where an invariant does not hold, and where the process reached a state that cannot happen since this
    /// run was created.
    pub fn run(mut self) -> Result<FleetReport, SimError> {
        let outcome = self.run_to_end();
        let reached = Breach::of_violations(&self.violations_before, &invariant::violations());
        outcome.and(reached).map_err(|breach| self.broken(breach))?;
        let Self { workload, nodes, figures, .. } = self;
        Ok(figures.done(&nodes, u64::from(workload.lanes.count)))
    }

    fn run_to_end(&mut self) -> Result<(), Breach> {
        let mut arrivals = Arrivals::new(&self.workload);
        let mut upcoming = arrivals.next();
        loop {
            let next = self.events.next_at();
            if let Some(offered) = upcoming.filter(|offered| next.is_none_or(|at| offered.at < at)) {
                self.now = offered.at;
                upcoming = arrivals.next();
                self.arrives(&offered);
                continue;
            }
            let Some((at, what)) = self.events.pop() else { break };
            self.now = at;
            self.happen(what)?;
        }
        let (offered, ended) = self.figures.balance();
        Breach::unless(ended == offered, "F1", || format!("{offered} requests arrived and {ended} ended"))
    }

    fn happen(&mut self, what: What) -> Result<(), Breach> {
        // After the traffic, only what ends requests goes on.
        let is_over = self.now > self.end;
        match what {
            What::Fault(_) | What::Sample(_) | What::Approach if is_over => Ok(()),
            What::Fault(fault) => self.fails(fault),
            What::FaultEnds(fault) => {
                self.recovers(fault);
                Ok(())
            }
            What::Noticed => self.noticed(),
            What::Approach => self.approach(),
            What::Node(node) => self.node_advances(node),
            What::Sample(node) => {
                self.sample(node);
                Ok(())
            }
            What::Loaded { node, model } => self.loaded(node, model),
            What::Reach(travelling) => self.reach(travelling),
            What::Message(picker, message) => {
                self.tell(picker, message);
                Ok(())
            }
            What::Signs => {
                self.signs();
                if !is_over || !self.held.is_empty() {
                    self.events.push(self.now + SIGNS, What::Signs);
                }
                Ok(())
            }
            What::AskedAgain(request) => {
                self.ask_picker(request);
                Ok(())
            }
            What::Picker(number) => {
                if self.pickers.get(number as usize).is_some_and(|picker| picker.wake == self.now) {
                    self.tick_picker(number);
                }
                Ok(())
            }
        }
    }

    fn signals(&mut self, node: u32) -> Rc<Update> {
        let node = self.nodes.get_mut(node as usize);
        Rc::new(node.map(|node| node.signals(&self.workload)).unwrap_or_default())
    }

    /// A node says what it has, and does so again.
    fn sample(&mut self, node: u32) {
        self.events.push(self.now + self.fleet.signals, What::Sample(node));
        if self.nodes.get(node as usize).is_some_and(|node| node.up) {
            let update = self.signals(node);
            for picker in 0..self.fleet.pickers {
                let seen = What::Message(picker, Message::Seen { node, update: Rc::clone(&update) });
                self.events.push(self.now + self.fleet.network, seen);
            }
        }
    }

    /// A picker is told something. A stopped one takes it up later.
    fn tell(&mut self, number: u32, message: Message) {
        let Some(picker) = expected!(self.pickers.get_mut(number as usize), "sim.unknown_picker") else {
            return;
        };
        if !picker.is_up {
            return picker.waiting.push(message);
        }
        let balancer = &mut picker.balancer;
        match message {
            Message::Seen { node, update } => balancer.seen(self.now, node, &update),
            Message::Answered { node, key } => balancer.ended(self.now, node, key),
            Message::Asked(asked) => {
                picker.asked.insert(asked.key, asked.asker);
                balancer.asked(self.now, &asked);
            }
            Message::AskEnded { key } => {
                picker.asked.remove(&key);
                balancer.ended(self.now, 0, key);
            }
            Message::OwnerAnswered { owner, key, answer } => {
                balancer.owner_answered(self.now, owner, key, answer);
            }
        }
        self.decided(number);
    }

    /// The pickers that run give each other signs of life.
    fn signs(&mut self) {
        let up: Vec<u32> =
            (0..).zip(&self.pickers).filter(|(_, picker)| picker.is_up).map(|(number, _)| number).collect();
        for to in &up {
            if let Some(picker) = self.pickers.get_mut(*to as usize) {
                up.iter().filter(|from| *from != to).for_each(|from| picker.balancer.heard(self.now, *from));
            }
            self.decided(*to);
        }
    }

    fn tick_picker(&mut self, number: u32) {
        let Some(picker) = expected!(self.pickers.get_mut(number as usize), "sim.unknown_picker") else {
            return;
        };
        picker.wake = u64::MAX;
        // After the traffic, a timer without requests would run for ever.
        let is_over = self.now > self.end && self.held.is_empty();
        if picker.is_up && !is_over {
            picker.balancer.tick(self.now);
            self.decided(number);
        }
    }

    fn broken(&self, breach: Breach) -> SimError {
        broken(breach, &self.workload, &self.setup, self.now)
    }
}

fn broken(breach: Breach, workload: &Workload, setup: &Setup, at: u64) -> SimError {
    SimError::Broken(Box::new(Broken {
        id: breach.id,
        detail: breach.detail,
        workload: workload.name.clone(),
        policy: setup.label.clone(),
        seed: workload.seed,
        at,
        event: 0,
        trace: Vec::new(),
    }))
}
