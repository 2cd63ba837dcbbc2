//! A report as text, for the terminal and the page.

use std::fmt::Write as _;

use charts::{Cell, Note, number, percent};
use jiff::Timestamp;

use crate::report::{Driven, Figures, Latency, ModelFigures, Report};

/// Models that are listed one by one.
pub(crate) const MODELS_MAX: usize = 50;
/// Columns of the table of results.
pub(crate) const RESULTS: [&str; 12] = [
    "model",
    "SLO ms",
    "offered/s",
    "goodput/s",
    "attainment",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
    "refused",
    "failed",
];
/// Attainment from which a model counts as meeting its objective.
const KEPT: f64 = 0.99;
/// Models below it that the first sentence names.
const MISSED_MAX: usize = 3;
/// Upper bounds on the characters of a server's name, of a reason, and of its message.
const NAME_MAX: usize = 80;
const REASON_MAX: usize = 60;
const MESSAGE_MAX: usize = 120;

/// The server that was measured, and the protocol.
pub(crate) fn server(report: &Report) -> String {
    let target = &report.target;
    let protocol = match target.protocol.as_str() {
        "http" => "HTTP/1.1",
        "http2" => "HTTP/2",
        "grpc" => "gRPC",
        other => other,
    };
    let name = if target.server.is_empty() { "a server".to_owned() } else { shown(&target.server, NAME_MAX) };
    format!("{name} at {}, {protocol} with {} tensors", target.url, target.tensors)
}

/// How requests were sent, and when.
pub(crate) fn drive(report: &Report) -> String {
    let rate = number(report.total.offered_rate);
    let mut text = match report.driven {
        Driven::Open => format!("open loop, {rate} requests a second"),
        Driven::Closed { concurrency: 1 } => format!("closed loop, 1 request in flight, {rate} a second"),
        Driven::Closed { concurrency } => {
            format!("closed loop, {concurrency} requests in flight, {rate} a second")
        }
    };
    let _ = write!(text, " for {} s", number(report.measured_s));
    if report.warmup_s > 0.0 {
        let _ = write!(text, " after {} s that are not counted", number(report.warmup_s));
    }
    let _ = write!(text, ", seed {}, from {}", report.seed, moment(&report.started, "%Y-%m-%d %H:%M:%S UTC"));
    text
}

/// Figures that show whether this client kept up.
pub(crate) fn client(report: &Report) -> String {
    let client = &report.client;
    let mut text = format!(
        "{}, {} of the time busy, {} us of processor time a request, {}",
        counted(u64::from(client.threads), "thread"),
        percent(client.busy),
        number(client.cpu_us),
        counted(client.connections, "connection")
    );
    if let Some(error) = &client.send_error {
        let late = number(error.p99_ms);
        let _ = write!(text, "; 99 % of requests were sent at most {late} ms after they were due");
    }
    text
}

/// What a reader must know about the figures.
pub(crate) fn warnings(report: &Report) -> Vec<Note> {
    let client = &report.client;
    let mut all = Vec::new();
    let mut warn = |kind: &str, text: String| {
        all.push(Note { kind: kind.to_owned(), about: String::new(), text });
    };
    if let Some(from) = &client.late_from {
        let from = moment(from, "%H:%M:%S UTC");
        let seconds = counted(client.late_seconds, "second");
        warn(
            "The client limited the results",
            format!(
                "this client could not keep up: results from {from} do not describe the server ({seconds} of them)"
            ),
        );
    }
    if report.interrupted {
        let after = number(report.measured_s);
        warn(
            "The run is incomplete",
            format!("the run was stopped early: the figures cover the first {after} s"),
        );
    }
    if client.held > 0 {
        let held = counted(client.held, "request");
        warn(
            "The client limited the results",
            format!(
                "{held} had to wait because every allowed connection was busy: the wait is part of the latency, and more \
                 connections would show the latency of the server itself"
            ),
        );
    }
    if let Driven::Closed { concurrency } = report.driven {
        let loops = counted(u64::from(concurrency), "request");
        warn(
            "How to read a closed loop",
            format!(
                "a closed loop sends less to a slow server: this shows the latency with {loops} in flight, not that with \
                 more clients"
            ),
        );
    }
    all
}

