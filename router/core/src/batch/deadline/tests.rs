use crate::batch::Scene;
use super::*;

/// 1 ms a row and 5 ms a batch.
fn scene() -> Scene {
    let points: Vec<_> = [1, 2, 4, 8, 16, 32].map(|rows| (rows, 1_000 * u64::from(rows) + 5_000)).into();
    Scene::new(&points)
}

/// What it has learned after one batch at this rate and objective.
fn learned(scene: &Scene, rate: f64, slo_ms: u64) -> Deadline {
    let mut policy = Deadline::default();
    let slo = Some(Nanos::from_millis(slo_ms));
    let (cost, max_batch) = (&scene.cost, scene.max_batch);
    let time = Nanos::from_millis(6);
    policy.observe(Nanos::ZERO, &Observation {
        rows: 1,
        row_bytes: 64,
        time,
        slo,
        rate,
        max_batch,
        tightest: scene.tightest,
        cost,
    });
    policy
}

fn fired(decision: Decision) -> Option<(u32, u32, StartReason)> {
    match decision {
        Decision::Fire(proposal) => Some((proposal.skip, proposal.take, proposal.reason)),
        Decision::Wait(_) => None,
    }
}

#[test]
fn the_unit_is_what_the_rate_fills_within_the_objective() {
    // b rows arrive in b / 1,000 s and take b + 5 ms: 10 of them fill 25 ms.
    assert!((learned(&scene(), 1_000.0, 25).target - 10.0).abs() < 0.05);
    assert_eq!(learned(&scene(), 10.0, 25).target, 1.0, "nothing to gather");
    let no_gain = Scene::new(&[(1, 10_000), (2, 20_500), (4, 42_000), (8, 85_000)]);
    assert_eq!(learned(&no_gain, 1_000.0, 500).target, 1.0, "a model that loses by batching");
}

#[test]
fn with_idle_lanes_no_request_waits() {
    let mut scene = scene();
    scene.arrive(0, Some(25_000));
    let decision = learned(&scene, 1_000.0, 25).decide(Nanos::ZERO, &scene.view());
    assert_eq!(fired(decision), Some((0, 1, StartReason::Enough)));
}

#[test]
fn when_lane_time_is_scarce_a_batch_gathers_until_its_first_request_must_start() {
    let mut scene = scene();
    scene.load = 1.0;
    scene.arrive(0, Some(25_000)).arrive(0, Some(25_000));
    let policy = learned(&scene, 1_000.0, 25);
    let Decision::Wait(until) = policy.decide(Nanos::ZERO, &scene.view()) else { panic!("it should wait") };
    assert_eq!(until.0.div_ceil(1_000_000), 15, "as long as a batch of the target size runs: {until}");
    // Three rows must start at 17 ms.
    let last = policy.decide(Nanos::from_millis(17), &scene.view());
    assert_eq!(fired(last), Some((0, 2, StartReason::LastStart)));
}

#[test]
fn a_request_with_more_rows_than_a_batch_may_have_starts_at_once() {
    let mut scene = scene();
    (scene.load, scene.max_batch) = (1.0, 32);
    let policy = learned(&scene, 1_000.0, 25);
    scene.max_batch = 2;
    scene.arrive_with(6, 0, Some(100_000));
    let decision = policy.decide(Nanos::ZERO, &scene.view());
    assert_eq!(fired(decision), Some((0, 6, StartReason::Full)));
}

#[test]
fn it_does_not_wait_for_clients_that_all_wait_for_their_answers() {
    let mut scene = scene();
    scene.load = 1.0;
    scene.arrive(0, Some(25_000)).arrive(0, Some(25_000));
    let policy = learned(&scene, 1_000.0, 25);
    let starts = [1, 0].map(|missing| {
        scene.missing = missing;
        fired(policy.decide(Nanos::ZERO, &scene.view()))
    });
    assert_eq!(starts, [None, Some((0, 2, StartReason::Enough))]);
}

/// The least number of waiting requests that starts a batch at 1,000 requests a second and 25 ms, where the target is
/// 10 rows and takes 15 ms. The other lanes are busy until `others_us`.
fn enough(free: u32, load: f64, others_us: &[u64], other_models: f64) -> Option<u32> {
    let starts = |waiting: &u32| {
        let mut scene = scene();
        (scene.free, scene.lanes, scene.load) = (free, free, load);
        for &micros in others_us {
            scene.busy_until(micros);
        }
        let policy = learned(&scene, 1_000.0, 25);
        scene.demand.batches = (1.0 + other_models) * policy.demand.batches;
        (0..*waiting).for_each(|_| {
            scene.arrive(0, Some(25_000));
        });
        fired(policy.decide(Nanos::ZERO, &scene.view())).is_some()
    };
    (1..=32).find(starts)
}

