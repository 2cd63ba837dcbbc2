use super::*;
use crate::batch::{BatchOptions, Policy};
use crate::{
    Arrival, BatchReport, Class, Event, LaneClass, LaneSpec, LaneState, LaneUp, ModelLanes, ModelSpec,
    RequestId, RouterConfig, ShapeKey, Tenant,
};

fn spec(lane: u32) -> LaneSpec {
    LaneSpec::new(LaneId(lane), LaneClass::default())
}

fn up(lane: u32, after: &[u32]) -> LaneUp {
    LaneUp { spec: spec(lane), after: after.iter().copied().map(LaneId).collect() }
}

fn only(lanes: &[u32]) -> ModelLanes {
    ModelLanes::Only(lanes.iter().copied().map(LaneId).collect())
}

fn to(model: u32, lanes: &[u32]) -> ModelMove {
    ModelMove { model: ModelId(model), lanes: only(lanes), times: Vec::new() }
}

/// Two models on lane 0.
fn router(policy: &str) -> Router {
    let mut router =
        Router::new(RouterConfig { max_lanes: 8, records: 4, ..RouterConfig::default() }).unwrap();
    feed(&mut router, 0, Event::LaneUp(spec(0)));
    for model in 0..2 {
        let model = ModelSpec {
            measured_on: LaneClass::default(),
            preemptible: true,
            model: ModelId(model),
            max_batch: 4,
            queue_limit: 100,
            class_limits: Vec::new(),
            rate_limit: Default::default(),
            policy: Policy::new(policy, &BatchOptions::default()).unwrap(),
            lanes: only(&[0]),
            profile: Vec::new(),
        };
        feed(&mut router, 0, Event::ModelUp(&model));
    }
    router
}

fn feed(router: &mut Router, ms: u64, event: Event<'_>) -> Vec<Effect> {
    let mut effects = Effects::default();
    router.handle(Nanos::from_millis(ms), event, &mut effects);
    router.check().unwrap();
    effects.iter().copied().collect()
}

fn arrive(router: &mut Router, ms: u64, slot: u32, model: u32) -> Vec<Effect> {
    let (model, class, tenant) = (ModelId(model), Class::default(), Tenant::default());
    let request = RequestId::new(slot, 0);
    let deadline = Some(Nanos::from_millis(ms + 5_000));
    let shape = ShapeKey(0);
    feed(
        router,
        ms,
        Event::Arrive(Arrival {
            request,
            model,
            class,
            tenant,
            shape,
            rows: 1,
            bytes: 64,
            deadline,
            timeout_action: Default::default(),
            pipeline: None,
        }),
    )
}

#[test]
fn what_makes_no_sense_changes_nothing_and_says_what_is_wrong() {
    let mut router = router("deadline");
    arrive(&mut router, 1, 1, 0);
    arrive(&mut router, 1, 2, 1);
    let before = router.clone();
    let cases = [
        (vec![], vec![5], vec![], "drain: lane 5 is not known, expected a lane that is up, draining or idle"),
        (vec![], vec![0], vec![to(7, &[1])], "models: model 7 is not loaded, expected a loaded model"),
        (vec![up(0, &[])], vec![0], vec![], "up, drain: lane 0 is named twice, expected once"),
        (vec![up(1, &[]), up(1, &[])], vec![], vec![], "up, drain: lane 1 is named twice, expected once"),
        (vec![], vec![0, 0], vec![], "up, drain: lane 0 is named twice, expected once"),
        (vec![], vec![], vec![to(0, &[1]), to(0, &[0])], "models: model 0 is named twice, expected once"),
        (vec![up(8, &[])], vec![], vec![], "up: lane 8 is out of bounds, expected an id below `max_lanes`"),
        (
            vec![up(1, &[1])],
            vec![],
            vec![],
            "up: lane 1 comes after lane 1, which would be active too, expected an idle or draining lane",
        ),
        (
            vec![up(1, &[0])],
            vec![],
            vec![],
            "up: lane 1 comes after lane 0, which would be active too, expected an idle or draining lane",
        ),
    ];
    for (up, drain, models, message) in cases {
        let drain = drain.into_iter().map(LaneId).collect();
        let effects = feed(&mut router, 1, Event::Switch(&Switch { up, drain, models }));
        let [Effect::SwitchRefused(refusal)] = effects[..] else { panic!("{message}: {effects:?}") };
        assert_eq!(refusal.to_string(), message);
        assert!(router == before, "{message}: something changed");
    }
}

