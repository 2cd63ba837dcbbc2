//! A report for the terminal.

use std::fmt::Write as _;

use charts::{number, percent};
use comfy_table::{Cell, CellAlignment, Color, Table, presets};

use crate::report::Report;
use crate::summary::{self, MODELS_MAX};

/// Upper bound on reasons.
const REASONS_MAX: usize = 12;

/// The report: a row per model, why requests were not answered, batches, the client, and warnings. Lines end in a line
/// feed. ANSI colours are used only with `colour`.
pub fn text(report: &Report, colour: bool) -> String {
    let mut text =
        format!("{}: {}\n{}\n\n", report.workload, summary::server(report), summary::drive(report));
    text.push_str(&models(report, colour));
    let reasons = reasons(report, colour);
    if !reasons.is_empty() {
        let _ = write!(text, "\n{reasons}");
    }
    let batches = batches(report, colour);
    if !batches.is_empty() {
        let _ = write!(text, "\n{batches}");
    }
    if let Some(capacity) = summary::capacity(report) {
        let _ = write!(text, "\ncapacity: {capacity}\n");
    }
    let _ = writeln!(text, "\nclient: {}", summary::client(report));
    for warning in summary::warnings(report) {
        let _ = writeln!(text, "{} {}", alarm("warning:", colour), warning.text);
    }
    text
}

/// A word that must be noticed, in yellow with `colour`.
pub(crate) fn alarm(word: &str, colour: bool) -> String {
    if colour { format!("\x1b[1;33m{word}\x1b[0m") } else { word.to_owned() }
}

fn models(report: &Report, colour: bool) -> String {
    let cell = |(class, text): (&str, String)| match class {
        "good" => Cell::new(text).fg(Color::DarkGreen),
        "bad" => Cell::new(text).fg(Color::DarkRed),
        _ => Cell::new(text),
    };
    let rows = summary::results(report).into_iter().map(|row| row.into_iter().map(cell).collect());
    let mut text = table(&summary::RESULTS, rows.collect(), colour);
    if let Some(more @ 1..) = report.models.len().checked_sub(MODELS_MAX) {
        let _ = writeln!(text, "and {more} more models");
    }
    text
}

fn reasons(report: &Report, colour: bool) -> String {
    let reasons = summary::reasons(report);
    if reasons.is_empty() {
        return String::new();
    }
    let rows = reasons.iter().take(REASONS_MAX).map(|reason| {
        let kind = if reason.refused { "refused" } else { "failed" };
        let share = percent(reason.requests as f64 / report.total.offered.max(1) as f64);
        let requests = number(reason.requests as f64);
        vec![Cell::new(format!("{kind}: {}", reason.reason)), Cell::new(requests), Cell::new(share)]
    });
    let mut text = table(&["not answered", "requests", "of offered"], rows.collect(), colour);
    for reason in reasons.iter().take(REASONS_MAX).filter(|reason| !reason.message.is_empty()) {
        let _ = writeln!(text, "{} was first said with: {}", reason.reason, reason.message);
    }
    if let Some(more @ 1..) = reasons.len().checked_sub(REASONS_MAX) {
        let _ = writeln!(text, "and {more} more reasons");
    }
    text
}

fn batches(report: &Report, colour: bool) -> String {
    let rows: Vec<_> = report
        .models
        .iter()
        .take(MODELS_MAX)
        .filter_map(|model| {
            let (count, rows, time) = summary::batches(model)?;
            let figures = [number(count as f64), number(rows), number(time)];
            Some([model.name.clone()].into_iter().chain(figures).map(Cell::new).collect())
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["the server's batches", "batches", "rows, mean", "ms, mean"], rows, colour)
}

/// Aligned columns without frames, as wide as they must be; the first to the left, the others to the right.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<Cell>>, colour: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec()).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    // The style pads cells on both sides; at the edges that is only noise.
    table.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_run_is_told_on_a_screen() {
        let mut report = fixture::report();
        report.interrupted = true;
        let plain = text(&report, false);
        for told in [
            "pair: tessera 0.1.0 at http://127.0.0.1:8000, HTTP/1.1 with binary tensors",
            "open loop, 578 requests a second for 56 s after 4 s that are not counted, seed 1",
            "attainment",
            "bert <base>",
            "refused: deadline unmeetable",
            "the server's batches",
            "client: 1 thread, 31.00 % of the time busy, 21.5 us",
            "warning: the run was stopped early",
        ] {
            assert!(plain.contains(told), "{told}\n{plain}");
        }
        assert!(!plain.contains('\x1b'));
        let all = plain.lines().find(|line| line.starts_with("all ")).unwrap();
        let figure = number(report.total.goodput);
        assert!(all.split_whitespace().any(|cell| cell == figure), "{figure}: {all}");
        report.messages.insert("overloaded".to_owned(), "\x1b[2Jgo away".to_owned());
        assert!(text(&report, false).contains("overloaded was first said with:  [2Jgo away\n"));
        let coloured = text(&report, true);
        assert!(coloured.contains("\x1b[") && coloured.contains("\x1b[1;33mwarning:"), "{coloured}");
    }

    #[test]
    fn one_model_has_no_sum_and_an_idle_run_no_holes() {
        let plain = text(&fixture::plain(), false);
        assert!(!plain.lines().any(|line| line.starts_with("all ")), "{plain}");
        let idle = text(&fixture::idle(), false);
        assert!(idle.contains("100 %") && !idle.contains("NaN") && !idle.contains("batches"), "{idle}");
        assert!(!idle.contains("not answered"), "{idle}");
    }
}
