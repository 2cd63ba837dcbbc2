//! Clients that wait for each response before they send again: no request may wait for others that cannot arrive.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec, ModelId,
    ModelLanes, ModelSpec, Nanos, ProfilePoint, RequestId, Router, RouterConfig, ShapeKey, Tenant,
};

const LANES: u32 = 2;

/// Answers in three seconds, and the longest time that one took, in milliseconds. A batch of b takes 8 + b ms if the
/// model gains by batches, 10 b ms if not; the objective is 2 s.
fn closed_loop(policy: &str, clients: u32, gains: bool) -> (usize, u64) {
    let time = |rows: u32| Nanos::from_millis(if gains { 8 + u64::from(rows) } else { 10 * u64::from(rows) });
    let mut router = Router::new(RouterConfig::default()).unwrap();
    let mut effects = Effects::default();
    let profile = [1, 2, 4, 8, 16, 32, 64].map(|rows| ProfilePoint { rows, row_bytes: 64, time: time(rows) });
    let spec = ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: true,
        model: ModelId(0),
        max_batch: 64,
        queue_limit: 1_000,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy: Policy::new(policy, &BatchOptions::default()).unwrap(),
        lanes: ModelLanes::All,
        profile: profile.to_vec(),
    };
    router.handle(Nanos::ZERO, Event::ModelUp(&spec), &mut effects);
    for lane in 0..LANES {
        let lane = LaneSpec::new(LaneId(lane), LaneClass::default());
        router.handle(Nanos::ZERO, Event::LaneUp(lane), &mut effects);
    }
    let mut asked: BTreeMap<RequestId, Nanos> = BTreeMap::new();
    let mut running: BinaryHeap<Reverse<(Nanos, LaneId, BatchId)>> = BinaryHeap::new();
    let (mut now, mut next, mut answered, mut longest) = (Nanos::ZERO, 0, 0, 0);
    let mut idle = clients;
    loop {
        while idle > 0 && now < Nanos::from_millis(3_000) {
            idle -= 1;
            next += 1;
            let request = RequestId::new(next % 1_000, next);
            asked.insert(request, now);
            let deadline = Some(now.after(Nanos::from_millis(2_000)));
            let (class, tenant, shape) = (Class::default(), Tenant::default(), ShapeKey(0));
            let arrival = Arrival {
                request,
                model: ModelId(0),
                class,
                tenant,
                shape,
                rows: 1,
                bytes: 64,
                deadline,
                timeout_action: Default::default(),
            };
            router.handle(now, Event::Arrive(arrival), &mut effects);
            carry_out(&mut effects, now, &time, &mut running, |_| {});
        }
        let done = running.peek().map(|Reverse((at, ..))| *at);
        let Some(at) = [done, router.next_wake()].into_iter().flatten().min() else { break };
        now = now.max(at);
        if done == Some(at) {
            let Reverse((_, lane, batch)) = running.pop().unwrap();
            router.handle(now, Event::BatchDone(BatchReport { lane, batch, ok: true }), &mut effects);
        } else {
            router.handle(now, Event::Tick, &mut effects);
        }
        carry_out(&mut effects, now, &time, &mut running, |request| {
            longest = longest.max(now.since(asked.remove(&request).unwrap()).0 / 1_000_000);
            answered += 1;
            idle += 1;
        });
    }
    assert!(asked.is_empty());
    (answered, longest)
}

fn carry_out(
    effects: &mut Effects,
    now: Nanos,
    time: &impl Fn(u32) -> Nanos,
    running: &mut BinaryHeap<Reverse<(Nanos, LaneId, BatchId)>>,
    mut ended: impl FnMut(RequestId),
) {
    for effect in effects.iter() {
        match *effect {
            Effect::Dispatch { lane, batch, rows, .. } => {
                running.push(Reverse((now.after(time(rows)), lane, batch)))
            }
            Effect::Finish { request, .. } => ended(request),
            _ => {}
        }
    }
    effects.clear();
}

#[test]
fn a_model_that_does_not_gain_by_batches_keeps_its_lanes_busy() {
    let (answered, longest) = closed_loop("deadline", 8, false);
    println!("{answered} answers, the longest took {longest} ms");
    assert!(answered >= 590, "two lanes of 10 ms a request answer 600 in 3 s");
    assert!(longest <= 60, "the last ones must not wait for company either");
}

#[test]
fn waiting_for_company_costs_clients_that_wait_for_answers_little() {
    let (eager, _) = closed_loop("triton", 8, true);
    let (answered, longest) = closed_loop("deadline", 8, true);
    println!("{answered} answers, {eager} without any waiting; the longest took {longest} ms of 2,000");
    assert!(answered * 100 >= eager * 85);
    assert!(longest <= 100);
}
