//! Ours: what every trial says about all configurations, and the trial with the highest expected gain.
//!
//! A Gaussian process over the logarithm of rows per second has the structure of the problem: a curve over the batch that all setups share,
//! an effect of each value of a knob, what is left of each setup, and how its curve differs from the shared one. One batch of a setup therefore says
//! much about its other batches, and one setup about others with the same engine, threads or level. A second process has the tail: how much longer
//! the 99th percentile is than the mean time of a batch. Together they give the capacity at the objective and its doubt.

use super::{Choice, Reason, Search, Settings};
use crate::gaussian_process::{Posterior, expected_relative_gain, normal};
use crate::measurement::{Measured, Measurement, Objective};
use crate::space::{KNOBS, Space};

/// The constants of the search. [`Default`] has those that are used; the comparison varies each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Deviation of the effect of one value of a knob, as a logarithm of rows per second.
    pub knob: f64,
    /// Deviation of what is left of a setup.
    pub setup: f64,
    /// Deviation of the curve over the batch that setups share.
    pub shared_curve: f64,
    /// Deviation of the curve of one setup from it.
    pub own_curve: f64,
    /// Distance over which curves change, as a logarithm of the batch.
    pub length: f64,
    /// Deviation of trials of one configuration.
    pub noise: f64,
    /// Deviation of the tail, as a logarithm: half of it for each setup and half for each trial.
    pub tail: f64,
    /// Expected gain of a trial below which the search stops, as a share.
    pub gain_min: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            knob: 0.3,
            setup: 0.1,
            shared_curve: 0.2,
            own_curve: 0.1,
            length: 1.5,
            noise: 0.01,
            tail: 0.1,
            gain_min: 0.001,
        }
    }
}

/// The search.
pub struct Tessera {
    space: Space,
    objective: Objective,
    constants: Constants,
    first: Option<usize>,
    places: Vec<[usize; KNOBS]>,
    logs: Vec<f64>,
}

/// What is expected of a configuration.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Logarithm of rows per second: mean and variance.
    rate: (f64, f64),
    /// Probability that it meets the objective.
    feasible: f64,
}

impl Tessera {
    /// A search with these constants.
    pub fn new(settings: &Settings<'_>, constants: Constants) -> Self {
        let space = settings.space.clone();
        let places = (0..space.len()).map(|index| space.place(index)).collect();
        let logs = space.batches().iter().map(|batch| f64::from(*batch).ln()).collect();
        let middle = space.batches().len() / 2;
        let first = space.default_setup().map(|setup| space.at(setup, middle));
        Self { space, objective: settings.objective, constants, first, places, logs }
    }

    /// The same with another first trial than one of the default settings.
    pub fn starting_at(self, first: usize) -> Self {
        Self { first: Some(first), ..self }
    }

    fn of(&self, index: usize) -> ([usize; KNOBS], f64) {
        let place = self.places.get(index).copied().unwrap_or_default();
        let batch = place.last().and_then(|batch| self.logs.get(*batch)).copied().unwrap_or(0.0);
        (place, batch)
    }

    /// Covariance of the rates of two configurations.
    fn rate(&self, one: usize, other: usize) -> f64 {
        let Constants { knob, setup, shared_curve, own_curve, length, .. } = self.constants;
        let ((place, batch), (other_place, other_batch)) = (self.of(one), self.of(other));
        let near = (-0.5 * ((batch - other_batch) / length).powi(2)).exp();
        let knobs = place.iter().zip(&other_place).take(KNOBS - 1);
        let same = knobs.filter(|(value, other)| value == other).count();
        let mut sum = knob * knob * same as f64 + shared_curve * shared_curve * near;
        if same == KNOBS - 1 {
            sum += setup * setup + own_curve * own_curve * near;
        }
        sum
    }

    /// Covariance of the tails of two configurations.
    fn tail(&self, one: usize, other: usize) -> f64 {
        let same = self.space.parts(one).0 == self.space.parts(other).0;
        let part = self.constants.tail * self.constants.tail;
        part + if same { part / 2.0 } else { 0.0 }
    }

    /// Logarithm of how much longer the 99th percentile is than the mean time of a batch.
    fn log_tail(&self, index: usize, measurement: &Measurement) -> f64 {
        (measurement.p99_us / self.mean_us(index, measurement.rows_per_s)).ln()
    }

    /// Mean time of a batch, microseconds.
    fn mean_us(&self, index: usize, rows_per_s: f64) -> f64 {
        let rows = self.space.get(index).map_or(1.0, |of| f64::from(of.setup.lanes) * f64::from(of.batch));
        1e6 * rows / rows_per_s
    }

