//! Random switches between random partitions of a device, amid all other events, for every policy: no unit ever runs
//! two batches, no request is lost, and every drained lane reports it once.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Cycle, CycleSlot, Effect, Effects, Event, LaneClass, LaneId,
    LaneSpec, LaneUp, ModelId, ModelLanes, ModelMove, ModelSpec, Nanos, Outcome, ProfilePoint, QuotaUnits,
    Reason, RequestId, Router, RouterConfig, ShapeKey, Switch, Tenant, TimeQuota,
};

const MODELS: u32 = 3;
const MAX_BATCH: u32 = 8;
/// The units that each lane runs on.
const UNITS: [u8; 9] = [0b1111, 0b0011, 0b1100, 0b0001, 0b0010, 0b0100, 0b1000, 0b0110, 0b0111];
/// Lanes with a cycle: models 0 and 1 have slots, 2 has none.
const CYCLIC: [u32; 3] = [1, 5, 8];
const SLOT_ROWS: [u32; 2] = [2, 6];
/// Lanes with a time quota, and the first unit of each.
const WITH_QUOTA: [(u32, u32); 3] = [(2, 2), (3, 0), (7, 1)];
const QUOTA_ROWS: u32 = 4;

#[derive(Clone, Debug)]
enum Step {
    Arrive { model: u32, class: u8, tenant: u16, rows: u32, slack_us: Option<u64> },
    Cancel { nth: usize },
    Report { nth: usize, ok: bool },
    GiveBack { nth: usize },
    Switch { order: u32, lanes: usize, models: [u16; MODELS as usize] },
    Nonsense { what: u8 },
    Dies { nth: usize },
    IsLost { nth: usize },
    Forget { nth: usize },
    ModelDown { model: u32 },
    ModelUp { model: u32 },
    Pass { micros: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let slack = prop::option::of(0_u64..6_000);
    let arrive = (0..MODELS, 0_u8..2, 0_u16..2, 1..=MAX_BATCH, slack).prop_map(
        |(model, class, tenant, rows, slack_us)| Step::Arrive { model, class, tenant, rows, slack_us },
    );
    let switch = (any::<u32>(), 1_usize..5, prop::array::uniform3(any::<u16>()))
        .prop_map(|(order, lanes, models)| Step::Switch { order, lanes, models });
    prop_oneof![
        14 => arrive,
        1 => (0_usize..64).prop_map(|nth| Step::Cancel { nth }),
        8 => ((0_usize..8), prop::bool::weighted(0.9)).prop_map(|(nth, ok)| Step::Report { nth, ok }),
        1 => (0_usize..8).prop_map(|nth| Step::GiveBack { nth }),
        6 => switch,
        1 => (0_u8..6).prop_map(|what| Step::Nonsense { what }),
        1 => (0_usize..8).prop_map(|nth| Step::Dies { nth }),
        1 => (0_usize..8).prop_map(|nth| Step::IsLost { nth }),
        2 => (0_usize..8).prop_map(|nth| Step::Forget { nth }),
        1 => (0..MODELS).prop_map(|model| Step::ModelDown { model }),
        2 => (0..MODELS).prop_map(|model| Step::ModelUp { model }),
        6 => (0_u64..1_500).prop_map(|micros| Step::Pass { micros }),
    ]
}

fn lane_spec(lane: u32) -> LaneSpec {
    let slot = |(model, &rows)| CycleSlot { model: ModelId(model), rows, budget: Nanos::from_micros(700) };
    let slots = (0..).zip(&SLOT_ROWS).map(slot).collect();
    let cycle = CYCLIC.contains(&lane).then(|| Cycle::new(slots).unwrap());
    let units = UNITS[lane as usize % UNITS.len()].count_ones();
    let quota = WITH_QUOTA.iter().find(|(with, _)| *with == lane).map(|(_, first)| TimeQuota {
        device: 0,
        device_units: 4,
        units,
        which: QuotaUnits::From(*first),
        window: Nanos::from_millis(3),
        offset: Nanos::from_micros(700 * u64::from(*first)),
        request: Nanos::from_millis(1),
        limit: Nanos::from_millis(2),
        batch: Nanos::from_micros(440),
        rows: QUOTA_ROWS,
    });
    LaneSpec { lane: LaneId(lane), cycle, quota, lane_class: LaneClass(units) }
}

/// The world around the machine, which believes nothing the machine says without checking.
struct Harness {
    router: Router,
    policy: Policy,
    now: Nanos,
    effects: Effects,
    issued: u32,
    arrivals: BTreeMap<RequestId, Arrival>,
    waiting: BTreeSet<RequestId>,
    running: BTreeMap<BatchId, (LaneId, Vec<RequestId>)>,
    ended: BTreeMap<RequestId, Outcome>,
    active: BTreeSet<u32>,
    /// Put to rest and not said to be.
    emptying: BTreeSet<u32>,
    idle_lanes: BTreeSet<u32>,
    runs_on: BTreeMap<ModelId, ModelLanes>,
    /// Whether the last switch was taken.
    taken: Option<bool>,
}

impl Harness {
    fn new(policy: Policy) -> Self {
        let config = RouterConfig {
            max_requests: 4_096,
            max_lanes: 16,
            best_effort_max_wait: Nanos::from_millis(2),
            starvation: Nanos::from_millis(4),
            records: 16,
            ..RouterConfig::default()
        };
        let mut harness = Self {
            router: Router::new(config).unwrap(),
            policy,
            now: Nanos::ZERO,
            effects: Effects::default(),
            issued: 0,
            arrivals: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            active: BTreeSet::new(),
            emptying: BTreeSet::new(),
            idle_lanes: BTreeSet::new(),
            runs_on: BTreeMap::new(),
            taken: None,
        };
        for model in 0..MODELS {
            harness.apply(&Step::ModelUp { model });
        }
        harness.active.insert(0);
        harness.feed(Event::LaneUp(lane_spec(0)));
        harness
    }

