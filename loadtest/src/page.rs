//! Renders a report as one HTML page: what was measured, whether the figures can be trusted, results and plots.
//! The page has no scripts and loads no other file, so it can be sent by mail.

mod over_time;
mod tables;
mod views;

use std::fmt::Write as _;

use charts::{Reference, Series, document, escape, notes, number, paragraph, percent};

use crate::report::{Driven, Report};
use crate::summary;

/// Renders the whole file. `command` is the command that repeats the run. The same report gives the same bytes.
pub fn html(report: &Report, command: &str) -> String {
    let mut body = opening(report);
    body.push_str(&setting(report, command));
    body.push_str(&tables::results(report));
    body.push_str(&views::all(report));
    body.push_str(&tables::batches(report));
    body.push_str(&closing(report));
    document(&format!("{}: a run against {}", report.workload, name(report)), &body)
}

fn name(report: &Report) -> String {
    if report.target.server.is_empty() { report.target.url.clone() } else { report.target.server.clone() }
}

/// An SLO more than this many times the highest latency is not drawn: it would flatten the lines of the plot.
const SLO_OF_HIGHEST_MAX: f64 = 5.0;

/// The reference line of an SLO in a plot of `series`, in the same unit, or a sentence that says why it is left out.
fn slo_line(slo: f64, unit: &str, series: &[Series]) -> (Vec<Reference>, String) {
    let values = series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let highest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if slo > highest * SLO_OF_HIGHEST_MAX {
        return (Vec::new(), format!(" The SLO, {} {unit}, lies far above the picture.", number(slo)));
    }
    (vec![Reference::new("SLO", slo)], String::new())
}

/// The result in one sentence, and any warnings about it.
fn opening(report: &Report) -> String {
    let total = &report.total;
    let mut verdict =
        summary::capacity(report).map_or_else(String::new, |capacity| format!("Capacity: {capacity}. "));
    let _ = write!(
        verdict,
        "{} of requests were answered within their latency objective: {} of {} a second.",
        percent(total.attainment),
        number(total.goodput),
        number(total.offered_rate),
    );
    if let Some(models) = summary::missed(report) {
        let _ = write!(verdict, " {models}.");
    }
    if let Some(latency) = &total.latency {
        let (half, most) = (number(latency.p50_ms), number(latency.p99_ms));
        let _ = write!(verdict, " Half of the answers took at most {half} ms, 99 % at most {most} ms.");
    }
    paragraph("verdict", &verdict) + &notes(&summary::warnings(report))
}

fn setting(report: &Report, command: &str) -> String {
    let models = match report.models.len() {
        1 => "One model".to_owned(),
        count => format!("{} models", number(count as f64)),
    };
    let slo = match summary::shared_slo(report) {
        Some(slo) => format!("SLO {} ms", number(slo)),
        None => "each with its own SLO".to_owned(),
    };
    let (article, clock) = match report.driven {
        Driven::Open => (
            "an",
            "Requests were sent at times that were fixed beforehand, whatever the server did; latency counts from \
             these times, so a server that stalls cannot hide it.",
        ),
        Driven::Closed { .. } => (
            "a",
            "Each request was sent as soon as another was answered; latency counts from when it was sent.",
        ),
    };
    format!(
        "<h2>What was measured</h2>\n<p>{models} ({slo}) on {}.</p>\n<p>Driven by {article} {}. {clock}</p>\n<pre>{}</pre>\n\
         <p class=\"soft\">A request is good when its right answer comes within its model's SLO, the latency \
         objective. Goodput counts good answers a second; attainment is their share of all requests that were due, \
         refused and failed ones included.</p>\n",
        escape(&summary::server(report)),
        escape(&summary::drive(report)),
        escape(command)
    )
}

fn closing(report: &Report) -> String {
    format!(
        "<footer><p>Made by tessera {}. The client that measured: {}.</p></footer>\n",
        escape(&report.version),
        escape(&summary::client(report))
    )
}

#[cfg(test)]
mod tests;
