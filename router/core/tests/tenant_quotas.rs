//! Quotas of tenants: what they bound, whom they refuse, and what a tenant that borrows may take.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Allowance, Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec,
    ModelId, ModelLanes, ModelSpec, Nanos, Outcome, ProfilePoint, Reason, RequestId, Router, RouterConfig,
    ShapeKey, Tenant, TenantQuota, TenantTable,
};

const MILLI: u64 = 1_000_000;
const REQUEST: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;
const MODELS: u32 = 2;
const MAX_BATCH: u32 = 4;

/// Batches of either model take 1 ms, and 1 ms a row.
fn batch_time(rows: u32) -> u64 {
    MILLI + u64::from(rows) * MILLI
}

fn lane_time(per_second: u64, burst: u64) -> Option<Allowance> {
    Some(Allowance { per_second, burst })
}

struct Started {
    at: u64,
    tenant: u16,
    /// The request's share of its batch.
    share: u64,
}

/// Lanes that take as long as the router expects, or longer by a factor.
struct World {
    router: Router,
    now: Nanos,
    running: Vec<(Nanos, LaneId, BatchId)>,
    slowdown: u64,
    tenants: BTreeMap<u32, u16>,
    started: Vec<Started>,
    batches: Vec<Vec<u16>>,
    ended: BTreeMap<u32, (Outcome, Reason)>,
}

impl World {
    fn new(policy: &str, lanes: u32, quotas: Vec<TenantQuota>) -> Self {
        let tenants = TenantTable::new(Vec::new(), quotas).unwrap();
        let config = RouterConfig { tenants, ..RouterConfig::default() };
        let mut world = Self {
            router: Router::new(config).unwrap(),
            now: Nanos::ZERO,
            running: Vec::new(),
            slowdown: 1,
            tenants: BTreeMap::new(),
            started: Vec::new(),
            batches: Vec::new(),
            ended: BTreeMap::new(),
        };
        for model in 0..MODELS {
            let point = |rows| ProfilePoint { rows, row_bytes: 64, time: Nanos(batch_time(rows)) };
            world.feed(Event::ModelUp(&ModelSpec {
                measured_on: LaneClass::default(),
                preemptible: false,
                model: ModelId(model),
                max_batch: MAX_BATCH,
                queue_limit: 1_000,
                class_limits: Vec::new(),
                rate_limit: Default::default(),
                policy: Policy::new(policy, &BatchOptions::default()).unwrap(),
                lanes: ModelLanes::All,
                profile: (1..=MAX_BATCH).map(point).collect(),
            }));
        }
        for lane in 0..lanes {
            world.feed(Event::LaneUp(LaneSpec::new(LaneId(lane), LaneClass::default())));
        }
        world
    }

    fn feed(&mut self, event: Event<'_>) {
        let mut effects = Effects::default();
        self.router.handle(self.now, event, &mut effects);
        self.router.check().unwrap();
        for effect in &effects {
            match *effect {
                Effect::Dispatch { lane, batch, rows, members, .. } => {
                    let time = batch_time(rows) * self.slowdown;
                    // A batch that is given ahead begins when its lane is free.
                    let theirs = self.running.iter().filter(|(_, other, _)| *other == lane);
                    let begins = theirs.map(|(until, ..)| *until).max().unwrap_or(self.now);
                    self.running.push((begins.after(Nanos(time)), lane, batch));
                    let theirs = |id: &RequestId| self.tenants.get(&id.slot()).copied().unwrap();
                    let tenants: Vec<u16> = effects.members(members).iter().map(theirs).collect();
                    for &tenant in &tenants {
                        let share = time / u64::from(rows);
                        self.started.push(Started { at: self.now.0, tenant, share });
                    }
                    self.batches.push(tenants);
                }
                Effect::Finish { request, outcome, reason } => {
                    self.ended.insert(request.slot(), (outcome, reason));
                }
                _ => {}
            }
        }
    }

