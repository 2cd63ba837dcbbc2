//! Which cell to measure next: the one whose outcome is expected to change the plan most (value of information), and when to stop.

use crate::estimator::{Estimate, PLANNED};
use crate::known::Place;

/// Change of a plan, as a share of its capacity, below which a measurement is not worth its time.
pub const CHANGE_MIN: f64 = 0.01;
/// Outcomes of a measurement that are considered, in standard deviations, and their weights: Gauss and Hermite's five points.
const OUTCOMES: [(f64, f64); 5] = [
    (-2.856_970, 0.011_257_4),
    (-1.355_626, 0.222_075_9),
    (0.0, 0.533_333_3),
    (1.355_626, 0.222_075_9),
    (2.856_970, 0.011_257_4),
];

/// What the model is to be planned for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Time within which a request must be answered, microseconds; infinite without an objective. A request may just miss a batch, so a batch
    /// may take half of it.
    pub slo_us: f64,
    /// Requests per second that one share must serve; `None` if the plan may use any share.
    pub rate_per_s: Option<f64>,
    /// The planned quantile of a time divided by its median, at least 1.
    pub tail: f64,
}

/// What a plan would do on one share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The share and the batch with the highest capacity that meets the objective.
    pub place: Place,
    /// Its capacity, requests per second.
    pub per_s: f64,
}

/// The measurement that is expected to change the plan most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Next {
    /// What to measure.
    pub place: Place,
    /// Expected change of the plan, as a share of its capacity.
    pub change: f64,
}

/// The choices of a plan with these times, microseconds: with a rate, the smallest share that serves it, or else the one that serves most for
/// its size; without, the best batch of each share that meets the objective, in the order of `places`.
pub fn plan(objective: &Objective, times_us: impl IntoIterator<Item = (Place, f64)>) -> Vec<Choice> {
    let mut best: Vec<Choice> = Vec::new();
    for (place, time_us) in times_us {
        let time_us = time_us * objective.tail.max(1.0);
        if !(2.0 * time_us <= objective.slo_us && time_us > 0.0) {
            continue;
        }
        let choice = Choice { place, per_s: f64::from(place.batch) * 1e6 / time_us };
        match best.iter_mut().find(|known| known.place.share == place.share) {
            Some(known) if known.per_s >= choice.per_s => {}
            Some(known) => *known = choice,
            None => best.push(choice),
        }
    }
    let Some(rate) = objective.rate_per_s else { return best };
    let least = best.iter().copied().filter(|choice| choice.per_s >= rate);
    let least = least.min_by(|one, other| one.place.share.total_cmp(&other.place.share));
    let dense = |choice: &Choice| choice.per_s / choice.place.share;
    let densest = best.into_iter().max_by(|one, other| dense(one).total_cmp(&dense(other)));
    least.or(densest).into_iter().collect()
}

/// How far two plans differ: the largest difference of a share's capacity, or of the requests served for the size of the share if there is a
/// rate, from 0 to 1.
fn difference(objective: &Objective, one: &[Choice], other: &[Choice]) -> f64 {
    let apart = |one: f64, other: f64| 1.0 - one.min(other) / one.max(other);
    if let Some(rate) = objective.rate_per_s {
        let worth =
            |plan: &[Choice]| plan.first().map_or(0.0, |choice| choice.per_s.min(rate) / choice.place.share);
        let (one, other) = (worth(one), worth(other));
        return if one.max(other) > 0.0 { apart(one, other) } else { 0.0 };
    }
    let of = |choice: &Choice, plan: &[Choice]| {
        let same = plan.iter().find(|other| other.place.share == choice.place.share);
        same.map_or(1.0, |same| apart(same.per_s, choice.per_s))
    };
    let (left, right) =
        (one.iter().map(|choice| of(choice, other)), other.iter().map(|choice| of(choice, one)));
    left.chain(right).fold(0.0, f64::max)
}

/// Means and variances of the logarithms of the times of all places.
struct Belief<'a> {
    places: &'a [Place],
    means: Vec<f64>,
    variances: Vec<f64>,
    /// Half the width of an interval, in standard deviations.
    quantile: f64,
}

impl Belief<'_> {
    /// The plan from the planned times, as planners make it.
    fn plan(&self, objective: &Objective) -> Vec<Choice> {
        let planned = self
            .means
            .iter()
            .zip(&self.variances)
            .map(|(mean, variance)| (mean + PLANNED * self.quantile * variance.max(0.0).sqrt()).exp());
        plan(objective, self.places.iter().copied().zip(planned))
    }
}

