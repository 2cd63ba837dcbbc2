//! The plots of a page, with headings and captions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use charts::{
    Batch, DeviceRow, Gpulets, Plot, Reference, Series, Span, Timeline, element, escape, figure, number,
    percent,
};

use super::{Contender, Page};
use crate::report::PartitionFigures;

/// Width of the latency plot, in multiples of the SLO.
const LATENCY_OF_SLO: f64 = 2.0;
/// Policies other than the best whose lanes are drawn.
const OTHER_LANES: usize = 3;
/// Upper bound on the devices that are drawn.
const DEVICES_MAX: usize = 24;

/// All plots that there is data for.
pub(super) fn all(page: &Page<'_>) -> String {
    let views =
        [sweep(page), latency(page), goodput_over_time(page), batches_over_time(page), batch_sizes(page)];
    views.into_iter().flatten().collect()
}

fn series(page: &Page<'_>, points: impl Fn(&Contender<'_>) -> Vec<(f64, f64)>) -> Vec<Series> {
    let lines = page.contenders.iter().enumerate().map(|(place, contender)| Series {
        strong: place == 0,
        ..Series::new(contender.name.as_str(), Some(contender.colour), points(contender))
    });
    lines.collect()
}

fn empty(series: &[Series]) -> bool {
    series.iter().all(|series| series.points.is_empty())
}

fn sweep(page: &Page<'_>) -> Option<String> {
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
        upright: vec![Reference::new("this workload", offered)],
        level: vec![Reference::new("99 %", 99.0)],
        up: Some((0.0, 100.0)),
        ..Plot::default()
    };
    Some(figure(
        "How much traffic it bears",
        &plot.element(),
        "The same workload, slower and faster. The further right a line stays at the top, the more \
                  traffic the policy bears; a line that then falls like rate/offered loses only the excess, one \
                  that plunges collapses under overload.",
    ))
}

fn latency(page: &Page<'_>) -> Option<String> {
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
        upright: vec![Reference::new("SLO", 1.0)],
        across: Some((0.0, LATENCY_OF_SLO)),
        up: Some((0.0, 100.0)),
        ..Plot::default()
    };
    Some(figure(
        "Latency",
        &plot.element(),
        "Where a line crosses the SLO is the policy's attainment. What is missing to 100 % at the right \
                  edge was refused, expired or answered later still.",
    ))
}

fn goodput_over_time(page: &Page<'_>) -> Option<String> {
    let mut lines =
        series(page, |contender| over_time(contender, |bucket, width| bucket.good as f64 / width));
    if empty(&lines) {
        return None;
    }
    if let Some(best) = page.contenders.first() {
        let points = over_time(best, |bucket, width| bucket.offered as f64 / width);
        lines.insert(0, Series::new("offered", None, points));
    }
    let plot = Plot {
        title: "Good answers a second, over time".to_owned(),
        horizontal: "seconds from the start of the run".to_owned(),
        vertical: "requests a second".to_owned(),
        series: lines,
        upright: warmup(page),
        ..Plot::default()
    };
    Some(figure(
        "Over time",
        &plot.element(),
        "Requests count where they arrived. A line that falls below what is offered and stays there, \
                  after the traffic has become normal again, is a collapse that feeds itself.",
    ))
}

fn batches_over_time(page: &Page<'_>) -> Option<String> {
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
    Some(figure(
        "Batch sizes",
        &plot.element(),
        "Larger batches cost less lane time a request, and take longer to gather and to run.",
    ))
}

fn batch_sizes(page: &Page<'_>) -> Option<String> {
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
    Some(figure(
        "How batch sizes are distributed",
        &plot.element(),
        "A steep line is a policy that runs batches of one size; one that rises at the left edge runs \
                  many tiny ones.",
    ))
}

