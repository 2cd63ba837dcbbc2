//! Jobs as text.

use jiff::Zoned;
use jobs::{Forecast, JobState, JobView, Verdict};
use node::output;

use super::time;

/// Jobs as a table.
pub fn table(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no jobs: submit one with `tessera job submit --model NAME --input FILE`\n".to_owned();
    }
    let now = Zoned::now();
    let rows = jobs.iter().map(|job| {
        let record = &job.record;
        let by = record.request.by.map_or_else(String::new, |by| time::text(by.0, &now));
        vec![
            record.id.to_string(),
            record.request.model.clone(),
            record.request.tenant.clone(),
            state(job).to_owned(),
            format!("{} of {}", job.done, record.rows),
            record.mistakes.to_string(),
            job.forecast.map_or_else(String::new, |forecast| format!("{:.1}", forecast.rate)),
            ends(job, &now),
            by,
            verdict(job.verdict).to_owned(),
        ]
    });
    output::table(
        &["job", "model", "tenant", "state", "rows", "mistakes", "rows/s", "ends", "by", "in time"],
        rows,
    )
}

/// One job.
pub fn text(job: &JobView) -> String {
    let (now, record) = (Zoned::now(), &job.record);
    let mut lines = vec![
        ("job", record.id.to_string()),
        ("model", record.request.model.clone()),
        ("tenant", record.request.tenant.clone()),
        ("state", state(job).to_owned()),
        ("rows", format!("{} of {} done, {} with an error", job.done, record.rows, record.mistakes)),
        ("results", record.request.results.word().to_owned()),
        ("submitted", time::text(record.submitted.0, &now)),
    ];
    if let Some(version) = &record.request.version {
        lines.insert(2, ("version", version.clone()));
    }
    if let Some(forecast) = job.forecast {
        lines.push(("rows/s", format!("{:.1}", forecast.rate)));
    }
    lines.push(("ends", ends(job, &now)));
    if let Some(by) = record.request.by {
        lines.push(("by", format!("{} ({})", time::text(by.0, &now), verdict(job.verdict))));
    }
    lines.push(("waits for", job.waits_for.clone()));
    lines.push(("error", record.error.clone()));
    let shown = lines.into_iter().filter(|(_, value)| !value.is_empty());
    shown.map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}

/// When it ends, in a few words.
pub fn forecast_line(job: &JobView) -> String {
    let now = Zoned::now();
    let parts = [
        job.forecast.map_or_else(String::new, |forecast| format!("{:.1} rows/s", forecast.rate)),
        ends(job, &now),
        if job.record.request.by.is_some() { verdict(job.verdict).to_owned() } else { String::new() },
        job.waits_for.clone(),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn state(job: &JobView) -> &'static str {
    match job.record.state {
        JobState::Open if job.in_flight > 0 => "running",
        JobState::Open => "waiting",
        ended => ended.word(),
    }
}

fn ends(job: &JobView, now: &Zoned) -> String {
    if let Some(ended) = job.record.ended {
        return format!("ended {}", time::text(ended.0, now));
    }
    let Some(Forecast { end, earliest, latest, .. }) = job.forecast else { return String::new() };
    let latest = latest.map_or_else(|| "?".to_owned(), |latest| time::text(latest.0, now));
    format!("{} ({} to {latest})", time::text(end.0, now), time::text(earliest.0, now))
}

fn verdict(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        None => "",
        Some(Verdict::InTime) => "yes",
        Some(Verdict::Late) => "no",
        Some(Verdict::Unknown) => "not known yet",
    }
}