#[test]
fn the_more_lanes_are_free_or_soon_to_be_the_fewer_rows_are_enough() {
    assert_eq!([1, 2, 5, 10].map(|free| enough(free, 1.0, &[], 0.0)), [Some(10), Some(5), Some(2), Some(1)]);
    let third_of_three = |others_us: &[u64]| enough(1, 1.0, others_us, 0.0);
    assert_eq!(third_of_three(&[5_000, 10_000]), Some(10), "lanes that are free one at a time, 5 ms apart");
    assert_eq!(third_of_three(&[1_000, 2_000]), Some(5), "the others will be free at nearly the same time");
    assert_eq!(third_of_three(&[15_000, 15_000]), Some(10), "the others will be free together, but not soon");
}

#[test]
fn a_model_that_shares_its_lanes_does_not_wait_nor_does_any_while_lanes_are_often_idle() {
    assert_eq!([0.01, 0.1].map(|others| enough(1, 1.0, &[], others)), [Some(10), Some(1)]);
    assert_eq!([BUSY, 0.5 * (BUSY + 1.0)].map(|load| enough(1, load, &[], 0.0)), [Some(1), Some(10)]);
}

#[test]
fn requests_that_would_force_small_batches_are_dropped_if_those_behind_them_gain() {
    // Five that could only go in a batch of two, and others behind them; another lane is free later.
    let decide = |behind: u64, busy_until_us: u64| {
        let mut scene = scene();
        scene.load = 1.0;
        (0..5).for_each(|_| {
            scene.arrive(0, Some(7_500));
        });
        (0..behind).for_each(|n| {
            scene.arrive(1_000 + n, Some(25_000 + n));
        });
        scene.busy_until(busy_until_us);
        fired(learned(&scene, 2_000.0, 25).decide(Nanos::ZERO, &scene.view()))
    };
    let (skip, take, reason) = decide(40, 12_000).unwrap();
    assert!((skip, reason) == (5, StartReason::LastStart) && take >= 13, "{skip} dropped for {take}");
    let mut scene = scene();
    scene.load = 1.0;
    scene.arrive(0, Some(7_500)).arrive(1_000, Some(25_000)).arrive(1_000, Some(25_000)).arrive(1_000, Some(25_000));
    scene.busy_until(2_000);
    let decision = learned(&scene, 1_000.0, 25).decide(Nanos::ZERO, &scene.view());
    assert_eq!(fired(decision), Some((0, 2, StartReason::LastStart)), "the others go on the next lane");
}

#[test]
fn the_busier_the_lanes_the_more_throughput_counts_against_the_last_start() {
    let chosen = |demand: f64, slack_us: u64, overloaded: bool| {
        let mut scene = scene();
        scene.demand.lanes = demand;
        scene.arrive(0, Some(25_000));
        let candidate = |queue: u32, take: u32, last_start_us: u64, overloaded: bool| Candidate {
            proposal: Proposal { skip: 0, take, rank: 1_000 * last_start_us, reason: StartReason::Enough },
            time: Nanos::from_millis(10),
            overloaded,
            last_start_of_rest: Nanos::from_micros(last_start_us),
            queue,
        };
        // The second answers twice as many in the same time and could wait.
        let candidates = [candidate(0, 10, 0, false), candidate(1, 20, slack_us, overloaded)];
        Deadline::default().choose(Nanos::ZERO, &candidates, &scene.view().pool)
    };
    assert_eq!([0.5, 1.0].map(|demand| chosen(demand, 4_000, false)), [0, 1]);
    assert_eq!([0.5, 1.0].map(|demand| chosen(demand, 60_000, false)), [0, 0], "it can wait for long");
    assert_eq!(chosen(1.0, 60_000, true), 1, "it can wait only because admission rejects others of its model");
}

