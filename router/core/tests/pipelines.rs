//! Requests of pipelines: what their deadlines mean to a stage.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use router_core::batch::{BatchOptions, Policy};
use router_core::pipeline::Graph;
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec, ModelId,
    ModelLanes, ModelSpec, Nanos, Outcome, PipelineId, PipelineSpec, PipelineStage, Position, ProfilePoint,
    Reason, RequestId, Router, RouterConfig, ShapeKey, Split, Tenant,
};

const PIPELINE: PipelineId = PipelineId(7);

struct Bench {
    router: Router,
    effects: Effects,
}

/// Two models of 10 ms and 40 ms a batch on a lane of their own each, as the stages of a pipeline.
fn bench(split: Split) -> Bench {
    bench_with(split, 8)
}

/// The same with batches of at most `max_batch` rows.
fn bench_with(split: Split, max_batch: u32) -> Bench {
    bench_of([(10, max_batch, 0.2), (40, max_batch, 0.8)], |lane| ModelLanes::Only(vec![lane]), split)
}

/// Two models with a lane each, as the stages of a pipeline: milliseconds of a batch, its most rows, and the share of the objective.
/// `lanes` says where the model of a lane runs.
fn bench_of(stages: [(u64, u32, f64); 2], lanes: fn(LaneId) -> ModelLanes, split: Split) -> Bench {
    let mut bench =
        Bench { router: Router::new(RouterConfig::default()).unwrap(), effects: Effects::default() };
    let mut of_pipeline = Vec::new();
    for (model, (time, max_batch, share)) in (0..).zip(stages) {
        let point = |rows| ProfilePoint { rows, row_bytes: 64, time: Nanos::from_millis(time) };
        let spec = ModelSpec {
            measured_on: LaneClass::default(),
            preemptible: true,
            model: ModelId(model),
            max_batch,
            queue_limit: 100,
            class_limits: Vec::new(),
            rate_limit: Default::default(),
            policy: Policy::new("deadline", &BatchOptions::default()).unwrap(),
            lanes: lanes(LaneId(model)),
            profile: [1, max_batch].map(point).to_vec(),
        };
        bench.feed(0, Event::ModelUp(&spec));
        bench.feed(0, Event::LaneUp(LaneSpec::new(LaneId(model), LaneClass::default())));
        of_pipeline.push(PipelineStage { model: ModelId(model), rows: 1.0, share });
    }
    let graph = Graph::chain(2).unwrap();
    let spec = PipelineSpec { pipeline: PIPELINE, graph, stages: of_pipeline, split };
    bench.feed(0, Event::PipelineUp(&spec));
    bench
}

fn arrival(slot: u32, stage: u32, begun_ms: u64, deadline_ms: u64) -> Arrival {
    Arrival {
        request: RequestId::new(slot, 0),
        model: ModelId(stage),
        class: Class::default(),
        tenant: Tenant::default(),
        shape: ShapeKey(0),
        rows: 1,
        bytes: 64,
        deadline: Some(Nanos::from_millis(deadline_ms)),
        timeout_action: Default::default(),
        pipeline: Some(Position { pipeline: PIPELINE, stage, begun: Nanos::from_millis(begun_ms) }),
    }
}

impl Bench {
    fn feed(&mut self, at_ms: u64, event: Event<'_>) -> Vec<Effect> {
        self.router.handle(Nanos::from_millis(at_ms), event, &mut self.effects);
        self.router.check().unwrap();
        let effects = self.effects.iter().copied().collect();
        self.effects.clear();
        effects
    }
}

fn started(effects: &[Effect]) -> Vec<BatchId> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Dispatch { batch, .. } => Some(*batch),
            _ => None,
        })
        .collect()
}

fn refusal(effects: &[Effect]) -> Option<(Outcome, Reason)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Finish { outcome, reason, .. } => Some((*outcome, *reason)),
        _ => None,
    })
}

#[test]
fn a_first_stage_is_refused_if_the_second_could_not_end_in_time() {
    // 10 ms and 40 ms do not fit into 45 ms, although the first stage alone would.
    let mut own = bench(Split::EndToEnd);
    assert_eq!(started(&own.feed(0, Event::Arrive(arrival(0, 0, 0, 120)))).len(), 1);
    let effects = own.feed(1, Event::Arrive(arrival(1, 0, 1, 46)));
    assert_eq!(refusal(&effects), Some((Outcome::Refused, Reason::DeadlineUnmeetable)), "{effects:?}");
    // Without its pipeline it is an ordinary request.
    own.feed(2, Event::PipelineDown(PIPELINE));
    assert_eq!(refusal(&own.feed(2, Event::Arrive(arrival(2, 0, 1, 46)))), None);
}

