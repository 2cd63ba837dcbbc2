//! R1 to R9 under random event streams, for every policy.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use router_core::batch::{BatchOptions, DropMode, Policy};
use router_core::{
    Allowance, Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec,
    ModelId, ModelLanes, ModelSpec, Nanos, Outcome, ProfilePoint, Protect, RateLimit, Reason, RequestId,
    ResourceId, Router, RouterConfig, ShapeKey, Tenant, TenantQuota, TenantTable, TimeoutAction,
};

const MODELS: u32 = 3;
const LANES: u32 = 3;
const MAX_BATCH: u32 = 8;

/// Policies that bind requests to lanes.
const BINDING: [&str; 1] = ["nexus"];

/// What a request that arrives asks for.
#[derive(Clone, Debug)]
struct Asked {
    model: u32,
    class: u8,
    tenant: u16,
    shape: u64,
    rows: u32,
    bytes: u64,
    slack_us: Option<u64>,
    delays: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(Asked),
    ArriveTogether(Vec<Asked>),
    Cancel { nth: usize },
    Report { nth: usize, ok: bool },
    GiveBack { nth: usize },
    LaneDown { lane: u32 },
    LaneFailed { lane: u32 },
    LaneUp { lane: u32 },
    ModelDown { model: u32 },
    ModelUp { model: u32 },
    ModelChanged { model: u32, queue_limit: u32 },
    TenantsChanged { limited: bool, rotated: usize },
    Pass { micros: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let who = (0..MODELS, 0_u8..4, 0_u16..3);
    let slack = (prop::option::of(0_u64..4_000), prop::bool::weighted(0.2));
    let asked = (who, 0_u64..3, 0..MAX_BATCH + 2, 1_u64..300, slack).prop_map(
        |((model, class, tenant), shape, rows, bytes, (slack_us, delays))| Asked {
            model,
            class,
            tenant,
            shape,
            rows,
            bytes,
            slack_us,
            delays,
        },
    );
    prop_oneof![
        12 => asked.clone().prop_map(Step::Arrive),
        1 => prop::collection::vec(asked, 0..12).prop_map(Step::ArriveTogether),
        2 => (0_usize..64).prop_map(|nth| Step::Cancel { nth }),
        8 => ((0_usize..8), prop::bool::weighted(0.85)).prop_map(|(nth, ok)| Step::Report { nth, ok }),
        1 => (0_usize..8).prop_map(|nth| Step::GiveBack { nth }),
        1 => (0..LANES).prop_map(|lane| Step::LaneDown { lane }),
        1 => (0..LANES).prop_map(|lane| Step::LaneFailed { lane }),
        2 => (0..LANES).prop_map(|lane| Step::LaneUp { lane }),
        1 => (0..MODELS).prop_map(|model| Step::ModelDown { model }),
        2 => (0..MODELS).prop_map(|model| Step::ModelUp { model }),
        1 => (0..MODELS, 1_u32..8).prop_map(|(model, queue_limit)| Step::ModelChanged { model, queue_limit }),
        1 => (any::<bool>(), 0_usize..3).prop_map(|(limited, rotated)| Step::TenantsChanged { limited, rotated }),
        6 => (0_u64..1_500).prop_map(|micros| Step::Pass { micros }),
    ]
}

struct Waiting {
    arrival: Arrival,
    admitted: u64,
}

/// All models but the first need one resource, of which there are two: model 1 needs one, and model 2 both.
fn limit_of(model: u32) -> RateLimit {
    let needs = if model == 0 { Vec::new() } else { vec![(ResourceId(0), model)] };
    RateLimit { needs, priority: model }
}

/// The world around the machine, which believes nothing the machine says without checking.
struct Harness {
    router: Router,
    policy: Policy,
    now: Nanos,
    effects: Effects,
    issued: u32,
    arrivals: BTreeMap<RequestId, Arrival>,
    waiting: BTreeMap<RequestId, Waiting>,
    running: BTreeMap<BatchId, (LaneId, Vec<RequestId>)>,
    started: BTreeSet<RequestId>,
    ended: BTreeMap<RequestId, Outcome>,
    /// Requests whose batch failed: they run again, alone, and out of order.
    again: BTreeSet<RequestId>,
    lanes: BTreeSet<LaneId>,
    preempted: u32,
    given_back: BTreeSet<BatchId>,
    /// Whether each tenant borrows or did.
    borrows: Vec<bool>,
}

impl Harness {
    fn new(policy: Policy, quotas: Vec<TenantQuota>) -> Self {
        let borrows = quotas.iter().map(|quota| quota.borrow).collect();
        let config = RouterConfig {
            max_requests: 4_096,
            queued_bytes_limit: 4_000,
            best_effort_max_wait: Nanos::from_millis(2),
            starvation: Nanos::from_millis(4),
            tenants: TenantTable::new(vec![1, 3], quotas).unwrap(),
            resources: vec![2],
            records: 16,
            protect: Some(Protect { percentile: 900, factor: 1_200 }),
            ..RouterConfig::default()
        };
        let mut harness = Self {
            router: Router::new(config).unwrap(),
            policy,
            now: Nanos::ZERO,
            effects: Effects::default(),
            issued: 0,
            arrivals: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            started: BTreeSet::new(),
            ended: BTreeMap::new(),
            again: BTreeSet::new(),
            lanes: BTreeSet::new(),
            preempted: 0,
            given_back: BTreeSet::new(),
            borrows,
        };
        for model in 0..MODELS {
            harness.apply(&Step::ModelUp { model });
        }
        for lane in 0..LANES {
            harness.apply(&Step::LaneUp { lane });
        }
        harness
    }

