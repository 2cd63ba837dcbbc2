//! Prints the result of a study as tables or as JSON.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use charts::{Note, number, percent};
use node::output;
use serde::Serialize;
use sim::report::TenantFigures;
use sim::{Capacity, Estimate, Report};
use workload::Extent;

use super::devices;
use super::study::{Standing, Study};
use crate::split_setting::split_setting;

/// Most tenants that are listed.
const TENANTS_MAX: usize = 50;

/// Quantile of the latencies in the column `p99/SLO`.
const TAIL: f64 = 0.99;

/// Prints a study as text: the workload, the policies from the best on, rejected requests, the bound.
pub fn text(study: &Study) -> String {
    let mut text = format!("{}\n\n", headline(study));
    text.push_str(&standings(study));
    let endings = endings(study);
    if !endings.is_empty() {
        let _ = write!(text, "\n{endings}");
    }
    let splits = splits(study);
    if !splits.is_empty() {
        let _ = write!(text, "\n{splits}");
    }
    let families = families(study);
    if !families.is_empty() {
        let _ = write!(text, "\n{families}");
    }
    let tenants = tenants(study);
    if !tenants.is_empty() {
        let _ = write!(text, "\n{tenants}");
    }
    let rollouts = rollouts(study);
    if !rollouts.is_empty() {
        let _ = write!(text, "\n{rollouts}");
    }
    let devices = devices::text(study);
    if !devices.is_empty() {
        let _ = write!(text, "\n{devices}");
    }
    let _ = writeln!(text, "\n{}", bound(study));
    for note in &study.notes {
        let _ = writeln!(text, "note: {}", note_line(note));
    }
    text
}

/// A note in one line.
pub fn note_line(note: &Note) -> String {
    if note.about.is_empty() { note.text.clone() } else { format!("{}: {}", note.about, note.text) }
}

/// One line about the workload.
pub fn headline(study: &Study) -> String {
    let workload = &study.workload;
    let models = match workload.models.len() {
        1 => "1 model".to_owned(),
        count => format!("{count} models"),
    };
    let on = match &workload.partition {
        Some(partition) => {
            let each =
                partition.devices.iter().map(|devices| format!("{} {}", devices.count, devices.kind()));
            format!("up to {}, repartitioned as the load changes", each.collect::<Vec<_>>().join(" and "))
        }
        None if workload.lanes.count == 1 => "1 lane".to_owned(),
        None => format!("{} lanes", workload.lanes.count),
    };
    let slos: BTreeSet<u64> = workload.models.iter().map(|model| model.slo).collect();
    let milliseconds = |slo: Option<&u64>| slo.map_or_else(String::new, |slo| number(*slo as f64 / 1e6));
    let slo = match slos.len() {
        1 => milliseconds(slos.first()),
        _ => format!("{} to {}", milliseconds(slos.first()), milliseconds(slos.last())),
    };
    let extent = match workload.extent {
        Extent::Time(time) => format!("{} s", number(time as f64 / 1e9)),
        Extent::Requests(count) => format!("{} requests", number(count as f64)),
    };
    let seeds = match study.seeds.as_slice() {
        [first, .., last] => format!("seeds {first} to {last}"),
        [only] => format!("seed {only}"),
        [] => "no seed".to_owned(),
    };
    format!("{}: {models} on {on}, SLO {slo} ms, {extent}, {seeds}", workload.name)
}

fn standings(study: &Study) -> String {
    let any = |test: fn(&Standing) -> bool| study.standings.iter().any(test);
    let (capacity, preempted) = (
        any(|standing| standing.capacity.is_some()),
        any(|standing| standing.first().is_some_and(|run| run.preempted > 0)),
    );
    let mut header = vec!["policy", "offered/s", "goodput/s", "attainment"];
    if capacity {
        header.push("capacity/s");
    }
    header.extend(["p50 ms", "p99 ms", "p99.9 ms", "p99/SLO", "batch", "busy", "refused"]);
    if preempted {
        header.push("preempted");
    }
    let at_idle_priority = any(|standing| standing.first().is_some_and(|run| run.at_idle_priority > 0.0));
    if at_idle_priority {
        header.push("at idle priority");
    }
    let rows = study.standings.iter().filter_map(|standing| {
        let run = standing.first()?;
        let latency = |pick: fn(&sim::report::Latency) -> f64| {
            run.latency_ms.as_ref().map_or_else(dash, |latency| number(pick(latency)))
        };
        let mut row = vec![
            standing.label.clone(),
            number(standing.offered),
            with_margin(standing.goodput, number),
            with_margin(standing.attainment, percent),
        ];
        if capacity {
            row.push(standing.capacity.as_ref().map_or_else(dash, |capacity| number(capacity.rate)));
        }
        row.extend([
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
            latency(|latency| latency.p99_9),
            tail_of_slo(run).map_or_else(dash, |tail| format!("{tail:.2}")),
            number(run.mean_batch),
            percent(run.lane_busy),
            percent(run.requests.refused_in_all() as f64 / run.requests.offered.max(1) as f64),
        ]);
        if preempted {
            row.push(number(run.preempted as f64));
        }
        if at_idle_priority {
            row.push(percent(run.at_idle_priority));
        }
        Some(row)
    });
    output::table(&header, rows)
}

