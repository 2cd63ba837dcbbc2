use super::*;
use crate::batch::{BatchOptions, Policy};
use crate::lane::LaneMode;
use crate::queue::Priority;
use crate::request::Stage;
use crate::resources::{Limited, RateLimit, ResourceId};
use crate::tenant_accounts::TenantAccounts;
use crate::{
    Allowance, Arrival, Class, Effects, Event, LaneClass, LaneId, LaneSpec, ModelId, ModelLanes, ModelSpec,
    Nanos, RequestId, RouterConfig, ShapeKey, Tenant, TenantQuota, TenantTable,
};

/// Model 0 has a batch on each of the lanes 0 and 1, and two requests (slots 2 and 3) in queue 0. Lane 2 is free.
fn router() -> Router {
    let mut router = Router::new(RouterConfig { max_lanes: 8, ..RouterConfig::default() }).unwrap();
    let mut effects = Effects::default();
    let mut feed = |event: Event<'_>| router.handle(Nanos::from_millis(1), event, &mut effects);
    for lane in 0..3 {
        feed(Event::LaneUp(LaneSpec::new(LaneId(lane), LaneClass::default())));
    }
    for (model, lanes) in [(0, vec![0, 1]), (1, vec![2])] {
        feed(Event::ModelUp(&ModelSpec {
            measured_on: LaneClass::default(),
            preemptible: true,
            model: ModelId(model),
            max_batch: 1,
            queue_limit: 100,
            class_limits: Vec::new(),
            rate_limit: Default::default(),
            policy: Policy::new("deadline", &BatchOptions::default()).unwrap(),
            lanes: ModelLanes::Only(lanes.into_iter().map(LaneId).collect()),
            profile: Vec::new(),
        }));
    }
    for slot in 0..4 {
        feed(Event::Arrive(Arrival {
            request: RequestId::new(slot, 0),
            model: ModelId(0),
            class: Class::default(),
            tenant: Tenant::default(),
            shape: ShapeKey(0),
            rows: 1,
            bytes: 64,
            deadline: Some(Nanos::from_millis(5_000)),
            timeout_action: Default::default(),
            pipeline: None,
        }));
    }
    router.check().unwrap();
    assert_eq!(router.queues.iter().map(|(_, queue)| queue.len()).collect::<Vec<_>>(), [2]);
    router
}

/// The first violation within several rounds of the checker.
fn found(router: &Router) -> Option<&'static str> {
    let mut checker = Checker::default();
    (0..100).find_map(|_| checker.step(router).err()).map(|violation| violation.id)
}

#[test]
fn a_sound_router_passes_and_each_kind_of_damage_is_found() {
    let sound = router();
    assert_eq!(found(&sound), None);

    type Damage = fn(&mut Router);
    let damages: [(&str, &str, Damage); 20] = [
        ("R1", "a request is in a batch that does not exist", |router| {
            router.requests.at_mut(2).unwrap().stage = Stage::InFlight { batch: 99 };
        }),
        ("R1", "a queue holds a finished request", |router| {
            router.requests.remove(2);
        }),
        ("R1", "a queued request is in no queue", |router| {
            let queue = router.queues.get_mut(0).unwrap();
            queue.waiting.remove((Nanos::from_millis(1), 0));
            router.requests.at_mut(3).unwrap().sequence = 77;
        }),
        ("R1", "a batch lists a request that is queued", |router| {
            let queued = router.requests.at(2).unwrap().id;
            router.batches.at_mut(0).unwrap().members.push(queued);
        }),
        ("R1", "a model counts a batch too many", |router| {
            router.models.get_mut(ModelId(0)).unwrap().running += 1
        }),
        ("R3", "a batch is larger than its model allows", |router| {
            router.batches.at_mut(0).unwrap().rows = 9;
        }),
        ("R4", "a queue counts a row too many", |router| router.queues.get_mut(0).unwrap().rows += 1),
        ("R4", "a model counts a queued request too many", |router| {
            router.models.get_mut(ModelId(0)).unwrap().queued[0] += 1;
        }),
        ("R4", "more bytes are counted than are queued", |router| router.queues.miscount_bytes()),
        ("R5", "a lane holds three batches", |router| {
            router.lanes.get_mut(LaneId(0)).unwrap().holding.extend([0, 0]);
        }),
        ("R5", "a lane takes batches ahead that no policy plans", |router| {
            router.lanes.get_mut(LaneId(2)).unwrap().ahead = Nanos::from_millis(1);
        }),
        ("R5", "a batch is on no lane", |router| router.lanes.get_mut(LaneId(0)).unwrap().holding.clear()),
        ("R5", "a lane does not know its pool", |router| {
            router.lanes.get_mut(LaneId(0)).unwrap().pools.clear()
        }),
        ("R5", "a lane with a cycle is counted that is not there", |router| router.lanes.miscount_cycles()),
        ("R6", "a timer is left of a queue that is closed", |router| {
            router.queues.set_timer(70, Nanos::ZERO);
            router.queues.set_timer(71, Nanos::ZERO);
        }),
        ("R7", "a lane is free and a queue that it may run is ready", |router| {
            let pool = router.models.get(ModelId(0)).unwrap().pool;
            router.pools.file(pool, 0, Some((Class::default(), Priority::Deadline, 0, 0)));
            router.pools.get_mut(pool).unwrap().free.insert(LaneId(0));
        }),
        ("R10", "a lane that waits for another is free", |router| {
            router.lanes.get_mut(LaneId(2)).unwrap().after.push(LaneId(0));
        }),
        ("R11", "an idle lane is in a pool", |router| {
            router.lanes.get_mut(LaneId(2)).unwrap().mode = LaneMode::Idle;
        }),
        ("R12", "more is held of a resource than batches need", |router| {
            let limit = RateLimit { needs: vec![(ResourceId(0), 1)], priority: 1 };
            router.resources.know(&limit);
            router.resources.take(&mut Limited::new(&limit));
        }),
        ("R14", "more lane time is reserved than queued requests need", |router| {
            let lane_time = Some(Allowance { per_second: 1, burst: 1 });
            let quota = TenantQuota { lane_time, ..TenantQuota::default() };
            router.tenants = TenantAccounts::new(&TenantTable::new(vec![1], vec![quota]).unwrap());
            router.tenants.miscount_reservations();
        }),
    ];
    for (id, what, damage) in damages {
        let mut damaged = sound.clone();
        damage(&mut damaged);
        assert_eq!(found(&damaged), Some(id), "{what}");
        assert_eq!(damaged.check().unwrap_err().id, id, "{what}");
    }
}

#[test]
fn work_is_bounded_and_followed_by_a_pause_in_proportion() {
    let router = router();
    let mut checker = Checker::default();
    let mut checked = 0;
    for _ in 0..1_000 {
        let before = checker.pause;
        checker.after_event(&router).unwrap();
        checked += usize::from(before == 0);
        assert!(checker.pause <= EVENTS_PER_ITEM * (SLICE + SUM + 2));
        assert!(before == 0 || checker.pause == before - 1, "no check before the pause is over");
    }
    assert!((1..=1_000 / EVENTS_PER_ITEM).contains(&checked), "{checked} steps in 1,000 events");
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "router.R4"))]
fn a_violation_is_counted_and_then_left_alone_for_a_while() {
    let mut router = router();
    router.queues.miscount_bytes();
    let mut checker = Checker::default();
    let mut seen = 0;
    for _ in 0..10_000 {
        seen += usize::from(checker.after_event(&router).is_err());
    }
    assert_eq!(seen, 1);
    assert!(invariant::violations().iter().any(|violation| violation.id == "router.R4"));
}
