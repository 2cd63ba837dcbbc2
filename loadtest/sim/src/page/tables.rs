//! The tables of a page.

use std::collections::BTreeSet;

use charts::{Cell, escape, more, number, paragraph, percent, plain, table};

use super::{Contender, KEPT, Page};
use crate::estimate::Estimate;
use crate::report::{Latency, TenantFigures};

/// Upper bound on the models that are listed.
const MODELS_MAX: usize = 50;

/// A column: its title, and its cell for each policy.
type Column<'a> = (&'static str, Box<dyn Fn(&Contender<'_>) -> Cell + 'a>);

/// Table of the policies, best first.
pub(super) fn results(page: &Page<'_>) -> String {
    let any = |test: fn(&Contender<'_>) -> bool| page.contenders.iter().any(test);
    let capacity = any(|contender| contender.capacity.is_some());
    let mut columns = columns(page);
    if !capacity {
        columns.retain(|(title, _)| *title != "capacity/s");
    }
    if !any(|contender| contender.report.partition.is_some()) {
        columns.retain(|(title, _)| !["device-hours", "devices"].contains(title));
    }
    if !any(|contender| contender.report.preempted > 0) {
        columns.retain(|(title, _)| *title != "preempted batches");
    }
    let header: Vec<&str> = ["policy"].into_iter().chain(columns.iter().map(|(title, _)| *title)).collect();
    let rows = page.contenders.iter().enumerate().map(|(place, contender)| {
        let name = (if place == 0 { "strong" } else { "" }, contender.name.clone());
        [name].into_iter().chain(columns.iter().map(|(_, cell)| cell(contender))).collect()
    });
    let mut notes =
        "Times are those of answered requests; compare them with the SLO above. Refused, late and expired \
                     are shares of what was offered."
            .to_owned();
    if any(|contender| contender.goodput.margin.is_some()) {
        notes.insert_str(0, "± is a 95 % confidence interval over seeds; all else is of the first seed. ");
    }
    if capacity {
        notes.push_str(" Capacity is the highest rate with at least 99 % good.");
    }
    let results = table("Policies, the best first", &header, rows);
    format!("<h2>Results</h2>\n{results}{}{}", reasons(page), paragraph("soft", &notes))
}

fn columns<'a>(page: &'a Page<'_>) -> Vec<Column<'a>> {
    fn column<'a>(title: &'static str, text: impl Fn(&Contender<'_>) -> String + 'a) -> Column<'a> {
        (title, Box::new(move |contender| ("", text(contender))))
    }
    let latency = |title, pick: fn(&Latency) -> f64| {
        column(title, move |contender| dash(contender.report.latency_ms.as_ref().map(pick)))
    };
    let share = |title, count: fn(&crate::report::Requests) -> u64| {
        column(title, move |contender| {
            let requests = &contender.report.requests;
            percent(count(requests) as f64 / requests.offered.max(1) as f64)
        })
    };
    let bound = page.bound.as_ref().map(|(bound, _)| *bound).filter(|bound| *bound > 0.0);
    vec![
        column("goodput/s", |contender| with_margin(contender.goodput, number)),
        (
            "attainment",
            Box::new(|contender| {
                (kept(contender.attainment.mean), with_margin(contender.attainment, percent))
            }),
        ),
        column("device-hours", |contender| {
            dash(contender.report.partition.as_ref().map(|figures| figures.device_seconds / 3_600.0))
        }),
        column("devices", |contender| match &contender.report.partition {
            Some(figures) => format!("{} of {}", figures.devices_most, figures.devices),
            None => "-".to_owned(),
        }),
        column("of the bound", move |contender| {
            bound.map_or_else(|| "-".to_owned(), |bound| percent(contender.goodput.mean / bound))
        }),
        column("capacity/s", |contender| dash(contender.capacity)),
        latency("p50 ms", |latency| latency.p50),
        latency("p99 ms", |latency| latency.p99),
        latency("p99.9 ms", |latency| latency.p99_9),
        column("rows a batch", |contender| number(contender.report.mean_batch)),
        column("lanes busy", |contender| percent(contender.report.lane_busy)),
        column("at idle priority", |contender| percent(contender.report.at_idle_priority)),
        share("refused", |requests| requests.refused_in_all()),
        share("late", |requests| requests.late),
        share("expired", |requests| requests.expired),
        column("preempted batches", |contender| number(contender.report.preempted as f64)),
    ]
}

