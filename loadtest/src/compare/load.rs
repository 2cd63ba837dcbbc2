//! Whether two runs had the same load.

use charts::number;

use crate::report::{Driven, ModelFigures, Report};

/// Largest relative difference of offered rates that count as equal.
const RATE_TOLERANCE: f64 = 0.02;

/// How the loads differed, as text.
pub(super) fn differences(a: &Report, b: &Report) -> Vec<String> {
    let mut all = Vec::new();
    let mut tell = |what: &str, one: &str, other: &str| {
        if one != other {
            all.push(format!("{what} {one} against {other}"));
        }
    };
    tell("workload", &a.workload, &b.workload);
    tell("seed", &a.seed.to_string(), &b.seed.to_string());
    tell("protocol", &a.target.protocol, &b.target.protocol);
    tell("tensors", &a.target.tensors, &b.target.tensors);
    tell("driven by", &driven(a), &driven(b));
    for (one, other) in pairs(a, b) {
        let slo = |model: &ModelFigures| format!("{} ms", number(model.slo_ms));
        tell(&format!("SLO of {}", one.name), &slo(one), &slo(other));
    }
    let (one, other) = (a.total.offered_rate, b.total.offered_rate);
    let open = a.driven == Driven::Open && b.driven == Driven::Open;
    if open && (one - other).abs() > RATE_TOLERANCE * one.max(other) {
        all.push(format!("{} requests a second against {}", number(one), number(other)));
    }
    for (name, report, lacking) in [("a", a, b), ("b", b, a)] {
        let alone = report.models.iter().filter(|model| find(lacking, &model.name).is_none());
        all.extend(alone.map(|model| format!("model {} in {name} alone", model.name)));
    }
    all
}

fn driven(report: &Report) -> String {
    match report.driven {
        Driven::Open => "an open loop".to_owned(),
        Driven::Closed { concurrency } => format!("a closed loop of {concurrency}"),
    }
}

/// Models that both runs have.
pub(super) fn pairs<'a>(
    a: &'a Report,
    b: &'a Report,
) -> impl Iterator<Item = (&'a ModelFigures, &'a ModelFigures)> {
    a.models.iter().filter_map(|model| Some((model, find(b, &model.name)?)))
}

fn find<'a>(report: &'a Report, name: &str) -> Option<&'a ModelFigures> {
    report.models.iter().find(|model| model.name == name)
}

/// Whether the load followed the same course, second for second, beforehand.
pub(super) fn same_course(a: &Report, b: &Report) -> bool {
    let open = a.driven == Driven::Open && b.driven == Driven::Open;
    let course = |report: &Report| {
        let stages = report.stages.iter();
        stages.map(|stage| (stage.from_s, stage.to_s, stage.scale_from, stage.scale_to)).collect::<Vec<_>>()
    };
    let seconds = |report: &Report| measured(report).map(|second| second.t).collect::<Vec<_>>();
    open && a.workload == b.workload && course(a) == course(b) && seconds(a) == seconds(b)
}

/// Whether the same number of requests was due in each second.
pub(super) fn same_requests(a: &Report, b: &Report) -> bool {
    let counts = |report: &Report| measured(report).map(|second| second.offered).collect::<Vec<_>>();
    same_course(a, b) && counts(a) == counts(b)
}

/// The whole seconds that the report's figures are about.
pub(super) fn measured(report: &Report) -> impl Iterator<Item = &crate::report::Second> {
    // Tolerance for rounding errors of binary fractions.
    let (from, to) = (report.warmup_s - 1e-6, report.warmup_s + report.measured_s + 1e-6);
    report.seconds.iter().filter(move |second| second.t as f64 >= from && second.t as f64 + 1.0 <= to)
}
