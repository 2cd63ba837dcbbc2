//! Families: which variant answers a request, event by event.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, FamilyId, FamilyRequest, FamilySpec,
    Incoming, LaneClass, LaneId, LaneSpec, ModelId, ModelLanes, ModelSpec, Nanos, Outcome, ProfilePoint,
    Reason, RequestId, Router, RouterConfig, ShapeKey, Tenant, Variant,
};

const FAMILY: FamilyId = FamilyId(7);
/// Milliseconds of a row at each variant, from the best to the worst.
const TIMES: [u64; 3] = [40, 20, 5];

struct Bench {
    router: Router,
    effects: Effects,
    next: u32,
}

/// What came of a request: the model of the batch that runs it, that it waits, or why it was refused.
#[derive(Debug, PartialEq)]
enum Came {
    Runs(u32),
    Waits,
    Refused(Reason),
    NoVariant,
}

fn bench() -> Bench {
    let mut bench =
        Bench { router: Router::new(RouterConfig::default()).unwrap(), effects: Effects::default(), next: 0 };
    for (model, time) in (0..).zip(TIMES) {
        bench.feed(0, Event::ModelUp(&spec(model, time)));
    }
    bench.feed(0, Event::LaneUp(LaneSpec::new(LaneId(0), LaneClass::default())));
    let quality = |model| 900_000 - 100_000 * model;
    let variants = (0..3).map(|model| Variant { model: ModelId(model), quality: quality(model) });
    bench.feed(
        0,
        Event::FamilyUp(&FamilySpec { family: FAMILY, variants: variants.rev().collect(), objective: None }),
    );
    bench
}

fn spec(model: u32, time: u64) -> ModelSpec {
    let point = ProfilePoint { rows: 1, row_bytes: 64, time: Nanos::from_millis(time) };
    ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: false,
        model: ModelId(model),
        max_batch: 1,
        queue_limit: 100,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy: Policy::new("deadline", &BatchOptions::default()).unwrap(),
        lanes: ModelLanes::All,
        profile: vec![point],
    }
}

impl Bench {
    fn feed(&mut self, at_ms: u64, event: Event<'_>) {
        self.effects.clear();
        self.router.handle(Nanos::from_millis(at_ms), event, &mut self.effects);
        self.router.check().unwrap();
    }

    /// A request that wants this quality and must be answered within this time.
    fn arrive(&mut self, at_ms: u64, within_ms: u64, quality_min: u32, lane_time_max: Nanos) -> Came {
        self.arrive_with(1, at_ms, (within_ms, quality_min, lane_time_max))
    }

    fn arrive_with(
        &mut self,
        rows: u32,
        at_ms: u64,
        (within_ms, quality_min, lane_time_max): (u64, u32, Nanos),
    ) -> Came {
        let request = RequestId::new(self.next, 0);
        self.next += 1;
        let deadline = Some(Nanos::from_millis(at_ms + within_ms));
        let wanted = FamilyRequest { family: FAMILY, quality_min, lane_time_max };
        let incoming = Incoming { class: Class::new(0), rows, bytes: 64, deadline };
        let Some(model) = self.router.choose(Nanos::from_millis(at_ms), &incoming, &wanted) else {
            return Came::NoVariant;
        };
        let arrival = Arrival {
            request,
            model,
            class: incoming.class,
            tenant: Tenant::new(0),
            shape: ShapeKey::default(),
            rows: incoming.rows,
            bytes: incoming.bytes,
            deadline,
            timeout_action: Default::default(),
            pipeline: None,
        };
        self.feed(at_ms, Event::ArriveAtVariant(arrival, FAMILY));
        for effect in &self.effects {
            match effect {
                Effect::Dispatch { model, .. } => return Came::Runs(model.0),
                Effect::Finish { outcome: Outcome::Refused, reason, .. } => return Came::Refused(*reason),
                _ => {}
            }
        }
        Came::Waits
    }

    fn simple(&mut self, at_ms: u64) -> Came {
        self.arrive(at_ms, 200, 0, Nanos::NEVER)
    }

    /// Batches end as they should until this time. Returns the models that ran.
    fn run_until(&mut self, until_ms: u64, mut running: Option<(u64, BatchId)>) -> Vec<u32> {
        let mut ran = Vec::new();
        while let Some((end, batch)) = running.filter(|(end, _)| *end <= until_ms) {
            running = None;
            self.feed(end, Event::BatchDone(BatchReport { lane: LaneId(0), batch, ok: true }));
            for effect in &self.effects {
                if let Effect::Dispatch { batch, model, .. } = effect {
                    let time = TIMES.get(model.0 as usize).copied().unwrap_or_default();
                    ran.push(model.0);
                    running = Some((end + time, *batch));
                }
            }
        }
        ran
    }
}

#[test]
fn the_best_variant_answers_while_a_lane_is_free() {
    assert_eq!(bench().simple(0), Came::Runs(0));
}

