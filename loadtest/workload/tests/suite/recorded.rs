//! The published traces themselves, where `TESSERA_DATA` names a folder that has them under `traces/`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::support::{SECOND, times};
use workload::{Arrivals, Workload};

#[expect(clippy::disallowed_methods, reason = "only this test asks where the traces are")]
fn folder() -> Option<PathBuf> {
    std::env::var_os("TESSERA_DATA").map(PathBuf::from)
}

/// A model that follows a trace; none, and a line that says so, where the traces are not at hand.
fn follow(duration: &str, model: &str) -> Option<Workload> {
    let Some(folder) = folder() else {
        println!("skipped: TESSERA_DATA is not set");
        return None;
    };
    #[expect(clippy::disallowed_methods, reason = "the test reads what the crate must not")]
    let mut files = |name: &str| {
        std::fs::read_to_string(folder.join("traces").join(name)).map_err(|error| error.to_string())
    };
    let text = format!(
        "name = \"recorded\"\nseed = 7\nduration = \"{duration}\"\n[models.m]\nslo = \"1s\"\n{}\n{model}\n",
        crate::support::PROFILE
    );
    Some(Workload::parse(&text, &mut files).unwrap_or_else(|error| panic!("{error}")))
}

fn cv(times: &[u64]) -> f64 {
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt() / mean
}

#[test]
fn azure_llm() {
    for (file, requests) in [("code", 8_819), ("conv", 19_366)] {
        let model = format!(
            "arrivals = {{ process = \"trace\", format = \"azure-llm\", file = \"azure-llm-2023/AzureLLMInferenceTrace_{file}.csv\", repeat = false }}"
        );
        let Some(workload) = follow("2h", &model) else { return };
        let found = times(&workload);
        println!(
            "{file}: {} requests, {:.2} a second, cv {:.2}",
            found.len(),
            workload.models[0].mean_rate(),
            cv(&found)
        );
        assert_eq!(found.len(), requests);
        assert!(found.is_sorted());
    }
}

#[test]
fn azure_functions() {
    let file = "azure-functions-2019/invocations_500fn_min480-719.csv";
    let model = format!(
        "count = 32\narrivals = {{ process = \"trace\", format = \"azure-functions-minute\", file = \"{file}\", functions = \"stripe\", cv_scale = 4.0, rate_scale = 0.002 }}"
    );
    let Some(workload) = follow("1h", &model) else { return };
    let expected = workload.mean_rate() * 3_600.0;
    let mut counts = BTreeMap::<u32, u32>::new();
    let mut all = 0_u32;
    for offered in Arrivals::new(&workload) {
        *counts.entry(offered.model).or_default() += 1;
        all += 1;
    }
    let busiest = counts.values().max().copied().unwrap_or(0);
    println!(
        "{all} requests, {expected:.0} expected, {} models with any, {busiest} of the busiest",
        counts.len()
    );
    assert!((f64::from(all) - expected).abs() < 4.0 * 4.0 * expected.sqrt());
    let full = workload.scaled(500.0).unwrap();
    println!("unscaled: {:.0} a second", full.mean_rate());
    assert!((full.mean_rate() / workload.mean_rate() - 500.0).abs() < 1e-6);
}

#[test]
fn counts_per_second() {
    let file = "no-licence/twitter/day00_per_second_counts.txt";
    let model =
        format!("arrivals = {{ process = \"trace\", format = \"counts-per-second\", file = \"{file}\" }}");
    let Some(workload) = follow("1d", &model) else { return };
    let expected = workload.models[0].expected_requests(86_400 * SECOND);
    let count = times(&workload).len() as f64;
    println!("{count} requests, {expected:.0} expected, {:.2} a second", workload.mean_rate());
    assert!((count - expected).abs() < 4.0 * expected.sqrt());
}
