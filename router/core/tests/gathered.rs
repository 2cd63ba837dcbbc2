//! A node behind an endpoint picker that forms the batches: the policy should start what it was sent, at once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec, ModelId,
    ModelLanes, ModelSpec, Nanos, Outcome, ProfilePoint, RequestId, Router, RouterConfig, ShapeKey, Tenant,
};

const ROWS: u32 = 8;
const BATCHES: u32 = 300;

/// A batch takes 5 ms and 1 ms a row.
fn time(rows: u32) -> Nanos {
    Nanos::from_millis(5 + u64::from(rows))
}

/// What came of the batches that the picker sent.
#[derive(Debug, Default, PartialEq)]
struct Ended {
    /// Requests that were answered by their deadline.
    in_time: u32,
    /// Requests that were answered later, or not at all.
    lost: u32,
    /// Batches with all rows that the picker sent together.
    whole: u32,
}

/// The picker sends 8 rows each time the only lane is about to be free. Each must be answered within `slack_us`.
fn run(policy: &str, slack_us: u64) -> Ended {
    let mut router = Router::new(RouterConfig::default()).unwrap();
    let mut effects = Effects::default();
    let point = |rows: u32| ProfilePoint { rows, row_bytes: 64, time: time(rows) };
    let spec = ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: true,
        model: ModelId(0),
        max_batch: 32,
        queue_limit: 1_000,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy: Policy::new(policy, &BatchOptions::default()).unwrap(),
        lanes: ModelLanes::All,
        profile: [1, 2, 4, 8, 16, 32].map(point).to_vec(),
    };
    router.handle(Nanos::ZERO, Event::ModelUp(&spec), &mut effects);
    router.handle(Nanos::ZERO, Event::LaneUp(LaneSpec::new(LaneId(0), LaneClass::default())), &mut effects);
    let period = time(ROWS).after(Nanos::from_micros(100));
    let (mut sent, mut now) = (0, Nanos::ZERO);
    let mut running: Option<(Nanos, BatchId)> = None;
    let mut deadlines = Vec::new();
    let mut ended = Ended::default();
    loop {
        let sends = (sent < BATCHES).then(|| Nanos(period.0 * u64::from(sent)));
        let done = running.map(|(at, _)| at);
        let Some(at) = [sends, done, router.next_wake()].into_iter().flatten().min() else { break };
        now = now.max(at);
        if let Some((_, batch)) = running.take_if(|(at, _)| *at <= now) {
            let report = BatchReport { lane: LaneId(0), batch, ok: true };
            router.handle(now, Event::BatchDone(report), &mut effects);
        } else if sends == Some(at) {
            let deadline = now.after(Nanos::from_micros(slack_us));
            let arrival = |row: u32| Arrival {
                request: RequestId::new(sent * ROWS + row, 0),
                model: ModelId(0),
                class: Class::default(),
                tenant: Tenant::default(),
                shape: ShapeKey(0),
                rows: 1,
                bytes: 64,
                deadline: Some(deadline),
                timeout_action: Default::default(),
                pipeline: None,
            };
            let arrivals: Vec<Arrival> = (0..ROWS).map(arrival).collect();
            deadlines.push(deadline);
            sent += 1;
            router.handle(now, Event::ArriveTogether(&arrivals), &mut effects);
        } else {
            router.handle(now, Event::Tick, &mut effects);
        }
        for effect in &effects {
            match effect {
                Effect::Dispatch { batch, rows, .. } => {
                    ended.whole += u32::from(*rows == ROWS);
                    running = Some((now.after(time(*rows)), *batch));
                }
                Effect::Finish { request, outcome, .. } => {
                    let due = deadlines.get((request.slot() / ROWS) as usize).copied().unwrap();
                    let in_time = *outcome == Outcome::Done && now <= due;
                    *(if in_time { &mut ended.in_time } else { &mut ended.lost }) += 1;
                }
                _ => {}
            }
        }
        effects.clear();
    }
    ended
}

/// docs/nodes.md has these figures. Batch times are exact here; where they vary, the default policy is more cautious.
#[test]
fn behind_a_picker_the_policy_triton_starts_what_it_was_sent_and_the_default_loses_some_of_it() {
    for (slack_us, lost_by_default) in [(13_200, 176), (14_000, 76), (16_000, 8), (20_000, 0)] {
        let all = Ended { in_time: BATCHES * ROWS, lost: 0, whole: BATCHES };
        assert_eq!(run("triton", slack_us), all, "{slack_us} us for a batch of 13 ms");
        assert_eq!(run("deadline", slack_us).lost, lost_by_default, "{slack_us} us for a batch of 13 ms");
    }
}