fn warmup(page: &Page<'_>) -> Vec<Reference> {
    let end = page.workload.warmup as f64 / 1e9;
    if end > 0.0 { vec![Reference::new("counted from here", end)] } else { Vec::new() }
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

/// Plans over time on partitioned devices, of the best policy and, folded away, of a few others.
pub(super) fn gpulets(page: &Page<'_>) -> String {
    of_the_best(page, "Devices and their gpulets", |contender| {
        let models: Vec<&str> = contender.report.models.iter().map(|model| model.name.as_str()).collect();
        let figures = contender.report.partition.as_ref()?;
        Some((element(&devices(figures, models)?), devices_caption(figures)))
    })
}

/// The gpulets of a run on their devices; `None` without gpulets.
fn devices<'a>(figures: &'a PartitionFigures, models: Vec<&'a str>) -> Option<Gpulets<'a>> {
    let mut rows: BTreeMap<&str, DeviceRow<'a>> = BTreeMap::new();
    for span in &figures.gpulets {
        let row = rows.entry(&span.device).or_default();
        row.name = &span.device;
        row.units = row.units.max(span.first_unit.saturating_add(span.units));
        let place =
            |name: &String| models.iter().position(|model| *model == name.as_str()).unwrap_or(models.len());
        row.spans.push(Span {
            first: span.first_unit,
            units: span.units,
            from: span.from_s,
            to: span.to_s,
            models: span.models.iter().map(place).collect(),
        });
    }
    let title = match rows.len().checked_sub(DEVICES_MAX) {
        Some(more @ 1..) => format!("Gpulets in force, over time; {more} more devices are not drawn"),
        _ => "Gpulets in force, over time".to_owned(),
    };
    let devices: Vec<DeviceRow<'a>> = rows.into_values().take(DEVICES_MAX).collect();
    (!devices.is_empty()).then_some(Gpulets { title, devices, models })
}

fn devices_caption(figures: &PartitionFigures) -> String {
    let mut text = format!(
        "A box is a gpulet; its height is its share of the device. The models of a striped box run one after \
         another. {} of {} devices at most, {} on average ({} device-hours), {} tables in force.",
        figures.devices_most,
        figures.devices,
        number(figures.devices_mean),
        number(figures.device_seconds / 3_600.0),
        figures.changes
    );
    if figures.share_least < 1.0 {
        let _ = write!(
            text,
            " The devices were too few at times: plans were for {} % of what was wanted at least.",
            number(100.0 * figures.share_least)
        );
    }
    text
}

/// Batches on lanes in a short window, of the best policy and, folded away, of a few others.
pub(super) fn lanes(page: &Page<'_>) -> String {
    of_the_best(page, "Lanes, for a moment", |contender| {
        let spans = contender.report.lane_timeline.iter();
        let batches: Vec<Batch<'_>> = spans.filter_map(|span| batch(contender, span)).collect();
        if batches.is_empty() {
            return None;
        }
        let title = format!("Lanes under {}", contender.name);
        let picture = element(&Timeline { title, batches });
        let words = "A box is a batch, as wide as it took; gaps are idle time. From the middle of the run.";
        Some((picture, format!("{words}{}", lost(contender))))
    })
}

/// A picture with its caption of the best policy and, folded away, of a few others.
fn of_the_best<'a>(
    page: &Page<'a>,
    heading: &str,
    draw: impl Fn(&Contender<'a>) -> Option<(String, String)>,
) -> String {
    let mut text = String::new();
    for (place, contender) in page.contenders.iter().take(1 + OTHER_LANES).enumerate() {
        let Some((picture, caption)) = draw(contender) else { continue };
        if place == 0 {
            text.push_str(&figure(heading, &picture, &caption));
        } else {
            let (name, caption) = (escape(&contender.name), escape(&caption));
            let _ = write!(
                text,
                "<details><summary>The same under {name}</summary>\n<figure>\n{picture}<figcaption>{caption}</figcaption>\n</figure></details>\n"
            );
        }
    }
    text
}

fn batch<'a>(contender: &Contender<'a>, span: &crate::report::Span) -> Option<Batch<'a>> {
    let model = usize::try_from(span.model).ok()?;
    let name = contender.report.models.get(model)?.name.as_str();
    Some(Batch {
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
        percent(report.lost_lane_time)
    )
}
