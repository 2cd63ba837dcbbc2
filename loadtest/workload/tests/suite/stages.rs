//! Stages stretch a workload's time: nothing is lost, nothing changes its place, and the rate is what was asked for.

use crate::support::{SECOND, one};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use workload::{Arrivals, DURATION_MAX, Stage, Stages};

fn stages(texts: &[&str]) -> Stages {
    Stages::new(texts.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
}

fn factor() -> impl Strategy<Value = f64> {
    prop_oneof![
        2 => Just(0.0),
        2 => Just(1.0),
        4 => 0.0_f64..4.0,
        1 => 1e-9_f64..1e-3,
        1 => 1e3_f64..1e6,
    ]
}

/// Any stages, from nanoseconds to days long, that are sound.
fn any_stages() -> impl Strategy<Value = Stages> {
    let time = prop_oneof![1_u64..100, 1_u64..60 * SECOND, 1_u64..3 * 86_400 * SECOND];
    let stage = (factor(), factor(), any::<bool>(), time).prop_map(|(from, to, flat, time)| Stage {
        from,
        to: if flat { from } else { to },
        time,
    });
    let stages = prop::collection::vec(stage, 1..6);
    stages.prop_filter_map("no time passes, or too much", |stages| Stages::new(stages).ok())
}

/// Nominal nanoseconds that pass up to a real time: the areas under the factors.
fn nominal_at(stages: &Stages, mut at: u64) -> f64 {
    let mut sum = 0.0;
    for stage in stages.iter() {
        let within = at.min(stage.time);
        let share = within as f64 / stage.time as f64;
        sum += within as f64 * (stage.from + (stage.to - stage.from) * share / 2.0);
        at -= within;
    }
    sum
}

#[test]
fn stages_are_read_as_they_are_written() {
    for (text, from, to, time) in [
        ("10s:0..1", 0.0, 1.0, 10 * SECOND),
        ("30s:2", 2.0, 2.0, 30 * SECOND),
        ("1.5ms:1.25..0.5", 1.25, 0.5, 1_500_000),
        ("90s:100000", 1e5, 1e5, 90 * SECOND),
    ] {
        let stage: Stage = text.parse().unwrap();
        assert_eq!(stage, Stage { from, to, time });
        assert_eq!(stage.to_string(), text);
    }
    let spaced: Stage = " 2m : 1 .. 1e1 ".parse().unwrap();
    assert_eq!(spaced.to_string(), "120s:1..10");
}

#[test]
fn faults_say_what_would_be_right() {
    for (text, error) in [
        ("", "stage: ``: expected a time and a factor, like `30s:2` or `10s:0..1`"),
        ("30s", "stage: `30s`: expected a time and a factor, like `30s:2` or `10s:0..1`"),
        (
            "30:2",
            "stage: `30:2`: expected a duration such as `50ms`, a number with ns, us, ms, s, m, h or d, got `30`",
        ),
        ("30s:fast", "stage: `30s:fast`: expected a factor such as `1.5`, got `fast`"),
        ("30s:1..", "stage: `30s:1..`: expected a factor such as `1.5`, got ``"),
        ("30s:-1", "stage: `30s:-1`: factor -1: expected 0 to 1000000"),
        ("30s:0..nan", "stage: `30s:0..nan`: factor NaN: expected 0 to 1000000"),
        ("30s:inf", "stage: `30s:inf`: factor inf: expected 0 to 1000000"),
        ("0s:1", "stage: `0s:1`: time 0ns: expected more than 0 and at most 400d"),
        ("401d:1", "stage: `401d:1`: time 34646400s: expected more than 0 and at most 400d"),
    ] {
        assert_eq!(text.parse::<Stage>().unwrap_err().to_string(), error);
    }
    let stage = |text: &str| text.parse::<Stage>().unwrap();
    for (list, error) in [
        (vec![], "stages: expected 1 to 1000, got 0"),
        (vec![stage("1s:1"); 1_001], "stages: expected 1 to 1000, got 1001"),
        (
            vec![stage("1s:1"), Stage { from: 1.0, to: f64::NAN, time: 1 }],
            "stages[1]: factor NaN: expected 0 to 1000000",
        ),
        (vec![stage("300d:1"), stage("101d:0")], "stages: last 34646400s together: expected at most 400d"),
        (
            vec![stage("10s:0")],
            "stages: 0ns of the workload's time pass in them: expected more than 0 and at most 400d",
        ),
        (
            vec![stage("1d:401")],
            "stages: 34646400s of the workload's time pass in them: expected more than 0 and at most 400d",
        ),
    ] {
        assert_eq!(Stages::new(list).unwrap_err().to_string(), error);
    }
    assert!(Stages::constant(0).is_err() && Stages::constant(DURATION_MAX + 1).is_err());
}

#[test]
fn a_ramp_has_the_area_of_its_triangle() {
    let ramp = stages(&["10s:0..1", "10s:1", "4s:1..0"]);
    assert_eq!((ramp.total(), ramp.nominal()), (24 * SECOND, 17 * SECOND));
    for (nominal, real) in
        [(0, 0), (SECOND * 5 / 4, 5 * SECOND), (5 * SECOND, 10 * SECOND), (15 * SECOND, 20 * SECOND)]
    {
        assert_eq!(ramp.warp(nominal), Some(real));
    }
    assert_eq!(
        ramp.warp(15 * SECOND + SECOND * 3 / 2),
        Some(22 * SECOND),
        "three quarters of the last triangle"
    );
    assert_eq!((ramp.warp(17 * SECOND), ramp.warp(u64::MAX)), (None, None));
    let places: Vec<usize> = [0, 10, 19, 20, 24, 99].map(|at| ramp.stage_at(at * SECOND)).into();
    assert_eq!(places, [0, 1, 1, 2, 2, 2]);
    assert_eq!(ramp.iter().map(Stage::to_string).collect::<Vec<_>>(), ["10s:0..1", "10s:1", "4s:1..0"]);
}

#[test]
fn nothing_arrives_in_a_pause() {
    let paused = stages(&["5s:1", "5s:0", "5s:2"]);
    let workload = one("20s", "rate = 1000.0", &[]).lasting(paused.nominal()).unwrap();
    let times: Vec<u64> = paused.apply(Arrivals::new(&workload)).map(|offered| offered.at / SECOND).collect();
    assert!(!times.iter().any(|second| (5..10).contains(second)));
    assert!(times.contains(&4) && times.contains(&10) && times.contains(&14));
}

#[test]
fn a_workload_may_be_made_to_last() {
    let workload = one("1s", "rate = 1000.0", &[]);
    let longer = workload.lasting(3 * SECOND).unwrap();
    let all: Vec<_> = Arrivals::new(&longer).collect();
    let first: Vec<_> = Arrivals::new(&workload).collect();
    assert!(all.starts_with(&first) && all.len() > 2 * first.len());
    let error = workload.lasting(0).unwrap_err().to_string();
    assert_eq!(error, "duration: expected more than 0 and at most 400d, got 0ns");
    let error = one("1s", "rate = 1e9", &[]).lasting(DURATION_MAX).unwrap_err();
    assert!(error.problem.contains("expected at most 10000000000"), "{error}");
}

proptest! {
    #[test]
    fn time_never_runs_backwards(stages in any_stages(), near in any::<u64>(), steps in prop::collection::vec(0_u64..5, 1..50)) {
        let mut nominal = near % stages.nominal();
        let mut before = stages.warp(nominal).unwrap();
        prop_assert!(before < stages.total());
        for step in steps {
            nominal += step;
            let Some(real) = stages.warp(nominal) else { break };
            prop_assert!(real >= before && real < stages.total(), "{nominal}: {real} after {before} in {stages:?}");
            before = real;
        }
        prop_assert_eq!(stages.warp(stages.nominal()), None);
        prop_assert!(stages.warp(stages.nominal() - 1).is_some());
    }

    #[test]
    fn time_is_found_again(stages in any_stages(), place in any::<u64>()) {
        let nominal = place % stages.nominal();
        let real = stages.warp(nominal).unwrap();
        let slack = 1.0 + 1e-12 * stages.nominal() as f64;
        let (here, next) = (nominal_at(&stages, real) - slack, nominal_at(&stages, real + 1) + slack);
        let wanted = nominal as f64;
        prop_assert!(here <= wanted && wanted <= next, "{here} <= {nominal} <= {next} at {real} of {stages:?}");
    }

    #[test]
    fn a_factor_of_one_changes_nothing(time in 1_u64..=DURATION_MAX, place in any::<u64>()) {
        let stages = Stages::constant(time).unwrap();
        let at = place % time;
        prop_assert_eq!(stages.warp(at), Some(at));
        prop_assert_eq!((stages.warp(time), stages.total(), stages.nominal()), (None, time, time));
    }

    #[test]
    fn what_is_written_is_read_back(from in factor(), to in factor(), time in 1_u64..=DURATION_MAX) {
        let stage = Stage { from, to, time };
        prop_assert_eq!(stage.to_string().parse::<Stage>().unwrap(), stage);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[0-9.:a-z -]{0,20}|\\PC{0,20}") {
        let _ = text.parse::<Stage>().map(|stage| Stages::new(vec![stage]));
    }
}

proptest! {
    // Chance is part of what is tested, so the cases are always the same.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(4), ..ProptestConfig::with_cases(64) })]

    #[test]
    fn each_stage_gets_the_requests_of_its_area(
        shape in prop::collection::vec((0.0_f64..3.0, 0.0_f64..3.0, 1_u64..20 * SECOND), 1..5),
    ) {
        let list: Vec<_> = shape.iter().map(|&(from, to, time)| Stage { from, to, time }).collect();
        let stages = Stages::new(list).unwrap();
        let workload = one("1s", "rate = 500.0", &[]).lasting(stages.nominal()).unwrap();
        let mut counts = vec![0_u32; shape.len()];
        for offered in stages.apply(Arrivals::new(&workload)) {
            counts[stages.stage_at(offered.at)] += 1;
        }
        for (count, (from, to, time)) in counts.into_iter().zip(shape) {
            let expected = 500.0 * (from + to) / 2.0 * time as f64 / SECOND as f64;
            prop_assert!((f64::from(count) - expected).abs() < 5.0 * expected.sqrt() + 5.0, "{count} of {expected}");
        }
    }
}
