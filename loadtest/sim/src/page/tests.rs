use super::*;
use crate::report::{BatchSize, Bucket, Latency, ModelFigures, Quantile, Requests, Span, SpanEnd};

const WORKLOAD: &str = r#"
name = "pair <b>"
about = "two models & a failing lane"
seed = 7
duration = "10s"
warmup = "1s"
[lanes]
count = 2
[lanes.noise]
spread = 0.2
[[lanes.failures]]
lane = 1
from = "3s"
until = "4s"
[models.resnet]
count = 2
slo = "25ms"
profile = { alpha = "1.053ms", beta = "5.072ms", max_batch = 64 }
rate = 100.0
"#;

fn workload() -> Workload {
    Workload::parse(WORKLOAD, &mut |_: &str| Err("no files".to_owned())).unwrap()
}

fn report(good: u64) -> Report {
    let model = |name: &str| ModelFigures {
        name: name.to_owned(),
        slo_ms: 25.0,
        offered: 900,
        good: good / 2,
        attainment: good as f64 / 1_800.0,
        p99_ms: Some(24.0),
        mean_batch: 3.0,
        rate: 100.0,
    };
    let bucket = |t: f64| Bucket {
        t,
        offered: 200,
        good: good / 9,
        refused: 2,
        mean_batch: 3.0,
        busy_lanes: 1.5,
        p99_ms: Some(24.0),
    };
    Report {
        workload: "pair".to_owned(),
        policy: "deadline".to_owned(),
        seed: 7,
        lanes: 2,
        splits: Vec::new(),
        families: Vec::new(),
        virtual_seconds: 9.0,
        requests: Requests {
            offered: 1_800,
            good,
            late: 0,
            refused: [("deadline_unmeetable".to_owned(), 1_800 - good)].into(),
            ..Requests::default()
        },
        offered_rate: 200.0,
        goodput: good as f64 / 9.0,
        attainment: good as f64 / 1_800.0,
        latency_ms: Some(Latency { p50: 9.0, p90: 15.0, p99: 24.0, p99_9: 24.8, max: 25.0, mean: 10.0 }),
        mean_batch: 3.0,
        batches: 600,
        lane_busy: 0.75,
        at_idle_priority: 0.0,
        lost_lane_time: 0.01,
        preempted: 3,
        lost: 1,
        events: 5_000,
        hash: "0123456789abcdef".to_owned(),
        stopped: None,
        models: vec![model("resnet-0"), model("resnet-1")],
        tenants: Vec::new(),
        series: (0..10).map(|second| bucket(f64::from(second))).collect(),
        latency_cdf: vec![Quantile { share: 0.0, of_slo: 0.3 }, Quantile { share: 1.0, of_slo: 1.0 }],
        batch_sizes: vec![BatchSize { rows: 1, batches: 10 }, BatchSize { rows: 4, batches: 90 }],
        lane_timeline: vec![Span {
            lane: 0,
            model: 0,
            rows: 4,
            from_ms: 10.0,
            to_ms: 19.3,
            end: SpanEnd::Done,
        }],
        rollouts: Vec::new(),
        partition: None,
    }
}

fn page<'a>(workload: &'a Workload, reports: &'a [(&'a str, Report)]) -> Page<'a> {
    let contenders = reports.iter().enumerate().map(|(colour, (name, report))| Contender {
        name: (*name).to_owned(),
        colour,
        report,
        offered: 200.0,
        goodput: Estimate { mean: report.goodput, margin: Some(1.5) },
        attainment: Estimate { mean: report.attainment, margin: Some(0.001) },
        sweep: vec![(100.0, 1.0), (200.0, report.attainment), (400.0, 0.5)],
        capacity: Some(190.0),
    });
    Page {
        workload,
        command: "tessera simulate pair.toml --compare",
        version: "0.1.0",
        bound: Some((200.0, "fluid bound".to_owned())),
        contenders: contenders.collect(),
        notes: vec![Note {
            kind: "Runs <b>".to_owned(),
            about: "triton".to_owned(),
            text: "one run <stopped> early".to_owned(),
        }],
    }
}