fn kept(attainment: f64) -> &'static str {
    if attainment >= KEPT { "good" } else { "bad" }
}

fn dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

fn with_margin(estimate: Estimate, show: fn(f64) -> String) -> String {
    match estimate.margin {
        Some(margin) => format!("{} ± {}", show(estimate.mean), show(margin)),
        None => show(estimate.mean),
    }
}

/// Table of the reasons for which requests were rejected.
fn reasons(page: &Page<'_>) -> String {
    let refused = page.contenders.iter().flat_map(|contender| &contender.report.requests.refused);
    let words: BTreeSet<&String> = refused.filter(|(_, count)| **count > 0).map(|(word, _)| word).collect();
    if words.is_empty() {
        return String::new();
    }
    let titles: Vec<String> = words.iter().map(|word| word.replace('_', " ")).collect();
    let header: Vec<&str> = ["policy"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    let rows = page.contenders.iter().map(|contender| {
        let count = |word| contender.report.requests.refused.get(word).copied().unwrap_or(0);
        let counts = words.iter().map(|word| number(count(*word) as f64));
        plain([contender.name.clone()].into_iter().chain(counts))
    });
    let table = table("Refused requests by reason", &header, rows);
    format!("<details><summary>Refused requests by reason</summary>\n{table}</details>\n")
}

/// Table of the models under the best policy.
pub(super) fn models(page: &Page<'_>) -> String {
    let Some(best) = page.contenders.first().filter(|best| best.report.models.len() > 1) else {
        return String::new();
    };
    let models = &best.report.models;
    let rows = models.iter().take(MODELS_MAX).map(|model| {
        let mut cells = plain([model.name.clone(), number(model.slo_ms), number(model.rate)]);
        cells.push((kept(model.attainment), percent(model.attainment)));
        cells.extend(plain([dash(model.p99_ms), number(model.mean_batch)]));
        cells
    });
    let caption = format!("Models under {}", best.name);
    let table =
        table(&caption, &["model", "SLO ms", "offered/s", "attainment", "p99 ms", "rows a batch"], rows);
    let more = more(models.len(), MODELS_MAX, "");
    format!("<h2>Models under {}</h2>\n{table}{more}", escape(&best.name))
}

/// Table of the tenants under the best policy, if there are several.
pub(super) fn tenants(page: &Page<'_>) -> String {
    let Some(best) = page.contenders.first() else { return String::new() };
    let tenants = best.report.tenants_to_show();
    if tenants.is_empty() {
        return String::new();
    }
    let rows = tenants.iter().take(MODELS_MAX).map(|tenant| {
        let mut cells = plain([tenant.name.clone(), number(tenant.offered as f64)]);
        cells.push((kept(tenant.attainment), percent(tenant.attainment)));
        let refused = tenant.refused_by_quota as f64 / tenant.offered.max(1) as f64;
        cells.extend(plain([
            percent(refused),
            number(tenant.device_seconds_per_second),
            dash(tenant.device_seconds_quota),
            percent(tenant.device_share),
            percent(tenant.weight_share),
        ]));
        cells
    });
    let table = table(&format!("Tenants under {}", best.name), &TenantFigures::COLUMNS, rows);
    let more = more(tenants.len(), MODELS_MAX, "");
    format!("<h2>Tenants under {}</h2>\n{table}{more}", escape(&best.name))
}