    /// Lets virtual time pass.
    fn until(&mut self, end: Nanos) {
        loop {
            let done = self.running.iter().min().copied();
            let next = done.map(|(at, ..)| at).into_iter().chain(self.router.next_wake()).min();
            let Some(at) = next.filter(|&at| at <= end) else { break };
            self.now = self.now.max(at);
            match done.filter(|&(until, ..)| until <= at) {
                Some(first) => {
                    self.running.retain(|running| *running != first);
                    let (_, lane, batch) = first;
                    self.feed(Event::BatchDone(BatchReport { lane, batch, ok: true }));
                }
                None => self.feed(Event::Tick),
            }
        }
        self.now = self.now.max(end);
    }

    fn arrive(&mut self, tenant: u16, model: u32, slack_ms: Option<u64>) -> u32 {
        let slot = u32::try_from(self.tenants.len()).unwrap();
        self.tenants.insert(slot, tenant);
        self.feed(Event::Arrive(Arrival {
            request: RequestId::new(slot, 0),
            model: ModelId(model),
            class: Class::new(u8::from(tenant == 0)),
            tenant: Tenant::new(tenant),
            shape: ShapeKey(0),
            rows: 1,
            bytes: 64,
            deadline: slack_ms.map(|slack| self.now.after(Nanos::from_millis(slack))),
            timeout_action: Default::default(),
            pipeline: None,
        }));
        slot
    }

    fn reason(&self, slot: u32) -> Option<Reason> {
        self.ended.get(&slot).map(|(_, reason)| *reason)
    }

    fn used(&self, tenant: u16) -> Nanos {
        self.router.tenant_uses().nth(usize::from(tenant)).unwrap().lane_time
    }
}

/// A request: who sends it, to which model, how long after the one before it, and the slack of its deadline.
type Sent = (u16, u32, u64, Option<u64>);

