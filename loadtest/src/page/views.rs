//! The plots of a page, with headings and captions.

use charts::{Bar, Bars, Column, Columns, Plot, Reference, Series, element, figure, number, percent};

use super::over_time;
use crate::histogram::decode;
use crate::report::{Latency, ModelFigures, Report};
use crate::summary;

/// Models with a line of their own.
const LINES_MAX: usize = 8;
/// Colour of all models together: a grey that no model has.
const ALL_COLOUR: usize = 9;
/// Models whose batches are shown.
const BATCHES_MAX: usize = 4;
/// Batch sizes of a model that are shown.
const SIZES_MAX: usize = 64;
/// Reasons that are shown.
const REASONS_MAX: usize = 16;
/// Points of a line of percentiles for each power of ten.
const POINTS: usize = 32;

/// All plots that there is data for.
pub(super) fn all(report: &Report) -> String {
    let views = [
        percentiles(report),
        over_time::latency(report),
        over_time::goodput(report),
        stages(report),
        reasons(report),
        batches(report),
        over_time::send_error(report),
    ];
    views.into_iter().flatten().collect()
}

/// Where a share of the answers stands on the axis of percentiles: each step of one is a power of ten fewer slower
/// answers.
fn place(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// Milliseconds over the axis of percentiles, up to the slowest answer.
fn curve(latency: &Latency) -> Vec<(f64, f64)> {
    let Ok(histogram) = decode(&latency.histogram) else {
        return Vec::new();
    };
    let end = (histogram.len() as f64).log10();
    let steps = (end * POINTS as f64).ceil();
    let inner = (0..=steps as usize).map(|step| step as f64 / POINTS as f64).take_while(|x| *x < end);
    let points = inner.map(|x| (x, histogram.value_at_quantile(1.0 - 10_f64.powf(-x)) as f64 / 1e3));
    points.chain([(end, latency.max_ms)]).collect()
}

fn percentiles(report: &Report) -> Option<String> {
    let line = |name: &str, colour: usize, strong: bool, latency: Option<&Latency>| {
        let points = curve(latency?);
        (!points.is_empty()).then(|| Series { strong, ..Series::new(name, Some(colour), points) })
    };
    let models = report.models.iter().enumerate().take(LINES_MAX);
    let mut series: Vec<Series> = models
        .filter_map(|(place, model)| line(&model.name, place, false, model.figures.latency.as_ref()))
        .collect();
    if report.models.len() != 1 {
        series.extend(line("all", ALL_COLOUR, true, report.total.latency.as_ref()));
    }
    let last =
        series.iter().filter_map(|series| series.points.last()).map(|point| point.0).reduce(f64::max)?;
    let marks = [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.999_9, "99.99")]
        .into_iter()
        .chain([(0.999_99, "99.999"), (0.999_999, "99.9999")]);
    let (level, beyond) =
        summary::shared_slo(report).map(|slo| super::slo_line(slo, "ms", &series)).unwrap_or_default();
    let some = match report.models.len() {
        all if all > LINES_MAX => format!(" The first {LINES_MAX} of {all} models."),
        _ => String::new(),
    };
    let plot = Plot {
        title: "Latency by percentile".to_owned(),
        horizontal: "percentile".to_owned(),
        vertical: "ms".to_owned(),
        series,
        level,
        marks: marks.map(|(share, name)| (place(share), name.to_owned())).collect(),
        across: Some((0.0, last.max(1.0))),
        ..Plot::default()
    };
    let caption = format!(
        "Of right answers, from when a request was due. Every mark to the right leaves a tenth of the slower answers; a \
         line ends at the slowest one.{beyond}{some}"
    );
    Some(figure("Latency", &plot.element(), &caption))
}

