//! Models that take turns on a lane, with clients that ask again as soon as they are answered.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Cycle, CycleSlot, Effect, Effects, Event, LaneClass, LaneId,
    LaneSpec, ModelId, ModelLanes, ModelSpec, Nanos, ProfilePoint, RequestId, Router, RouterConfig, ShapeKey,
    Tenant,
};

const LANE: LaneId = LaneId(0);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A model of the closed loop.
#[derive(Clone, Copy, Debug)]
struct Sharer {
    clients: u32,
    /// A batch of b rows takes `batch_ms` + b * `row_ms` milliseconds.
    batch_ms: u64,
    row_us: u64,
    class: u8,
    /// Rows and budget of its slot in milliseconds, if it has one.
    slot: Option<(u32, u64)>,
    /// Rows of each request.
    request_rows: u32,
}

impl Sharer {
    fn new(clients: u32, slot: Option<(u32, u64)>) -> Self {
        Self { clients, batch_ms: 1, row_us: 500, class: 0, slot, request_rows: 1 }
    }

    fn time(&self, rows: u32) -> Nanos {
        ms(self.batch_ms).after(Nanos::from_micros(self.row_us * u64::from(rows)))
    }
}

/// A batch as it ran.
#[derive(Clone, Copy, Debug)]
struct Ran {
    model: u32,
    rows: u32,
    from: Nanos,
    to: Nanos,
}

struct Loop {
    router: Router,
    sharers: Vec<Sharer>,
    now: Nanos,
    free: Vec<u32>,
    of: BTreeMap<RequestId, u32>,
    idle: Vec<u32>,
    running: Option<(BatchId, Ran)>,
    ran: Vec<Ran>,
    issued: u32,
}

impl Loop {
    fn new(policy: &str, sharers: &[Sharer]) -> Self {
        Self::with(&Policy::new(policy, &BatchOptions::default()).unwrap(), sharers)
    }

    fn with(policy: &Policy, sharers: &[Sharer]) -> Self {
        let mut router = Router::new(RouterConfig::default()).unwrap();
        let mut effects = Effects::default();
        for (model, sharer) in (0..).zip(sharers) {
            let point = |rows| ProfilePoint { rows, row_bytes: 64, time: sharer.time(rows) };
            let spec = ModelSpec {
                measured_on: LaneClass::default(),
                preemptible: true,
                model: ModelId(model),
                max_batch: 16,
                queue_limit: 1_000,
                class_limits: Vec::new(),
                rate_limit: Default::default(),
                policy: policy.clone(),
                lanes: ModelLanes::All,
                profile: (1..=16).map(point).collect(),
            };
            router.handle(Nanos::ZERO, Event::ModelUp(&spec), &mut effects);
        }
        let slots = (0..).map(ModelId).zip(sharers);
        let slots = slots.filter_map(|(model, sharer)| {
            let (rows, budget) = sharer.slot?;
            Some(CycleSlot { model, rows, budget: ms(budget) })
        });
        let cycle = Cycle::new(slots.collect()).ok();
        let lane = LaneSpec { cycle, ..LaneSpec::new(LANE, LaneClass::default()) };
        router.handle(Nanos::ZERO, Event::LaneUp(lane), &mut effects);
        let idle = sharers.iter().map(|sharer| sharer.clients).collect();
        Self {
            router,
            sharers: sharers.to_vec(),
            now: Nanos::ZERO,
            free: (0..1_000).collect(),
            of: BTreeMap::new(),
            idle,
            running: None,
            ran: Vec::new(),
            issued: 0,
        }
    }

    /// Until then every client asks again when it is answered, with an objective of 20 s; what had ended by then.
    fn run(mut self, until: Nanos) -> Vec<Ran> {
        loop {
            for model in 0..self.sharers.len() {
                while self.now < until && self.idle[model] > 0 {
                    self.idle[model] -= 1;
                    self.ask(u32::try_from(model).unwrap());
                }
            }
            let done = self.running.map(|(_, ran)| ran.to);
            let Some(at) = [done, self.router.next_wake()].into_iter().flatten().min() else { break };
            self.now = self.now.max(at);
            match self.running.filter(|(_, ran)| ran.to <= at) {
                Some((batch, ran)) => {
                    self.running = None;
                    self.ran.push(ran);
                    self.feed(Event::BatchDone(BatchReport { lane: LANE, batch, ok: true }));
                }
                None => self.feed(Event::Tick),
            }
        }
        assert_eq!(self.router.unfinished(), 0);
        self.ran.retain(|ran| ran.to <= until);
        self.ran
    }

