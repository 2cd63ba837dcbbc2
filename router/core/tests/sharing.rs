//! Who is served when there is too much work: classes, best effort, tenants, and lanes that give work back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, VecDeque};

use router_core::batch::{BatchOptions, Policy, StartReason};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Decided, Effect, Effects, Event, Forecast, LaneClass, LaneId,
    LaneSpec, ModelId, ModelLanes, ModelSpec, Nanos, Outcome, ProfilePoint, Reason, Record, RequestId,
    Router, RouterConfig, ShapeKey, Tenant, TenantTable,
};

/// One lane and one model that takes 10 ms a row, batches or not.
struct World {
    router: Router,
    now: Nanos,
    running: VecDeque<(Nanos, LaneId, BatchId)>,
    started: Vec<(u64, Vec<u32>)>,
    ended: BTreeMap<u32, (Outcome, Reason)>,
}

const ROW: Nanos = Nanos::from_millis(10);

fn model(id: u32, max_batch: u32, policy: &str) -> ModelSpec {
    ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: true,
        model: ModelId(id),
        max_batch,
        queue_limit: 1_000,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy: Policy::new(policy, &BatchOptions::default()).unwrap(),
        lanes: ModelLanes::All,
        profile: vec![ProfilePoint { rows: 1, row_bytes: 64, time: ROW }],
    }
}

impl World {
    fn new(config: RouterConfig, max_batch: u32, policy: &str) -> Self {
        let mut world = Self {
            router: Router::new(config).unwrap(),
            now: Nanos::ZERO,
            running: VecDeque::new(),
            started: Vec::new(),
            ended: BTreeMap::new(),
        };
        world.feed(Event::ModelUp(&model(0, max_batch, policy)));
        world.feed(Event::LaneUp(LaneSpec::new(LaneId(0), LaneClass::default())));
        world
    }

    fn feed(&mut self, event: Event<'_>) {
        let mut effects = Effects::default();
        self.router.handle(self.now, event, &mut effects);
        self.router.check().unwrap();
        assert_eq!(invariant::violations(), []);
        for effect in &effects {
            match *effect {
                Effect::Dispatch { lane, batch, rows, members, .. } => {
                    let free = self.running.back().map_or(self.now, |(until, ..)| *until);
                    let until = free.after(Nanos(ROW.0 * u64::from(rows)));
                    self.running.push_back((until, lane, batch));
                    let members = effects.members(members).iter().map(|id| id.slot()).collect();
                    self.started.push((self.now.0 / 1_000_000, members));
                }
                Effect::Finish { request, outcome, reason } => {
                    assert!(self.ended.insert(request.slot(), (outcome, reason)).is_none());
                }
                _ => {}
            }
        }
    }