/// Which models miss their objective, as a sentence without its point; `None` for a single model or if all meet it.
pub(crate) fn missed(report: &Report) -> Option<String> {
    let missed: Vec<&str> = report
        .models
        .iter()
        .filter(|model| model.figures.attainment < KEPT)
        .map(|model| model.name.as_str())
        .collect();
    let (count, all) = (missed.len(), report.models.len());
    if all < 2 || missed.is_empty() {
        return None;
    }
    let names = missed.iter().take(MISSED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = match count.checked_sub(MISSED_MAX) {
        Some(more @ 1..) => format!(" and {more} more"),
        _ => String::new(),
    };
    Some(format!("{count} of {all} models stay below {} %: {names}{more}", number(100.0 * KEPT)))
}

/// Requests that were not answered, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    /// Whether the server rejected them under overload; otherwise they failed.
    pub(crate) refused: bool,
    /// The reason as text.
    pub(crate) reason: String,
    pub(crate) requests: u64,
    /// The message of the first one; empty without a message.
    pub(crate) message: String,
}

/// Why requests were not answered, most frequent reason first.
pub(crate) fn reasons(report: &Report) -> Vec<Unanswered> {
    let figures = &report.total;
    let of = |refused: bool| {
        move |(reason, requests): (&String, &u64)| Unanswered {
            refused,
            reason: shown(&reason.replace('_', " "), REASON_MAX),
            requests: *requests,
            message: report
                .messages
                .get(reason)
                .map_or_else(String::new, |message| shown(message, MESSAGE_MAX)),
        }
    };
    let all = figures.refused.iter().map(of(true)).chain(figures.failed.iter().map(of(false)));
    let mut all: Vec<_> = all.filter(|reason| reason.requests > 0).collect();
    all.sort_by_key(|reason| std::cmp::Reverse(reason.requests));
    all
}

/// Text from elsewhere, without control characters and truncated to `letters` characters.
pub(crate) fn shown(text: &str, letters: usize) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let short: String = clean.clone().take(letters).collect();
    if clean.count() > letters { format!("{short}...") } else { short }
}

/// The highest sustained rate as text; none if it was not searched.
pub(crate) fn capacity(report: &Report) -> Option<String> {
    let capacity = report.capacity.as_ref()?;
    if capacity.rate <= 0.0 {
        return Some("no tested rate had 99 % of its requests answered within the SLO".to_owned());
    }
    let (rate, attainment) = (number(capacity.rate), percent(capacity.attainment));
    let open = if capacity.settled { "" } else { "; the search ended before the result was certain" };
    let above =
        capacity.failed_rate().map_or_else(String::new, |rate| format!("; {} were too many", number(rate)));
    Some(format!(
        "{rate} requests a second, the highest sustained rate ({attainment} within the SLO){above}{open}"
    ))
}

/// Rows of the table of results: the models and, of several, their sum.
pub(crate) fn results(report: &Report) -> Vec<Vec<Cell>> {
    let models = report.models.iter().take(MODELS_MAX);
    let mut rows: Vec<_> =
        models.map(|model| row(("", &model.name), number(model.slo_ms), &model.figures)).collect();
    if report.models.len() != 1 {
        let slo = shared_slo(report).map_or_else(|| "-".to_owned(), number);
        rows.push(row(("strong", "all"), slo, &report.total));
    }
    rows
}