    fn feed(&mut self, event: Event<'_>) {
        self.router.handle(self.now, event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            self.carry_out(*effect, &effects);
        }
        effects.clear();
        self.effects = effects;
        self.router.check().unwrap();
        assert_eq!(invariant::violations(), []);
        if let Some(wake) = self.router.next_wake() {
            assert!(wake > self.now, "a wake-up in the past would spin");
        }
    }

    fn carry_out(&mut self, effect: Effect, effects: &Effects) {
        match effect {
            Effect::Dispatch { lane, batch, model, rows, members } => {
                let members = effects.members(members);
                assert!(self.lanes.contains(&lane), "dispatched to a lane that is down");
                assert!(
                    model == ModelId(0) || lane != LaneId(0),
                    "dispatched to a lane that does not run it"
                );
                self.check_way_is_given(lane);
                let mut kinds = BTreeSet::new();
                let mut counted = 0;
                for &member in members {
                    let Waiting { arrival, admitted } =
                        self.waiting.remove(&member).expect("R9: only waiting requests are started");
                    let delays = arrival.timeout_action == TimeoutAction::Delay;
                    assert!(delays || arrival.deadline.is_none_or(|deadline| self.now < deadline), "R2");
                    assert_eq!(arrival.model, model, "R3");
                    kinds.insert((arrival.shape, arrival.class.is_best_effort()));
                    counted += arrival.rows;
                    self.check_order(&arrival, admitted, members);
                    assert!(self.started.insert(member) || self.again.contains(&member), "started twice");
                }
                assert_eq!(kinds.len(), 1, "R3");
                assert_eq!(counted, rows);
                assert!(rows <= MAX_BATCH, "R3");
                if members.iter().any(|member| self.again.contains(member)) {
                    assert_eq!(members.len(), 1, "a request whose batch failed runs alone");
                }
                self.running.insert(batch, (lane, members.to_vec()));
            }
            Effect::Finish { request, outcome, reason } => {
                let late =
                    matches!(reason, Reason::DeadlinePassed | Reason::DeadlineUnmeetable | Reason::Shed);
                let delays = self.arrival_of(request).timeout_action == TimeoutAction::Delay;
                assert!(!(late && delays), "a request with DELAY was rejected for its deadline");
                assert!(self.ended.insert(request, outcome).is_none(), "R1: {request:?} ended twice");
                self.waiting.remove(&request);
            }
            Effect::Preempt { lane, batch } => {
                assert!(
                    self.running.get(&batch).is_some_and(|(on, _)| *on == lane),
                    "preempted what does not run"
                );
                self.preempted += 1;
                self.given_back.insert(batch);
            }
            Effect::Switched | Effect::SwitchRefused(_) | Effect::LaneIdle(_) => {
                unreachable!("no switch was asked for")
            }
            Effect::Retired(model) => {
                assert!(
                    self.waiting.values().all(|waiting| waiting.arrival.model != model),
                    "retired with work"
                );
            }
        }
    }