    fn ask(&mut self, model: u32) {
        self.issued += 1;
        let request = RequestId::new(self.free.pop().unwrap(), self.issued);
        self.of.insert(request, model);
        let sharer = self.sharers[model as usize];
        let (class, tenant, shape) = (Class::new(sharer.class), Tenant::default(), ShapeKey(0));
        let (model, deadline) = (ModelId(model), Some(self.now.after(ms(20_000))));
        self.feed(Event::Arrive(Arrival {
            request,
            model,
            class,
            tenant,
            shape,
            rows: sharer.request_rows,
            bytes: 64,
            deadline,
            timeout_action: Default::default(),
            pipeline: None,
        }));
    }

    fn feed(&mut self, event: Event<'_>) {
        let mut effects = Effects::default();
        self.router.handle(self.now, event, &mut effects);
        self.router.check().unwrap();
        assert_eq!(invariant::violations(), []);
        for effect in &effects {
            match *effect {
                Effect::Dispatch { batch, model, rows, .. } => {
                    let to = self.now.after(self.sharers[model.0 as usize].time(rows));
                    let ran = Ran { model: model.0, rows, from: self.now, to };
                    assert!(self.running.replace((batch, ran)).is_none());
                }
                Effect::Finish { request, .. } => {
                    self.free.push(request.slot());
                    self.idle[self.of.remove(&request).unwrap() as usize] += 1;
                }
                _ => {}
            }
        }
    }
}

/// Lane time of each model, in milliseconds.
fn shares(ran: &[Ran], models: usize) -> Vec<u64> {
    let mut shares = vec![0; models];
    for ran in ran {
        shares[ran.model as usize] += ran.to.since(ran.from).0 / 1_000;
    }
    shares.iter().map(|micros| micros / 1_000).collect()
}

#[test]
fn lane_time_is_shared_as_the_cycle_says_whatever_the_models_ask_for() {
    // 4 rows take 3 ms: three batches fit into 9 ms and one into 3 ms.
    let sharers = [Sharer::new(60, Some((4, 9))), Sharer::new(12, Some((4, 3)))];
    let ran = Loop::new("triton", &sharers).run(ms(1_200));
    let busy: Vec<u64> = shares(&ran, 2);
    println!("{busy:?} ms of 1,200");
    assert!(busy[0].abs_diff(900) <= 12 && busy[1].abs_diff(300) <= 12, "{busy:?}");
    assert!(ran.iter().all(|ran| ran.rows <= 4));
    let class = |class: u8, sharer: Sharer| Sharer { class, ..sharer };
    let ranked = [class(1, sharers[0]), class(0, sharers[1])];
    assert_eq!(
        shares(&Loop::new("triton", &ranked).run(ms(1_200)), 2),
        busy,
        "classes are for within a model"
    );
    let plain = [Sharer { slot: None, ..ranked[0] }, Sharer { slot: None, ..ranked[1] }];
    let busy = shares(&Loop::new("triton", &plain).run(ms(1_200)), 2);
    assert!(busy[0].abs_diff(900) > 100, "without a cycle the shares differ: {busy:?}");
}

#[test]
fn slots_are_given_away_while_their_model_has_nothing() {
    let sharers =
        [Sharer::new(40, Some((4, 9))), Sharer::new(0, Some((4, 9))), Sharer::new(40, Some((4, 9)))];
    let busy = shares(&Loop::new("triton", &sharers).run(ms(1_800)), 3);
    assert!(busy[0].abs_diff(900) <= 12 && busy[2].abs_diff(900) <= 12, "{busy:?}");
}

#[test]
fn models_without_a_slot_run_when_no_slot_has_anything() {
    let saturated = [Sharer::new(40, Some((4, 9))), Sharer::new(40, None)];
    let ran = Loop::new("triton", &saturated).run(ms(900));
    assert!(ran.iter().all(|ran| ran.model == 0));
    let alone = [Sharer::new(0, Some((4, 9))), Sharer::new(40, None)];
    let ran = Loop::new("triton", &alone).run(ms(900));
    assert!(shares(&ran, 2)[1] >= 890);
    assert!(ran.iter().any(|ran| ran.rows > 4), "its batches are its own affair");
}