    fn feed(&mut self, event: Event<'_>) {
        self.taken = None;
        self.router.handle(self.now, event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            self.carry_out(*effect, &effects);
        }
        effects.clear();
        self.effects = effects;
        self.router.check().unwrap();
        assert_eq!(invariant::violations(), []);
        for lane in &self.emptying {
            assert!(self.held(*lane) > 0, "lane {lane} is empty and was not said to be");
        }
        if let Some(wake) = self.router.next_wake() {
            assert!(wake > self.now, "a wake-up in the past would spin");
        }
    }

    fn held(&self, lane: u32) -> usize {
        self.running.values().filter(|(on, _)| on.0 == lane).count()
    }

    fn carry_out(&mut self, effect: Effect, effects: &Effects) {
        match effect {
            Effect::Dispatch { lane, batch, model, rows, members } => {
                let members = effects.members(members).to_vec();
                assert!(self.active.contains(&lane.0), "R11: {lane:?} is not active");
                assert!(self.runs_on[&model].contain(lane), "{lane:?} does not run {model:?}");
                let units = |lane: LaneId| UNITS[lane.0 as usize];
                for (other, _) in self.running.values().filter(|(other, _)| *other != lane) {
                    assert_eq!(units(*other) & units(lane), 0, "R10: {lane:?} and {other:?} share a unit");
                }
                let limit = CYCLIC.contains(&lane.0).then(|| SLOT_ROWS.get(model.0 as usize)).flatten();
                let has_quota = WITH_QUOTA.iter().any(|(with, _)| *with == lane.0);
                let limit = limit.or(has_quota.then_some(&QUOTA_ROWS));
                assert!(
                    rows <= MAX_BATCH && (members.len() == 1 || limit.is_none_or(|limit| rows <= *limit))
                );
                for member in &members {
                    assert!(self.waiting.remove(member), "R9: only waiting requests are started");
                    let arrival = self.arrivals[member];
                    assert!(arrival.model == model, "R3");
                    assert!(arrival.deadline.is_none_or(|deadline| self.now < deadline), "R2");
                }
                self.running.insert(batch, (lane, members));
            }
            Effect::Finish { request, outcome, reason } => {
                self.waiting.remove(&request);
                assert!(self.ended.insert(request, outcome).is_none(), "R1: {request:?} ended twice");
                let model = self.arrivals[&request].model;
                let on_lane =
                    |lane: &u32| self.runs_on.get(&model).is_some_and(|on| on.contain(LaneId(*lane)));
                if reason == Reason::NoLane {
                    assert!(!self.active.iter().any(on_lane), "refused although a lane would run it");
                }
            }
            Effect::LaneIdle(lane) => {
                assert!(
                    self.emptying.remove(&lane.0),
                    "{lane:?} was not put to rest, or that was said before"
                );
                assert_eq!(self.held(lane.0), 0, "{lane:?} holds a batch");
                self.idle_lanes.insert(lane.0);
            }
            Effect::Switched => self.taken = Some(true),
            Effect::SwitchRefused(_) => self.taken = Some(false),
            Effect::Preempt { .. } | Effect::Retired(_) => {}
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Arrive { model, class, tenant, rows, slack_us } => {
                self.issued += 1;
                let request = RequestId::new(self.issued, 0);
                let deadline = slack_us.map(|slack| self.now.after(Nanos::from_micros(slack)));
                let (model, class, tenant) = (ModelId(model), Class::new(class), Tenant::new(tenant));
                let shape = ShapeKey(u64::from(rows % 2));
                let arrival = Arrival {
                    request,
                    model,
                    class,
                    tenant,
                    shape,
                    rows,
                    bytes: 64,
                    deadline,
                    timeout_action: Default::default(),
                    pipeline: None,
                };
                self.arrivals.insert(request, arrival);
                self.waiting.insert(request);
                self.feed(Event::Arrive(arrival));
            }
            Step::Cancel { nth } => {
                let open: Vec<_> = self.arrivals.keys().filter(|id| !self.ended.contains_key(id)).collect();
                if let Some(&&request) = open.get(nth % open.len().max(1)) {
                    self.feed(Event::Cancel(request));
                }
            }
            Step::Report { nth, ok } => {
                if let Some((lane, batch)) = self.comes_back(nth, !ok) {
                    self.feed(Event::BatchDone(BatchReport { lane, batch, ok }));
                }
            }
            Step::GiveBack { nth } => {
                if let Some((lane, batch)) = self.comes_back(nth, true) {
                    self.feed(Event::BatchReturned { lane, batch });
                }
            }
            Step::Switch { order, lanes, models } => self.switch(order, lanes, models),
            Step::Nonsense { what } => self.nonsense(what),
            Step::Dies { nth } => {
                if let Some(lane) = self.dies(nth) {
                    self.running.retain(|_, (on, _)| *on != lane);
                    self.feed(Event::LaneDown(lane));
                }
            }
            Step::IsLost { nth } => {
                if let Some(lane) = self.dies(nth) {
                    while let Some(at) = self.running.values().position(|(on, _)| *on == lane) {
                        self.comes_back(at, true);
                    }
                    self.feed(Event::LaneFailed(lane));
                }
            }
            Step::Forget { nth } => {
                let idle: Vec<u32> = self.idle_lanes.iter().copied().collect();
                if let Some(&lane) = idle.get(nth % idle.len().max(1)) {
                    self.idle_lanes.remove(&lane);
                    let before = self.ended.len();
                    self.feed(Event::LaneDown(LaneId(lane)));
                    assert_eq!(self.ended.len(), before, "removing an idle lane ends no request");
                    assert_eq!(self.router.lane_state(LaneId(lane)), None);
                }
            }
            Step::ModelDown { model } => self.feed(Event::ModelDown(ModelId(model))),
            Step::ModelUp { model } => self.model_up(ModelId(model)),
            Step::Pass { micros } => {
                let until = self.now.after(Nanos::from_micros(micros));
                while let Some(wake) = self.router.next_wake().filter(|&wake| wake <= until) {
                    self.now = wake;
                    self.feed(Event::Tick);
                }
                self.now = until;
            }
        }
    }

