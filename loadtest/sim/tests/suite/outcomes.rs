//! Short timelines with outcomes computed manually. Policy `triton` starts a batch whenever a lane is free.

use sim::report::{BatchSize, SpanEnd};

use crate::support::{checked, moments, run};

#[test]
fn requests_that_come_during_a_batch_are_the_next_batch() {
    let workload = moments("100ms", "count = 1", &[0.0, 3.0, 3.0, 4.0, 5.0, 900.0]);
    let report = run(&workload, &checked("triton"));
    assert_eq!((report.requests.offered, report.requests.good, report.batches), (6, 6, 3));
    let sizes = |rows, batches| BatchSize { rows, batches };
    assert_eq!(report.batch_sizes, [sizes(1, 2), sizes(4, 1)]);
    // 0 to 10, then 10 to 23 for four that came at 3, 3, 4 and 5, then 900 to 910.
    let latency = report.latency_ms.unwrap();
    assert_eq!(latency.max, 20.0);
    assert!((latency.mean - (10.0 + 20.0 + 20.0 + 19.0 + 18.0 + 10.0) / 6.0).abs() < 1e-9);
    assert!((latency.p50 - 18.0).abs() < 0.02 && (latency.p90 - 20.0).abs() < 1e-9, "{latency:?}");
    assert!((report.lane_busy - 0.033).abs() < 1e-9 && report.mean_batch == 2.0, "{}", report.lane_busy);
    assert_eq!((report.offered_rate, report.goodput, report.attainment), (6.0, 6.0, 1.0));
    let last = report.latency_cdf.last().unwrap();
    assert!((last.share, (last.of_slo - 0.2).abs() < 1e-3) == (1.0, true));
}

#[test]
fn an_answer_at_the_deadline_is_good_and_one_after_it_is_late() {
    let good_and_late = |slo: &str| {
        let report = run(&moments(slo, "count = 1", &[0.0, 3.0, 3.0, 3.0, 3.0]), &checked("triton"));
        (report.requests.good, report.requests.late)
    };
    assert_eq!(good_and_late("20ms"), (5, 0));
    assert_eq!(good_and_late("19ms"), (1, 4));
}

#[test]
fn requests_whose_deadline_passes_in_the_queue_expire() {
    // Eight fill the batch from 10 to 27; the ninth is due at 23.
    let report = run(
        &moments("20ms", "count = 1", &[0.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]),
        &checked("triton"),
    );
    assert_eq!((report.requests.good, report.requests.late, report.requests.expired), (1, 8, 1));
}

#[test]
fn the_warm_up_runs_and_is_not_counted() {
    let text = r#"
        name = "warm"
        duration = "1s"
        warmup = "500ms"
        [models.m]
        slo = "100ms"
        profile = { alpha = "1ms", beta = "9ms", max_batch = 8 }
        arrivals = { process = "trace", format = "timestamps", file = "t.csv", repeat = false }
    "#;
    let report = run(&crate::support::traced(text, &[0.0, 100.0, 495.0, 502.0, 800.0]), &checked("triton"));
    assert_eq!((report.requests.offered, report.requests.good, report.batches), (2, 2, 2));
    // The batch that began at 495 ends at 505: 5 ms of it count, and those at 505 and 800.
    assert!((report.lane_busy - 25.0 / 500.0).abs() < 1e-9, "{}", report.lane_busy);
    assert_eq!(report.latency_ms.unwrap().max, 13.0);
    assert_eq!(report.series.iter().map(|bucket| bucket.offered).sum::<u64>(), 5);
}

#[test]
fn what_a_lane_runs_when_it_fails_is_lost_and_the_others_go_on() {
    let lanes = "count = 2\n[[lanes.failures]]\nlane = 0\nfrom = \"5ms\"\nuntil = \"40ms\"";
    let report = run(&moments("100ms", lanes, &[0.0, 1.0, 6.0, 50.0]), &checked("triton"));
    // Lane 0 dies at 5 with the first request; lane 1 runs the second to 11, then the third to 21.
    assert_eq!((report.requests.good, report.requests.failed, report.lost), (3, 1, 1));
    let up = 2_000.0 - 35.0;
    assert!((report.lost_lane_time - 5.0 / up).abs() < 1e-9);
    assert!((report.lane_busy - (5.0 + 10.0 + 10.0 + 10.0) / up).abs() < 1e-9);
    assert_eq!(report.latency_ms.unwrap().max, 15.0);
}

