//! A simulation in virtual time: arriving requests, gpulets that run them, a router that switches tables, and a shell
//! that carries out effects or fails to.

mod accidents;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use gpulet_core::id::DeviceId;
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::Problem;
use gpulet_core::rollout::{
    Effect, Epoch, Event, GpuletId, Outcome, Proposal, ProposalId, Rollout, RolloutOptions, Step, StepId,
    Switch,
};
use gpulet_core::time::Micros;

use super::chance::Chance;
use super::devices::{Devices, Running};
use super::plans::{self, WORKLOADS, problem};
use crate::support::assert_no_violations;

/// Failure rates, per thousand.
#[derive(Clone, Copy)]
pub struct Trouble {
    pub step_fails: u64,
    pub step_hangs: u64,
    pub switch_fails: u64,
    pub switch_hangs: u64,
    pub batch_hangs: u64,
    /// Plan changes, per thousand, during which a gpulet fails or is late, a device is removed, or an operator acts.
    pub accident: u64,
}

impl Trouble {
    pub const NONE: Self =
        Self { step_fails: 0, step_hangs: 0, switch_fails: 0, switch_hangs: 0, batch_hangs: 0, accident: 0 };
    pub const MUCH: Self = Self {
        step_fails: 10,
        step_hangs: 5,
        switch_fails: 40,
        switch_hangs: 40,
        batch_hangs: 2,
        accident: 400,
    };
}

pub fn options() -> RolloutOptions {
    RolloutOptions {
        open_us: Micros(50_000),
        prepare_us: Micros(400_000),
        verify_us: Micros(50_000),
        switch_us: Micros(20_000),
        drain_us: Micros(300_000),
        close_us: Micros(50_000),
        bake_us: Micros(200_000),
        attempts: 3,
        history: 64,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrive(usize),
    BatchDone(GpuletId),
    Step(StepId, bool),
    Switch(Epoch, bool, bool),
    /// The late answer to a switch that already took effect.
    Answer(Epoch),
    Propose,
    Accident,
    /// The gpulet fails.
    Fault(GpuletId),
    /// The gpulet is late.
    Late(GpuletId),
    Thaw,
    Wake,
}

/// Counts of requests and proposals by outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    pub outcomes: BTreeMap<&'static str, u64>,
    pub answered: u64,
    pub refused: u64,
    pub arrived: u64,
    pub incidents: u64,
    pub switches: u64,
    pub seconds: u64,
}

pub struct World {
    pub machine: Rollout,
    pub devices: Devices,
    pub tally: Tally,
    pub log: u64,
    problem: Problem,
    chance: Chance,
    trouble: Trouble,
    now: Micros,
    dues: BinaryHeap<Reverse<(Micros, u64, Due)>>,
    serial: u64,
    steps: BTreeMap<StepId, (Step, Option<u32>, Micros)>,
    switches: BTreeMap<Epoch, (Switch, u64)>,
    epoch: Epoch,
    active: BTreeMap<GpuletId, (Gpulet, Vec<GpuletId>)>,
    draining: BTreeSet<GpuletId>,
    queues: BTreeMap<String, VecDeque<u64>>,
    answers: Vec<u8>,
    plan: Plan,
    proposals: BTreeMap<ProposalId, Plan>,
    floors: (ProposalId, BTreeMap<String, f64>),
    losses: u64,
    left: u64,
    arriving: bool,
}

fn rates(gpulets: impl Iterator<Item = Gpulet>) -> BTreeMap<String, f64> {
    let mut rates = BTreeMap::new();
    for slot in gpulets.flat_map(|gpulet| gpulet.slots) {
        *rates.entry(slot.workload).or_insert(0.0) += slot.rate;
    }
    rates
}

pub fn model_of(workload: &str) -> &'static str {
    WORKLOADS.iter().find(|(name, _)| *name == workload).unwrap().1
}