#[test]
fn policies_that_gather_and_drop_share_too() {
    for policy in ["deadline", "nexus", "clockwork", "symphony", "rafiki", "aimd", "nanily", "shepherd"] {
        let sharers = [Sharer::new(80, Some((8, 20))), Sharer::new(80, Some((4, 6)))];
        let ran = Loop::new(policy, &sharers).run(ms(2_600));
        let busy = shares(&ran, 2);
        println!("{policy}: {busy:?} ms");
        let share = busy[0] as f64 / (busy[0] + busy[1]) as f64;
        assert!((share - 20.0 / 26.0).abs() < 0.06, "{policy}: {busy:?}");
        assert!(busy[0] + busy[1] >= 2_500, "{policy} left the lane idle: {busy:?}");
    }
}

#[test]
fn no_request_waits_for_a_larger_batch_than_the_slot_allows() {
    let options = BatchOptions { max_delay: Some(ms(50)), ..BatchOptions::default() };
    let eager = Sharer::new(0, Some((4, 9)));
    let mut waits = Loop::with(&Policy::new("triton", &options).unwrap(), &[eager]);
    (0..3).for_each(|_| waits.ask(0));
    assert!(waits.running.is_none());
    waits.ask(0);
    assert_eq!(
        waits.running.map(|(_, ran)| ran.rows),
        Some(4),
        "a batch of the model may have 16, one of the slot 4"
    );
}

#[test]
fn requests_with_more_rows_than_their_slot_has_run_alone() {
    for (policy, _) in Policy::ALL {
        for clients in [1, 3, 20] {
            let large = Sharer { request_rows: 6, ..Sharer::new(clients, Some((2, 5))) };
            let ran = Loop::new(policy, &[large, Sharer::new(1, Some((1, 2)))]).run(ms(1_000));
            let of_large = ran.iter().filter(|ran| ran.model == 0);
            assert!(of_large.clone().count() > 10, "{policy}, {clients} clients");
            assert!(of_large.clone().all(|ran| ran.rows == 6), "{policy}, {clients} clients");
        }
    }
}

fn sharer() -> impl Strategy<Value = Sharer> {
    (1_u64..6, 1_u64..2_000, 1_u32..10, 1_u64..40, 0_u8..3).prop_map(
        |(batch_ms, row_us, rows, budget, class)| Sharer {
            clients: 4 * rows,
            batch_ms,
            row_us,
            class,
            slot: Some((rows, budget)),
            request_rows: 1,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 32 } else { 256 }))]

    /// If every model always has work, slices come in order, and each takes its budget plus or minus less than a batch.
    /// The lane is never idle.
    #[test]
    fn a_saturated_lane_keeps_to_its_cycle(sharers in prop::collection::vec(sharer(), 2..5)) {
        let until = ms(600);
        let ran = Loop::new("triton", &sharers).run(until);
        for pair in ran.windows(2) {
            prop_assert_eq!(pair[0].to, pair[1].from, "idle although every model had work");
        }
        let slices: Vec<&[Ran]> = ran.chunk_by(|a, b| a.model == b.model).collect();
        // The first slice began before every model had requests.
        for (position, slice) in slices.iter().enumerate().skip(1).take(slices.len().saturating_sub(2)) {
            let (model, last) = (slice[0].model, slice[slice.len() - 1]);
            let expected = (slices[position - 1][0].model + 1) % sharers.len() as u32;
            prop_assert_eq!(model, expected);
            let sharer = sharers[model as usize];
            let (rows, budget) = sharer.slot.unwrap();
            prop_assert!(slice.iter().all(|ran| ran.rows == rows));
            let (took, batch) = (last.to.since(slice[0].from), sharer.time(rows));
            // Times are estimated to a microsecond or so.
            let slack = Nanos::from_micros(20);
            prop_assert!(slice.len() == 1 || took <= ms(budget).after(slack), "{took} of {budget} ms");
            prop_assert!(took.after(batch).after(slack) > ms(budget), "{took} of {budget} ms, another {batch} fits");
        }
    }
}
