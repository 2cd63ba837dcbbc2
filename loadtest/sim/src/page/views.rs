//! The plots of a page, with headings and captions.

use std::fmt::Write as _;

use super::gpulets;
use super::markup::{escape, number};
use super::plot::{Plot, Reference, Series};
use super::timeline::{self, Bar};
use super::{Contender, Page};

/// Width of the latency plot, in multiples of the SLO.
const LATENCY_OF_SLO: f64 = 2.0;
/// Policies other than the best whose lanes are drawn.
const OTHER_LANES: usize = 3;

/// A plot with its heading and caption.
pub(super) struct View {
    pub(super) heading: String,
    pub(super) picture: String,
    pub(super) caption: String,
}

/// All plots that there is data for.
pub(super) fn all(page: &Page<'_>) -> Vec<View> {
    let views =
        [sweep(page), latency(page), goodput_over_time(page), batches_over_time(page), batch_sizes(page)];
    views.into_iter().flatten().collect()
}

fn series(page: &Page<'_>, points: impl Fn(&Contender<'_>) -> Vec<(f64, f64)>) -> Vec<Series> {
    let lines = page.contenders.iter().enumerate().map(|(place, contender)| Series {
        name: contender.name.clone(),
        colour: Some(contender.colour),
        strong: place == 0,
        points: points(contender),
    });
    lines.collect()
}

fn empty(series: &[Series]) -> bool {
    series.iter().all(|series| series.points.is_empty())
}

fn sweep(page: &Page<'_>) -> Option<View> {
    let series = series(page, |contender| {
        contender.sweep.iter().map(|(rate, attainment)| (*rate, attainment * 100.0)).collect()
    });
    if empty(&series) {
        return None;
    }
    let offered = page.contenders.first().map_or(0.0, |best| best.offered);
    let plot = Plot {
        title: "Attainment against offered rate".to_owned(),
        horizontal: "requests offered a second, all models together".to_owned(),
        vertical: "attainment, %".to_owned(),
        series,
        upright: vec![Reference { name: "this workload".to_owned(), value: offered }],
        level: vec![Reference { name: "99 %".to_owned(), value: 99.0 }],
        up: Some((0.0, 100.0)),
        ..Plot::default()
    };
    Some(View {
        heading: "How much traffic it bears".to_owned(),
        picture: plot.element(),
        caption: "The same workload, slower and faster. The further right a line stays at the top, the more \
                  traffic the policy bears; a line that then falls like rate/offered loses only the excess, one \
                  that plunges collapses under overload."
            .to_owned(),
    })
}

fn latency(page: &Page<'_>) -> Option<View> {
    let series = series(page, |contender| {
        let requests = &contender.report.requests;
        let answered = (requests.good + requests.late) as f64 / requests.offered.max(1) as f64;
        let quantiles = contender.report.latency_cdf.iter();
        let mut points: Vec<_> =
            quantiles.map(|quantile| (quantile.of_slo, quantile.share * answered * 100.0)).collect();
        // No request is answered after the last one: the line continues horizontally.
        points.extend(
            points.last().filter(|last| last.0 < LATENCY_OF_SLO).map(|last| (LATENCY_OF_SLO, last.1)),
        );
        points
    });
    if empty(&series) {
        return None;
    }
    let plot = Plot {
        title: "Latency of all requests, as a share of their SLO".to_owned(),
        horizontal: "time to answer, in SLOs of the request's model".to_owned(),
        vertical: "answered by then, % of offered".to_owned(),
        series,
        upright: vec![Reference { name: "SLO".to_owned(), value: 1.0 }],
        across: Some((0.0, LATENCY_OF_SLO)),
        up: Some((0.0, 100.0)),
        ..Plot::default()
    };
    Some(View {
        heading: "Latency".to_owned(),
        picture: plot.element(),
        caption:
            "Where a line crosses the SLO is the policy's attainment. What is missing to 100 % at the right \
                  edge was refused, expired or answered later still."
                .to_owned(),
    })
}

fn goodput_over_time(page: &Page<'_>) -> Option<View> {
    let mut lines =
        series(page, |contender| over_time(contender, |bucket, width| bucket.good as f64 / width));
    if empty(&lines) {
        return None;
    }
    if let Some(best) = page.contenders.first() {
        let points = over_time(best, |bucket, width| bucket.offered as f64 / width);
        lines.insert(0, Series { name: "offered".to_owned(), colour: None, strong: false, points });
    }
    let plot = Plot {
        title: "Good answers a second, over time".to_owned(),
        horizontal: "seconds from the start of the run".to_owned(),
        vertical: "requests a second".to_owned(),
        series: lines,
        upright: warmup(page),
        ..Plot::default()
    };
    Some(View {
        heading: "Over time".to_owned(),
        picture: plot.element(),
        caption:
            "Requests count where they arrived. A line that falls below what is offered and stays there, \
                  after the traffic has become normal again, is a collapse that feeds itself."
                .to_owned(),
    })
}