    /// A best-effort batch that can be preempted is, before its lane gets another batch.
    fn check_way_is_given(&self, lane: LaneId) {
        let on_lane = self.running.iter().filter(|(_, (on, _))| *on == lane);
        for (batch, (_, members)) in on_lane {
            let Some(first) = members.first().map(|member| self.arrival_of(*member)) else { continue };
            if first.class.is_best_effort() && first.model != ModelId(2) {
                assert!(
                    self.given_back.contains(batch),
                    "{}: {batch:?} still has {lane:?}, all: {:?}",
                    self.policy.name(),
                    self.running
                );
            }
        }
    }

    /// R8: nothing of the same model, class and shape that is due earlier stays behind. Requests that are bound to a
    /// lane when they come keep their order on that lane, which cannot be told from outside, as whether a request was
    /// delayed or borrowed.
    fn check_order(&self, arrival: &Arrival, admitted: u64, members: &[RequestId]) {
        let delays = |arrival: &Arrival| arrival.timeout_action == TimeoutAction::Delay;
        let borrows = self.borrows.get(usize::from(arrival.tenant.number())).copied().unwrap_or_default();
        if BINDING.contains(&self.policy.name()) || delays(arrival) || borrows {
            return;
        }
        let key = |arrival: &Arrival, admitted| (arrival.deadline.unwrap_or(Nanos::NEVER), admitted);
        let kind = |arrival: &Arrival| {
            (arrival.model, arrival.class, arrival.tenant, arrival.shape, arrival.deadline.is_some())
        };
        let own = key(arrival, admitted);
        for (id, other) in &self.waiting {
            if kind(&other.arrival) == kind(arrival)
                && !delays(&other.arrival)
                && !members.contains(id)
                && !self.again.contains(id)
            {
                let earlier = key(&other.arrival, other.admitted) < own;
                assert!(!earlier || self.again.contains(&arrival.request), "R8: {id:?} was due earlier");
            }
        }
    }