#[test]
fn a_later_stage_uses_the_time_that_earlier_ones_left_over() {
    // The first stage took all but 45 ms of 100 ms, so the share of the second one, counted from the arrival, is over at 100 ms.
    for (split, runs) in [(Split::EndToEnd, true), (Split::Static, true), (Split::PerStage, true)] {
        let effects = bench(split).feed(50, Event::StageDone(&[arrival(0, 1, 0, 100)]));
        assert_eq!(started(&effects).len() == 1, runs, "{split:?}");
    }
    // With a static split, the first stage may take 20 ms only, even if the second one is done early.
    for (split, runs) in [(Split::EndToEnd, true), (Split::Static, false)] {
        let effects = bench(split).feed(25, Event::StageDone(&[arrival(0, 0, 0, 100)]));
        assert_eq!(started(&effects).len() == 1, runs, "{split:?}");
    }
}

#[test]
fn the_parts_of_a_stage_form_one_batch() {
    let mut own = bench(Split::EndToEnd);
    let parts = [0, 1, 2].map(|slot| arrival(slot, 1, 0, 200));
    let effects = own.feed(1, Event::StageDone(&parts));
    let rows: Vec<u32> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Dispatch { rows, .. } => Some(*rows),
            _ => None,
        })
        .collect();
    assert_eq!(rows, [3]);
}

/// A second stage whose requests waited behind others, until 20 s: they took 79 ms, of which 40 ms in their batches.
fn slow_second_stage() -> Bench {
    let mut own = bench_with(Split::EndToEnd, 2);
    for cycle in 0..200_u32 {
        let at = 100 * u64::from(cycle);
        let other = Arrival { pipeline: None, ..arrival(2 * cycle, 1, at, at + 1_000) };
        let effects = own.feed(at, Event::Arrive(other));
        let first = started(&effects).first().copied().unwrap();
        let ahead = own.feed(at + 1, Event::StageDone(&[arrival(2 * cycle + 1, 1, at, at + 1_000)]));
        let then =
            own.feed(at + 40, Event::BatchDone(BatchReport { lane: LaneId(1), batch: first, ok: true }));
        // It may be handed over ahead of time.
        let second = started(&[ahead, then].concat()).first().copied().unwrap();
        own.feed(at + 80, Event::BatchDone(BatchReport { lane: LaneId(1), batch: second, ok: true }));
    }
    own
}

/// A request with 80 ms that waits for the first stage beyond its share of it, and would have 60 ms for the second one.
fn refusal_behind_another(mut own: Bench, at: u64) -> Option<(Outcome, Reason)> {
    own.feed(at, Event::Arrive(arrival(1_001, 0, at, at + 500)));
    refusal(&own.feed(at + 1, Event::Arrive(arrival(1_002, 0, at + 1, at + 81))))
}

#[test]
fn time_that_later_stages_took_counts_for_earlier_ones_while_they_would_wait() {
    let mut own = slow_second_stage();
    own.feed(20_000, Event::StageDone(&[arrival(1_000, 1, 20_000, 21_000)]));
    let refused = refusal_behind_another(own, 20_000);
    assert_eq!(refused, Some((Outcome::Refused, Reason::DeadlineUnmeetable)));
}

#[test]
fn a_request_that_would_not_wait_is_not_refused_for_those_that_did() {
    assert_eq!(
        refusal_behind_another(slow_second_stage(), 20_000),
        None,
        "the lane of the second stage is free"
    );
}

#[test]
fn time_that_a_later_stage_took_is_forgotten_if_it_does_not_run() {
    let mut own = slow_second_stage();
    own.feed(30_000, Event::StageDone(&[arrival(1_000, 1, 30_000, 31_000)]));
    assert_eq!(
        refusal_behind_another(own, 30_000),
        None,
        "it took long ten seconds ago, 125 times the objective"
    );
}

#[test]
fn a_late_request_of_a_pipeline_does_not_keep_lanes_from_the_next_ones() {
    // Each model runs on both lanes.
    let mut own = bench_of([(300, 1, 0.5), (10, 8, 0.5)], |_| ModelLanes::All, Split::EndToEnd);
    // Of each of two requests, eight rows reach the second stage 30 ms before the end of 2 s.
    for (slot, at) in [(0, 1_970), (1, 2_000)] {
        let rows = Arrival { rows: 8, bytes: 512, ..arrival(slot, 1, at - 1_970, at + 30) };
        let batch = started(&own.feed(at, Event::StageDone(&[rows])))[0];
        own.feed(at + 10, Event::BatchDone(BatchReport { lane: LaneId(0), batch, ok: true }));
    }
    assert_eq!(started(&own.feed(2_100, Event::Arrive(arrival(2, 0, 2_100, 4_100)))).len(), 1);
    let second = own.feed(2_101, Event::Arrive(arrival(3, 0, 2_101, 4_101)));
    assert_eq!(started(&second).len(), 1, "a lane is free: {second:?}");
}