#[test]
fn requests_get_worse_variants_while_they_would_wait_long_and_better_ones_afterwards() {
    let mut bench = bench();
    assert_eq!(bench.simple(0), Came::Runs(0));
    let first = bench.effects.iter().find_map(|effect| match effect {
        Effect::Dispatch { batch, .. } => Some(*batch),
        _ => None,
    });
    for at in 1..12 {
        assert_eq!(bench.simple(at), Came::Waits);
    }
    let ran = bench.run_until(1_000, first.map(|batch| (40, batch)));
    assert_eq!(ran.len(), 11, "{ran:?}");
    let of = |model| ran.iter().filter(|ran| **ran == model).count();
    // The best while they would wait up to 48 of 160 ms, then the next one, and from 108 of 180 ms on the last.
    assert!((1..=3).contains(&of(0)) && of(1) >= 1 && of(2) >= 2, "{ran:?}");
    assert!(bench.router.family_changes(FAMILY).unwrap().0 >= 2);
    bench.simple(1_000);
    bench.run_until(2_000, None);
    assert_eq!(bench.router.family_changes(FAMILY).unwrap().1, 1);
}

#[test]
fn a_request_may_ask_for_more_quality_or_for_less_lane_time() {
    let mut busy = bench();
    for at in 0..30 {
        busy.simple(at);
    }
    // Others get the last variant by now. It waits for the one that it asks for, or is refused.
    assert_eq!(busy.arrive(30, 2_000, 850_000, Nanos::NEVER), Came::Waits);
    assert_eq!(busy.arrive(30, 50, 850_000, Nanos::NEVER), Came::Refused(Reason::DeadlineUnmeetable));
    assert_eq!(bench().arrive(0, 200, 950_000, Nanos::NEVER), Came::NoVariant);
    assert_eq!(bench().arrive(0, 200, 0, Nanos::from_millis(20)), Came::Runs(1));
    assert_eq!(bench().arrive(0, 200, 0, Nanos::from_millis(4)), Came::NoVariant);
    assert_eq!(bench().arrive(0, 30, 0, Nanos::NEVER), Came::Runs(1), "the best takes 40 ms");
}

#[test]
fn a_worse_variant_answers_before_a_request_is_refused() {
    let mut bench = bench();
    let mut came = Vec::new();
    for at in 0..60 {
        came.push(bench.simple(at));
    }
    let refused = came.iter().filter(|came| matches!(came, Came::Refused(_))).count();
    // In 260 ms, one lane answers more than 30 of them only because most get the last variant.
    assert!((10..35).contains(&refused), "{refused} of 60: {came:?}");
    assert!(
        came.iter()
            .all(|came| !matches!(came, Came::Refused(reason) if *reason != Reason::DeadlineUnmeetable))
    );
}

#[test]
fn a_variant_answers_nothing_if_a_faster_one_is_as_good() {
    let mut bench = bench();
    // As good as the best, in 30 instead of 40 ms.
    bench.feed(0, Event::ModelUp(&spec(3, 30)));
    let variants = [(0, 900_000), (3, 900_000), (1, 800_000), (2, 700_000)];
    let variants = variants.map(|(model, quality)| Variant { model: ModelId(model), quality }).to_vec();
    bench.feed(0, Event::FamilyUp(&FamilySpec { family: FAMILY, variants, objective: None }));
    assert_eq!(bench.simple(0), Came::Runs(3));
    let mut idle = self::bench();
    let variants = [(0, 700_000), (1, 800_000), (2, 800_000)];
    let variants = variants.map(|(model, quality)| Variant { model: ModelId(model), quality }).to_vec();
    idle.feed(0, Event::FamilyUp(&FamilySpec { family: FAMILY, variants, objective: None }));
    assert_eq!(idle.simple(0), Came::Runs(2), "the others are slower, and at most as good");
}

#[test]
fn a_family_goes_without_variants_that_are_not_served() {
    let mut bench = bench();
    bench.feed(0, Event::ModelDown(ModelId(0)));
    assert_eq!(bench.simple(1), Came::Runs(1));
    bench.feed(1, Event::ModelDown(ModelId(2)));
    bench.feed(1, Event::FamilyDown(FAMILY));
    assert_eq!(bench.simple(2), Came::NoVariant);
}

#[test]
fn a_request_with_too_many_rows_changes_nothing_for_others() {
    let mut bench = bench();
    for (model, time) in (0..).zip(TIMES) {
        bench.feed(0, Event::ModelUp(&ModelSpec { max_batch: 4, ..spec(model + 10, time) }));
    }
    let variants =
        (0..3).map(|model| Variant { model: ModelId(model + 10), quality: 900_000 - 100_000 * model });
    let family =
        FamilySpec { family: FAMILY, variants: variants.collect(), objective: Some(Nanos::from_millis(200)) };
    bench.feed(0, Event::FamilyUp(&family));
    assert_eq!(bench.arrive_with(100, 0, (200, 0, Nanos::NEVER)), Came::NoVariant);
    assert_eq!(bench.simple(0), Came::Runs(10), "the best one");
}
