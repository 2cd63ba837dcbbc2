//! The tables of a page.

use charts::{more, number, paragraph, plain, table};

use crate::report::Report;
use crate::summary::{self, MODELS_MAX};

/// Batch sizes of a model that are listed.
const SIZES_MAX: usize = 64;

/// Models and, of several, their sum.
pub(super) fn results(report: &Report) -> String {
    let table = table("Models", &summary::RESULTS, summary::results(report));
    let more = more(report.models.len(), MODELS_MAX, " models");
    let words = "Latencies are those of right answers. Refused: the server said that it is too busy, or too late. \
                 Failed: everything else that was no right answer.";
    format!("<h2>Results</h2>\n{table}{more}{}", paragraph("soft", words))
}

/// Batches by size, of every model whose server reports them, folded away.
pub(super) fn batches(report: &Report) -> String {
    let models = report.models.iter().filter(|model| !model.batches.is_empty()).take(MODELS_MAX);
    let rows = models.flat_map(|model| {
        model.batches.iter().take(SIZES_MAX).map(|size| {
            let (rows, batches) = (number(size.rows as f64), number(size.batches as f64));
            plain([model.name.clone(), rows, batches, number(size.compute_ms)])
        })
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let table = table("Batches by size", &["model", "rows", "batches", "ms a batch"], rows);
    format!("<details><summary>Batches by size</summary>\n{table}</details>\n")
}
