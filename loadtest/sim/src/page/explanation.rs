//! The text of a page: what was simulated, which policy was best, how to read the page.

use std::fmt::Write as _;

use charts::{escape, more, number, paragraph, plain, table};
use workload::{Extent, Model, Workload};

use super::{Page, verdict};

/// Upper bound on the groups of models that are listed.
const GROUPS_MAX: usize = 40;
const MILLISECOND: f64 = 1e6;
const SECOND: f64 = 1e9;

/// What the workload is about, and the result in a sentence or two.
pub(super) fn opening(page: &Page<'_>) -> String {
    let verdict = verdict::words(page).map(|words| paragraph("verdict", &words)).unwrap_or_default();
    paragraph("soft", &page.workload.about) + &verdict
}

/// What was simulated, and the command that repeats it.
pub(super) fn setting(page: &Page<'_>) -> String {
    let workload = page.workload;
    let mut text = String::from("<h2>What was simulated</h2>\n");
    let lanes = workload.lanes.count;
    let on = match (&workload.partition, lanes) {
        (Some(_), 1) => "1 device partitioned into gpulets (each runs one batch at a time)".to_owned(),
        (Some(_), lanes) => {
            format!("{lanes} devices partitioned into gpulets (each runs one batch at a time)")
        }
        (None, 1) => "1 lane (a lane runs one batch at a time)".to_owned(),
        (None, lanes) => format!("{lanes} lanes (a lane runs one batch at a time)"),
    };
    let _ = writeln!(
        text,
        "<p>{} on {on}, through the decision code of the server itself, in virtual time. {}</p>",
        counted(workload.models.len(), "model", "models"),
        escape(&traffic(workload))
    );
    let trouble = trouble(workload);
    if !trouble.is_empty() {
        let _ = writeln!(text, "<p>{}</p>", escape(&trouble));
    }
    text.push_str(&groups(workload));
    let _ = writeln!(text, "<pre>{}</pre>", escape(page.command));
    text.push_str(&paragraph(
        "soft",
        "A request is good when its answer comes within its model's SLO, the latency objective. Goodput counts good \
         answers a second; attainment is their share of all requests offered, refused ones included. A policy decides \
         when a batch starts, how many requests it takes, on which lane, and which requests are refused because they \
         could no longer be answered in time.",
    ));
    text
}

fn traffic(workload: &Workload) -> String {
    let extent = match workload.extent {
        Extent::Time(time) => format!("for {} s", number(time as f64 / SECOND)),
        Extent::Requests(count) => format!("until {} have arrived", number(count as f64)),
    };
    let warmup = match workload.warmup {
        0 => String::new(),
        warmup => format!(", of which the first {} s are not counted", number(warmup as f64 / SECOND)),
    };
    let rate = number(workload.mean_rate());
    format!(
        "Clients send {rate} requests a second on average {extent}{warmup}. All chance derives from seed {}.",
        workload.seed
    )
}

/// Noise, stalls and failures of lanes; empty without any.
fn trouble(workload: &Workload) -> String {
    let noise = workload.lanes.noise;
    let mut parts = Vec::new();
    if noise.spread > 0.0 {
        parts.push(format!(
            "each model truly takes its profile's time times a fixed factor from {:.2} to {:.2}",
            1.0 - noise.spread,
            1.0 + noise.spread
        ));
    }
    if (noise.bias - 1.0).abs() > f64::EPSILON {
        parts.push(format!("batches truly take {:.2} times their profile", noise.bias));
    }
    if noise.cv > 0.0 {
        parts.push(format!("batch times vary with a coefficient of variation of {:.2}", noise.cv));
    }
    if let Some(stalls) = noise.stalls {
        let (every, time) = (stalls.every as f64 / SECOND, stalls.time as f64 / MILLISECOND);
        parts.push(format!("a lane stalls for {} ms every {} s on average", number(time), number(every)));
    }
    let changes = workload.lanes.changes.iter().take(8).map(|change| {
        let what = if change.up { "recovers" } else { "fails" };
        format!("lane {} {what} at {} s", change.lane, number(change.at as f64 / SECOND))
    });
    parts.extend(changes);
    if workload.lanes.changes.len() > 8 {
        parts.push("further lanes fail and recover".to_owned());
    }
    if parts.is_empty() {
        String::new()
    } else {
        format!("What the scheduler is not told in advance: {}.", parts.join("; "))
    }
}

/// A row for each group of equal models.
fn groups(workload: &Workload) -> String {
    let mut groups: Vec<(&Model, usize)> = Vec::new();
    for model in &workload.models {
        match groups.last_mut() {
            Some((first, copies)) if first.group == model.group => *copies += 1,
            _ => groups.push((model, 1)),
        }
    }
    let milliseconds = |time: u64| format!("{} ms", number(time as f64 / MILLISECOND));
    let rows = groups.iter().take(GROUPS_MAX).map(|(model, copies)| {
        let (alone, largest) = model.profile.as_ref().map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |profile| {
                let largest = profile.max_batch();
                (milliseconds(profile.time(1)), format!("{largest}: {}", milliseconds(profile.time(largest))))
            },
        );
        let best_effort = if model.deadline { "" } else { " (best effort)" };
        plain([
            model.group.clone(),
            copies.to_string(),
            format!("{}{best_effort}", milliseconds(model.slo)),
            alone,
            largest,
            number(model.mean_rate()),
            model.process().to_owned(),
        ])
    });
    let header = ["model", "copies", "SLO", "a batch of 1", "largest batch", "requests/s each", "arrivals"];
    table("Models of the workload", &header, rows) + &more(groups.len(), GROUPS_MAX, "")
}

/// Version of the program, and the digest that identifies the run.
pub(super) fn closing(page: &Page<'_>) -> String {
    let mut text =
        format!("<footer><p>Made by tessera {}. The same command gives the same bytes", escape(page.version));
    if let Some(best) = page.contenders.first() {
        let _ = write!(
            text,
            "; the digest of every event of {} is <code>{}</code>",
            escape(&best.name),
            escape(&best.report.hash)
        );
    }
    text.push_str(".</p></footer>\n");
    text
}

fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("One {one}") } else { format!("{} {many}", number(count as f64)) }
}