#[test]
fn a_lane_that_others_follow_does_not_return_while_they_run() {
    let mut router = router("deadline");
    let models = vec![to(0, &[1]), to(1, &[1])];
    let first = Switch { up: vec![up(1, &[0])], drain: vec![LaneId(0)], models };
    assert_eq!(feed(&mut router, 1, Event::Switch(&first)), [Effect::Switched, Effect::LaneIdle(LaneId(0))]);
    let returning = Switch { up: vec![up(0, &[])], ..Switch::default() };
    let refusal = SwitchRefusal::AfterActive { lane: LaneId(1), after: LaneId(0) };
    assert_eq!(feed(&mut router, 2, Event::Switch(&returning)), [Effect::SwitchRefused(refusal)]);
    feed(&mut router, 3, Event::LaneDown(LaneId(0)));
    assert_eq!(
        feed(&mut router, 4, Event::Switch(&returning)),
        [Effect::Switched],
        "another lane of that number"
    );
}

/// Pools, lanes, queues and batches that memory is held for.
fn sizes(router: &Router) -> [usize; 6] {
    let lanes = router.lanes.iter().map(|(_, lane)| lane);
    let after = lanes.clone().map(|lane| lane.after.len() + lane.pools.len()).sum();
    let closed = router.queues.slots();
    [router.pools.iter().count(), router.pools.slots(), lanes.count(), router.lanes.slots(), closed, after]
}

#[test]
fn switching_forth_and_back_leaves_nothing_behind() {
    for policy in ["deadline", "nexus", "shepherd"] {
        let mut router = router(policy);
        // 0 alone, or 1 and 2 on its halves.
        let halves = Switch {
            up: vec![up(1, &[0]), up(2, &[0])],
            drain: vec![LaneId(0)],
            models: vec![to(0, &[1, 2]), to(1, &[2])],
        };
        let whole = Switch {
            up: vec![up(0, &[1, 2])],
            drain: vec![LaneId(1), LaneId(2)],
            models: vec![to(0, &[0]), to(1, &[0])],
        };
        let (mut seen, mut slot, mut running) = (Vec::new(), 0, Vec::new());
        for round in 0..400_u64 {
            let now = 10 * round;
            for switch in [&halves, &whole] {
                for model in [0, 1, 0] {
                    slot = (slot + 1) % 60_000;
                    running.extend(arrive(&mut router, now, slot, model));
                }
                running.extend(feed(&mut router, now, Event::Switch(switch)));
                // One batch of the plan before ends after the switch, the others later.
                while let Some(effect) = running.pop() {
                    if let Effect::Dispatch { lane, batch, .. } = effect {
                        let done = Event::BatchDone(BatchReport { lane, batch, ok: true });
                        running.extend(feed(&mut router, now + 1, done));
                    }
                }
                assert_eq!(router.unfinished(), 0, "{policy}");
            }
            assert_eq!(router.lane_state(LaneId(0)), Some(LaneState::Active));
            seen.push(sizes(&router));
        }
        assert_eq!(seen[50], seen[399], "{policy}");
        for lane in [1, 2] {
            feed(&mut router, 5_000, Event::LaneDown(LaneId(lane)));
        }
        assert_eq!(router.snapshot().lanes.len(), 1);
    }
}

#[test]
fn queues_that_meet_keep_the_order_of_deadlines_and_of_arrival() {
    let mut router = router("triton");
    feed(&mut router, 0, Event::LaneUp(spec(1)));
    let blocked = arrive(&mut router, 0, 1, 0);
    assert!(matches!(blocked[..], [Effect::Dispatch { .. }]));
    for slot in 2..8 {
        arrive(&mut router, u64::from(slot), slot, 0);
    }
    // Every other request is bound to the lane, as a planning policy does.
    let own = router.pool_of_lane(LaneId(0), ModelId(0)).unwrap();
    let (key, queue) = router.model(ModelId(0)).unwrap().queues[0];
    for slot in [3, 5, 7] {
        router.unqueue(slot);
        let bound = QueueKey { pool: own, ..key };
        let queue = router.model(ModelId(0)).unwrap().queue(bound).unwrap_or_else(|| {
            let opened = router.queues.open(bound);
            router.model_mut(ModelId(0)).unwrap().queues.push((bound, opened));
            opened
        });
        let request = router.requests.at_mut(slot).unwrap();
        request.queue = queue;
        router.queues.push(queue, slot, &mut router.requests);
        *router.model_mut(ModelId(0)).unwrap().queued_mut(Class::default()).unwrap() += 1;
    }
    router.check().unwrap();
    assert_eq!(router.queues.get(queue).unwrap().len(), 3);
    let switch = Switch { up: vec![up(2, &[0])], drain: vec![LaneId(0)], models: vec![to(0, &[2])] };
    assert_eq!(feed(&mut router, 9, Event::Switch(&switch)), [Effect::Switched]);
    let model = router.model(ModelId(0)).unwrap();
    assert_eq!(model.queues.len(), 1);
    let queue = router.queues.get(model.queues[0].1).unwrap();
    assert_eq!(queue.slots().collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    let mut by_arrival = Vec::new();
    let mut next = queue.oldest();
    while let Some(request) = next.and_then(|slot| router.requests.at(slot)) {
        by_arrival.push(request.id.slot());
        next = Some(request.next);
    }
    assert_eq!(by_arrival, [2, 3, 4, 5, 6, 7]);
}