impl Estimate<'_> {
    /// The plan from the planned times of all places, as planners make it.
    pub fn plan(&self, objective: &Objective, places: &[Place]) -> Vec<Choice> {
        plan(objective, places.iter().map(|place| (*place, self.at(*place).planned_us())))
    }

    /// The place, of those that were not measured, whose measurement is expected to change the plan most; `None` if all were measured. If
    /// its change is below [`CHANGE_MIN`], the plan would stay as it is.
    pub fn next(&self, objective: &Objective, places: &[Place]) -> Option<Next> {
        let (means, covariance) = self.joint(places);
        let variances =
            covariance.iter().enumerate().map(|(at, row)| row.get(at).copied().unwrap_or(0.0)).collect();
        let belief = Belief { places, means, variances, quantile: self.quantile() };
        let now = belief.plan(objective);
        let mut best: Option<(f64, f64, Place)> = None;
        for ((place, with), variance) in places.iter().zip(&covariance).zip(&belief.variances) {
            if self.is_measured(*place) || *variance <= 0.0 {
                continue;
            }
            let changes = OUTCOMES.map(|(deviations, weight)| {
                let step = deviations / variance.sqrt();
                let after = Belief {
                    places,
                    means: belief.means.iter().zip(with).map(|(mean, with)| mean + with * step).collect(),
                    variances: belief
                        .variances
                        .iter()
                        .zip(with)
                        .map(|(own, with)| own - with * with / variance)
                        .collect(),
                    quantile: belief.quantile,
                };
                weight * difference(objective, &now, &after.plan(objective))
            });
            let change: f64 = changes.into_iter().sum();
            let next = (change, *variance, *place);
            // Of those that change nothing, the least known one.
            if best.is_none_or(|best| (next.0, next.1) > (best.0, best.1)) {
                best = Some(next);
            }
        }
        best.map(|(change, _, place)| Next { place, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Estimator, Timing};

    fn place(batch: u32, share: f64) -> Place {
        Place { batch, share }
    }

    fn objective(slo_us: f64, rate_per_s: Option<f64>) -> Objective {
        Objective { slo_us, rate_per_s, tail: 1.0 }
    }

    /// A batch takes 1 ms and 0.5 ms a row on the whole device.
    fn time_us(place: Place) -> f64 {
        (1_000.0 + 500.0 * f64::from(place.batch)) / place.share
    }

    fn places() -> Vec<Place> {
        [0.25, 0.5, 1.0]
            .into_iter()
            .flat_map(|share| [1, 2, 4, 8, 16].map(|batch| place(batch, share)))
            .collect()
    }

    #[test]
    fn a_plan_has_the_best_batch_of_each_share_or_the_least_share_for_a_rate() {
        let times = || places().into_iter().map(|place| (place, time_us(place)));
        let of_each = plan(&objective(10_000.0, None), times());
        let found: Vec<_> = of_each.iter().map(|choice| (choice.place.share, choice.place.batch)).collect();
        assert_eq!(found, [(0.5, 2), (1.0, 8)], "a quarter takes 6 ms for one row");
        assert_eq!(of_each[1].per_s, 1_600.0);
        let one = |rate| plan(&objective(10_000.0, Some(rate)), times())[0].place;
        assert_eq!((one(100.0), one(1_000.0)), (place(2, 0.5), place(8, 1.0)));
        assert_eq!(
            one(9_000.0),
            place(8, 1.0),
            "no share serves the rate: the one that serves most for its size"
        );
        assert!(plan(&objective(1.0, None), times()).is_empty());
        let tail = Objective { tail: 1.5, ..objective(10_000.0, None) };
        assert_eq!(plan(&tail, times()).last().unwrap().place, place(4, 1.0));
    }

    #[test]
    fn measuring_in_the_order_of_value_finds_the_plan_without_all_cells() {
        let (estimator, places) = (Estimator::new(&[]), places());
        let objective = objective(20_000.0, None);
        let mut estimate = estimator.estimate(None, &[]);
        let mut measured = 0;
        while let Some(next) = estimate.next(&objective, &places).filter(|next| next.change >= CHANGE_MIN) {
            estimate.measure(Timing { place: next.place, time_us: time_us(next.place) });
            measured += 1;
        }
        let wanted = plan(&objective, places.iter().map(|place| (*place, time_us(*place))));
        assert_eq!(estimate.plan(&objective, &places), wanted);
        assert!(measured < places.len(), "{measured} of {} cells", places.len());
    }

    #[test]
    fn nothing_is_left_to_measure_when_all_is_measured() {
        let places = [place(1, 1.0)];
        let estimator = Estimator::new(&[]);
        let estimate = estimator.estimate(None, &[Timing { place: places[0], time_us: 5.0 }]);
        assert_eq!(estimate.next(&objective(100.0, None), &places), None);
        assert_eq!(estimate.next(&objective(100.0, None), &[]), None);
    }

    #[test]
    fn what_cannot_meet_the_objective_is_not_worth_measuring() {
        let estimator = Estimator::new(&[]);
        let estimate = estimator.estimate(None, &[Timing { place: place(4, 1.0), time_us: 1e6 }]);
        let next = estimate.next(&objective(1_000.0, None), &places()).unwrap();
        assert!(next.change < CHANGE_MIN, "{next:?}");
    }
}
