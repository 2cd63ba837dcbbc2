//! Capacities that can be worked out.

use sim::{Search, Setup, capacity};

use crate::support::{checked, parse};

/// Evenly spaced requests of 10 ms each on one lane: 100 a second hold, more do not.
fn even(duration: &str) -> workload::Workload {
    parse(&format!(
        r#"
        name = "even"
        duration = "{duration}"
        [models.m]
        slo = "20ms"
        profile = {{ points = [[1, "10ms"]] }}
        rate = 20.0
        arrivals = {{ process = "uniform" }}
        "#
    ))
}

#[test]
fn the_capacity_of_one_lane_is_found_to_a_hundredth() {
    let found = capacity(&even("60s"), &Setup::default(), &Search::default(), &[1, 2], &mut |_| {}).unwrap();
    assert!(found.settled && found.attainment >= 0.99);
    // Answering 99 of 100 allows for 1 % more than 100 a second.
    assert!((98.5..102.0).contains(&found.rate), "{found:?}");
    assert!((found.scale * 20.0 - found.rate).abs() < 0.5);
    assert!(found.trials.len() <= 12, "{} trials", found.trials.len());
    let held: Vec<_> = found.trials.iter().filter(|trial| trial.holds).map(|trial| trial.scale).collect();
    assert_eq!(held.iter().copied().fold(0.0, f64::max), found.scale);
}

#[test]
fn a_search_that_may_not_try_any_further_says_so() {
    let search = Search { trials_max: 2, ..Search::default() };
    let found = capacity(&even("10s"), &checked("triton"), &search, &[1], &mut |_| {}).unwrap();
    assert!(!found.settled && found.trials.len() == 2);
}
