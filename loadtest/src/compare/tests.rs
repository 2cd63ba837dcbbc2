use super::*;
use crate::fixture::Draw;
use crate::report::Driven;

/// Draws of a test about chance.
const DRAWS: u64 = 200;

fn row(comparison: &Comparison, metric: Metric) -> &Row {
    comparison.rows.iter().find(|row| row.model.is_none() && row.metric == metric).unwrap()
}

fn differs(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Better | Verdict::Worse)
}

/// Of how many of the draws each figure, of all models or of the first, is called different.
fn called_different(draw: impl Fn(u64) -> (Draw, Draw)) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = Vec::new();
    for seed in 0..DRAWS {
        let (a, b) = draw(seed);
        for row in compare(&a.report(), &b.report()).rows {
            let name = format!("{} {:?}", row.model.unwrap_or_default(), row.metric);
            let different = u64::from(differs(row.verdict));
            match counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += different,
                None => counts.push((name, different)),
            }
        }
    }
    println!("{counts:?}");
    counts
}

fn seldom(case: &str, draw: impl Fn(u64) -> (Draw, Draw)) {
    for (figure, count) in called_different(draw) {
        assert!(count <= DRAWS / 10, "{case}, {figure}: {count} of {DRAWS}");
    }
}

fn two_models(load_seed: u64, seed: u64) -> Draw {
    let models = vec![("resnet", 25.0, 9.0), ("bert", 60.0, 24.0)];
    Draw { load_seed, seed, capacity: 560.0, models, ..Draw::default() }
}

#[test]
fn runs_of_the_same_kind_are_seldom_called_different() {
    seldom("same load", |seed| (two_models(seed, seed), two_models(seed, seed + 1_000)));
    seldom("apart", |seed| {
        let longer = Draw { seconds: 25, ..two_models(seed + 1_000, seed + 1_000) };
        (two_models(seed, seed), longer)
    });
}

#[test]
fn slow_seconds_are_noise_and_not_a_difference() {
    let slow = |load_seed, seed| Draw {
        seconds: 60,
        rate: 200.0,
        capacity: f64::INFINITY,
        wander: (0.2, 0.5),
        ..two_models(load_seed, seed)
    };
    seldom("slow seconds", |seed| (slow(seed, seed), slow(seed, seed + 1_000)));
    let steps = |load_seed, seed| Draw {
        rate: 100.0,
        capacity: 175.0,
        scales: vec![0.5, 1.0, 1.5, 2.5],
        wander: (0.1, 0.5),
        ..slow(load_seed, seed)
    };
    seldom("steps", |seed| (steps(seed, seed), steps(seed + 1_000, seed + 1_000)));
}

#[test]
fn a_fifth_slower_is_found() {
    for seed in 0..20 {
        let draw = |slower, seed| Draw { slower, load_seed: 7, seed, ..Draw::default() };
        let comparison = compare(&draw(1.0, seed).report(), &draw(1.2, seed + 99).report());
        assert!(comparison.paired && comparison.load_differs.is_empty());
        for metric in [Metric::MeanMs, Metric::P50Ms, Metric::P90Ms, Metric::P99Ms] {
            let row = row(&comparison, metric);
            let [low, high] = row.interval.unwrap();
            assert_eq!(row.verdict, Verdict::Worse, "seed {seed}: {row:?}");
            assert!(low < 1.25 && high > 1.15, "seed {seed}: {row:?}");
        }
        let faster = compare(&draw(1.2, seed).report(), &draw(1.0, seed + 99).report());
        assert_eq!(row(&faster, Metric::P50Ms).verdict, Verdict::Better);
    }
}

#[test]
fn a_fifth_less_goodput_is_found() {
    let draw = |capacity, seed| Draw { capacity, load_seed: 7, seed, ..Draw::default() };
    let comparison = compare(&draw(500.0, 1).report(), &draw(400.0, 2).report());
    for metric in [Metric::Goodput, Metric::Attainment, Metric::RefusedShare] {
        let row = row(&comparison, metric);
        assert_eq!(row.verdict, Verdict::Worse, "{row:?}");
    }
    let text = comparison.text(false);
    assert!(text.contains("worse") && text.contains("compared in pairs") && !text.contains('\x1b'), "{text}");
    assert!(comparison.text(true).contains("\x1b["));
}

#[test]
fn what_is_too_short_is_said_to_be() {
    let short = Draw { seconds: 9, ..Draw::default() }.report();
    let comparison = compare(&short, &short);
    let told = comparison.rows.iter().filter(|row| row.metric != Metric::ClientCpu);
    assert!(told.clone().all(|row| row.verdict == Verdict::TooShort && row.interval.is_none()));
    let few = Draw { rate: 40.0, ..Draw::default() }.report();
    assert!(compare(&few, &few).rows.iter().all(|row| !differs(row.verdict) && row.interval.is_none()));
    let long = Draw { rate: 100.0, ..Draw::default() }.report();
    let comparison = compare(&long, &long);
    assert_eq!(row(&comparison, Metric::P50Ms).verdict, Verdict::WithinNoise);
    assert_eq!(row(&comparison, Metric::P999Ms).verdict, Verdict::TooShort, "two answers lie beyond");
    assert!(comparison.text(false).contains("too short to tell"));
}

#[test]
fn another_load_is_said_on_top() {
    let a = Draw::default().report();
    let mut b = Draw { rate: 700.0, load_seed: 2, ..Draw::default() }.report();
    b.workload = "other".to_owned();
    b.target.protocol = "grpc".to_owned();
    b.driven = Driven::Closed { concurrency: 8 };
    b.models[0].slo_ms = 50.0;
    let comparison = compare(&a, &b);
    assert_eq!(
        comparison.load_differs,
        [
            "workload pair against other",
            "seed 1 against 2",
            "protocol http against grpc",
            "driven by an open loop against a closed loop of 8",
            "SLO of resnet 25 ms against 50 ms",
        ]
    );
    assert!(comparison.text(false).starts_with("not the same load: workload pair against other; seed 1"));
    assert!(comparison.warnings.iter().any(|warning| warning.starts_with("b: a closed loop sends less")));
    b.driven = Driven::Open;
    b.models[0].name = "new".to_owned();
    let comparison = compare(&a, &b);
    let all = comparison.load_differs.join("; ");
    assert!(
        all.contains("requests a second against")
            && all.contains("model resnet in a alone; model new in b alone")
    );
    assert!(comparison.rows.iter().all(|row| row.model.is_none()));
}

#[test]
fn empty_runs_have_no_ratio() {
    let a = Draw::default().report();
    let mut b = a.clone();
    b.total.good = 0;
    b.total.goodput = 0.0;
    b.total.attainment = 0.0;
    b.total.latency = None;
    b.seconds.iter_mut().for_each(|second| second.good = 0);
    let comparison = compare(&a, &b);
    assert_eq!(row(&comparison, Metric::Goodput).verdict, Verdict::Worse);
    assert_eq!(row(&comparison, Metric::RefusedShare).verdict, Verdict::WithinNoise);
    assert_eq!(row(&comparison, Metric::P50Ms).b, None);
    let json = serde_json::to_string(&comparison).unwrap();
    assert!(
        json.contains("\"p99_9_ms\"") && json.contains("\"within_noise\"") && !json.contains("NaN"),
        "{json}"
    );
    let error = Report::read(&json).unwrap_err().to_string();
    assert!(error.contains("`tessera load compare --json`"), "{error}");
    let idle = crate::fixture::idle();
    assert!(compare(&idle, &idle).rows.iter().all(|row| !differs(row.verdict)));
}