    /// What is expected of every configuration that was not tried and can meet the objective.
    fn expected(&self, measured: &Measured) -> Vec<(usize, Expected)> {
        let known: Vec<(usize, Measurement)> =
            measured.in_order().filter_map(|(index, result)| Some((index, result?))).collect();
        let at = |place: usize| known.get(place).map_or(0, |(index, _)| *index);
        let rates: Vec<f64> = known.iter().map(|(_, one)| one.rows_per_s.ln()).collect();
        let tails: Vec<f64> = known.iter().map(|(index, one)| self.log_tail(*index, one)).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let (middle, middle_tail) = (mean(&rates), mean(&tails));
        let centred =
            |values: &[f64], middle: f64| values.iter().map(|value| value - middle).collect::<Vec<_>>();
        let noise = self.constants.noise.powi(2);
        let of_tail = self.constants.tail.powi(2) / 2.0;
        let rate = Posterior::new(
            known.len(),
            |one, other| self.rate(at(one), at(other)),
            noise,
            &centred(&rates, middle),
        );
        let tail = Posterior::new(
            known.len(),
            |one, other| self.tail(at(one), at(other)),
            of_tail,
            &centred(&tails, middle_tail),
        );
        let (Some(rate), Some(tail)) = (rate, tail) else { return Vec::new() };
        // Larger batches take longer: what is too slow for the objective on average says so of all larger batches of the setup.
        let mut too_slow = vec![usize::MAX; self.space.setups().len()];
        for (index, one) in &known {
            let (setup, batch) = self.space.parts(*index);
            if let Some(least) = too_slow.get_mut(setup)
                && 2.0 * self.mean_us(*index, one.rows_per_s) > self.objective.slo_us
            {
                *least = batch.min(*least);
            }
        }
        let open = (0..self.space.len()).filter(|index| {
            let (setup, batch) = self.space.parts(*index);
            !measured.contains(*index) && too_slow.get(setup).is_none_or(|least| batch < *least)
        });
        let expected = open.map(|index| {
            let with = |kernel: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
                known.iter().map(|(other, _)| kernel(index, *other)).collect()
            };
            let of = rate.at(&with(&|one, other| self.rate(one, other)), self.rate(index, index));
            let (of_tails, doubt) =
                tail.at(&with(&|one, other| self.tail(one, other)), self.tail(index, index));
            let mean = middle + of.0;
            let p99 = self.mean_us(index, mean.exp()).ln() + middle_tail + of_tails;
            let spread = (of.1 + doubt + of_tail).sqrt();
            let feasible = normal(((self.objective.slo_us / 2.0).ln() - p99) / spread.max(1e-9));
            (index, Expected { rate: (mean, of.1), feasible })
        });
        expected.collect()
    }
}

impl Search for Tessera {
    fn next(&mut self, measured: &Measured) -> Choice {
        if measured.len() >= self.space.len() {
            return Choice::Stop(Reason::Exhausted);
        }
        let ran = measured.in_order().any(|(_, result)| result.is_some());
        if !ran {
            let first = self.first.filter(|first| !measured.contains(*first));
            let first = first.or_else(|| (0..self.space.len()).find(|index| !measured.contains(*index)));
            return first.map_or(Choice::Stop(Reason::Exhausted), Choice::Try);
        }
        let expected = self.expected(measured);
        let best = measured.best(self.objective).map(|(_, capacity)| capacity);
        let gain = |of: &Expected| match best {
            Some(best) => of.feasible * expected_relative_gain(of.rate.0, of.rate.1, best),
            // Until something meets the objective, what most probably does.
            None => of.feasible,
        };
        let gains = expected.iter().map(|(index, of)| (*index, gain(of)));
        let most = gains.fold(None, |most: Option<(usize, f64)>, next| match most {
            Some(most) if most.1 >= next.1 => Some(most),
            _ => Some(next),
        });
        match most {
            None => Choice::Stop(Reason::NoGain { expected: 0.0 }),
            Some((_, gain)) if best.is_some() && gain < self.constants.gain_min => {
                Choice::Stop(Reason::NoGain { expected: gain })
            }
            Some((index, _)) => Choice::Try(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{BATCHES, Engine};

    /// Rows take 1 ms on a lane, up to two lanes help, and tract takes three times as long.
    fn trial(space: &Space, index: usize) -> Option<Measurement> {
        let of = space.get(index)?;
        let slower = if of.setup.engine == Engine::Tract { 3.0 } else { 1.0 };
        let time_us =
            (500.0 + 1_000.0 * f64::from(of.batch)) * slower * f64::from(of.setup.lanes.max(2)) / 2.0;
        let rows_per_s = 1e6 * f64::from(of.setup.lanes * of.batch) / time_us;
        Some(Measurement { p99_us: 1.05 * time_us, rows_per_s })
    }

    fn walk(slo_us: f64) -> (Space, Measured, Reason) {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        let objective = Objective { slo_us };
        let settings = Settings { space: &space, objective, seed: 1, others: &[] };
        let mut search = Tessera::new(&settings, Constants::default());
        let mut measured = Measured::default();
        loop {
            match search.next(&measured) {
                Choice::Try(index) => measured.add(index, trial(&space, index)),
                Choice::Stop(reason) => return (space, measured, reason),
            }
        }
    }

    #[test]
    fn it_finds_the_largest_batch_that_fits_and_stops() {
        let (space, measured, reason) = walk(25_000.0);
        let (best, _) = measured.best(Objective { slo_us: 25_000.0 }).unwrap();
        let best = space.get(best).unwrap();
        assert_eq!((best.batch, best.setup.lanes, best.setup.engine), (11, 2, Engine::Ort), "{best}");
        assert!(measured.len() <= 120, "{} trials", measured.len());
        assert!(matches!(reason, Reason::NoGain { expected } if expected < 0.001), "{reason:?}");
    }

    #[test]
    fn larger_batches_than_one_that_is_too_slow_are_not_tried() {
        let (space, measured, _) = walk(9_000.0);
        let slow = measured.in_order().find(|(index, result)| {
            result.is_some_and(|one| one.p99_us / 1.05 * 2.0 > 9_000.0)
                && space.parts(*index).1 + 1 < BATCHES.len()
        });
        let (slow, _) = slow.unwrap();
        let (setup, batch) = space.parts(slow);
        let order: Vec<usize> = measured.in_order().map(|(index, _)| index).collect();
        let after = order.iter().skip_while(|index| **index != slow);
        assert!(after.skip(1).all(|index| space.parts(*index).0 != setup || space.parts(*index).1 < batch));
    }

    #[test]
    fn without_any_configuration_that_fits_it_ends() {
        let (_, measured, reason) = walk(100.0);
        assert!(measured.len() <= 720, "{}", measured.len());
        assert!(matches!(reason, Reason::NoGain { .. } | Reason::Exhausted), "{reason:?}");
    }
}
