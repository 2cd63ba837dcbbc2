//! Clients that wait for each response before they send again: no request may wait for others that cannot arrive.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec, ModelId,
    ModelLanes, ModelSpec, Nanos, ProfilePoint, RequestId, Router, RouterConfig, ShapeKey, Tenant,
};

/// Clients of a model.
#[derive(Clone, Copy)]
struct Clients {
    policy: &'static str,
    lanes: u32,
    clients: u32,
    /// Time in microseconds between an answer and the next request of the same client.
    think: fn(u64) -> u64,
    /// Time of a batch in milliseconds.
    time: fn(u64) -> u64,
    max_batch: u32,
    /// Objective in milliseconds.
    slo: u64,
}

/// Answers in three seconds, and the longest time that one took, in milliseconds.
fn closed_loop(of: Clients) -> (usize, u64) {
    let time = |rows: u32| Nanos::from_millis((of.time)(u64::from(rows)));
    let mut router = Router::new(RouterConfig::default()).unwrap();
    let mut effects = Effects::default();
    let profile = [1, 2, 4, 8, 16, 32, 64].map(|rows| ProfilePoint { rows, row_bytes: 64, time: time(rows) });
    let spec = ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: true,
        model: ModelId(0),
        max_batch: of.max_batch,
        queue_limit: 1_000,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy: Policy::new(of.policy, &BatchOptions::default()).unwrap(),
        lanes: ModelLanes::All,
        profile: profile.iter().copied().filter(|point| point.rows <= of.max_batch).collect(),
    };
    router.handle(Nanos::ZERO, Event::ModelUp(&spec), &mut effects);
    for lane in 0..of.lanes {
        let lane = LaneSpec::new(LaneId(lane), LaneClass::default());
        router.handle(Nanos::ZERO, Event::LaneUp(lane), &mut effects);
    }
    let mut asked: BTreeMap<RequestId, Nanos> = BTreeMap::new();
    let mut running: BinaryHeap<Reverse<(Nanos, LaneId, BatchId)>> = BinaryHeap::new();
    let (mut now, mut next, mut answered, mut longest) = (Nanos::ZERO, 0, 0, 0);
    let mut thinking: BinaryHeap<Reverse<Nanos>> = (0..of.clients).map(|_| Reverse(now)).collect();
    loop {
        let sends = thinking.peek().map(|Reverse(at)| *at).filter(|at| *at < Nanos::from_millis(3_000));
        let done = running.peek().map(|Reverse((at, ..))| *at);
        let Some(at) = [sends, done, router.next_wake()].into_iter().flatten().min() else { break };
        now = now.max(at);
        if done == Some(at) {
            let Reverse((_, lane, batch)) = running.pop().unwrap();
            router.handle(now, Event::BatchDone(BatchReport { lane, batch, ok: true }), &mut effects);
        } else if sends == Some(at) {
            thinking.pop();
            next += 1;
            let request = RequestId::new(next % 1_000, next);
            asked.insert(request, now);
            let arrival = Arrival {
                request,
                model: ModelId(0),
                class: Class::default(),
                tenant: Tenant::default(),
                shape: ShapeKey(0),
                rows: 1,
                bytes: 64,
                deadline: Some(now.after(Nanos::from_millis(of.slo))),
                timeout_action: Default::default(),
                pipeline: None,
            };
            router.handle(now, Event::Arrive(arrival), &mut effects);
        } else {
            router.handle(now, Event::Tick, &mut effects);
        }
        carry_out(&mut effects, now, &time, &mut running, |request| {
            longest = longest.max(now.since(asked.remove(&request).unwrap()).0 / 1_000_000);
            answered += 1;
            thinking.push(Reverse(now.after(Nanos::from_micros((of.think)(answered as u64)))));
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

/// From 0 to 1.999 ms, spread evenly.
fn about_a_millisecond(nth: u64) -> u64 {
    nth * 1_237 % 2_000
}

const EIGHT_ON_TWO: Clients = Clients {
    policy: "deadline",
    lanes: 2,
    clients: 8,
    think: |_| 0,
    time: |rows| 8 + rows,
    max_batch: 64,
    slo: 2_000,
};

#[test]
fn a_model_that_does_not_gain_by_batches_keeps_its_lanes_busy() {
    let (answered, longest) = closed_loop(Clients { time: |rows| 10 * rows, ..EIGHT_ON_TWO });
    println!("{answered} answers, the longest took {longest} ms");
    assert!(answered >= 590, "two lanes of 10 ms a request answer 600 in 3 s");
    assert!(longest <= 60, "the last ones must not wait for company either");
}

#[test]
fn clients_that_wait_for_answers_get_batches_of_them_all() {
    const CASES: [(u32, u32); 11] =
        [(1, 1), (1, 4), (1, 8), (1, 31), (1, 32), (1, 33), (2, 8), (2, 32), (4, 8), (4, 32), (4, 64)];
    println!("| lanes, clients | deadline | triton | all lanes alike |");
    for (lanes, clients) in CASES {
        let time = |rows| 20 + rows;
        let of = Clients {
            lanes,
            clients,
            think: about_a_millisecond,
            time,
            max_batch: 32,
            slo: 250,
            ..EIGHT_ON_TWO
        };
        let (answered, _) = closed_loop(of);
        let (eager, _) = closed_loop(Clients { policy: "triton", ..of });
        // The clients of a lane are in one batch, and all have sent again 2 ms after it.
        let rows = u64::from(clients.div_ceil(lanes).min(of.max_batch));
        let alike = 3_000 * u64::from(lanes) * rows / (time(rows) + 2);
        println!("| {lanes}, {clients} | {answered} | {eager} | {alike} |");
        assert!(answered >= eager && answered as u64 * 100 >= alike * 87, "{lanes} lanes, {clients} clients");
    }
}

#[test]
fn waiting_for_company_costs_clients_that_wait_for_answers_nothing() {
    let (eager, _) = closed_loop(Clients { policy: "triton", ..EIGHT_ON_TWO });
    let (answered, longest) = closed_loop(EIGHT_ON_TWO);
    println!("{answered} answers, {eager} without any waiting; the longest took {longest} ms of 2,000");
    assert!(answered >= eager);
    assert!(longest <= 30, "a batch runs, then the next one of at most 16 ms");
}

#[test]
fn a_client_that_leaves_is_waited_for_once() {
    let leaves = |nth| if nth == 600 { 10_000_000 } else { 0 };
    let (stays, _) = closed_loop(Clients { lanes: 1, ..EIGHT_ON_TWO });
    let (answered, longest) = closed_loop(Clients { lanes: 1, think: leaves, ..EIGHT_ON_TWO });
    println!("{answered} answers, {stays} if it stays; the longest took {longest} ms");
    assert!(longest <= 100, "as long as a batch of 64, which the others may wait, and their own");
    // Seven in 15 ms instead of eight in 16.
    assert!(answered * 100 >= stays * 90);
}
