//! Requests of best effort: they use what is idle, and cost the others nothing where their batches can be preempted.

use router_core::batch::BatchOptions;
use sim::{Report, Setup};
use workload::Workload;

use crate::support::{checked, every_policy, parse, run};

const ONLINE: &str = r#"
    name = "best-effort"
    seed = 5
    duration = "8s"
    [lanes]
    count = 2
    [models.classifier]
    slo = "25ms"
    profile = { alpha = "500us", beta = "3ms", max_batch = 16 }
    rate = 260.0
    arrivals = { process = "gamma", cv = 2.0 }
    [models.detector]
    slo = "60ms"
    profile = { alpha = "4ms", beta = "8ms", max_batch = 8 }
    rate = 40.0
"#;

/// More than the lanes could ever do.
const JOB: &str = r#"
    [models.embedder]
    class = "best_effort"
    slo = "10s"
    profile = { alpha = "2ms", beta = "2ms", max_batch = 8 }
    rate = 900.0
"#;

fn with_job() -> Workload {
    parse(&format!("{ONLINE}{JOB}"))
}

/// Requests and latencies of the online models.
fn online(report: &Report) -> Vec<(&str, u64, u64, Option<f64>)> {
    let models = report.models.iter().filter(|model| model.name != "embedder");
    models.map(|model| (model.name.as_str(), model.offered, model.good, model.p99_ms)).collect()
}

#[test]
fn others_are_answered_as_if_it_was_not_there() {
    for setup in every_policy() {
        let (alone, both) = (run(&parse(ONLINE), &setup), run(&with_job(), &setup));
        let policy = &setup.label;
        for (alone, both) in online(&alone).into_iter().zip(online(&both)) {
            assert_eq!((alone.0, alone.1, alone.2), (both.0, both.1, both.2), "{policy}");
            // Which of two free lanes is taken depends on which one is idle, and a lane that gets batches ahead is free before its end.
            let is_close = alone.3.zip(both.3).is_some_and(|(alone, both)| both <= 1.02 * alone);
            assert!(is_close, "{policy}: {alone:?} and {both:?}");
        }
        assert!(both.preempted > 0, "{policy}");
    }
}

#[test]
fn at_idle_priority_all_idle_time_becomes_work_and_nothing_is_lost() {
    let at_idle_priority =
        |text: &str| parse(&text.replacen("count = 2", "count = 2\n    idle_priority = true", 1));
    for setup in every_policy() {
        let alone = run(&at_idle_priority(ONLINE), &setup);
        let both = run(&at_idle_priority(&format!("{ONLINE}{JOB}")), &setup);
        let policy = &setup.label;
        assert_eq!(online(&alone), online(&both), "{policy}");
        assert_eq!((both.preempted, both.lane_busy), (alone.preempted, alone.lane_busy), "{policy}");
        let idle = 1.0 - both.lane_busy;
        assert!(both.at_idle_priority > 0.98 * idle && both.at_idle_priority <= idle, "{policy}: {both:?}");
    }
}

#[test]
fn idle_time_becomes_work() {
    let setup = checked("deadline");
    let (alone, both) = (run(&parse(ONLINE), &setup), run(&with_job(), &setup));
    let done = both.models.iter().find(|model| model.name == "embedder").map_or(0, |model| model.good);
    // Batches of 8 rows take 18 ms.
    let used = done as f64 / 8.0 * 0.018 / 8.0 / 2.0;
    let idle = 1.0 - alone.lane_busy;
    assert!(used > 0.8 * idle, "{used} of {idle} of the lanes' time");
}

#[test]
fn batches_become_shorter_until_idle_moments_suffice() {
    // A request every 12 ms for each lane, and a batch of 8 rows takes 32 ms.
    let short =
        ONLINE.replacen("rate = 260.0", "rate = 170.0", 1).replacen("gamma\", cv = 2.0", "poisson\"", 1);
    let job = JOB.replacen("alpha = \"2ms\", beta = \"2ms\"", "alpha = \"4ms\", beta = \"200us\"", 1);
    let report = run(&parse(&format!("{short}{job}")), &checked("deadline"));
    let embedder = report.models.iter().find(|model| model.name == "embedder").unwrap();
    let lost = report.lost_lane_time;
    assert!(embedder.good == embedder.offered && lost < 0.3, "{lost} of the time is lost: {embedder:?}");
}

#[test]
fn work_that_is_always_lost_takes_little_time() {
    // One row takes longer than the lanes are ever idle.
    let job = JOB.replacen("beta = \"2ms\"", "beta = \"400ms\"", 1);
    let report = run(&parse(&format!("{ONLINE}{job}")), &checked("deadline"));
    assert!(report.preempted > 0 && report.lost_lane_time < 0.05, "{}", report.lost_lane_time);
}

#[test]
fn a_limit_costs_little_where_nothing_becomes_slower() {
    let online =
        ONLINE.replacen("count = 2", "count = 2\n    idle_priority = true", 1).replacen("8s", "60s", 1);
    let done = |limit: &str| {
        // Not checked after each event, which takes long while thousands of requests wait.
        let setup = Setup::named("deadline", &BatchOptions::default()).unwrap();
        let report = run(&parse(&format!("{limit}\n{online}{JOB}")), &setup);
        (report.at_idle_priority, 1.0 - report.lane_busy)
    };
    let (free, idle) = done("");
    let (limited, _) = done("best_effort = { protect = \"p99 <= 1.05x\" }");
    // It starts with half of the time, and grows by 5 % of it with each comparison, up to 90 %.
    assert!(
        free > 0.98 * idle && (0.8 * free..0.91 * free).contains(&limited),
        "{limited} and {free} of {idle}"
    );
}