impl World {
    /// Creates a world that proposes `changes` plans.
    pub fn new(seed: u64, memory_bytes: u64, trouble: Trouble, changes: u64) -> Self {
        let mut world = Self {
            machine: Rollout::new(options()).unwrap(),
            devices: Devices::new(memory_bytes),
            tally: Tally::default(),
            log: 0xcbf2_9ce4_8422_2325,
            problem: problem(memory_bytes),
            chance: Chance::new(seed),
            trouble,
            now: Micros::ZERO,
            dues: BinaryHeap::new(),
            serial: 0,
            steps: BTreeMap::new(),
            switches: BTreeMap::new(),
            epoch: Epoch::default(),
            active: BTreeMap::new(),
            draining: BTreeSet::new(),
            queues: BTreeMap::new(),
            answers: Vec::new(),
            plan: Plan::default(),
            proposals: BTreeMap::new(),
            floors: (ProposalId::default(), BTreeMap::new()),
            losses: 0,
            left: changes,
            arriving: true,
        };
        world.after(0, Due::Propose);
        (0..WORKLOADS.len()).for_each(|at| world.after(0, Due::Arrive(at)));
        world
    }

    fn after(&mut self, span_us: u64, due: Due) {
        self.serial += 1;
        self.dues.push(Reverse((self.now.after(Micros(span_us)), self.serial, due)));
    }