fn sent() -> impl Strategy<Value = Sent> {
    (0_u16..3, 0..MODELS, 0_u64..3_000, prop::option::of(5_u64..60))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_tenant_never_gets_more_than_its_quota_its_burst_and_one_batch(
        traffic in prop::collection::vec(sent(), 1..200),
        per_second in 50 * MILLI..900 * MILLI,
        burst in MILLI..50 * MILLI,
        slowdown in 1_u64..3,
        policy in prop::sample::select(vec!["deadline", "triton", "nexus", "clockwork", "nanily"]),
    ) {
        let quota = TenantQuota { lane_time: lane_time(per_second, burst), ..TenantQuota::default() };
        let lanes = 2;
        let mut world = World::new(policy, lanes, vec![TenantQuota::default(), quota]);
        world.slowdown = slowdown;
        for (tenant, model, gap_us, slack) in traffic {
            let at = world.now.after(Nanos::from_micros(gap_us));
            world.until(at);
            world.arrive(tenant, model, slack);
        }
        let end = world.now.after(Nanos::from_millis(20_000));
        world.until(end);
        let theirs: Vec<&Started> = world.started.iter().filter(|started| started.tenant == 1).collect();
        // A batch that takes longer than expected is charged when it ends, and others may have started until then.
        let late = if slowdown == 1 { 0 } else { u64::from(lanes) * batch_time(MAX_BATCH) * slowdown };
        for (first, from) in theirs.iter().enumerate() {
            let mut used = 0;
            for started in theirs.iter().skip(first) {
                used += started.share;
                let time = u128::from(started.at - from.at) * u128::from(per_second) / u128::from(SECOND);
                let most = u64::try_from(time).unwrap() + burst + batch_time(MAX_BATCH) * slowdown + late;
                prop_assert!(used <= most, "{used} ns from {} to {}, at most {most}", from.at, started.at);
            }
        }
        let uses: Vec<_> = world.router.tenant_uses().collect();
        prop_assert!(uses.iter().all(|one| one.lane_time_left.is_none_or(|left| left <= burst as i64)));
        let measured: u64 = theirs.iter().map(|started| started.share).sum();
        prop_assert_eq!(world.used(1), Nanos(measured));
    }

    #[test]
    fn a_tenant_within_its_quota_is_never_refused_for_it(
        traffic in prop::collection::vec(sent(), 1..200),
        gaps in prop::collection::vec(0_u64..20_000, 1..60),
        borrow in prop::bool::ANY,
    ) {
        // Tenant 1 spends at most 200 ms a second, if each of its requests runs alone. Tenant 2 floods over its quota.
        let (rate, burst) = (200 * MILLI, 20 * MILLI);
        let requests = Some(Allowance { per_second: 150 * REQUEST, burst: 20 * REQUEST });
        let own = TenantQuota { lane_time: lane_time(rate, burst), requests, borrow: false };
        let flood = TenantQuota { lane_time: lane_time(rate, MILLI), requests: None, borrow };
        let mut world = World::new("deadline", 2, vec![TenantQuota::default(), own, flood]);
        let mut arrivals: Vec<(u64, u16, u32, Option<u64>)> = Vec::new();
        let mut at = 0;
        for (tenant, model, gap_us, slack) in traffic.into_iter().filter(|(tenant, ..)| *tenant != 1) {
            at += gap_us * 300;
            arrivals.push((at, tenant, model, slack));
        }
        let cost = batch_time(1);
        let (mut at, mut left) = (0, burst / 2);
        for gap_us in gaps {
            let gained = gap_us * 1_000 / 5;
            at += gap_us * 1_000;
            left = (left + gained).min(burst / 2);
            if left > cost {
                left -= cost;
                arrivals.push((at, 1, 0, Some(100)));
            }
        }
        arrivals.sort_unstable();
        let mut own = Vec::new();
        for (at, tenant, model, slack) in arrivals {
            world.until(Nanos(at));
            let slot = world.arrive(tenant, model, slack);
            if tenant == 1 {
                own.push(slot);
            }
        }
        let end = world.now.after(Nanos::from_millis(2_000));
        world.until(end);
        for slot in own {
            prop_assert_ne!(world.reason(slot), Some(Reason::Quota));
        }
    }
}

#[test]
fn requests_beyond_their_quota_are_refused_and_the_wait_is_known() {
    let requests = Some(Allowance { per_second: 10 * REQUEST, burst: 2 * REQUEST });
    let quota = TenantQuota { requests, ..TenantQuota::default() };
    let mut world = World::new("deadline", 1, vec![TenantQuota::default(), quota]);
    let slots: Vec<u32> = (0..3).map(|_| world.arrive(1, 0, Some(100))).collect();
    assert_eq!(world.ended.get(&slots[2]), Some(&(Outcome::Refused, Reason::Quota)));
    assert_eq!(world.router.quota_wait(Tenant::new(1)), Nanos::from_millis(100));
    assert_eq!(world.router.quota_wait(Tenant::new(0)), Nanos::ZERO);
    world.until(Nanos::from_millis(100));
    let next = world.arrive(1, 0, Some(100));
    world.until(Nanos::from_millis(200));
    assert_eq!(world.reason(next), Some(Reason::Answered));
}

#[test]
fn a_tenant_without_tokens_starts_nothing_until_it_has_some() {
    // A request alone takes 2 ms, which is what comes in within 20 ms. At least 1.25 ms are reserved for it.
    let quota = TenantQuota { lane_time: lane_time(100 * MILLI, 3_300_000), ..TenantQuota::default() };
    let mut world = World::new("triton", 1, vec![TenantQuota::default(), quota]);
    for model in [0, 0, 1, 0] {
        world.arrive(1, model, None);
    }
    world.until(Nanos::from_millis(100));
    let starts: Vec<u64> = world.started.iter().map(|started| started.at / MILLI).collect();
    // 1.3 ms are left after the first, and 0.5 ms too few after the second, which are there 5 ms later.
    assert_eq!(starts, [0, 2, 7], "{:?}", world.ended);
    assert_eq!(world.reason(3), Some(Reason::Quota), "two requests are reserved");
}

