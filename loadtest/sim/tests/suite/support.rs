//! Workloads for tests, in few words.

use router_core::batch::{BatchOptions, Policy};
use sim::{Report, Setup, SimError, Simulation};
use workload::Workload;

/// A workload whose trace `t.csv` has one request at each of these milliseconds, for model `m`.
pub fn traced(text: &str, times_ms: &[f64]) -> Workload {
    let rows = times_ms.iter().map(|ms| format!("{},m\n", ms / 1e3));
    let trace = format!("seconds,model\n{}", rows.collect::<String>());
    let mut files =
        |name: &str| if name == "t.csv" { Ok(trace.clone()) } else { Err("no such file".to_owned()) };
    Workload::parse(text, &mut files).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub fn parse(text: &str) -> Workload {
    traced(text, &[0.0])
}

/// One model `m` whose batches of b take 9 + b ms, on lanes as given, with requests at these milliseconds.
pub fn moments(slo: &str, lanes: &str, times_ms: &[f64]) -> Workload {
    let text = format!(
        r#"
        name = "moments"
        duration = "1s"
        [lanes]
        {lanes}
        [models.m]
        slo = "{slo}"
        profile = {{ alpha = "1ms", beta = "9ms", max_batch = 8 }}
        arrivals = {{ process = "trace", format = "timestamps", file = "t.csv", repeat = false }}
        "#
    );
    traced(&text, times_ms)
}

pub fn checked(policy: &str) -> Setup {
    Setup::named(policy, &BatchOptions::default()).unwrap().checked()
}

pub fn run(workload: &Workload, setup: &Setup) -> Report {
    try_run(workload, setup).unwrap_or_else(|error| panic!("{error}"))
}

pub fn try_run(workload: &Workload, setup: &Setup) -> Result<Report, SimError> {
    let report = Simulation::new(workload, setup)?.run(&mut |_| {});
    assert_eq!(invariant::violations(), []);
    report
}

/// Every policy in its default form.
pub fn every_policy() -> impl Iterator<Item = Setup> {
    Policy::ALL.iter().map(|(name, _)| Setup::named(name, &BatchOptions::default()).unwrap())
}
