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
        notes: vec!["one run <stopped> early".to_owned()],
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
        "deadline answered 199 of 200 requests a second within their latency objective (99.44 %)",
        "Next best: triton:max_delay=2ms, 100 a second",
        "No policy can answer more than 200 a second here (fluid bound)",
        "Note: one run &lt;stopped&gt; early",
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
        "<td>resnet-1</td>",
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
    assert!(html.contains("policy deadline") && !html.contains("Next best"));
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