#[test]
fn changed_quotas_hold_from_then_on_also_for_requests_that_wait() {
    let change = |world: &mut World, quota: TenantQuota| {
        let table = TenantTable::new(vec![1, 1], vec![TenantQuota::default(), quota]).unwrap();
        world.feed(Event::TenantsChanged(&table));
    };
    // Two requests of 2 ms leave a debt of 0.7 ms, which is repaid after 0.7 s.
    let quota =
        |per_second| TenantQuota { lane_time: lane_time(per_second, 3_300_000), ..TenantQuota::default() };
    let narrow = quota(MILLI);
    for (changed, starts) in
        [(narrow, vec![0, 2]), (quota(SECOND), vec![0, 2, 10]), (TenantQuota::default(), vec![0, 2, 10])]
    {
        let mut world = World::new("triton", 1, vec![TenantQuota::default(), narrow]);
        for model in [0, 0, 1] {
            world.arrive(1, model, None);
        }
        world.until(Nanos::from_millis(10));
        change(&mut world, changed);
        world.until(Nanos::from_millis(100));
        let started: Vec<u64> = world.started.iter().map(|started| started.at / MILLI).collect();
        assert_eq!(started, starts, "{changed:?}");
    }
    let mut world = World::new("deadline", 1, vec![TenantQuota::default(); 2]);
    let first = world.arrive(1, 0, Some(100));
    let one = Allowance { per_second: REQUEST, burst: REQUEST };
    change(&mut world, TenantQuota { requests: Some(one), ..TenantQuota::default() });
    let [within, beyond] = [(); 2].map(|()| world.arrive(1, 0, Some(100)));
    world.until(Nanos::from_millis(100));
    assert_eq!(
        [first, within, beyond].map(|slot| world.reason(slot)),
        [Some(Reason::Answered), Some(Reason::Answered), Some(Reason::Quota)]
    );
    // Used lane time is counted on, with a quota and without.
    let used = world.used(1);
    change(&mut world, TenantQuota::default());
    assert_eq!(world.used(1), used);
}

#[test]
fn what_is_borrowed_runs_only_on_idle_lanes_and_alone() {
    let quota = TenantQuota { lane_time: lane_time(MILLI, MILLI), requests: None, borrow: true };
    let mut world = World::new("triton", 1, vec![TenantQuota::default(), quota]);
    for at in 0..200_u64 {
        world.until(Nanos::from_millis(at));
        world.arrive(1, 0, None);
        // Tenant 0 is in a less urgent class, and sends 50 requests a second that take 2 ms each.
        if at % 20 == 0 {
            world.arrive(0, 0, Some(12));
        }
    }
    world.until(Nanos::from_millis(2_000));
    let all = |tenant: u16| -> Vec<u32> {
        world.tenants.iter().filter(|(_, theirs)| **theirs == tenant).map(|(slot, _)| *slot).collect()
    };
    assert!(all(0).iter().chain(&all(1)).all(|&slot| world.reason(slot) == Some(Reason::Answered)));
    let mixed = |tenants: &&Vec<u16>| tenants.contains(&0) && tenants.contains(&1);
    assert_eq!(world.batches.iter().filter(mixed).count(), 0);
    assert_eq!(world.used(0), Nanos::from_millis(20));
    assert!(world.used(1) > Nanos::from_millis(200), "{}", world.used(1));
    world.feed(Event::Tick);
    let left = world.router.tenant_uses().nth(1).unwrap().lane_time_left.unwrap();
    assert_eq!(left, MILLI as i64, "borrowed time is not paid back");
}