    fn arrival(&mut self, asked: &Asked) -> Arrival {
        self.issued += 1;
        let arrival = Arrival {
            request: RequestId::new(self.issued, 0),
            model: ModelId(asked.model),
            class: if asked.class == 3 { Class::BEST_EFFORT } else { Class::new(asked.class) },
            tenant: Tenant::new(asked.tenant),
            shape: ShapeKey(asked.shape),
            rows: asked.rows,
            bytes: asked.bytes,
            deadline: asked.slack_us.map(|slack| self.now.after(Nanos::from_micros(slack))),
            timeout_action: if asked.delays { TimeoutAction::Delay } else { TimeoutAction::Reject },
            pipeline: None,
        };
        self.arrivals.insert(arrival.request, arrival);
        self.waiting.insert(arrival.request, Waiting { arrival, admitted: u64::from(self.issued) });
        arrival
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Arrive(ref asked) => {
                let arrival = self.arrival(asked);
                self.feed(Event::Arrive(arrival));
            }
            Step::ArriveTogether(ref all) => {
                let arrivals: Vec<Arrival> = all.iter().map(|asked| self.arrival(asked)).collect();
                self.feed(Event::ArriveTogether(&arrivals));
            }
            Step::Cancel { nth } => {
                let unfinished = |id: &RequestId| !self.ended.contains_key(id);
                let open: Vec<_> =
                    (1..=self.issued).map(|slot| RequestId::new(slot, 0)).filter(unfinished).collect();
                if let Some(&request) = open.get(nth % open.len().max(1)) {
                    self.feed(Event::Cancel(request));
                    assert!(self.ended.contains_key(&request), "a cancelled request ends at once");
                }
            }
            Step::Report { nth, ok } => {
                let batches: Vec<_> = self.running.keys().copied().collect();
                if let Some(&batch) = batches.get(nth % batches.len().max(1)) {
                    let (lane, members) = self.running.remove(&batch).unwrap();
                    if !ok && members.len() > 1 {
                        self.run_again(&members);
                    }
                    self.feed(Event::BatchDone(BatchReport { lane, batch, ok }));
                }
            }
            Step::GiveBack { nth } => {
                let batches: Vec<_> = self.running.keys().copied().collect();
                if let Some(&batch) = batches.get(nth % batches.len().max(1)) {
                    let (lane, members) = self.running.remove(&batch).unwrap();
                    for &member in &members {
                        self.started.remove(&member);
                        if !self.ended.contains_key(&member) {
                            let arrival = self.arrival_of(member);
                            let admitted = self.admitted_of(member);
                            self.waiting.insert(member, Waiting { arrival, admitted });
                        }
                    }
                    self.feed(Event::BatchReturned { lane, batch });
                }
            }
            Step::LaneDown { lane } => {
                let lane = LaneId(lane);
                self.lanes.remove(&lane);
                self.running.retain(|_, (on, _)| *on != lane);
                self.feed(Event::LaneDown(lane));
            }
            Step::LaneFailed { lane } => {
                let lane = LaneId(lane);
                self.lanes.remove(&lane);
                let (lost, kept) =
                    std::mem::take(&mut self.running).into_iter().partition(|(_, (on, _))| *on == lane);
                self.running = kept;
                let lost: BTreeMap<BatchId, (LaneId, Vec<RequestId>)> = lost;
                let members: Vec<RequestId> = lost.into_values().flat_map(|(_, members)| members).collect();
                self.run_again(&members);
                self.feed(Event::LaneFailed(lane));
            }
            Step::LaneUp { lane } => {
                self.lanes.insert(LaneId(lane));
                self.feed(Event::LaneUp(LaneSpec::new(LaneId(lane), LaneClass::default())));
            }
            Step::ModelDown { model } => self.feed(Event::ModelDown(ModelId(model))),
            Step::ModelUp { model } => {
                let spec = self.spec(model, 12);
                self.feed(Event::ModelUp(&spec));
            }
            Step::ModelChanged { model, queue_limit } => {
                // Lanes of one policy take batches ahead, those of several do not.
                let ahead = Policy::new("clockwork", &BatchOptions::default()).unwrap();
                let policy = if queue_limit % 2 == 0 { ahead } else { self.policy.clone() };
                let spec = ModelSpec { policy, ..self.spec(model, queue_limit) };
                self.feed(Event::ModelChanged(&spec));
            }
            Step::TenantsChanged { limited, rotated } => {
                let mut quotas = quotas();
                quotas.rotate_left(rotated);
                quotas.retain(|_| limited);
                // What was borrowed before may still wait.
                self.borrows.resize(self.borrows.len().max(quotas.len()), false);
                for (borrows, quota) in self.borrows.iter_mut().zip(&quotas) {
                    *borrows |= quota.borrow;
                }
                let table = TenantTable::new(vec![1 + rotated as u32, 2], quotas).unwrap();
                self.feed(Event::TenantsChanged(&table));
            }
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

    fn spec(&self, model: u32, queue_limit: u32) -> ModelSpec {
        let point = |log: u32| ProfilePoint {
            rows: 1 << log,
            row_bytes: 64,
            time: Nanos::from_micros(200 + 60 * (1_u64 << log)),
        };
        let lanes = if model == 0 { ModelLanes::All } else { ModelLanes::Only(vec![LaneId(1), LaneId(2)]) };
        ModelSpec {
            measured_on: LaneClass::default(),
            preemptible: model != 2,
            model: ModelId(model),
            max_batch: MAX_BATCH,
            queue_limit,
            class_limits: vec![(Class::new(1), 4)],
            rate_limit: limit_of(model),
            policy: self.policy.clone(),
            lanes,
            profile: (0..4).map(point).collect(),
        }
    }

    fn run_again(&mut self, members: &[RequestId]) {
        for &member in members {
            if !self.ended.contains_key(&member) {
                self.again.insert(member);
                self.waiting.insert(member, Waiting { arrival: self.arrival_of(member), admitted: 0 });
            }
        }
    }

    /// Order of admission, which giving a batch back does not change.
    fn admitted_of(&self, request: RequestId) -> u64 {
        if self.again.contains(&request) { 0 } else { u64::from(request.slot()) }
    }

    fn arrival_of(&self, request: RequestId) -> Arrival {
        self.arrivals.get(&request).copied().unwrap()
    }

    /// Lets everything finish and checks that every request got exactly one answer.
    fn settle(&mut self) {
        let until = self.now.after(Nanos::from_millis(5));
        self.feed(Event::Drain { until });
        for _ in 0..10_000 {
            if let Some(batch) = self.running.keys().next().copied() {
                let (lane, _) = self.running.remove(&batch).unwrap();
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
    }
}

/// Every policy as it is by default, and those whose options change what they do.
fn policies() -> Vec<Policy> {
    let mut policies: Vec<Policy> =
        Policy::ALL.iter().map(|(name, _)| Policy::new(name, &BatchOptions::default()).unwrap()).collect();
    let delay = BatchOptions {
        max_delay: Some(Nanos::from_micros(700)),
        preferred: vec![4],
        ..BatchOptions::default()
    };
    policies.push(Policy::new("triton", &delay).unwrap());
    let delay = BatchOptions { preferred: Vec::new(), ..delay };
    policies.push(Policy::new("aimd", &delay).unwrap());
    let lazy = BatchOptions { drop: Some(DropMode::Lazy), ..BatchOptions::default() };
    policies.push(Policy::new("nexus", &lazy).unwrap());
    policies
}

/// Quotas that a stream of steps uses up: lane time, requests, and both for a tenant that borrows.
fn quotas() -> Vec<TenantQuota> {
    let lane_time = Some(Allowance { per_second: 200_000_000, burst: 1_000_000 });
    let requests = Some(Allowance { per_second: 1_000_000_000, burst: 4_000_000 });
    vec![
        TenantQuota { lane_time, ..TenantQuota::default() },
        TenantQuota { requests, ..TenantQuota::default() },
        TenantQuota { lane_time, requests, borrow: true },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn invariants_hold_under_random_events(steps in prop::collection::vec(step(), 0..250)) {
        for policy in policies() {
            let mut harness = Harness::new(policy, Vec::new());
            for step in &steps {
                harness.apply(step);
            }
            harness.settle();
        }
    }

    #[test]
    fn invariants_hold_with_quotas(steps in prop::collection::vec(step(), 0..250)) {
        for policy in policies() {
            let mut harness = Harness::new(policy, quotas());
            for step in &steps {
                harness.apply(step);
            }
            harness.settle();
        }
    }

    #[test]
    fn the_same_events_give_the_same_state(steps in prop::collection::vec(step(), 0..120)) {
        let run = |policy: Policy| {
            let mut harness = Harness::new(policy, quotas());
            steps.iter().for_each(|step| harness.apply(step));
            (harness.router, harness.ended)
        };
        for policy in policies() {
            prop_assert!(run(policy.clone()) == run(policy));
        }
    }
}