fn batches_over_time(page: &Page<'_>) -> Option<View> {
    let series = series(page, |contender| over_time(contender, |bucket, _| bucket.mean_batch));
    if empty(&series) {
        return None;
    }
    let plot = Plot {
        title: "Rows a batch, over time".to_owned(),
        horizontal: "seconds from the start of the run".to_owned(),
        vertical: "rows a batch, mean".to_owned(),
        series,
        upright: warmup(page),
        ..Plot::default()
    };
    Some(View {
        heading: "Batch sizes".to_owned(),
        picture: plot.element(),
        caption: "Larger batches cost less lane time a request, and take longer to gather and to run."
            .to_owned(),
    })
}

fn batch_sizes(page: &Page<'_>) -> Option<View> {
    let series = series(page, |contender| {
        let all: u64 = contender.report.batch_sizes.iter().map(|size| size.batches).sum();
        let mut below = 0;
        let points = contender.report.batch_sizes.iter().map(|size| {
            below += size.batches;
            (f64::from(size.rows), below as f64 / all.max(1) as f64 * 100.0)
        });
        points.collect()
    });
    if empty(&series) {
        return None;
    }
    let plot = Plot {
        title: "Cumulative distribution of batch sizes".to_owned(),
        horizontal: "rows in a batch".to_owned(),
        vertical: "batches, %".to_owned(),
        series,
        up: Some((0.0, 100.0)),
        ..Plot::default()
    };
    Some(View {
        heading: "How batch sizes are distributed".to_owned(),
        picture: plot.element(),
        caption:
            "A steep line is a policy that runs batches of one size; one that rises at the left edge runs \
                  many tiny ones."
                .to_owned(),
    })
}

fn warmup(page: &Page<'_>) -> Vec<Reference> {
    let end = page.workload.warmup as f64 / 1e9;
    if end > 0.0 { vec![Reference { name: "counted from here".to_owned(), value: end }] } else { Vec::new() }
}

fn over_time(
    contender: &Contender<'_>,
    value: impl Fn(&crate::report::Bucket, f64) -> f64,
) -> Vec<(f64, f64)> {
    let series = &contender.report.series;
    let width = match series.as_slice() {
        [first, second, ..] => second.t - first.t,
        _ => return Vec::new(),
    };
    series.iter().map(|bucket| (bucket.t, value(bucket, width))).collect()
}

/// Plans over time on partitioned devices: of the best policy and, folded away, of a few others.
pub(super) fn gpulets(page: &Page<'_>) -> String {
    let mut text = String::new();
    for (place, contender) in page.contenders.iter().take(1 + OTHER_LANES).enumerate() {
        let models: Vec<&str> = contender.report.models.iter().map(|model| model.name.as_str()).collect();
        let Some(figures) = &contender.report.partition else { continue };
        let Some(picture) = gpulets::draw(figures, &models) else { continue };
        let caption = escape(&gpulets::caption(figures));
        let name = escape(&contender.name);
        let _ = if place == 0 {
            write!(
                text,
                "<h2>Devices and their gpulets</h2>\n<figure>\n{picture}<figcaption>{caption}</figcaption>\n</figure>\n"
            )
        } else {
            write!(
                text,
                "<details><summary>The same under {name}</summary>\n<figure>\n{picture}<figcaption>{caption}</figcaption>\n</figure></details>\n"
            )
        };
    }
    text
}

/// Batches on lanes in a short window, of the best policy and, folded away, of a few others.
pub(super) fn lanes(page: &Page<'_>) -> String {
    let mut text = String::new();
    for (place, contender) in page.contenders.iter().take(1 + OTHER_LANES).enumerate() {
        let bars: Vec<Bar<'_>> =
            contender.report.lane_timeline.iter().filter_map(|span| bar(contender, span)).collect();
        let Some(picture) = timeline::draw(&format!("Lanes under {}", contender.name), &bars) else {
            continue;
        };
        if place == 0 {
            let _ = write!(
                text,
                "<h2>Lanes, for a moment</h2>\n<figure>\n{picture}<figcaption>A box is a batch, as wide as it took; \
                 gaps are idle time. From the middle of the run.{}</figcaption>\n</figure>\n",
                lost(contender)
            );
        } else {
            let name = escape(&contender.name);
            let _ = write!(
                text,
                "<details><summary>The same under {name}</summary>\n<figure>\n{picture}</figure></details>\n"
            );
        }
    }
    text
}

fn bar<'a>(contender: &Contender<'a>, span: &crate::report::Span) -> Option<Bar<'a>> {
    let model = usize::try_from(span.model).ok()?;
    let name = contender.report.models.get(model)?.name.as_str();
    Some(Bar {
        lane: span.lane,
        model: name,
        colour: model,
        rows: span.rows,
        from: span.from_ms,
        to: span.to_ms,
    })
}

fn lost(contender: &Contender<'_>) -> String {
    let report = contender.report;
    if report.preempted + report.lost == 0 {
        return String::new();
    }
    format!(
        " In the whole run {} batches were preempted and {} lost with their lane, {} of the lanes' time.",
        number(report.preempted as f64),
        number(report.lost as f64),
        super::markup::percent(report.lost_lane_time)
    )
}