    fn model_up(&mut self, model: ModelId) {
        let point = |log: u32| {
            let (rows, time) = (1 << log, Nanos::from_micros(200 + 60 * (1 << log)));
            ProfilePoint { rows, row_bytes: 64, time }
        };
        let (policy, profile) = (self.policy.clone(), (0..4).map(point).collect());
        let spec = ModelSpec {
            measured_on: LaneClass::default(),
            preemptible: true,
            model,
            max_batch: MAX_BATCH,
            queue_limit: 40,
            class_limits: Vec::new(),
            rate_limit: Default::default(),
            policy,
            lanes: ModelLanes::All,
            profile,
        };
        if !self.router.knows(model) {
            self.runs_on.insert(model, ModelLanes::All);
        }
        self.feed(Event::ModelUp(&spec));
    }

    /// A batch leaves its lane, and its requests wait again unless they are about to end.
    fn dies(&mut self, nth: usize) -> Option<LaneId> {
        let known: Vec<u32> = self.active.union(&self.emptying).copied().collect();
        let lane = *known.get(nth % known.len().max(1))?;
        self.active.remove(&lane);
        self.emptying.remove(&lane);
        Some(LaneId(lane))
    }

    fn comes_back(&mut self, nth: usize, again: bool) -> Option<(LaneId, BatchId)> {
        let batch = *self.running.keys().nth(nth % self.running.len().max(1))?;
        let (lane, members) = self.running.remove(&batch)?;
        self.waiting.extend(members.into_iter().filter(|id| again && !self.ended.contains_key(id)));
        Some((lane, batch))
    }

    /// A partition of the device: lanes in a random order, as many as fit without overlap.
    fn partition(order: u32, most: usize) -> BTreeSet<u32> {
        let mut lanes: Vec<u32> = (0..UNITS.len() as u32).collect();
        lanes.sort_by_key(|lane| (lane + 1).wrapping_mul(order | 1).rotate_left(13));
        let mut taken = 0;
        let fits = |lane: &u32| {
            let units = UNITS[*lane as usize];
            let fits = taken & units == 0;
            taken |= if fits { units } else { 0 };
            fits
        };
        lanes.into_iter().filter(fits).take(most).collect()
    }

