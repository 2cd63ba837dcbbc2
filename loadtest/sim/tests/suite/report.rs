//! The report as JSON, and that it is the same whenever the run is.

use serde_json::Value;

use crate::support::{checked, parse, run};

const BUSY: &str = r#"
    name = "busy"
    duration = "5s"
    warmup = "1s"
    seed = 3
    [lanes]
    count = 3
    noise = { cv = 0.1, stalls = { every = "1s", time = "20ms" } }
    [tenants]
    gold = 3
    free = 1
    [models.m]
    count = 2
    slo = "50ms"
    profile = { alpha = "1ms", beta = "9ms", max_batch = 8 }
    rate = 500.0
    rows = [[1, 0.8], [3, 0.2]]
    tenants = { gold = 1, free = 1 }
"#;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_json_has_the_documented_fields() {
    let report = run(&parse(BUSY), &checked("triton"));
    let json = serde_json::to_value(&report).unwrap();
    let mut documented = [
        "workload",
        "policy",
        "seed",
        "lanes",
        "virtual_seconds",
        "requests",
        "offered_rate",
        "goodput",
        "attainment",
        "latency_ms",
        "mean_batch",
        "batches",
        "lane_busy",
        "at_idle_priority",
        "lost_lane_time",
        "preempted",
        "lost",
        "events",
        "hash",
        "stopped",
        "models",
        "tenants",
        "series",
        "latency_cdf",
        "batch_sizes",
        "lane_timeline",
    ];
    documented.sort_unstable();
    let mut found = keys(&json);
    found.sort_unstable();
    assert_eq!(found, documented);
    let readme = include_str!("../../README.md");
    let missing: Vec<_> = documented.iter().filter(|key| !readme.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "not in README.md: {missing:?}");
    for (path, fields) in [
        ("/requests", vec!["expired", "failed", "good", "late", "offered", "refused", "unfinished"]),
        ("/latency_ms", vec!["max", "mean", "p50", "p90", "p99", "p99_9"]),
        (
            "/models/0",
            vec!["attainment", "good", "mean_batch", "name", "offered", "p99_ms", "rate", "slo_ms"],
        ),
        (
            "/tenants/1",
            vec![
                "attainment",
                "device_seconds_per_second",
                "device_seconds_quota",
                "device_share",
                "good",
                "name",
                "offered",
                "refused_by_quota",
                "requests_quota",
                "weight_share",
            ],
        ),
        ("/series/0", vec!["busy_lanes", "good", "mean_batch", "offered", "p99_ms", "refused", "t"]),
        ("/latency_cdf/0", vec!["of_slo", "share"]),
        ("/batch_sizes/0", vec!["batches", "rows"]),
        ("/lane_timeline/0", vec!["end", "from_ms", "lane", "model", "rows", "to_ms"]),
    ] {
        let mut found = keys(json.pointer(path).unwrap());
        found.sort_unstable();
        assert_eq!(found, fields, "{path}");
    }
}

#[test]
fn parts_add_up_to_the_whole() {
    let report = run(&parse(BUSY), &checked("triton"));
    let requests = &report.requests;
    let ends = requests.good + requests.late + requests.refused_in_all() + requests.expired + requests.failed;
    assert_eq!(ends + requests.unfinished, requests.offered);
    assert_eq!(report.models.iter().map(|model| model.offered).sum::<u64>(), requests.offered);
    assert_eq!(report.models.iter().map(|model| model.good).sum::<u64>(), requests.good);
    assert_eq!(report.tenants.iter().map(|tenant| tenant.offered).sum::<u64>(), requests.offered);
    assert_eq!(report.tenants.iter().map(|tenant| tenant.good).sum::<u64>(), requests.good);
    let used: f64 = report.tenants.iter().map(|tenant| tenant.device_seconds_per_second).sum();
    assert!((used - report.lane_busy * f64::from(report.lanes)).abs() < 0.02, "{used}");
    assert!((report.tenants.iter().map(|tenant| tenant.weight_share).sum::<f64>() - 1.0).abs() < 1e-9);
    assert_eq!(report.batch_sizes.iter().map(|size| size.batches).sum::<u64>(), report.batches);
    let rows: u64 = report.batch_sizes.iter().map(|size| u64::from(size.rows) * size.batches).sum();
    assert!((rows as f64 / report.batches as f64 - report.mean_batch).abs() < 1e-9);
    let measured = report.series.iter().filter(|bucket| bucket.t >= 1.0);
    assert_eq!(measured.map(|bucket| bucket.good).sum::<u64>(), requests.good);
    assert!(report.latency_cdf.is_sorted_by(|a, b| a.of_slo <= b.of_slo && a.share < b.share));
    assert!(report.latency_cdf.len() <= 200);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let workload = parse(BUSY);
    for setup in crate::support::every_policy() {
        let first = run(&workload, &setup);
        assert_eq!(run(&workload, &setup), first, "{}", setup.label);
        assert_eq!(
            run(&workload, &setup.clone().checked()),
            first,
            "checking changes nothing ({})",
            setup.label
        );
        assert_ne!(run(&workload.with_seed(4), &setup).hash, first.hash);
    }
}
