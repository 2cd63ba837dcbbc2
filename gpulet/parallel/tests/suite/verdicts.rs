//! When splitting gains and when it costs.

use model_parallel::simulation::Window;
use model_parallel::verdict::{Better, Reason, compare};

use crate::fixtures::{Setting, profile};

fn setting() -> Setting {
    Setting {
        profile: profile(1_000, 0.05),
        models: 8,
        devices: 8,
        memory_bytes: 1_000,
        rate: 30.0,
        cv: 4.0,
        slo_scale: 5.0,
        duration_s: 200.0,
        seed: 3,
    }
}

#[test]
fn bursts_with_scarce_memory_gain_from_splitting() {
    let problem = setting().problem();
    let verdict = compare(&problem, &problem.requests, Window::ALL).unwrap();
    println!("{verdict:?}");
    assert_eq!(verdict.outcome, Better::Split);
    assert!(verdict.split.attainment > verdict.replicated.attainment + 0.1);
    assert!(
        verdict.reasons.iter().any(|reason| matches!(reason, Reason::MemoryScarce { .. })),
        "{:?}",
        verdict.reasons
    );
}

#[test]
fn plentiful_memory_and_a_saturating_load_lose_by_splitting() {
    let problem =
        Setting { memory_bytes: 8_000, rate: 78.0, cv: 1.0, profile: profile(1_000, 0.2), ..setting() }
            .problem();
    let verdict = compare(&problem, &problem.requests, Window::ALL).unwrap();
    println!("{verdict:?}");
    assert_eq!(verdict.outcome, Better::Replicated);
    let has = |wanted: fn(&Reason) -> bool| verdict.reasons.iter().any(wanted);
    assert!(has(|reason| matches!(reason, Reason::MemoryPlentiful)), "{:?}", verdict.reasons);
    assert!(has(|reason| matches!(reason, Reason::Saturated { .. })), "{:?}", verdict.reasons);
}

#[test]
fn a_tight_objective_loses_by_splitting() {
    let problem =
        Setting { slo_scale: 1.15, rate: 10.0, profile: profile(1_000, 0.2), ..setting() }.problem();
    let verdict = compare(&problem, &problem.requests, Window::ALL).unwrap();
    println!("{verdict:?}");
    assert_eq!(verdict.outcome, Better::Replicated);
    assert!(
        verdict.reasons.iter().any(|reason| matches!(reason, Reason::LatencyAboveObjective { .. })),
        "{:?}",
        verdict.reasons
    );
}

#[test]
fn a_model_that_fits_no_device_is_split() {
    let problem = Setting { memory_bytes: 600, ..setting() }.problem();
    let verdict = compare(&problem, &problem.requests, Window::ALL).unwrap();
    assert_eq!((verdict.outcome, verdict.replicated.attainment), (Better::Split, 0.0));
    assert!(verdict.split.attainment > 0.0);
    assert!(verdict.reasons.contains(&Reason::FitsNoDevice { models: 8 }), "{:?}", verdict.reasons);
}

#[test]
fn one_device_cannot_split() {
    let problem = Setting { devices: 1, ..setting() }.problem();
    let error = compare(&problem, &problem.requests, Window::ALL).unwrap_err().to_string();
    assert_eq!(error, "`cluster.devices`: expected at least 2 to split models, got 1");
}
