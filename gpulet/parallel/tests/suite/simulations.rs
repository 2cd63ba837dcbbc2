//! The simulators: closed forms, invariants on random systems, and each other.

use model_parallel::queueing::{pipeline_s, single_s};
use model_parallel::simulation::{Pipeline, Request, System, Window, events, stage_clocks};
use model_parallel::traffic;
use proptest::prelude::*;

fn mean_s(groups: Vec<Pipeline>, rate: f64, seed: u64) -> f64 {
    let requests = traffic::requests(&[rate], 1.0, 1_000_000.0 / rate, seed).unwrap();
    let system = System::new(groups, vec![f64::INFINITY]).unwrap();
    stage_clocks(&system, &requests, 0.0).report(&requests, &[f64::INFINITY], Window::ALL).mean_s
}

#[test]
fn one_device_behaves_like_an_m_d_1_queue() {
    for load in [0.3, 0.6, 0.8] {
        let found = mean_s(vec![Pipeline { times_s: vec![Some(vec![0.1])] }], load / 0.1, 11);
        let expected = single_s(load / 0.1, 0.1).unwrap();
        assert!((found / expected - 1.0).abs() < 0.03, "load {load}: {found} s, expected {expected} s");
    }
}

#[test]
fn only_the_slowest_stage_of_a_pipeline_has_a_queue() {
    let stages = vec![0.03, 0.05, 0.02];
    let found = mean_s(vec![Pipeline { times_s: vec![Some(stages)] }], 14.0, 12);
    let expected = pipeline_s(14.0, 0.1, 0.05).unwrap();
    assert!((found / expected - 1.0).abs() < 0.03, "{found} s, expected {expected} s");
}

#[test]
fn a_request_that_would_be_late_is_rejected_at_once() {
    let system = System::new(vec![Pipeline { times_s: vec![Some(vec![0.1])] }], vec![0.25]).unwrap();
    let requests: Vec<Request> = (0..4).map(|_| Request { at_s: 0.0, model: 0 }).collect();
    let outcome = stage_clocks(&system, &requests, 0.0);
    let ends: Vec<bool> = outcome.ends_s.iter().map(Option::is_some).collect();
    assert_eq!(ends, [true, true, false, false]);
    assert_eq!((outcome.offered[0], outcome.served[0]), (4, 2));
}

#[test]
fn a_model_without_a_group_is_rejected() {
    let system =
        System::new(vec![Pipeline { times_s: vec![Some(vec![0.1]), None] }], vec![1.0, 1.0]).unwrap();
    let requests = [Request { at_s: 0.0, model: 1 }];
    for outcome in [stage_clocks(&system, &requests, 0.0), events(&system, &requests, 1)] {
        assert_eq!((outcome.offered[1], outcome.served[1], outcome.ends_s[0]), (1, 0, None));
    }
}

/// Groups, their models and stage times; objectives.
fn systems() -> impl Strategy<Value = System> {
    let stage_times = prop::collection::vec(0.005..0.05_f64, 1..5);
    let group = prop::collection::vec(prop::option::of(stage_times), 3);
    (prop::collection::vec(group, 1..5), prop::collection::vec(0.05..0.6_f64, 3)).prop_map(
        |(groups, objectives)| {
            let groups = groups.into_iter().map(|times_s| Pipeline { times_s }).collect();
            System::new(groups, objectives).unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_request_has_one_outcome_and_none_is_late(system in systems(), rate in 5.0..80.0_f64, seed in 0..1_000_u64) {
        let objectives: Vec<f64> = (0..3).map(|model| 0.05 * (model + 1) as f64).collect();
        let system = System::new(system.groups().to_vec(), objectives.clone()).unwrap();
        let requests = traffic::requests(&[rate, rate / 2.0, rate / 4.0], 3.0, 20.0, seed).unwrap();
        let fast = stage_clocks(&system, &requests, 0.001);
        let detailed = events(&system, &requests, seed);
        for outcome in [&fast, &detailed] {
            prop_assert_eq!(outcome.offered.iter().sum::<u64>(), requests.len() as u64);
            let ended = outcome.ends_s.iter().flatten().count() as u64;
            prop_assert!(outcome.served.iter().sum::<u64>() <= ended);
        }
        for (request, end) in requests.iter().zip(&fast.ends_s) {
            let Some(end) = end else { continue };
            prop_assert!(end - request.at_s <= objectives[request.model] + 1e-9);
            let shortest = system.groups().iter().filter_map(|group| Some(group.times_s[request.model].as_ref()?.iter().sum()));
            prop_assert!(end - request.at_s >= shortest.fold(f64::INFINITY, f64::min) - 1e-9);
        }
        prop_assert_eq!(stage_clocks(&system, &requests, 0.001), fast);
        prop_assert_eq!(events(&system, &requests, seed), detailed);
    }

    #[test]
    fn no_group_serves_more_than_its_slowest_stage_can(stages in prop::collection::vec(0.005..0.05_f64, 1..6), seed in 0..1_000_u64) {
        let slowest = stages.iter().copied().fold(0.0, f64::max);
        let system = System::new(vec![Pipeline { times_s: vec![Some(stages)] }], vec![1.0]).unwrap();
        let requests = traffic::requests(&[3.0 / slowest], 2.0, 30.0, seed).unwrap();
        for outcome in [stage_clocks(&system, &requests, 0.0), events(&system, &requests, seed)] {
            let mut ends: Vec<f64> = outcome.ends_s.iter().flatten().copied().collect();
            ends.sort_by(f64::total_cmp);
            for pair in ends.windows(2) {
                prop_assert!(pair[1] - pair[0] >= slowest - 1e-9, "{} s apart, slowest stage {slowest} s", pair[1] - pair[0]);
            }
        }
    }
}