    fn switch(&mut self, order: u32, most: usize, models: [u16; MODELS as usize]) {
        let target = Self::partition(order, most);
        let drain: Vec<u32> = self.active.difference(&target).copied().collect();
        let known: BTreeSet<u32> =
            self.active.iter().chain(&self.emptying).chain(&self.idle_lanes).copied().collect();
        let over = |one: u32, other: u32| UNITS[one as usize] & UNITS[other as usize] != 0;
        let up = target.difference(&self.active).map(|&lane| {
            let apart = |other: &&u32| !target.contains(*other) && over(lane, **other);
            LaneUp { spec: lane_spec(lane), after: known.iter().filter(apart).copied().map(LaneId).collect() }
        });
        let up: Vec<LaneUp> = up.collect();
        let on = |mask: u16| {
            let chosen = target.iter().filter(|&&lane| mask & (1 << lane) != 0).copied().map(LaneId);
            if mask.is_multiple_of(7) { ModelLanes::All } else { ModelLanes::Only(chosen.collect()) }
        };
        let moves = (0..)
            .map(ModelId)
            .zip(models)
            .filter(|(model, mask)| self.router.knows(*model) && !mask.is_multiple_of(5));
        let models: Vec<ModelMove> =
            moves.map(|(model, mask)| ModelMove { model, lanes: on(mask), times: Vec::new() }).collect();
        for lane in &drain {
            self.active.remove(lane);
            self.emptying.insert(*lane);
        }
        for lane in up.iter().map(|up| up.spec.lane.0) {
            self.emptying.remove(&lane);
            self.idle_lanes.remove(&lane);
            self.active.insert(lane);
        }
        self.runs_on.extend(models.iter().map(|change| (change.model, change.lanes.clone())));
        let drain = drain.into_iter().map(LaneId).collect();
        self.feed(Event::Switch(&Switch { up, drain, models }));
        assert_eq!(self.taken, Some(true));
    }

    fn nonsense(&mut self, what: u8) {
        let Some(&active) = self.active.first() else { return };
        let up = |lane: u32, after: u32| LaneUp { spec: lane_spec(lane), after: vec![LaneId(after)] };
        let elsewhere =
            |model| ModelMove { model: ModelId(model), lanes: ModelLanes::All, times: Vec::new() };
        let (up, drain, models) = match what {
            0 => (vec![], vec![active, 15], vec![]),
            1 => (vec![up(active, active)], vec![], vec![]),
            2 => (vec![LaneUp { after: vec![], ..up(active, 0) }], vec![active], vec![]),
            3 => (vec![], vec![active], vec![elsewhere(9)]),
            4 => (
                vec![LaneUp { spec: LaneSpec { lane: LaneId(16), ..lane_spec(0) }, after: vec![] }],
                vec![active],
                vec![],
            ),
            _ => (vec![up(12, active)], vec![], vec![elsewhere(0)]),
        };
        // What the passing of time does, it does before.
        self.feed(Event::Tick);
        let before = self.router.clone();
        let drain = drain.into_iter().map(LaneId).collect();
        self.feed(Event::Switch(&Switch { up, drain, models }));
        assert_eq!(self.taken, Some(false));
        assert!(self.router == before, "a refused switch changed something");
    }

    /// Lets everything finish and checks that every request got exactly one answer.
    fn settle(&mut self) {
        let until = self.now.after(Nanos::from_millis(5));
        self.feed(Event::Drain { until });
        for _ in 0..10_000 {
            if let Some((lane, batch)) = self.comes_back(0, false) {
                self.feed(Event::BatchDone(BatchReport { lane, batch, ok: true }));
            } else if let Some(wake) = self.router.next_wake() {
                self.now = wake;
                self.feed(Event::Tick);
            } else {
                break;
            }
        }
        assert_eq!(self.router.unfinished(), 0, "R6: work was left that nothing would have woken");
        assert_eq!(self.ended.len(), self.issued as usize, "R1: every request ends");
        assert!(self.emptying.is_empty(), "a lane never came to rest");
    }
}

fn policies() -> impl Iterator<Item = Policy> {
    Policy::ALL.iter().map(|(name, _)| Policy::new(name, &BatchOptions::default()).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn plans_change_and_no_request_is_lost(steps in prop::collection::vec(step(), 0..250)) {
        for policy in policies() {
            let mut harness = Harness::new(policy);
            for step in &steps {
                harness.apply(step);
            }
            harness.settle();
        }
    }

    #[test]
    fn the_same_switches_give_the_same_state(steps in prop::collection::vec(step(), 0..100)) {
        let run = |policy: Policy| {
            let mut harness = Harness::new(policy);
            steps.iter().for_each(|step| harness.apply(step));
            (harness.router, harness.ended)
        };
        for policy in policies() {
            prop_assert!(run(policy.clone()) == run(policy));
        }
    }
}