#[test]
fn without_any_lane_requests_are_refused() {
    let lanes = "count = 1\n[[lanes.failures]]\nlane = 0\nfrom = \"5ms\"";
    let report = run(&moments("100ms", lanes, &[0.0, 1.0, 6.0]), &checked("triton"));
    assert_eq!((report.requests.failed, report.requests.refused.get("no_lane")), (1, Some(&2)));
    assert!(report.latency_ms.is_none() && report.latency_cdf.is_empty() && report.attainment == 0.0);
}

#[test]
fn the_lane_timeline_shows_each_batch_in_the_middle_of_the_run() {
    let report = run(&moments("10ms", "count = 2", &[100.0, 505.0, 506.0, 900.0]), &checked("triton"));
    let spans: Vec<_> =
        report.lane_timeline.iter().map(|span| (span.lane, span.from_ms, span.to_ms, span.end)).collect();
    assert_eq!(spans, [(0, 505.0, 515.0, SpanEnd::Done), (1, 506.0, 516.0, SpanEnd::Done)]);
}

#[test]
fn true_times_may_differ_from_the_profile() {
    let report =
        run(&moments("100ms", "count = 1\nnoise = { bias = 1.5 }", &[0.0, 90.0]), &checked("triton"));
    assert_eq!(report.latency_ms.unwrap().max, 15.0);
}

#[test]
fn requests_without_a_deadline_are_good_whenever_they_are_answered() {
    let text = r#"
        name = "nightly"
        duration = "100ms"
        [models.m]
        slo = "10ms"
        deadline = false
        profile = { alpha = "10ms", beta = "0ms", max_batch = 1 }
        arrivals = { process = "trace", format = "timestamps", file = "t.csv", repeat = false }
    "#;
    let report = run(&crate::support::traced(text, &[0.0, 90.0, 90.0, 90.0]), &checked("triton"));
    assert_eq!((report.requests.good, report.latency_ms.unwrap().max), (4, 30.0));
    assert_eq!(report.lane_busy, 0.2, "only what ran before the end of the traffic");
}

/// Shepherd preempts a batch for one 3.03 times as large.
#[test]
fn a_preempted_batch_runs_again_and_its_time_is_lost() {
    let mut times = vec![0.0];
    times.extend([2.0; 7]);
    let report = run(&moments("40ms", "count = 1", &times), &checked("shepherd"));
    // At 2 the fourth request makes a batch of 4, large enough; the first runs again, from 2 on at the latest.
    assert_eq!((report.preempted, report.requests.good), (1, 8));
    assert!((report.lost_lane_time - 0.002).abs() < 1e-9, "{}", report.lost_lane_time);
    assert!(report.lane_busy > 0.002 + 0.016);
}

#[test]
fn time_outside_the_models_is_part_of_latency_and_of_the_lanes_time() {
    let run = |lanes: &str, request_ms: u64| {
        let mut workload = moments("100ms", lanes, &[0.0, 1.0]);
        workload.models[0].overhead = workload::Spans::constant(request_ms * 1_000_000);
        run(&workload, &checked("triton"))
    };
    let bare = run("count = 1", 0).latency_ms.unwrap();
    let of_requests = run("count = 1", 4).latency_ms.unwrap();
    assert!((of_requests.mean - bare.mean - 4.0).abs() < 1e-6, "{bare:?} {of_requests:?}");
    // The second request waits for the first one's batch and for its own.
    let of_batches = run("count = 1\noverhead = \"2ms\"", 0).latency_ms.unwrap();
    assert!((of_batches.max - bare.max - 4.0).abs() < 1e-6, "{bare:?} {of_batches:?}");
    let late = run("count = 1", 90);
    assert_eq!((late.requests.good, late.requests.late), (1, 1), "its client has it after 100 ms");
}