#[test]
fn a_page_shows_every_result_and_needs_no_other_file() {
    let (workload, reports) =
        (workload(), [("deadline", report(1_790)), ("triton:max_delay=2ms", report(900))]);
    let html = page(&workload, &reports).html();
    for text in [
        "pair &lt;b&gt;: 2 policies compared",
        "two models &amp; a failing lane",
        "deadline has a capacity of 190 requests a second with 99 % of them within their latency objective",
        "At the 200 a second of this workload, deadline answers 99.44 % in time",
        "No policy can answer more than 200 a second here: fluid bound",
        "<h2>Runs &lt;b&gt;</h2>\n<ul>\n<li><strong>triton</strong>: one run &lt;stopped&gt; early</li>",
        "2 models on 2 lanes",
        "seed 7",
        "lane 1 fails at 3 s",
        "from 0.80 to 1.20",
        "tessera simulate pair.toml --compare",
        "199 ± 1.50",
        "deadline unmeetable",
        "Attainment against offered rate",
        "Latency of all requests",
        "Rows a batch, over time",
        "Lanes under deadline",
        "3 batches were preempted and 1 lost",
        "<th scope=\"row\">resnet-1</th>",
        "0123456789abcdef",
    ] {
        assert!(html.contains(text), "{text}");
    }
    for outside in ["<script", "<link", "<img", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert_eq!(html.matches("http").count(), html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    assert!(!html.contains("NaN") && !html.contains("inf\""), "every number is finite");
    assert_eq!(html, page(&workload, &reports).html());
}

#[test]
fn a_page_about_one_policy_or_an_idle_run_has_no_holes() {
    let workload = workload();
    let reports = [("deadline", report(1_790))];
    let html = page(&workload, &reports).html();
    assert!(html.contains("policy deadline") && !html.contains("Next:"));
    let mut idle = report(0);
    idle.latency_ms = None;
    idle.requests = Requests::default();
    idle.series.clear();
    idle.latency_cdf.clear();
    idle.batch_sizes.clear();
    idle.lane_timeline.clear();
    let reports = [("deadline", idle)];
    let mut page = page(&workload, &reports);
    page.contenders[0].sweep.clear();
    let html = page.html();
    assert!(html.contains("Results") && !html.contains("<svg") && !html.contains("NaN"));
}

/// A report of a run on devices.
fn on_devices(good: u64, device_seconds: f64, cost: f64) -> Report {
    let partition = crate::report::PartitionFigures {
        policy: "tessera".to_owned(),
        scaling: "attainment".to_owned(),
        plan: None,
        devices: 4,
        devices_most: 2,
        devices_mean: 1.5,
        device_seconds,
        cost_seconds: cost * device_seconds,
        changes: 1,
        failures: 0,
        unplanned: 0,
        share_least: 0.5,
        problem: None,
        steps: Vec::new(),
        gpulets: vec![crate::report::GpuletSpan {
            device: "v100".into(),
            first_unit: 0,
            units: 2,
            models: vec!["resnet-1".to_owned()],
            from_s: 0.0,
            to_s: 9.0,
        }],
        interference: Vec::new(),
        decisions: Vec::new(),
    };
    Report { partition: Some(partition), ..report(good) }
}

#[test]
fn a_page_about_devices_begins_with_their_cost() {
    let workload = workload();
    let told = |reports: &[(&str, Report)]| {
        let html = page(&workload, reports).html();
        html.split("<p class=\"verdict\">")
            .nth(1)
            .and_then(|rest| rest.split("</p>").next())
            .map(str::to_owned)
            .unwrap()
    };
    assert_eq!(
        told(&[("a", on_devices(1_790, 7_200.0, 1.0))]),
        "2 of 4 devices suffice: 99.44 % of requests are answered within their latency objective, with 2 device-hours \
         (1.50 devices on average)."
    );
    assert!(
        told(&[("a", on_devices(900, 30.0, 1.0))])
            .starts_with("2 of 4 devices do not suffice for 99 %: 50.00 % of")
    );
    let three = [
        ("a", on_devices(1_790, 30.0, 1.0)),
        ("b", on_devices(1_800, 60.0, 1.0)),
        ("c", on_devices(900, 10.0, 1.0)),
    ];
    assert_eq!(
        told(&three),
        "Policy a needs the fewest device-hours to answer 99 % of requests within their latency objective: it answers \
         99.44 % with 30 device-seconds (at most 2 of 4 devices). Next: b, 100 % with 60 device-seconds (100 % more). \
         Policy c stays below 99 %: 50.00 % with 10 device-seconds."
    );
    assert!(told(&[("c", on_devices(900, 1e4, 2.0)), ("d", on_devices(9, 1e4, 1.0))]).starts_with(
        "No policy answers 99 % of requests within their latency objective. Policy c comes closest: 50.00 % with 5.56 \
         device-hours weighted by cost (2.78 device-hours)"
    ));
    let html = page(&workload, &three).html();
    for text in [
        "<th scope=\"col\">device-hours</th>",
        "v100: 2 units from 0 on, 0.0 to 9.0 s: resnet-1",
        "of what was wanted at least",
    ] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn a_page_about_tenants_says_how_each_fared() {
    let workload = workload();
    let tenant = |name: &str, refused_by_quota| crate::report::TenantFigures {
        name: name.to_owned(),
        offered: 100,
        good: 100 - refused_by_quota,
        attainment: 1.0 - refused_by_quota as f64 / 100.0,
        refused_by_quota,
        device_seconds_per_second: 0.3,
        device_seconds_quota: None,
        requests_quota: None,
        device_share: 0.5,
        weight_share: 0.5,
    };
    let mut report = report(1_790);
    report.tenants = vec![tenant("search", 0), tenant("crawler", 90)];
    let html = page(&workload, &[("deadline", report)]).html();
    let told = "Tenant search: 100 % in time. Tenant crawler: 10.00 % in time, 90.00 % refused by its quota.";
    assert!(html.contains(told), "{html}");
}