/// How the roll-outs of the first run of each policy ended.
fn rollouts(study: &Study) -> String {
    let runs = study.standings.iter().filter_map(|standing| Some((&standing.label, standing.first()?)));
    let rows = runs.flat_map(|(label, run)| run.rollouts.iter().map(move |rollout| (label, rollout)));
    let rows: Vec<Vec<String>> = rows
        .map(|(label, rollout)| {
            let figures = &rollout.figures;
            let tenant = rollout.tenant.as_ref().map(|tenant| format!(" (tenant {tenant})"));
            let cause =
                rollout.cause.as_ref().map_or_else(dash, |cause| cause.clone() + &tenant.unwrap_or_default());
            vec![
                label.clone(),
                rollout.model.clone(),
                crate::rollout_report::word(rollout.state).to_owned(),
                rollout.ended_s.map_or_else(dash, |end| number(end - rollout.at_s)),
                number(figures.canary.requests as f64),
                percent(figures.canary.attainment()),
                percent(figures.stable.attainment()),
                format!("{}/{}", figures.disagreed, figures.compared),
                cause,
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = [
        "policy",
        "model",
        "new version",
        "after s",
        "requests",
        "attainment",
        "old version's",
        "differ",
        "cause",
    ];
    output::table(&header, rows)
}

/// What the variants of families answered in the first run of each policy.
fn families(study: &Study) -> String {
    let runs = study.standings.iter().filter_map(|standing| Some((&standing.label, standing.first()?)));
    let rows = runs.flat_map(|(label, run)| run.families.iter().map(move |family| (label, family)));
    let rows: Vec<Vec<String>> = rows
        .map(|(label, family)| {
            let variants = family.variants.iter();
            let shares = variants.map(|variant| format!("{} {}", variant.name, percent(variant.share)));
            vec![
                label.clone(),
                family.family.clone(),
                format!("{:.4}", family.quality),
                shares.collect::<Vec<_>>().join(", "),
                family.falls.to_string(),
                family.rises.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    output::table(&["policy", "family", "quality", "answered by", "falls", "rises"], rows)
}

/// Placeholder for a missing figure.
pub fn dash() -> String {
    "-".to_owned()
}

/// A mean and, with several seeds, its confidence interval.
pub fn with_margin(estimate: Estimate, show: fn(f64) -> String) -> String {
    match estimate.margin {
        Some(margin) => format!("{} ± {}", show(estimate.mean), show(margin)),
        None => show(estimate.mean),
    }
}

/// The 99th percentile of latency divided by the SLO.
fn tail_of_slo(run: &Report) -> Option<f64> {
    run.latency_cdf.iter().find(|quantile| quantile.share >= TAIL).map(|quantile| quantile.of_slo)
}

/// Table of requests that missed their deadline, by outcome; empty if there are no such requests.
fn endings(study: &Study) -> String {
    let runs: Vec<(&str, &Report)> = study
        .standings
        .iter()
        .filter_map(|standing| Some((standing.label.as_str(), standing.first()?)))
        .collect();
    let words: BTreeSet<&str> = runs.iter().flat_map(|(_, run)| ends(run)).map(|(word, _)| word).collect();
    if words.is_empty() {
        return String::new();
    }
    let header: Vec<String> = words.iter().map(|word| word.replace('_', " ")).collect();
    let header: Vec<&str> = ["not in time"].into_iter().chain(header.iter().map(String::as_str)).collect();
    let rows = runs.iter().map(|(label, run)| {
        let count = |word: &str| ends(run).find(|(end, _)| *end == word).map_or(0, |(_, count)| count);
        [(*label).to_owned()].into_iter().chain(words.iter().map(|word| number(count(word) as f64))).collect()
    });
    output::table(&header, rows)
}

fn ends(run: &Report) -> impl Iterator<Item = (&str, u64)> {
    let requests = &run.requests;
    let others = [
        ("late", requests.late),
        ("expired", requests.expired),
        ("failed", requests.failed),
        ("unfinished", requests.unfinished),
    ];
    let refused = requests.refused.iter().map(|(word, count)| (word.as_str(), *count));
    refused.chain(others).filter(|(_, count)| *count > 0)
}

/// How the objectives of pipelines with `split = "plan"` are divided under the best policy, as settings; empty without them.
fn splits(study: &Study) -> String {
    let best = study.standings.first().and_then(Standing::first);
    let mut text = String::new();
    for chosen in best.into_iter().flat_map(|report| &report.splits) {
        let deadlines = serde_json::to_string(&chosen.deadlines).unwrap_or_default();
        let split = split_setting(chosen.shares.iter().map(|(stage, share)| (stage.as_str(), *share)));
        // Names of pipelines may have dots in them.
        let quote = if chosen.pipeline.contains('.') { "\"" } else { "" };
        let name = &chosen.pipeline;
        let _ = writeln!(text, "[pipelines.{quote}{name}{quote}]\nsplit = {split}\ndeadlines = {deadlines}");
    }
    text
}

/// Table of the tenants under the best policy; empty if there is only one without a quota.
fn tenants(study: &Study) -> String {
    let best = study.standings.first().and_then(Standing::first);
    let tenants = best.map(Report::tenants_to_show).unwrap_or_default();
    if tenants.is_empty() {
        return String::new();
    }
    let rows = tenants.iter().take(TENANTS_MAX).map(|tenant| {
        vec![
            tenant.name.clone(),
            number(tenant.offered as f64),
            percent(tenant.attainment),
            percent(tenant.refused_by_quota as f64 / tenant.offered.max(1) as f64),
            number(tenant.device_seconds_per_second),
            tenant.device_seconds_quota.map_or_else(dash, number),
            percent(tenant.device_share),
            percent(tenant.weight_share),
        ]
    });
    output::table(&TenantFigures::COLUMNS, rows)
}

fn bound(study: &Study) -> String {
    let bound = &study.bound;
    let mut text =
        format!("no policy can answer more than {}/s here: {}", number(bound.goodput), bound_words(bound));
    if let Some(best) = study.standings.first().filter(|_| bound.goodput > 0.0) {
        let _ = write!(text, "; {} reaches {}", best.label, percent(best.goodput.mean / bound.goodput));
    }
    if let (Some(staggered), Some(alone)) = (bound.staggered, bound.uncoordinated) {
        let _ = write!(
            text,
            "\nwith evenly spaced requests, perfectly staggered lanes answer {}/s, and uncoordinated lanes {}/s",
            number(staggered),
            number(alone)
        );
    }
    text
}

/// How a bound was derived.
pub fn bound_words(bound: &sim::Bound) -> &'static str {
    if bound.attainment >= 1.0 {
        "all offered requests fit into the lanes' time in batches of the best size (fluid bound)"
    } else {
        "fluid bound: lanes are never idle and every batch has the best size"
    }
}

/// The JSON object of a study.
#[derive(Serialize)]
struct Answer<'a> {
    workload: &'a str,
    about: &'a str,
    seeds: &'a [u64],
    lanes: u32,
    models: usize,
    bound: &'a sim::Bound,
    notes: Vec<String>,
    policies: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    policy: &'a str,
    goodput: Estimate,
    attainment: Estimate,
    capacity: Option<&'a Capacity>,
    sweep: Vec<Point>,
    seeds: Vec<SeedLine<'a>>,
    report: Option<&'a Report>,
}

#[derive(Serialize)]
struct Point {
    offered_rate: f64,
    attainment: f64,
}

#[derive(Serialize)]
struct SeedLine<'a> {
    seed: u64,
    goodput: f64,
    attainment: f64,
    hash: &'a str,
}

impl<'a> From<&'a Standing> for Line<'a> {
    fn from(standing: &'a Standing) -> Self {
        let seed = |run: &'a Report| SeedLine {
            seed: run.seed,
            goodput: run.goodput,
            attainment: run.attainment,
            hash: &run.hash,
        };
        let point = |&(offered_rate, attainment): &(f64, f64)| Point { offered_rate, attainment };
        Self {
            policy: &standing.label,
            goodput: standing.goodput,
            attainment: standing.attainment,
            capacity: standing.capacity.as_ref(),
            sweep: standing.sweep.iter().map(point).collect(),
            seeds: standing.reports.iter().map(seed).collect(),
            report: standing.first(),
        }
    }
}

/// One line of JSON. `report` is the run with the first seed, `margin` half a 95 % confidence interval.
pub fn json(study: &Study) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Answer {
        workload: &study.workload.name,
        about: &study.workload.about,
        seeds: &study.seeds,
        lanes: study.workload.lanes.count,
        models: study.workload.models.len(),
        bound: &study.bound,
        notes: study.notes.iter().map(note_line).collect(),
        policies: study.standings.iter().map(Line::from).collect(),
    })
}
