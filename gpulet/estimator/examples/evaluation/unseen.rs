//! Errors on models that the estimator never saw, with none or a few cells measured.

use estimator::{Place, Timing};

use super::Failed;
use super::baselines::Baseline;
use super::data::Measured;
use super::known::LeaveOut;

/// Numbers of measured cells.
pub const CELLS: [usize; 4] = [0, 1, 2, 4];

/// Errors of one data set, with one number of measured cells.
#[derive(Default)]
pub struct Errors {
    /// Relative errors of the estimator on cells that were not measured.
    pub ours: Vec<f64>,
    /// Those of each baseline.
    pub baselines: [Vec<f64>; Baseline::ALL.len()],
    /// Cells that were not measured whose time is in the interval.
    pub inside: usize,
    /// Upper end of each interval divided by its lower end.
    pub widths: Vec<f64>,
    /// By model.
    pub by_model: Vec<OfModel>,
}

/// Errors of one model.
pub struct OfModel {
    pub name: String,
    /// Relative errors of the estimator on cells that were not measured.
    pub errors: Vec<f64>,
    /// How many of the cells' times are in the interval.
    pub inside: usize,
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    if sorted.len().is_multiple_of(2) {
        0.5 * (at(middle.saturating_sub(1)) + at(middle))
    } else {
        at(middle)
    }
}

/// Cells spread over the grid without knowledge of the times: first the one in the middle, then always the one farthest from all before.
pub fn spread(model: &Measured, count: usize) -> Vec<Timing> {
    let logs = |place: Place| (f64::from(place.batch).ln(), place.share.ln());
    let apart = |one: Place, other: (f64, f64)| {
        let one = logs(one);
        (one.0 - other.0).powi(2) + (one.1 - other.1).powi(2)
    };
    let cells = model.timings.len().max(1) as f64;
    let sum = model
        .timings
        .iter()
        .map(|timing| logs(timing.place))
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let middle = (sum.0 / cells, sum.1 / cells);
    let mut chosen: Vec<Timing> = Vec::new();
    while chosen.len() < count {
        let far = |timing: &&Timing| match chosen.is_empty() {
            true => -apart(timing.place, middle),
            false => {
                chosen.iter().map(|one| apart(timing.place, logs(one.place))).fold(f64::INFINITY, f64::min)
            }
        };
        let Some(next) = model.timings.iter().max_by(|one, other| far(one).total_cmp(&far(other))) else {
            break;
        };
        chosen.push(*next);
    }
    chosen
}

/// Errors for each of [`CELLS`].
pub fn study(known: &LeaveOut<'_>) -> Result<[Errors; CELLS.len()], Failed> {
    let mut found: [Errors; CELLS.len()] = Default::default();
    for model in known.all {
        let estimator = known.estimator(model)?;
        let others = known.others(model);
        for (errors, count) in found.iter_mut().zip(CELLS) {
            let measured = spread(model, count);
            let estimate = estimator.estimate(Some(&model.network), &measured);
            // A baseline is corrected by the mean of its errors on the measured cells.
            let plain = |baseline: Baseline, place| baseline.time_us(&others, &model.network, place);
            let corrections = Baseline::ALL.map(|baseline| {
                let error = |timing: &Timing| Some((timing.time_us / plain(baseline, timing.place)?).ln());
                let logs: Vec<f64> = measured.iter().filter_map(error).collect();
                (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
            });
            let (mut own, mut inside) = (Vec::new(), 0);
            for Timing { place, time_us } in model.timings.iter().filter(|timing| !measured.contains(timing))
            {
                let predicted = estimate.at(*place);
                own.push((predicted.time_us / time_us - 1.0).abs());
                inside += usize::from((predicted.low_us..=predicted.high_us).contains(time_us));
                errors.widths.push(predicted.high_us / predicted.low_us);
                for ((errors, baseline), factor) in
                    errors.baselines.iter_mut().zip(Baseline::ALL).zip(corrections)
                {
                    errors.extend(plain(baseline, *place).map(|time| (factor * time / time_us - 1.0).abs()));
                }
            }
            errors.ours.extend(&own);
            errors.inside += inside;
            errors.by_model.push(OfModel { name: model.name.clone(), errors: own, inside });
        }
    }
    Ok(found)
}
