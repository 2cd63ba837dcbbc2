//! The tables of a page.

use std::fmt::Write as _;

use super::markup::{escape, number, percent};
use super::{Contender, Page};
use crate::estimate::Estimate;

/// Upper bound on the models that are listed.
const MODELS_MAX: usize = 50;
/// Attainment from which a policy meets its objectives.
const KEPT: f64 = 0.99;

/// Table of the policies, best first.
pub(super) fn results(page: &Page<'_>) -> String {
    let preempted = page.contenders.iter().any(|contender| contender.report.preempted > 0);
    let capacity = page.contenders.iter().any(|contender| contender.capacity.is_some());
    let several = page.contenders.iter().any(|contender| contender.goodput.margin.is_some());
    let mut text = String::from("<h2>Results</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>policy</th>");
    let mut heads = vec!["goodput/s", "attainment", "of the bound"];
    if capacity {
        heads.push("capacity/s");
    }
    heads.extend([
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "rows a batch",
        "lanes busy",
        "refused",
        "late",
        "expired",
    ]);
    if preempted {
        heads.push("preempted batches");
    }
    for head in heads {
        let _ = write!(text, "<th>{head}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for (place, contender) in page.contenders.iter().enumerate() {
        text.push_str(if place == 0 { "<tr class=\"first\">" } else { "<tr>" });
        let _ = write!(text, "<td>{}</td>", escape(&contender.name));
        for (class, cell) in cells(page, contender, capacity, preempted) {
            let _ = write!(text, "<td{class}>{cell}</td>");
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    text.push_str(&reasons(page));
    let _ = writeln!(
        text,
        "<p class=\"soft\">{}Times are those of answered requests; compare them with the SLO above. Refused, late and \
         expired are shares of what was offered.{}</p>",
        if several {
            "± is a 95 % confidence interval over seeds; all else is of the first seed. "
        } else {
            ""
        },
        if capacity { " Capacity is the highest rate with at least 99 % good." } else { "" }
    );
    text
}

type Cell = (&'static str, String);

fn cells(page: &Page<'_>, contender: &Contender<'_>, capacity: bool, preempted: bool) -> Vec<Cell> {
    let report = contender.report;
    let share = |part: u64| percent(part as f64 / report.requests.offered.max(1) as f64);
    let latency = |pick: fn(&crate::report::Latency) -> f64| {
        report.latency_ms.as_ref().map_or_else(|| "-".to_owned(), |latency| number(pick(latency)))
    };
    let kept = if contender.attainment.mean >= KEPT { " class=\"good\"" } else { " class=\"bad\"" };
    let bound = page.bound.as_ref().filter(|(bound, _)| *bound > 0.0);
    let mut cells = vec![
        ("", with_margin(contender.goodput, number)),
        (kept, with_margin(contender.attainment, percent)),
        ("", bound.map_or_else(|| "-".to_owned(), |(bound, _)| percent(contender.goodput.mean / bound))),
    ];
    if capacity {
        cells.push(("", contender.capacity.map_or_else(|| "-".to_owned(), number)));
    }
    cells.extend([
        ("", latency(|latency| latency.p50)),
        ("", latency(|latency| latency.p99)),
        ("", latency(|latency| latency.p99_9)),
        ("", number(report.mean_batch)),
        ("", percent(report.lane_busy)),
        ("", share(report.requests.refused_in_all())),
        ("", share(report.requests.late)),
        ("", share(report.requests.expired)),
    ]);
    if preempted {
        cells.push(("", number(report.preempted as f64)));
    }
    cells
}

fn with_margin(estimate: Estimate, show: fn(f64) -> String) -> String {
    match estimate.margin {
        Some(margin) => format!("{} ± {}", show(estimate.mean), show(margin)),
        None => show(estimate.mean),
    }
}

/// Table of the reasons for which requests were rejected.
fn reasons(page: &Page<'_>) -> String {
    let mut words: Vec<&str> = page
        .contenders
        .iter()
        .flat_map(|contender| contender.report.requests.refused.iter())
        .filter(|(_, count)| **count > 0)
        .map(|(word, _)| word.as_str())
        .collect();
    words.sort_unstable();
    words.dedup();
    if words.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<details><summary>Refused requests by reason</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>policy</th>",
    );
    for word in &words {
        let _ = write!(text, "<th>{}</th>", escape(&word.replace('_', " ")));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for contender in &page.contenders {
        let _ = write!(text, "<tr><td>{}</td>", escape(&contender.name));
        for word in &words {
            let count = contender.report.requests.refused.get(*word).copied().unwrap_or(0);
            let _ = write!(text, "<td>{}</td>", number(count as f64));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div></details>\n");
    text
}

/// Table of the models under the best policy.
pub(super) fn models(page: &Page<'_>) -> String {
    let Some(best) = page.contenders.first().filter(|best| best.report.models.len() > 1) else {
        return String::new();
    };
    let models = &best.report.models;
    let mut text = format!(
        "<h2>Models under {}</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>model</th><th>SLO ms</th>\
         <th>offered/s</th><th>attainment</th><th>p99 ms</th><th>rows a batch</th></tr></thead>\n<tbody>\n",
        escape(&best.name)
    );
    for model in models.iter().take(MODELS_MAX) {
        let kept = if model.attainment >= KEPT { "good" } else { "bad" };
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{kept}\">{}</td><td>{}</td><td>{}</td></tr>",
            escape(&model.name),
            number(model.slo_ms),
            number(model.rate),
            percent(model.attainment),
            model.p99_ms.map_or_else(|| "-".to_owned(), number),
            number(model.mean_batch)
        );
    }
    text.push_str("</tbody></table></div>\n");
    if models.len() > MODELS_MAX {
        let _ = writeln!(text, "<p class=\"soft\">and {} more</p>", models.len() - MODELS_MAX);
    }
    text
}