    /// Lets virtual time pass.
    fn until(&mut self, ms: u64) {
        let end = Nanos::from_millis(ms);
        loop {
            let done = self.running.front().map(|(until, ..)| *until);
            let wake = self.router.next_wake();
            let next = [done, wake].into_iter().flatten().min().filter(|&at| at <= end);
            let Some(at) = next else { break };
            self.now = self.now.max(at);
            match self.running.front().copied().filter(|(until, ..)| *until <= at) {
                Some((_, lane, batch)) => {
                    self.running.pop_front();
                    self.feed(Event::BatchDone(BatchReport { lane, batch, ok: true }));
                }
                None => self.feed(Event::Tick),
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, slot: u32, class: u8, tenant: u16, slack_ms: Option<u64>) {
        let deadline = slack_ms.map(|slack| self.now.after(Nanos::from_millis(slack)));
        self.feed(Event::Arrive(Arrival {
            request: RequestId::new(slot, 0),
            model: ModelId(0),
            class: Class::new(class),
            tenant: Tenant::new(tenant),
            shape: ShapeKey(0),
            rows: 1,
            bytes: 64,
            deadline,
            timeout_action: Default::default(),
            pipeline: None,
        }));
    }

    fn order(&self) -> Vec<u32> {
        self.started.iter().flat_map(|(_, members)| members.clone()).collect()
    }
}

fn weights(first: u32, second: u32) -> TenantTable {
    TenantTable::new(vec![first, second], Vec::new()).unwrap()
}

fn one_at_a_time(config: RouterConfig) -> World {
    World::new(config, 1, "triton")
}

#[test]
fn work_without_a_deadline_goes_under_work_with_one_until_its_best_effort_max_wait_ends() {
    let best_effort_max_wait = Nanos::from_millis(35);
    let mut world = one_at_a_time(RouterConfig { best_effort_max_wait, ..RouterConfig::default() });
    world.arrive(0, 0, 0, Some(1_000));
    world.arrive(1, 0, 0, None);
    for slot in 2..8 {
        world.arrive(slot, 0, 0, Some(1_000));
    }
    world.until(200);
    assert_eq!(world.order(), [0, 2, 3, 4, 1, 5, 6, 7], "at 40 ms it has waited for longer than 35");
}

#[test]
fn a_lower_class_waits_but_not_forever() {
    let starvation = Nanos::from_millis(45);
    let mut world = one_at_a_time(RouterConfig { starvation, ..RouterConfig::default() });
    world.arrive(0, 0, 0, Some(1_000));
    world.arrive(1, 3, 0, Some(1_000));
    for slot in 2..9 {
        world.until(u64::from(slot) * 10 - 15);
        world.arrive(slot, 0, 0, Some(1_000));
    }
    world.until(200);
    assert_eq!(world.order(), [0, 2, 3, 4, 5, 1, 6, 7, 8], "at 50 ms it has waited for longer than 45");
}

#[test]
fn tenants_that_all_ask_too_much_get_lane_time_by_weight() {
    let mut world = one_at_a_time(RouterConfig { tenants: weights(3, 1), ..RouterConfig::default() });
    // 100 rows a second can be served, each tenant sends 150.
    for slot in 0..6_000_u32 {
        world.until(u64::from(slot) * 10 / 3);
        world.arrive(slot, 0, u16::try_from(slot % 2).unwrap(), Some(60));
    }
    world.until(30_000);
    let served = |tenant: u32| {
        let done = world
            .ended
            .iter()
            .filter(|(slot, (outcome, _))| **slot % 2 == tenant && *outcome == Outcome::Done);
        done.count() as f64
    };
    let (heavy, light) = (served(0), served(1));
    assert!(heavy + light > 1_900.0, "the lane stays busy: {heavy} + {light}");
    assert!((2.5..3.5).contains(&(heavy / light)), "{heavy} : {light}, the weights are 3 : 1");
}

#[test]
fn changed_weights_hold_from_then_on() {
    let mut world = one_at_a_time(RouterConfig { tenants: weights(3, 1), ..RouterConfig::default() });
    let mut served = [[0_u32; 2]; 2];
    for slot in 0..12_000_u32 {
        world.until(u64::from(slot) * 10 / 3);
        if slot == 6_000 {
            world.feed(Event::TenantsChanged(&weights(1, 3)));
        }
        world.arrive(slot, 0, u16::try_from(slot % 2).unwrap(), Some(60));
    }
    world.until(60_000);
    for (slot, (outcome, _)) in &world.ended {
        served[usize::from(*slot >= 6_000)][(slot % 2) as usize] += u32::from(*outcome == Outcome::Done);
    }
    let [[first, second], [first_after, second_after]] = served.map(|both| both.map(f64::from));
    assert!((2.5..3.5).contains(&(first / second)), "{served:?}");
    assert!((2.5..3.5).contains(&(second_after / first_after)), "{served:?}");
}

#[test]
fn a_tenant_below_its_share_is_not_hurt_by_one_above() {
    let mut world = one_at_a_time(RouterConfig { tenants: weights(1, 1), ..RouterConfig::default() });
    let mut modest = Vec::new();
    for slot in 0..4_000_u32 {
        world.until(u64::from(slot) * 5);
        let tenant = u16::from(slot % 10 == 0);
        if tenant == 1 && slot > 400 {
            modest.push(slot);
        }
        world.arrive(slot, 0, tenant, Some(60));
    }
    world.until(30_000);
    let answered = modest.iter().filter(|slot| world.ended[slot].0 == Outcome::Done).count();
    let share = answered as f64 / modest.len() as f64;
    assert!(
        share > 0.9,
        "{share} of a tenant's 20 requests a second, while another sends 180 to a lane that does 100"
    );
}

/// Clockwork hands over a batch 10 ms before its lane is free, and the others when it is free.
#[test]
fn a_lane_takes_a_batch_ahead_while_all_its_models_plan_ahead() {
    let mut world = World::new(RouterConfig::default(), 1, "clockwork");
    let started_by_three = |world: &mut World| {
        world.until(1_000 * (1 + world.now.0 / 1_000_000_000));
        let from = world.now.0 / 1_000_000;
        world.started.clear();
        (0..3).for_each(|slot| world.arrive(slot, 0, 0, None));
        world.until(from + 500);
        world.ended.clear();
        world.started.iter().map(|(at, _)| at - from).collect::<Vec<_>>()
    };
    assert_eq!(started_by_three(&mut world), [0, 0, 10]);
    world.feed(Event::ModelUp(&model(1, 1, "triton")));
    assert_eq!(started_by_three(&mut world), [0, 10, 20]);
    world.feed(Event::ModelChanged(&model(1, 1, "clockwork")));
    assert_eq!(started_by_three(&mut world), [0, 0, 10]);
    world.feed(Event::ModelChanged(&model(1, 1, "triton")));
    assert_eq!(started_by_three(&mut world), [0, 10, 20]);
    world.feed(Event::ModelDown(ModelId(1)));
    assert_eq!(started_by_three(&mut world), [0, 0, 10]);
}

#[test]
fn a_batch_that_is_given_back_runs_again_and_says_so() {
    let mut world = World::new(RouterConfig::default(), 4, "triton");
    world.arrive(7, 0, 0, Some(500));
    let (_, lane, batch) = world.running.pop_front().unwrap();
    world.until(3);
    world.feed(Event::BatchReturned { lane, batch });
    world.until(100);
    assert_eq!(world.order(), [7, 7]);
    assert_eq!(world.ended[&7], (Outcome::Done, Reason::Answered));
    let end = world.router.records().pop().unwrap();
    let told = world.router.explain(RequestId::new(7, 0), end.at).unwrap();
    assert_eq!((told.end, told.companions.len()), (end, 0));
    let start = told.start.map(|start| start.decided);
    let (
        Some(Decided::Dispatch { rows: 1, reason, lane: ran_on, .. }),
        Decided::End { outcome, batch: Some(_), .. },
    ) = (start, end.decided)
    else {
        panic!("{told:?}")
    };
    assert_eq!((reason, ran_on, outcome), (StartReason::LaneFree, LaneId(0), Outcome::Done));
}

#[test]
fn what_is_remembered_of_decisions_is_bounded() {
    let mut world = one_at_a_time(RouterConfig { records: 5, ..RouterConfig::default() });
    for slot in 0..20 {
        world.arrive(slot, 0, 0, None);
    }
    world.until(1_000);
    let ends: Vec<u32> = world
        .router
        .records()
        .iter()
        .filter_map(|record| match record.decided {
            Decided::End { request, .. } => Some(request.slot()),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [15, 16, 17, 18, 19]);
    assert_eq!(world.router.explain(RequestId::new(3, 0), Nanos::from_millis(40)), None);
}

#[test]
fn a_refused_request_is_explained_after_many_that_were_answered() {
    let mut world = World::new(RouterConfig { records: 5, ..RouterConfig::default() }, 1, "deadline");
    world.arrive(0, 0, 0, None);
    world.arrive(1, 0, 0, Some(25));
    world.arrive(2, 0, 0, Some(25));
    for slot in 10..60 {
        world.arrive(slot, 0, 0, None);
    }
    world.until(1_000);
    let refused = |record: &&Record| matches!(record.decided, Decided::End { outcome: Outcome::Refused, .. });
    let refused = *world.router.records().iter().find(refused).unwrap();
    let Decided::End { request, forecast, .. } = refused.decided else { panic!("{refused:?}") };
    let told = world.router.explain(request, refused.at).unwrap();
    assert_eq!((told.end, told.start, request.slot()), (refused, None, 2));
    // One runs until 10 ms, the one before it until 20, and its own time is estimated with caution.
    let expected =
        Forecast { rows_before: 1, lanes: 1, wait: Nanos::from_millis(20), end: Nanos::from_micros(32_500) };
    assert_eq!(forecast, expected);
}