/// Goodput against offered rate: a dot a stage, or a dot a trial of the search for the capacity.
fn stages(report: &Report) -> Option<String> {
    let stages = report.stages.iter().map(|stage| (stage.figures.offered_rate, stage.figures.goodput));
    let trials = report.capacity.iter().flat_map(|capacity| &capacity.trials);
    let trials: Vec<_> = trials.map(|trial| (trial.rate, trial.rate * trial.attainment)).collect();
    let (name, mut points) =
        if trials.is_empty() { ("a stage", stages.collect()) } else { ("a rate that was tried", trials) };
    points.retain(|(offered, _)| *offered > 0.0);
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let end = points.last().filter(|_| points.len() > 1)?.0 * 1.05;
    let upright = report.capacity.iter().filter(|capacity| capacity.rate > 0.0);
    let plot = Plot {
        title: "Goodput against offered rate".to_owned(),
        horizontal: "requests offered a second, all models together".to_owned(),
        vertical: "good answers a second".to_owned(),
        series: vec![
            Series::new("all in time", None, vec![(0.0, 0.0), (end, end)]),
            Series { strong: true, ..Series::new(name, Some(0), points) },
        ],
        upright: upright.map(|capacity| Reference::new("capacity", capacity.rate)).collect(),
        scattered: true,
        across: Some((0.0, end)),
        ..Plot::default()
    };
    Some(figure(
        "Goodput against offered rate",
        &plot.element(),
        "On the line every request was answered in time. Dots that leave it and stay level lose only the excess; dots \
         that fall show a server that collapses under overload.",
    ))
}

fn reasons(report: &Report) -> Option<String> {
    let offered = report.total.offered.max(1) as f64;
    let reasons = summary::reasons(report);
    let bars = reasons.iter().take(REASONS_MAX).map(|reason| {
        let (kind, colour) = if reason.refused { ("refused", 3) } else { ("failed", 1) };
        let count = reason.requests as f64;
        Bar {
            name: format!("{kind}: {}", reason.reason),
            value: count,
            amount: format!("{} ({})", number(count), percent(count / offered)),
            more: reason.message.clone(),
            colour,
        }
    });
    let bars: Vec<Bar> = bars.collect();
    if bars.is_empty() {
        return None;
    }
    let mut caption = "Share of all requests that were due.".to_owned();
    for reason in reasons.iter().take(REASONS_MAX).filter(|reason| !reason.message.is_empty()) {
        caption.push_str(&format!(" With “{}” the first time: {}.", reason.reason, reason.message));
    }
    let chart = Bars { title: "By reason".to_owned(), bars };
    Some(figure("Requests that were not answered", &element(&chart), &caption))
}

fn batches(report: &Report) -> Option<String> {
    let told: Vec<_> = report
        .models
        .iter()
        .enumerate()
        .filter_map(|(place, model)| Some((place, model, summary::batches(model)?)))
        .collect();
    if told.is_empty() {
        return None;
    }
    let pictures = told.iter().take(BATCHES_MAX).map(|(place, model, (count, rows, time))| {
        let title = format!(
            "{}: {} batches, {} rows and {} ms on average",
            model.name,
            number(*count as f64),
            number(*rows),
            number(*time)
        );
        let (horizontal, vertical) = ("rows in a batch".to_owned(), "batches".to_owned());
        element(&Columns { title, horizontal, vertical, colour: *place, columns: columns(model) })
    });
    let mut caption =
        "From the server's own statistics, over the time that was measured. Larger batches cost less \
                       time a request, and take longer to gather and to run."
            .to_owned();
    if let Some(more @ 1..) = told.len().checked_sub(BATCHES_MAX) {
        caption.push_str(&format!(" {more} more models are in the table below."));
    }
    Some(figure("Batch sizes", &pictures.collect::<String>(), &caption))
}

fn columns(model: &ModelFigures) -> Vec<Column> {
    let sizes = model.batches.iter().take(SIZES_MAX).map(|size| Column {
        name: number(size.rows as f64),
        value: size.batches as f64,
        more: format!(
            "{} batches of {} rows, {} ms each",
            number(size.batches as f64),
            number(size.rows as f64),
            number(size.compute_ms)
        ),
    });
    sizes.collect()
}
