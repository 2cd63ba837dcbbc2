//! Every process offers what its description says: rate, variation, shape.

use crate::support::{SECOND, one, times};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use workload::Workload;

/// Every synthetic process, with the index of dispersion of its counts over a long time: variance over mean.
const PROCESSES: [(&str, f64); 7] = [
    (r#"{ process = "poisson" }"#, 1.0),
    (r#"{ process = "uniform" }"#, 0.01),
    (r#"{ process = "gamma", cv = 4.0 }"#, 16.0),
    (r#"{ process = "gamma", cv = 0.5 }"#, 0.25),
    // 1 + 2 (r1 - r2)^2 q1 q2 / ((q1 + q2)^2 (r1 q2 + r2 q1)) with r = 50, 200 a second and q = 1/2, 1 a second.
    (r#"{ process = "mmpp", rates = [0.5, 2.0], stay = ["2s", "1s"] }"#, 67.7),
    (r#"{ process = "diurnal", period = "60s", low = 0.2 }"#, 1.0),
    (r#"{ process = "flash", at = "20s", lasts = "500s", factor = 3.0 }"#, 1.0),
];

/// How many standard deviations the count lies from what was expected.
fn deviation(workload: &Workload, dispersion: f64) -> f64 {
    let expected = workload.models[0].expected_requests(match workload.extent {
        workload::Extent::Time(time) => time,
        workload::Extent::Requests(_) => panic!("only by time"),
    });
    (times(workload).len() as f64 - expected) / (dispersion * expected).sqrt().max(1.0)
}

#[test]
fn mean_rates_are_right_over_long_times() {
    for (process, dispersion) in PROCESSES {
        let workload = one("2000s", &format!("rate = 100.0\narrivals = {process}"), &[]);
        for seed in 0..5 {
            let sigmas = deviation(&workload.with_seed(seed), dispersion);
            println!("{process} seed {seed}: {sigmas:.2} sigma");
            assert!(sigmas.abs() < 4.0, "{process} seed {seed}: {sigmas} sigma");
        }
    }
}

#[test]
fn the_first_moments_are_no_different_from_later_ones() {
    for (process, expected) in [
        (r#"{ process = "gamma", cv = 4.0 }"#, 20.0),
        (r#"{ process = "uniform" }"#, 20.0),
        (r#"{ process = "mmpp", rates = [0.5, 2.0], stay = ["2s", "1s"] }"#, 20.0),
    ] {
        let workload = one("200ms", &format!("rate = 100.0\narrivals = {process}"), &[]);
        let counts: Vec<f64> = (0..4_000).map(|seed| times(&workload.with_seed(seed)).len() as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        let sigmas = (mean - expected) / (variance / counts.len() as f64).sqrt().max(0.01);
        println!("{process}: mean {mean:.3}, {sigmas:.2} sigma");
        assert!(sigmas.abs() < 4.0, "{process}: mean {mean}");
    }
}

fn gaps(times: &[u64]) -> Vec<f64> {
    times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

/// Mean and coefficient of variation.
fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt() / mean)
}

#[test]
fn gaps_vary_as_told() {
    for (process, cv) in [
        (r#"{ process = "poisson" }"#, 1.0),
        (r#"{ process = "gamma", cv = 4.0 }"#, 4.0),
        (r#"{ process = "gamma", cv = 0.5 }"#, 0.5),
        (r#"{ process = "uniform" }"#, 0.0),
    ] {
        let workload = one("4000s", &format!("rate = 100.0\narrivals = {process}"), &[]);
        let (mean, found) = moments(&gaps(&times(&workload)));
        println!("{process}: mean {mean:.0} ns, cv {found:.3}");
        assert!((found - cv).abs() <= 0.03 * cv + 1e-6, "{process}: cv {found}");
        assert!((mean / 1e7 - 1.0).abs() < 0.03, "{process}: mean {mean}");
    }
}

/// Requests in each slice of time.
fn histogram(times: &[u64], slice: u64, slices: usize) -> Vec<f64> {
    let mut counts = vec![0.0; slices];
    times.iter().for_each(|at| counts[usize::try_from(at / slice).unwrap() % slices] += 1.0);
    counts
}

#[test]
fn a_day_is_low_at_the_start_and_peaks_in_the_middle() {
    let text = "rate = 1000.0\narrivals = { process = \"diurnal\", period = \"60s\", low = 0.2 }";
    let counts = histogram(&times(&one("600s", text, &[])), 2 * SECOND, 30);
    let peak = 1_000.0 / 0.6 * 20.0;
    for (slice, count) in counts.iter().enumerate() {
        let phase = std::f64::consts::TAU * (slice as f64 + 0.5) / 30.0;
        let expected = peak * (0.2 + 0.8 * (1.0 - phase.cos()) / 2.0);
        assert!(
            (count - expected).abs() < 4.0 * expected.sqrt() + 0.01 * expected,
            "{slice}: {count} {expected}"
        );
    }
}

#[test]
fn a_flash_crowd_comes_and_goes_on_time() {
    let text =
        "rate = 1000.0\narrivals = { process = \"flash\", at = \"20s\", lasts = \"5s\", factor = 5.0 }";
    let counts = histogram(&times(&one("40s", text, &[])), 5 * SECOND, 8);
    for (slice, count) in counts.iter().enumerate() {
        let expected = if slice == 4 { 25_000.0 } else { 5_000.0_f64 };
        assert!((count - expected).abs() < 4.0 * expected.sqrt(), "{slice}: {count}");
    }
}

#[test]
fn a_silent_state_is_silent_and_the_busy_one_makes_up_for_it() {
    let text = "rate = 100.0\narrivals = { process = \"mmpp\", rates = [0.0, 1.0], stay = [\"9s\", \"1s\"] }";
    let found = gaps(&times(&one("5000s", text, &[])));
    let silences: Vec<f64> = found.iter().copied().filter(|gap| *gap > 0.1e9).collect();
    let (mean, cv) = moments(&silences);
    println!("{} silences, mean {mean:.3e} ns, cv {cv:.2}", silences.len());
    // Silences are exponential of mean 9 s; those below 0.1 s are not told apart from gaps.
    assert!((mean / 1e9 - 9.1).abs() < 4.0 * 9.0 / (silences.len() as f64).sqrt());
    assert!((silences.len() as f64 - 500.0).abs() < 4.0 * 500.0_f64.sqrt());
}

#[test]
fn nothing_is_lost_over_a_hundred_days() {
    let workload = one("100d", "rate = 0.1\narrivals = { process = \"uniform\" }", &[]);
    let found = times(&workload);
    assert_eq!(found.len(), 864_000);
    let drift = found[found.len() - 1] - found[0] - 10 * SECOND * 863_999;
    assert!(drift <= 1, "{drift} ns");
}

proptest! {
    // The same cases every time: with chance in them, a run in some hundred would lie beyond any bound.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(256) })]

    #[test]
    fn any_process_is_sorted_ends_in_time_and_has_its_rate(
        rate in 0.5_f64..2_000.0,
        cv in 0.1_f64..6.0,
        low in 0.0_f64..1.0,
        stay in 1_u64..5_000,
        which in 0_usize..6,
        seed: u64,
    ) {
        let (process, dispersion) = match which {
            0 => (r#"{ process = "poisson" }"#.to_owned(), 1.0),
            1 => (r#"{ process = "uniform" }"#.to_owned(), 1.0),
            2 => (format!("{{ process = \"gamma\", cv = {cv} }}"), 1.0 + cv * cv),
            3 => {
                // Two states of equal stay s at half and one and a half times the rate: 1 + rate s / 4.
                let dispersion = 1.0 + rate * stay as f64 / 1e3 / 4.0;
                (format!("{{ process = \"mmpp\", rates = [1.0, 3.0], stay = [\"{stay}ms\", \"{stay}ms\"] }}"), dispersion)
            }
            4 => (format!("{{ process = \"diurnal\", period = \"{stay}ms\", low = {low} }}"), 1.0),
            _ => (format!("{{ process = \"flash\", at = \"{stay}ms\", lasts = \"3s\", factor = {cv} }}"), 1.0),
        };
        let workload = one("60s", &format!("rate = {rate}\narrivals = {process}"), &[]).with_seed(seed);
        prop_assert!((workload.models[0].mean_rate() / rate - 1.0).abs() < 1e-9);
        let found = times(&workload);
        prop_assert!(found.is_sorted());
        prop_assert!(found.last().is_none_or(|at| *at < 60 * SECOND));
        let sigmas = deviation(&workload, dispersion);
        prop_assert!(sigmas.abs() < 6.0, "{} sigma", sigmas);
    }
}
