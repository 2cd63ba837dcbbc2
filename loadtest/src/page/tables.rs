//! The tables of a page.

use std::fmt::Write as _;

use sim::page::{escape, number, percent};

use crate::report::{Figures, Latency, Report};
use crate::summary;

/// Models that are listed one by one.
const MODELS_MAX: usize = 50;
/// Batch sizes of a model that are listed.
const SIZES_MAX: usize = 64;

const HEADS: &str = "<thead><tr><th>model</th><th>SLO ms</th><th>offered/s</th><th>goodput/s</th>\
    <th>attainment</th><th>p50 ms</th><th>p90 ms</th><th>p99 ms</th><th>p99.9 ms</th><th>max ms</th>\
    <th>refused</th><th>failed</th></tr></thead>";

/// Models and, of several, their sum.
pub(super) fn results(report: &Report) -> String {
    let mut text = format!("<h2>Results</h2>\n<div class=\"wide\"><table>\n{HEADS}\n<tbody>\n");
    for model in report.models.iter().take(MODELS_MAX) {
        text.push_str(&row(&model.name, &number(model.slo_ms), &model.figures, ""));
    }
    if report.models.len() != 1 {
        let slo = summary::shared_slo(report).map_or_else(|| "-".to_owned(), number);
        text.push_str(&row("all", &slo, &report.total, " class=\"first\""));
    }
    text.push_str("</tbody></table></div>\n");
    if let Some(more @ 1..) = report.models.len().checked_sub(MODELS_MAX) {
        let _ = writeln!(text, "<p class=\"soft\">and {more} more models</p>");
    }
    text.push_str(
        "<p class=\"soft\">Latencies are those of right answers. Refused: the server said that it is too busy, or too \
         late. Failed: everything else that was no right answer.</p>\n",
    );
    text
}

fn row(name: &str, slo: &str, figures: &Figures, class: &str) -> String {
    let latency = |pick: fn(&Latency) -> f64| {
        figures.latency.as_ref().map_or_else(|| "-".to_owned(), |latency| number(pick(latency)))
    };
    let kept = if figures.attainment >= summary::KEPT { "good" } else { "bad" };
    let (refused, failed) = summary::unanswered(figures);
    let failed_class = if failed > 0 { " class=\"bad\"" } else { "" };
    let mut text = format!(
        "<tr{class}><td>{}</td><td>{slo}</td><td>{}</td><td>{}</td><td class=\"{kept}\">{}</td>",
        escape(name),
        number(figures.offered_rate),
        number(figures.goodput),
        percent(figures.attainment)
    );
    let picks: [fn(&Latency) -> f64; 5] =
        [|all| all.p50_ms, |all| all.p90_ms, |all| all.p99_ms, |all| all.p99_9_ms, |all| all.max_ms];
    for pick in picks {
        let _ = write!(text, "<td>{}</td>", latency(pick));
    }
    let _ = writeln!(
        text,
        "<td>{}</td><td{failed_class}>{}</td></tr>",
        number(refused as f64),
        number(failed as f64)
    );
    text
}

/// Batches by size, of every model whose server told them, folded away.
pub(super) fn batches(report: &Report) -> String {
    let mut text = String::new();
    for model in report.models.iter().filter(|model| !model.batches.is_empty()).take(MODELS_MAX) {
        if text.is_empty() {
            text.push_str(
                "<details><summary>Batches by size</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>model</th>\
                 <th>rows</th><th>batches</th><th>ms a batch</th></tr></thead>\n<tbody>\n",
            );
        }
        for size in model.batches.iter().take(SIZES_MAX) {
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&model.name),
                number(size.rows as f64),
                number(size.batches as f64),
                number(size.compute_ms)
            );
        }
    }
    if !text.is_empty() {
        text.push_str("</tbody></table></div></details>\n");
    }
    text
}
