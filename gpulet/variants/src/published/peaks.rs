//! The most requests that whole devices serve in time.

use gpulet_core::interference::Runner;

use crate::question::{Demand, Question};

/// Relative tolerance for sums of floating-point numbers.
const SLACK: f64 = 1e-9;

/// A variant on whole devices of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Peak {
    /// Place in [`Question::entries`].
    pub entry: usize,
    /// Place in [`Question::groups`].
    pub group: usize,
    pub quality: f64,
    /// Largest batch that is answered in time.
    pub batch: u32,
    /// Microseconds of that batch.
    pub batch_us: f64,
    /// Microseconds of a batch of one row.
    pub one_us: f64,
    /// Requests a second.
    pub rate: f64,
    /// Cost of a device per hour.
    pub cost: f64,
}

impl Peak {
    pub(super) fn cost_per_rate(&self) -> f64 {
        self.cost / self.rate
    }
}

/// The peaks of each demand, in the order of [`Question::demands`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peaks(Vec<Vec<Peak>>);

impl Peaks {
    pub(super) fn of(question: &Question) -> Self {
        Self(question.demands().iter().map(|demand| of_demand(question, demand)).collect())
    }

    /// Of the variants that a user who asks for the mean quality may pick: all of those that each request may get, at least that good.
    pub(super) fn picked<'a>(&'a self, at: usize, demand: &'a Demand) -> impl Iterator<Item = Peak> + 'a {
        let peaks = self.0.get(at).into_iter().flatten().copied();
        peaks.filter(|peak| peak.quality >= demand.quality_mean)
    }

    /// Of all variants that each request may get.
    pub(super) fn all(&self, at: usize) -> impl Iterator<Item = Peak> + '_ {
        self.0.get(at).into_iter().flatten().copied()
    }
}

fn of_demand(question: &Question, demand: &Demand) -> Vec<Peak> {
    let places = demand
        .entries
        .iter()
        .flat_map(|entry| (0..question.groups().len()).map(move |group| (*entry, group)));
    places.filter_map(|((entry, quality), group)| peak(question, entry, quality, group)).collect()
}

/// The batch with the highest rate of those that run twice within the objective.
fn peak(question: &Question, entry: usize, quality: f64, group: usize) -> Option<Peak> {
    let (workload, known) = (question.entries().get(entry)?, question.groups().get(group)?);
    let problem = question.problem();
    let profile = problem.profile(workload, &known.device_type)?;
    let units = *known.device_type.sizes.last()?;
    let time = |batch: u32| -> Option<f64> {
        let runner = Runner { profile, batch, units };
        Some(problem.solo_us(profile, batch, units).ok()? * problem.interference().slowdown(&runner, &[]))
    };
    let one_us = time(1)?;
    let batches =
        (1..=workload.batch_max.min(profile.batches().1)).filter_map(|batch| Some((batch, time(batch)?)));
    let in_time = batches.filter(|(_, time)| 2.0 * time <= workload.slo_us * (1.0 + SLACK));
    let rate = |batch: u32, time: f64| 1e6 * f64::from(batch) / (time - profile.load_us(batch));
    let best = in_time.max_by(|left, right| rate(left.0, left.1).total_cmp(&rate(right.0, right.1)));
    let (batch, batch_us) = best?;
    Some(Peak {
        entry,
        group,
        quality,
        batch,
        batch_us,
        one_us,
        rate: rate(batch, batch_us),
        cost: known.cost,
    })
}
