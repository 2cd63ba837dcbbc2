//! Recorded traffic, from traces small enough to read.

use crate::support::{SECOND, of_model, one, parse, times};
use workload::{Arrivals, Workload};

const FUNCTIONS: &str = "HashOwner,HashApp,HashFunction,Trigger,480,481,482\no,a,f,http,1200,600,0\no,a,g,queue,0,0,0\no,b,h,http,6000,0,3000\no,b,i,timer,0,0,600\n";

const STAMPS: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.5,1,1\n2023-11-16 18:17:04.0,1,1\n2023-11-16 18:17:06.5,1,1\n";

fn trace(duration: &str, keys: &str, text: &str) -> Workload {
    one(duration, &format!("arrivals = {{ process = \"trace\", file = \"t\", {keys} }}"), &[("t", text)])
}

fn seconds(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| (value * SECOND as f64).round() as u64).collect()
}

#[test]
fn timestamps_are_replayed_as_they_are_and_start_over_a_mean_gap_later() {
    let text = "seconds,model\n0.5,m\n1.5,m\n1.5,m\n3.5,m\n";
    let keys = "format = \"timestamps\"";
    let once = trace("100s", &format!("{keys}, repeat = false"), text);
    assert_eq!(times(&once), seconds(&[0.5, 1.5, 1.5, 3.5]));
    let again = trace("10s", keys, text);
    assert_eq!(times(&again), seconds(&[0.5, 1.5, 1.5, 3.5, 5.0, 6.0, 6.0, 8.0, 9.5]));
    let fast = trace("2s", &format!("{keys}, time_scale = 2.0"), text);
    assert_eq!(times(&fast), seconds(&[0.25, 0.75, 0.75, 1.75]));
    assert_eq!(times(&again.scaled(2.0).unwrap())[..4], times(&fast));
    assert!((fast.models[0].mean_rate() - 8.0 / 4.5).abs() < 1e-9);
    assert_eq!(fast.models[0].expected_requests(2 * SECOND).round(), 4.0);
}

#[test]
fn copies_share_the_rows_of_their_models_name_one_by_one() {
    let model = |name: &str, count: u32| {
        format!(
            "[models.{name}]\ncount = {count}\nslo = \"1s\"\n{}\narrivals = {{ process = \"trace\", format = \"timestamps\", file = \"t\", repeat = false }}\n",
            crate::support::PROFILE
        )
    };
    let text = format!("name = \"x\"\nduration = \"60s\"\n{}{}", model("b", 1), model("a", 2));
    let rows = "seconds,model\n0,a\n1,a\n2,b\n3,a\n4,a-0\n5,a-1\n6,a\n";
    let workload = parse(&text, &[("t", rows)]);
    let of =
        |name: &str| of_model(&workload, name).iter().map(|offered| offered.at / SECOND).collect::<Vec<_>>();
    assert_eq!((of("a-0"), of("a-1"), of("b")), (vec![0, 3, 4], vec![1, 5, 6], vec![2]));
    assert_eq!(workload.models[0].name, "b", "models keep the order of the file");
}

#[test]
fn llm_timestamps_count_from_the_first() {
    let workload = trace("100s", "format = \"azure-llm\", repeat = false", STAMPS);
    assert_eq!(times(&workload), seconds(&[0.0, 0.5, 3.0]));
    let twice = trace("2s", "format = \"azure-llm\", time_scale = 2.0", STAMPS);
    assert_eq!(times(&twice), seconds(&[0.0, 0.25, 1.5]));
}

#[test]
fn counts_are_kept_second_by_second() {
    let workload = trace("4000s", "format = \"counts-per-second\", rate_scale = 0.5", "100\n0\n300\n50\n");
    let mut counts = [0_u32; 4];
    times(&workload).iter().for_each(|at| counts[usize::try_from(at / SECOND % 4).unwrap()] += 1);
    for (count, expected) in counts.into_iter().zip([50_000.0, 0.0, 150_000.0, 25_000.0_f64]) {
        assert!((f64::from(count) - expected).abs() <= 4.0 * expected.sqrt(), "{count} {expected}");
    }
    let once = trace("4000s", "format = \"counts-per-second\", repeat = false", "100\n0\n300\n50\n");
    assert!((times(&once).len() as f64 - 450.0).abs() < 4.0 * 450.0_f64.sqrt());
    assert!(times(&once).iter().all(|at| *at < 4 * SECOND));
}

/// Requests of a model in each minute, summed over many seeds.
fn minutes(workload: &Workload, name: &str, seeds: u64) -> Vec<f64> {
    let mut counts = vec![0.0; 3];
    for seed in 0..seeds {
        for offered in of_model(&workload.with_seed(seed), name) {
            counts[usize::try_from(offered.at / (60 * SECOND)).unwrap()] += 1.0;
        }
    }
    counts
}

#[test]
fn functions_are_resampled_at_the_rate_of_each_window() {
    for (keys, cv, expected) in [
        ("function = 3", 1.0, [6_000.0, 0.0, 3_000.0]),
        ("function = 3, cv_scale = 4.0", 4.0, [6_000.0, 0.0, 3_000.0]),
        ("function = 3, rate_scale = 0.01, cv_scale = 4.0", 4.0, [60.0, 0.0, 30.0]),
        ("function = 3, window = \"120s\"", 1.0, [3_000.0, 3_000.0, 3_000.0]),
        ("functions = \"stripe\"", 1.0, [7_200.0, 600.0, 3_600.0_f64]),
    ] {
        let workload = trace("180s", &format!("format = \"azure-functions-minute\", {keys}"), FUNCTIONS);
        let seeds = if expected[0] < 100.0 { 400 } else { 20 };
        for (count, expected) in minutes(&workload, "m", seeds).into_iter().zip(expected) {
            let expected = expected * seeds as f64;
            assert!((count - expected).abs() <= 4.0 * cv * expected.sqrt(), "{keys}: {count} {expected}");
        }
    }
}

#[test]
fn stripes_deal_functions_with_invocations_to_copies() {
    let text = "count = 2\narrivals = { process = \"trace\", format = \"azure-functions-minute\", file = \"t\", functions = \"stripe\" }";
    let workload = one("180s", text, &[("t", FUNCTIONS)]);
    let rates: Vec<f64> = workload.models.iter().map(|model| model.expected_requests(180 * SECOND)).collect();
    assert!((rates[0] - 2_400.0).abs() < 1e-6 && (rates[1] - 9_000.0).abs() < 1e-6, "{rates:?}");
    let counts =
        [0, 1].map(|model| Arrivals::new(&workload).filter(|offered| offered.model == model).count());
    assert!(
        (counts[0] as f64 - 2_400.0).abs() < 200.0 && (counts[1] as f64 - 9_000.0).abs() < 400.0,
        "{counts:?}"
    );
}

#[test]
fn gaps_inside_a_window_vary_as_scaled() {
    let text = "HashOwner,HashApp,HashFunction,Trigger,1\no,a,f,http,60000\n";
    let workload = trace("600s", "format = \"azure-functions-minute\", function = 1, cv_scale = 3.0", text);
    let found = times(&workload);
    let gaps: Vec<f64> = found.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let cv = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt() / mean;
    assert!((cv - 3.0).abs() < 0.1, "{cv}");
}