    fn write(&mut self, words: &str) {
        for byte in words.bytes() {
            self.log = (self.log ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Runs until all changes have ended, then until every request is answered.
    pub fn run(&mut self) {
        while !(self.left == 0 && self.machine.is_idle()) {
            self.process_next();
        }
        self.arriving = false;
        self.trouble = Trouble::NONE;
        // A last plan, so that waiting requests are served or refused.
        if self.machine.is_frozen() {
            self.tell(Event::Thaw);
        }
        self.left = 1;
        self.after(0, Due::Propose);
        while !self.dues.is_empty() {
            self.process_next();
        }
        self.tally.seconds = self.now.0 / 1_000_000;
        assert!(self.machine.is_idle());
    }

    fn process_next(&mut self) {
        let Reverse((at_us, _, due)) = self.dues.pop().unwrap();
        self.now = at_us;
        match due {
            Due::Arrive(at) => self.arrive(at),
            Due::BatchDone(gpulet) => self.batch_done(gpulet),
            Due::Step(id, good) => self.step_ends(id, good),
            Due::Switch(epoch, good, silent) => self.switch_ends(epoch, good, silent),
            Due::Answer(epoch) => self.tell(Event::Switched { epoch }),
            Due::Propose => self.propose(),
            Due::Accident => self.accident(),
            Due::Fault(gpulet) => self.fault(gpulet),
            Due::Late(gpulet) => self.tell(Event::Late { gpulet, reason: "slow".to_owned() }),
            Due::Thaw => self.tell(Event::Thaw),
            Due::Wake => {
                if self.machine.next_wake().is_some_and(|wake| wake <= self.now) {
                    self.tell(Event::Tick);
                }
            }
        }
    }

    /// The machine hears of an event, and what it asks for begins.
    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.machine.handle(self.now, event, &mut effects);
        self.machine.check().unwrap_or_else(|broken| panic!("{broken}: {:#?}", self.machine.snapshot()));
        assert_no_violations();
        assert!(self.machine.history().count() <= options().history);
        for effect in effects {
            self.write(&serde_json::to_string(&effect).unwrap());
            self.carry_out(effect);
        }
        if self.machine.is_idle() {
            self.assert_nothing_leaked();
        }
        if let Some(wake_us) = self.machine.next_wake() {
            assert!(wake_us > self.now, "time that is over is waited for");
            self.after(wake_us.since(self.now).0, Due::Wake);
        }
    }

    fn assert_nothing_leaked(&self) {
        let active: Vec<GpuletId> = self.active.keys().copied().collect();
        let table: Vec<GpuletId> = self.machine.active().map(|(id, _)| id).collect();
        assert_eq!(self.machine.known().collect::<Vec<_>>(), table);
        assert_eq!(active, table, "the router's table and the plan in force differ");
        assert_eq!(self.machine.epoch(), self.epoch);
        let written_off = |unclosed: u32| unclosed >= options().attempts;
        let leaked = self
            .devices
            .bodies
            .iter()
            .filter(|(id, body)| !table.contains(id) && !written_off(body.unclosed));
        assert_eq!(leaked.count(), 0, "gpulets were left behind");
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Step { id, step, deadline_us } => {
                let device = self.device_of(&step);
                let waits = |(step, _, due_us): &(Step, Option<u32>, Micros)| {
                    let exists = self.devices.bodies.contains_key(&step.gpulet());
                    *due_us > self.now && exists && self.device_of(step) == device
                };
                assert!(!self.steps.values().any(waits), "one step of a device at a time");
                let held = match &step {
                    Step::Prepare { gpulet, model, .. } => {
                        self.devices.bodies.get(gpulet).and_then(|body| body.sessions.get(model)).copied()
                    }
                    _ => None,
                };
                let free = self.free_bytes(&step);
                self.devices.begin(id, &step, free);
                let limit = deadline_us.since(self.now).0;
                let (good, span_us) = match self.chance.below(1_000) {
                    x if x < self.trouble.step_fails => (false, self.chance.below(limit)),
                    x if x < self.trouble.step_fails + self.trouble.step_hangs => {
                        if let (Step::CloseSession { .. } | Step::Close { .. }, Some(body)) =
                            (&step, self.devices.bodies.get_mut(&step.gpulet()))
                        {
                            body.unclosed += 1;
                        }
                        (self.chance.hits(500), limit + self.chance.below(limit))
                    }
                    _ => (true, self.chance.below(limit / 4)),
                };
                self.steps.insert(id, (step, held, deadline_us));
                self.after(span_us, Due::Step(id, good));
            }
            Effect::Switch { switch, deadline_us } => {
                let limit = deadline_us.since(self.now).0;
                let epoch = switch.epoch;
                self.switches.insert(epoch, (switch, self.losses));
                let drawn = self.chance.below(1_000);
                let fails = drawn < self.trouble.switch_fails;
                let hangs = !fails && drawn < self.trouble.switch_fails + self.trouble.switch_hangs;
                let is_lost = fails || (hangs && self.chance.hits(500));
                let span_us = self.chance.below(limit / 2);
                self.after(span_us, Due::Switch(epoch, !is_lost, hangs));
            }
            Effect::Ended { proposal, outcome } => self.ended(proposal, &outcome),
            Effect::Incident { .. } => self.tally.incidents += 1,
            Effect::CannotOpen { .. } | Effect::PlanNeeded { .. } => {}
        }
    }

    fn device_of(&self, step: &Step) -> Option<DeviceId> {
        match step {
            Step::Open { device, .. } => Some(device.clone()),
            other => self.devices.bodies.get(&other.gpulet()).map(|body| body.device.clone()),
        }
    }

    /// Bytes that the machine leaves on the device of a step.
    fn free_bytes(&self, step: &Step) -> u64 {
        self.device_of(step).and_then(|device| self.machine.free_bytes(&device)).unwrap_or(0)
    }

    fn ended(&mut self, proposal: ProposalId, outcome: &Outcome) {
        assert!(self.proposals.remove(&proposal).is_some(), "proposal {proposal} ended twice");
        let word = match outcome {
            Outcome::Done => "done",
            Outcome::Unchanged => "unchanged",
            Outcome::Refused { .. } => "refused",
            Outcome::Superseded => "superseded",
            Outcome::Failed { .. } => "failed",
            Outcome::RolledBack { .. } => "rolled back",
            Outcome::Stopped { .. } => "stopped",
        };
        *self.tally.outcomes.entry(word).or_insert(0) += 1;
    }

    fn step_ends(&mut self, id: StepId, good: bool) {
        let (step, held, _) = self.steps.remove(&id).unwrap();
        let gpulet = step.gpulet();
        let broken = self.devices.bodies.get(&gpulet).is_some_and(|body| body.faulty)
            && matches!(step, Step::Prepare { .. } | Step::Verify { .. });
        if good && !broken {
            let free = self.free_bytes(&step);
            self.devices.complete(id, &step, self.active.contains_key(&gpulet), free);
            self.tell(Event::StepDone(id));
        } else {
            self.devices.fail(id, &step, held);
            self.tell(Event::StepFailed { step: id, reason: "the device said no".to_owned() });
        }
    }

    fn switch_ends(&mut self, epoch: Epoch, good: bool, silent: bool) {
        let (switch, losses) = self.switches.remove(&epoch).unwrap();
        if good && epoch > self.epoch {
            self.apply(switch, losses);
            if silent {
                self.after(options().switch_us.0, Due::Answer(epoch));
            } else {
                self.tell(Event::Switched { epoch });
            }
        } else if !silent {
            let in_force = self.epoch;
            self.tell(Event::SwitchFailed { epoch, in_force, reason: "the router said no".to_owned() });
        }
        self.drain_and_run();
    }

    fn apply(&mut self, switch: Switch, losses: u64) {
        self.tally.switches += 1;
        self.epoch = switch.epoch;
        self.assert_capacity(&switch, losses);
        let routed: BTreeSet<&String> = switch.routes.iter().map(|route| &route.workload).collect();
        for (workload, queue) in &mut self.queues {
            if !routed.contains(workload) {
                self.tally.refused += queue.len() as u64;
                queue.drain(..).for_each(|request| self.answers[usize::try_from(request).unwrap()] += 1);
            }
        }
        let fresh: Vec<GpuletId> =
            switch.active.iter().map(|active| active.id).filter(|id| !self.active.contains_key(id)).collect();
        if self.chance.hits(self.trouble.accident / 3)
            && let Some(id) = self.chance.pick(&fresh).copied()
        {
            let (span_us, breaks) = (self.chance.below(150_000), self.chance.hits(500));
            self.after(span_us, if breaks { Due::Fault(id) } else { Due::Late(id) });
        }
        let exists = |id: &GpuletId| self.devices.bodies.contains_key(id);
        for active in &switch.active {
            let body = self.devices.bodies.get(&active.id);
            assert!(
                body.is_none_or(|body| body.is_fit_for(&active.gpulet, model_of)),
                "{} is not ready",
                active.id
            );
            assert!(body.is_some() || losses < self.losses, "{} does not exist", active.id);
        }
        self.draining.retain(|id| !switch.active.iter().any(|active| active.id == *id));
        self.draining.extend(switch.draining.iter().copied().filter(exists));
        let active = switch.active.into_iter().filter(|active| exists(&active.id));
        self.active = active.map(|active| (active.id, (active.gpulet, active.after))).collect();
    }

    /// Checks invariant G3 on what the world observed.
    fn assert_capacity(&mut self, switch: &Switch, losses: u64) {
        let sound = |id: &GpuletId| self.devices.bodies.get(id).is_some_and(|body| !body.faulty);
        let now =
            rates(self.active.iter().filter(|(id, _)| sound(id)).map(|(_, (gpulet, _))| gpulet.clone()));
        if self.floors.0 != switch.proposal {
            let target = rates(self.proposals[&switch.proposal].gpulets.iter().cloned());
            let of = |(name, rate): (String, f64)| {
                let later = target.get(&name).copied().unwrap_or(0.0);
                (name, rate.min(later))
            };
            self.floors = (switch.proposal, now.into_iter().map(of).collect());
        }
        let all_sound = switch.active.iter().all(|active| sound(&active.id));
        if losses < self.losses || !all_sound {
            // What this table names was lost while the switch was on its way.
            let left = switch.active.iter().filter(|active| sound(&active.id));
            let left = rates(left.map(|active| active.gpulet.clone()));
            for (workload, floor) in &mut self.floors.1 {
                *floor = floor.min(left.get(workload).copied().unwrap_or(0.0));
            }
            return;
        }
        let then = rates(switch.active.iter().map(|active| active.gpulet.clone()));
        for (workload, floor) in &self.floors.1 {
            let rate = then.get(workload).copied().unwrap_or(0.0);
            assert!(rate >= floor - 1e-6, "`{workload}` is left with {rate} of {floor}");
        }
    }

    /// Reports gpulets that have drained, and starts batches on idle ones.
    fn drain_and_run(&mut self) {
        let drained: Vec<GpuletId> = self.draining.iter().copied().filter(|id| !self.holds(*id)).collect();
        for id in drained {
            self.draining.remove(&id);
            self.tell(Event::Drained(id));
        }
        for id in self.active.keys().copied().collect::<Vec<_>>() {
            self.start(id);
        }
    }

    fn holds(&self, id: GpuletId) -> bool {
        self.devices.bodies.get(&id).is_some_and(|body| body.running.is_some())
    }

    fn start(&mut self, id: GpuletId) {
        let (gpulet, after) = &self.active[&id];
        let body = &self.devices.bodies[&id];
        let waits = after.iter().any(|other| self.holds(*other));
        // Windows alternate; in this world, one starts as soon as the other ends.
        let co_located = self
            .active
            .keys()
            .any(|other| *other != id && self.holds(*other) && self.devices.bodies[other].shares_units(body));
        if body.faulty || body.running.is_some() || waits || co_located {
            return;
        }
        let waiting = |slot: &&gpulet_core::plan::Slot| {
            self.queues.get(&slot.workload).is_some_and(|queue| !queue.is_empty())
        };
        let Some(slot) = gpulet.slots.iter().find(waiting) else { return };
        let (workload, batch) = (slot.workload.clone(), slot.batch as usize);
        let queue = self.queues.get_mut(&workload).unwrap();
        let requests: Vec<u64> = queue.drain(..batch.min(queue.len())).collect();
        self.devices.assert_alone(id);
        let hangs = self.chance.hits(self.trouble.batch_hangs);
        let span_us = if hangs { 600_000 } else { 2_000 + 1_000 * requests.len() as u64 };
        self.devices.bodies.get_mut(&id).unwrap().running = Some(Running { workload, requests });
        self.after(span_us, Due::BatchDone(id));
    }

    fn arrive(&mut self, at: usize) {
        if !self.arriving {
            return;
        }
        let workload = WORKLOADS[at].0;
        let request = self.answers.len() as u64;
        self.answers.push(0);
        self.tally.arrived += 1;
        if self.active.values().any(|(gpulet, _)| gpulet.slots.iter().any(|slot| slot.workload == workload)) {
            self.queues.entry(workload.to_owned()).or_default().push_back(request);
            self.drain_and_run();
        } else {
            self.tally.refused += 1;
            self.answers[usize::try_from(request).unwrap()] += 1;
        }
        let span_us = self.chance.between(10_000, 60_000);
        self.after(span_us, Due::Arrive(at));
    }

    fn batch_done(&mut self, gpulet: GpuletId) {
        let Some(body) = self.devices.bodies.get_mut(&gpulet) else { return };
        let Some(running) = body.running.take() else { return };
        for request in running.requests {
            let answers = &mut self.answers[usize::try_from(request).unwrap()];
            *answers += 1;
            assert_eq!(*answers, 1, "request {request} was answered twice");
            self.tally.answered += 1;
        }
        self.drain_and_run();
    }

    fn propose(&mut self) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let (plan, proposal): (Plan, Proposal) = plans::random(&mut self.chance, &self.plan, &self.problem);
        self.plan = plan.clone();
        self.proposals.insert(self.machine.proposals().next(), plan);
        self.tell(Event::Propose(proposal));
        if self.chance.hits(self.trouble.accident) {
            let span_us = self.chance.below(3_000_000);
            self.after(span_us, Due::Accident);
        }
        if self.left > 0 {
            let soon = self.chance.hits(300);
            let span_us = self.chance.below(if soon { 300_000 } else { 4_000_000 });
            self.after(span_us, Due::Propose);
        }
    }

    /// Asserts that every request was answered exactly once.
    pub fn assert_answered(&self) {
        let lost = self.answers.iter().filter(|answers| **answers != 1).count();
        assert_eq!(lost, 0, "lost or answered twice, of {} requests", self.answers.len());
    }
}
