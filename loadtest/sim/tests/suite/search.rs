//! Capacities that can be worked out.

use std::convert::Infallible;

use sim::{Search, Setup, Trial, capacity};

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

#[test]
fn a_capacity_far_from_the_first_rate_is_found_in_twelve_trials() {
    let search = Search { tolerance: 0.02, ..Search::default() };
    for capacity in [0.02, 0.3, 0.62, 0.99, 1.0, 1.3, 4.0, 30.0, 200.0, 500.0] {
        let attempt = |scale: f64| -> Result<Trial, Infallible> {
            let attainment = (capacity / scale).min(1.0);
            Ok(Trial { scale, rate: 10.0 * scale, attainment, holds: attainment >= search.attainment })
        };
        let found = search.run(1.0, attempt).unwrap();
        let (least, most) = (0.97 * capacity / search.attainment, capacity / search.attainment);
        assert!(found.settled && (least..=most).contains(&found.scale), "{capacity}: {found:?}");
        assert!(found.trials.len() <= 12, "{capacity}: {} trials", found.trials.len());
        let failed = found.failed_rate().unwrap();
        assert!(failed > found.rate && failed <= 1.02 * found.rate, "{capacity}: {failed}");
    }
}
