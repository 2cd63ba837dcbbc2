//! Resources of the rate limiter, as models and lanes see them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec, ModelId,
    ModelLanes, ModelSpec, Nanos, RateLimit, RequestId, ResourceId, Router, RouterConfig, ShapeKey, Tenant,
};

const R: ResourceId = ResourceId(0);

struct World {
    router: Router,
    now: Nanos,
    issued: u32,
    /// Model and what it holds of the resource, by batch.
    running: BTreeMap<BatchId, (LaneId, ModelId)>,
    needs: BTreeMap<ModelId, u32>,
    started: Vec<ModelId>,
    finished: u32,
}

impl World {
    fn new(lanes: u32, resources: Vec<u32>, models: &[RateLimit]) -> Self {
        let config = RouterConfig { resources, ..RouterConfig::default() };
        let router = Router::new(config).unwrap();
        let mut world = Self {
            router,
            now: Nanos::ZERO,
            issued: 0,
            running: BTreeMap::new(),
            needs: BTreeMap::new(),
            started: Vec::new(),
            finished: 0,
        };
        for (model, rate_limit) in (0..).map(ModelId).zip(models) {
            world.needs.insert(model, rate_limit.needs.iter().map(|(_, count)| count).sum());
            world.feed(Event::ModelUp(&ModelSpec {
                measured_on: LaneClass::default(),
                preemptible: true,
                model,
                max_batch: 1,
                queue_limit: 10_000,
                class_limits: Vec::new(),
                rate_limit: rate_limit.clone(),
                policy: Policy::new("triton", &BatchOptions::default()).unwrap(),
                lanes: ModelLanes::All,
                profile: Vec::new(),
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
        assert_eq!(invariant::violations(), []);
        for effect in &effects {
            match *effect {
                Effect::Dispatch { lane, batch, model, .. } => {
                    self.running.insert(batch, (lane, model));
                    self.started.push(model);
                }
                Effect::Finish { .. } => self.finished += 1,
                _ => {}
            }
        }
    }

    fn arrive(&mut self, model: u32, class: u8) {
        self.issued += 1;
        self.feed(Event::Arrive(Arrival {
            request: RequestId::new(self.issued, 0),
            model: ModelId(model),
            class: Class::new(class),
            tenant: Tenant::default(),
            shape: ShapeKey(0),
            rows: 1,
            bytes: 64,
            deadline: None,
            timeout_action: Default::default(),
            pipeline: None,
        }));
    }

    fn finish(&mut self, nth: usize) {
        let batches: Vec<_> = self.running.keys().copied().collect();
        let Some(&batch) = batches.get(nth % batches.len().max(1)) else { return };
        let (lane, _) = self.running.remove(&batch).unwrap();
        self.now = self.now.after(Nanos::from_millis(1));
        self.feed(Event::BatchDone(BatchReport { lane, batch, ok: true }));
    }

    fn held(&self) -> u32 {
        self.running.values().map(|(_, model)| self.needs.get(model).copied().unwrap_or_default()).sum()
    }
}

fn limit(count: u32, priority: u32) -> RateLimit {
    RateLimit { needs: vec![(R, count)], priority }
}

#[test]
fn batches_wait_for_the_resources_of_their_model_and_other_models_do_not() {
    let mut world = World::new(4, vec![2], &[limit(1, 1), RateLimit::default()]);
    (0..4).for_each(|_| world.arrive(0, 0));
    assert_eq!(world.started.len(), 2, "two batches hold what there is");
    world.arrive(1, 0);
    assert_eq!(world.started.last(), Some(&ModelId(1)), "a model without resources does not wait");
    world.finish(0);
    assert_eq!(world.started.iter().filter(|model| **model == ModelId(0)).count(), 3);
}

#[test]
fn without_a_total_there_is_as_much_as_one_model_needs() {
    let mut world = World::new(4, Vec::new(), &[limit(3, 1), limit(1, 1)]);
    (0..4).for_each(|_| world.arrive(1, 0));
    assert_eq!(world.running.len(), 3);
}

#[test]
fn a_model_that_needs_everything_is_not_starved_by_models_that_need_little() {
    let mut world = World::new(4, vec![4], &[limit(1, 1), limit(4, 1)]);
    (0..4).for_each(|_| world.arrive(0, 0));
    world.arrive(1, 0);
    for _ in 0..8 {
        (0..2).for_each(|_| world.arrive(0, 0));
        world.finish(0);
    }
    assert!(world.started.contains(&ModelId(1)), "{:?}", world.started);
}

#[test]
fn a_model_of_priority_two_gets_half_as_many_batches() {
    let mut world = World::new(2, vec![1], &[limit(1, 1), limit(1, 2)]);
    (0..200).for_each(|nth| world.arrive(nth % 2, 0));
    (0..90).for_each(|_| world.finish(0));
    let second = world.started.iter().filter(|model| **model == ModelId(1)).count();
    assert!((28..=32).contains(&second), "{second} of {}", world.started.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn totals_are_never_exceeded_and_nothing_starves(
        total in 1_u32..6,
        needs in prop::collection::vec((0_u32..8, 0_u32..4), 1..5),
        steps in prop::collection::vec((0_u32..5, 0_u8..3, prop::option::of(0_usize..8)), 0..120),
    ) {
        let models: Vec<_> = needs
            .iter()
            .map(|&(count, priority)| match count {
                0 => RateLimit::default(),
                count => limit(count.min(total), priority),
            })
            .collect();
        let mut world = World::new(3, vec![total], &models);
        for (model, class, done) in steps {
            match done {
                Some(nth) => world.finish(nth),
                None => world.arrive(model % models.len() as u32, class),
            }
            prop_assert!(world.held() <= total);
        }
        // Everything that arrived starts, if batches end.
        for _ in 0..world.issued {
            world.finish(0);
            prop_assert!(world.held() <= total);
        }
        prop_assert_eq!(world.finished, world.issued);
    }
}
