//! Plots of the measurements: an HTML page, and one plot of all models.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use charts::{COLOURS, Note, Plot, Series, document, escape, figure, notes, paragraph, plain, table};

use super::bench::cores_words;
use super::report::{CONTENTION_HEADER, CellReport, HEADER, ModelReport, Report};

/// The HTML page. The same report gives the same bytes.
pub fn page(answer: &Report) -> String {
    let mut body = paragraph("soft", &answer.headline());
    for model in &answer.models {
        let _ = writeln!(
            body,
            "<p class=\"verdict\"><strong>{}</strong>: {}</p>",
            escape(&model.header.model),
            escape(&model.best())
        );
    }
    let note = |kind: &str, about: &str, text: &str| Note {
        kind: kind.to_owned(),
        about: about.to_owned(),
        text: text.to_owned(),
    };
    let failed =
        answer.failed.iter().map(|failure| note("What was not measured", &failure.model, &failure.reason));
    let told = answer.notes.iter().map(|text| note("Notes", "", text));
    body.push_str(&notes(&failed.chain(told).collect::<Vec<_>>()));
    if answer.models.len() > 1 {
        body.push_str(&figure(
            "What batches and cores gain",
            &gain(answer).element(),
            "Rows per second of each model, as a multiple of its smallest batch on the fewest cores.",
        ));
    }
    for model in &answer.models {
        let name = &model.header.model;
        body.push_str(&figure(
            &format!("{name}: time of a batch"),
            &lines(model, "p99 of a batch", "ms", |cell| cell.cell.p99_us / 1e3).element(),
            "99 of 100 batches were done by then. A plan must keep this, and the wait before it, within the objective.",
        ));
        body.push_str(&figure(
            &format!("{name}: rows per second"),
            &lines(model, "Rows per second", "rows/s", |cell| cell.rows_per_s).element(),
            "One batch after the other, at the median. Where the line is level, larger batches only cost time.",
        ));
    }
    let mut list = |title: &str, header: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let _ = write!(body, "<h2>{title}</h2>\n{}", table(title, header, rows.into_iter().map(plain)));
        }
    };
    list("All cells", &HEADER, answer.rows());
    list("Under contention", &CONTENTION_HEADER, answer.contention_rows());
    document("Profiles", &body)
}

/// Plots the speed-up by batch size and cores, with all models in one plot.
pub fn gain(answer: &Report) -> Plot {
    let cores: usize = answer.models.iter().map(|model| units(model).len()).sum();
    let mut series = Vec::new();
    for model in &answer.models {
        let Some(first) = model.cells.first().map(|cell| cell.rows_per_s) else { continue };
        let all = units(model);
        // With too many lines, each model has one: on the most cores.
        let shown = all.iter().copied().skip(if cores > COLOURS { all.len().saturating_sub(1) } else { 0 });
        for units in shown {
            let name = format!("{}, {}", model.header.model, cores_words(units));
            let points = points(model, units, |cell| cell.rows_per_s / first);
            series.push(Series::new(name, Some(series.len()), points));
        }
    }
    Plot {
        title: "Rows per second, as a multiple of the smallest batch on the fewest cores".to_owned(),
        horizontal: "rows of a batch".to_owned(),
        vertical: "times".to_owned(),
        series,
        marks: marks(answer.models.iter()),
        ..Plot::default()
    }
}

fn lines(model: &ModelReport, title: &str, unit: &str, value: impl Fn(&CellReport) -> f64) -> Plot {
    let series = units(model)
        .into_iter()
        .enumerate()
        .map(|(colour, units)| Series::new(cores_words(units), Some(colour), points(model, units, &value)));
    Plot {
        title: format!("{title}: {}", model.header.model),
        horizontal: "rows of a batch".to_owned(),
        vertical: unit.to_owned(),
        series: series.collect(),
        marks: marks(std::iter::once(model)),
        ..Plot::default()
    }
}

/// Numbers of cores that a model was measured on.
fn units(model: &ModelReport) -> BTreeSet<u32> {
    model.cells.iter().map(|cell| cell.cell.units).collect()
}

/// Logarithmic scale for batch sizes.
fn place(batch: u32) -> f64 {
    f64::from(batch.max(1)).log2()
}

fn points(model: &ModelReport, units: u32, value: impl Fn(&CellReport) -> f64) -> Vec<(f64, f64)> {
    let cells = model.cells.iter().filter(|cell| cell.cell.units == units);
    cells.map(|cell| (place(cell.cell.batch), value(cell))).collect()
}

fn marks<'a>(models: impl Iterator<Item = &'a ModelReport>) -> Vec<(f64, String)> {
    let batches: BTreeSet<u32> =
        models.flat_map(|model| model.cells.iter().map(|cell| cell.cell.batch)).collect();
    batches.into_iter().map(|batch| (place(batch), batch.to_string())).collect()
}
