//! How the requests of a family are divided among its variants.

use serde::Serialize;

use crate::question::{Demand, Question};
use gpulet_core::problem::{Problem, ProblemError, Workload};

/// Smallest share of a variant: less goes to the others.
const SHARE_MIN: f64 = 1e-4;
/// Tolerance of mean qualities.
const QUALITY_SLACK: f64 = 1e-6;

/// The share of the requests that each variant of a demand gets, in the order of [`Demand::entries`]. They sum to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Mix(Vec<f64>);

impl Mix {
    /// All requests go to one of `count` variants.
    pub(crate) fn only(at: usize, count: usize) -> Self {
        Self((0..count).map(|other| if other == at { 1.0 } else { 0.0 }).collect())
    }

    /// A mix of rates. Shares that are too small to matter go to the best of the others.
    pub(crate) fn of_rates(rates: &[f64], demand: &Demand) -> Self {
        let total: f64 = rates.iter().sum();
        if total <= 0.0 {
            let best = demand.best();
            return Self::only(best, rates.len());
        }
        let mut shares: Vec<f64> = rates.iter().map(|rate| (rate / total).max(0.0)).collect();
        let small: f64 = shares.iter().filter(|share| **share < SHARE_MIN).sum();
        shares.iter_mut().filter(|share| **share < SHARE_MIN).for_each(|share| *share = 0.0);
        let kept = |at: &usize| shares.get(*at).is_some_and(|share| *share > 0.0);
        let quality = |at: &usize| demand.entries.get(*at).map_or(0.0, |(_, quality)| *quality);
        let best =
            (0..shares.len()).filter(kept).max_by(|left, right| quality(left).total_cmp(&quality(right)));
        if let Some(share) = best.and_then(|best| shares.get_mut(best)) {
            *share += small;
        }
        Self(shares)
    }

    /// Two variants, so that the mean quality is `quality`; `None` if they cannot have it.
    pub(crate) fn pair(low: usize, high: usize, demand: &Demand, quality: f64) -> Option<Self> {
        let of = |at: usize| demand.entries.get(at).map(|(_, quality)| *quality);
        let (worse, better) = (of(low)?, of(high)?);
        if !(worse < quality && quality < better) {
            return None;
        }
        let share = (quality - worse) / (better - worse);
        let mut shares = vec![0.0; demand.entries.len()];
        *shares.get_mut(low)? = 1.0 - share;
        *shares.get_mut(high)? = share;
        Some(Self(shares))
    }

    /// The mix that is `part` of the way to another one.
    pub(crate) fn towards(&self, other: &Self, part: f64) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(own, other)| own + part * (other - own)).collect())
    }

    /// The shares.
    pub fn shares(&self) -> &[f64] {
        &self.0
    }

    /// Mean quality of the answers.
    pub fn quality(&self, demand: &Demand) -> f64 {
        self.0.iter().zip(&demand.entries).map(|(share, (_, quality))| share * quality).sum()
    }

    /// Whether it has the mean quality that the demand asks for.
    pub(crate) fn suits(&self, demand: &Demand) -> bool {
        self.quality(demand) >= demand.quality_mean - QUALITY_SLACK
    }
}

impl Demand {
    /// Place of the best variant.
    pub(crate) fn best(&self) -> usize {
        let by =
            |left: &(usize, &(usize, f64)), right: &(usize, &(usize, f64))| left.1.1.total_cmp(&right.1.1);
        self.entries.iter().enumerate().max_by(by).map_or(0, |(at, _)| at)
    }
}

/// The problem in which each variant has its share of the requests. Variants without requests are left out.
pub(crate) fn mixed(question: &Question, mixes: &[Mix]) -> Result<Problem, ProblemError> {
    let mut workloads: Vec<Workload> = Vec::new();
    for (demand, mix) in question.demands().iter().zip(mixes) {
        for ((entry, _), share) in demand.entries.iter().zip(mix.shares()) {
            let Some(entry) = question.entries().get(*entry) else { continue };
            if *share > 0.0 || demand.entries.len() == 1 {
                workloads.push(Workload { rate: entry.rate * share, ..entry.clone() });
            }
        }
    }
    question.problem().clone().with_workloads(workloads)
}