fn row((class, name): (&'static str, &str), slo: String, figures: &Figures) -> Vec<Cell> {
    let mut row = vec![(class, name.to_owned())];
    row.extend(charts::plain([slo, number(figures.offered_rate), number(figures.goodput)]));
    row.push((if figures.attainment >= KEPT { "good" } else { "bad" }, percent(figures.attainment)));
    let picks: [fn(&Latency) -> f64; 5] =
        [|all| all.p50_ms, |all| all.p90_ms, |all| all.p99_ms, |all| all.p99_9_ms, |all| all.max_ms];
    let latencies = picks.map(|pick| figures.latency.as_ref().map(pick));
    row.extend(charts::plain(latencies.map(|latency| latency.map_or_else(|| "-".to_owned(), number))));
    let (refused, failed): (u64, u64) = (figures.refused.values().sum(), figures.failed.values().sum());
    row.push(("", number(refused as f64)));
    row.push((if failed > 0 { "bad" } else { "" }, number(failed as f64)));
    row
}

/// Number of batches, rows per batch and milliseconds per batch; none if the server has no statistics.
pub(crate) fn batches(model: &ModelFigures) -> Option<(u64, f64, f64)> {
    let count: u64 = model.batches.iter().map(|size| size.batches).sum();
    let rows: f64 = model.batches.iter().map(|size| size.rows as f64 * size.batches as f64).sum();
    let time: f64 = model.batches.iter().map(|size| size.compute_ms * size.batches as f64).sum();
    (count > 0).then(|| (count, rows / count as f64, time / count as f64))
}

/// The SLO in milliseconds if all models share it.
pub(crate) fn shared_slo(report: &Report) -> Option<f64> {
    let first = report.models.first()?.slo_ms;
    report.models.iter().all(|model| (model.slo_ms - first).abs() < f64::EPSILON).then_some(first)
}

/// Formats an RFC 3339 time; other text is returned unchanged.
fn moment(text: &str, form: &str) -> String {
    text.parse::<Timestamp>().map_or_else(|_| text.to_owned(), |time| time.strftime(form).to_string())
}

fn counted(count: u64, one: &str) -> String {
    format!("{} {one}{}", number(count as f64), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_run_without_trouble_has_no_warnings() {
        let report = fixture::plain();
        assert_eq!(warnings(&report), Vec::<Note>::new());
        assert_eq!(server(&report), "tessera 0.1.0 at http://127.0.0.1:8000, HTTP/1.1 with binary tensors");
        let words = drive(&report);
        assert!(
            words.starts_with("open loop, ") && words.ends_with("from 2026-11-21 13:01:40 UTC"),
            "{words}"
        );
        assert!(!words.contains("not counted") && words.contains(" for 30 s, seed 1"), "{words}");
    }

    #[test]
    fn problems_are_warnings() {
        let mut report = fixture::plain();
        report.interrupted = true;
        report.driven = Driven::Closed { concurrency: 32 };
        report.client.held = 1_234;
        report.client.late_from = Some("2026-11-21T13:02:10.4Z".to_owned());
        report.client.late_seconds = 1;
        let all: String = warnings(&report).into_iter().map(|note| note.text + "\n").collect();
        for said in [
            "this client could not keep up: results from 13:02:10 UTC do not describe the server (1 second of them)",
            "stopped early: the figures cover the first 30 s",
            "1,234 requests had to wait because every allowed connection was busy",
            "with 32 requests in flight, not that with more clients",
        ] {
            assert!(all.contains(said), "{said}: {all}");
        }
        assert!(drive(&report).starts_with("closed loop, 32 requests in flight"));
    }

    #[test]
    fn reasons_are_sorted_by_frequency() {
        let mut report = fixture::idle();
        report.total.refused.insert("deadline_unmeetable".to_owned(), 3);
        report.total.refused.insert("never".to_owned(), 0);
        report.total.failed.insert("timeout".to_owned(), 7);
        report.messages.insert("deadline_unmeetable".to_owned(), format!("\x1b[31mno{}", "o".repeat(200)));
        let all = reasons(&report);
        let short: Vec<_> =
            all.iter().map(|reason| (reason.refused, reason.reason.as_str(), reason.requests)).collect();
        assert_eq!(short, [(false, "timeout", 7), (true, "deadline unmeetable", 3)]);
        assert!(
            all[1].message.starts_with(" [31mnooo") && all[1].message.ends_with("o..."),
            "{}",
            all[1].message
        );
        report.models.clear();
        let cells = results(&report).pop().unwrap();
        assert_eq!(cells[10..], [("", "3".to_owned()), ("bad", "7".to_owned())]);
    }
}
