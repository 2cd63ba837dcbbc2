//! Every bound has its effect, and says so.

use sim::{Setup, SimError};

use crate::support::{checked, moments, parse, run, try_run};

#[test]
fn a_run_stops_at_its_bound_and_says_where() {
    let times: Vec<f64> = (0..50).map(|step| f64::from(step) * 15.0).collect();
    let workload = moments("100ms", "count = 1", &times);
    // Two events to begin with, then an arrival and an end for each request.
    let setup = Setup { max_events: 22, ..checked("triton") };
    let report = run(&workload, &setup);
    let stopped = report.stopped.unwrap();
    assert_eq!((stopped.max_events, stopped.at_s, report.events), (22, 0.145, 22));
    assert_eq!((report.requests.offered, report.requests.good), (10, 10));
    assert!((report.virtual_seconds - 0.145).abs() < 1e-6);
    let report = run(&workload, &Setup { max_events: 21, ..checked("triton") });
    assert_eq!((report.requests.offered, report.requests.good, report.requests.unfinished), (10, 9, 1));
    assert!(run(&workload, &checked("triton")).stopped.is_none());
}

#[test]
fn full_queues_refuse() {
    let workload = moments("100ms", "count = 1", &[0.0, 1.0, 2.0, 3.0]);
    let report = run(&workload, &Setup { queue_limit: 2, ..checked("triton") });
    assert_eq!(report.requests.refused.get("queue_full"), Some(&1));
    let report = run(&workload, &Setup { max_requests: 3, ..checked("triton") });
    assert_eq!(report.requests.refused.get("queue_full"), Some(&1));
    let report = run(&workload, &Setup { queued_bytes_limit: 1_024, ..checked("triton") });
    assert_eq!(report.requests.refused.get("memory_full"), Some(&2));
}

#[test]
fn a_setup_that_cannot_work_is_refused_by_name() {
    let workload = moments("100ms", "count = 1", &[0.0, 1.0]);
    let error = try_run(&workload, &Setup { queue_limit: 0, ..Setup::default() }).unwrap_err();
    assert!(matches!(&error, SimError::Setup(error) if error.field == "queue_limit"), "{error}");
    assert_eq!(error.to_string(), "queue_limit: is 0, expected at least 1");
}

#[test]
fn a_model_without_a_profile_is_refused_by_name() {
    let workload =
        parse("name = \"live\"\nduration = \"1s\"\n[models.resnet]\nslo = \"50ms\"\nrate = 10.0\n");
    let missing = "models.resnet.profile: missing: a simulation needs to know how long batches take";
    assert_eq!(try_run(&workload, &Setup::default()).unwrap_err().to_string(), missing);
    assert_eq!(sim::bound(&workload).unwrap_err().to_string(), missing);
    let search = sim::Search::default();
    let found = sim::capacity(&workload, &Setup::default(), &search, &[1], &mut |_| {});
    assert_eq!(found.unwrap_err().to_string(), missing);
}

#[test]
fn memory_is_bounded_by_what_is_in_flight_and_long_runs_have_few_points() {
    let workload = parse(
        r#"
        name = "long"
        requests = 50000
        [models.m]
        slo = "100ms"
        profile = { alpha = "1ms", beta = "9ms", max_batch = 8 }
        rate = 10.0
        "#,
    );
    let report = run(&workload, &Setup::default());
    assert_eq!(report.requests.offered, 50_000);
    assert!(
        report.series.len() <= sim::report::SERIES_MAX && report.series.len() > 80,
        "{}",
        report.series.len()
    );
    assert!((report.offered_rate - 10.0).abs() < 0.2, "{}", report.offered_rate);
}