/// The queue that is chosen. Queues are rows of the batch, and in ms: its time, its last start, and that of the rest.
fn chosen(scene: &mut Scene, queues: [(u32, u64, u64, u64); 2]) -> usize {
    scene.arrive(0, Some(25_000));
    let candidates = queues.map(|(take, time_ms, last_start_ms, rest_ms)| Candidate {
        proposal: Proposal { skip: 0, take, rank: 1_000_000 * last_start_ms, reason: StartReason::Enough },
        time: Nanos::from_millis(time_ms),
        overloaded: false,
        last_start_of_rest: Nanos::from_millis(rest_ms),
        queue: 0,
    });
    Deadline::default().choose(Nanos::ZERO, &candidates, &scene.view().pool)
}

#[test]
fn a_queue_that_could_drop_its_first_request_and_wait_is_less_urgent() {
    let first = |rest_ms: u64| {
        let mut scene = scene();
        scene.demand.lanes = 1.0;
        chosen(&mut scene, [(10, 10, 0, rest_ms), (10, 10, 1, 1)])
    };
    assert_eq!([1, 15].map(first), [0, 1]);
    // A request of ten rows that nothing is behind is as urgent as ten of one row that are all due.
    let mut scene = scene();
    scene.demand.lanes = 1.0;
    let single = Nanos::NEVER.0 / 1_000_000 + 1;
    assert_eq!(chosen(&mut scene, [(10, 10, 0, single), (10, 10, 1, 1)]), 0);
}

#[test]
fn without_overload_the_ends_of_batches_are_spread() {
    // Two of three lanes will be free after 12 ms, when the first queue's batch would end too.
    let first = |demand: f64| {
        let mut scene = scene();
        scene.busy_until(12_000).busy_until(12_000);
        scene.demand.lanes = demand;
        chosen(&mut scene, [(13, 12, 0, 0), (10, 10, 0, 0)])
    };
    assert_eq!([3.0, 30.0].map(first), [1, 0]);
}

#[test]
fn a_batch_that_outlasts_short_objectives_waits_if_it_costs_more_than_it_answers() {
    // 20 rows for 25 ms, while requests with 10 ms to go arrive.
    let starts = |short_rate: f64, other_lane_us: Option<u64>| {
        let mut scene = scene();
        scene.load = 1.0;
        scene.tightest = Nanos::from_millis(10);
        (scene.demand.short_lanes, scene.demand.short_rate) = (1.0, short_rate);
        (0..20).for_each(|_| {
            scene.arrive(0, Some(25_100));
        });
        if let Some(micros) = other_lane_us {
            scene.busy_until(micros);
        }
        fired(learned(&scene, 1_000.0, 25).decide(Nanos::ZERO, &scene.view())).is_some()
    };
    // Those that arrive are lost once they have waited for 10 ms: 15 ms of requests.
    assert_eq!([1_000.0, 1_400.0].map(|rate| starts(rate, None)), [true, false]);
    assert!(starts(1_400.0, Some(5_000)), "another lane will be free in time");
    assert!(!starts(1_400.0, Some(25_000)));
}

#[test]
fn a_model_counts_as_short_while_its_batches_fit_the_shortest_objective_on_the_lanes() {
    let short = |tightest_ms: u64| {
        let mut scene = scene();
        scene.tightest = Nanos::from_millis(tightest_ms);
        let demand = learned(&scene, 1_000.0, 25).demand();
        (demand.short_rate, demand.short_lanes == demand.lanes)
    };
    // Ten rows take 15 ms.
    assert_eq!([14, 16].map(short), [(0.0, false), (1_000.0, true)]);
}

#[test]
fn a_model_that_loses_by_batching_is_not_batched_and_one_that_gains_is() {
    let taken = |points: &[(u32, u64)], waiting: u32| {
        let mut scene = Scene::new(points);
        scene.crowd(waiting);
        fired(Deadline::default().decide(Nanos::ZERO, &scene.view())).unwrap().1
    };
    let magika_like = [(1, 10_000), (2, 21_000), (4, 46_000), (8, 100_000), (16, 200_000), (32, 400_000)];
    for waiting in [1, 2, 8, 31, 500] {
        assert_eq!(taken(&magika_like, waiting), 1, "{waiting} waiting");
    }
    let tiny = [(1, 20), (2, 22), (4, 26), (8, 34), (16, 50), (32, 82)];
    assert_eq!([1, 8, 500].map(|waiting| taken(&tiny, waiting)), [1, 8, 32]);
    let flat_then_linear = [(1, 100), (2, 104), (4, 110), (8, 220), (16, 440), (32, 880)];
    assert_eq!(taken(&flat_then_linear, 500), 4);
    assert_eq!(taken(&[(1, 20)], 20), 2, "beyond what was measured it goes by doubling");
}
