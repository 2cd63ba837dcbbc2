//! Ours: what every trial says about all configurations, and the trial with the highest expected gain.
//!
//! A Gaussian process over the logarithm of rows per second has the structure of the problem: a curve over the batch that all setups share,
//! an effect of each value of a knob, of each pair of values and of the number of threads that all lanes have together, what is left of each setup, and
//! how its curve differs from the shared one. One batch of a setup therefore says much about its other batches, and one setup about others with the same
//! engine, threads or level. A second process has the tail: how much longer the 99th percentile is than the mean time of a batch. Together they give the
//! capacity at the objective and its doubt.

mod deviations;

use super::others::mean_of;
use super::{Choice, Reason, Search, Settings};
use crate::gaussian_process::{expected_relative_gain, normal};
use crate::measurement::{Measured, Measurement, Objective};
use crate::space::Space;

pub use deviations::Constants;

use deviations::{Deviations, Trials};

/// The search.
pub struct Tessera {
    space: Space,
    objective: Objective,
    gain_min: f64,
    first: Option<usize>,
    deviations: Deviations,
    /// What other models say of each configuration: logarithms of rows per second and of the tail, relative to their means.
    others: Vec<(f64, f64)>,
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
        let middle = space.batches().len() / 2;
        let first = space.default_setup().map(|setup| space.at(setup, middle));
        let deviations = Deviations::new(&space, constants);
        let (objective, gain_min) = (settings.objective, constants.gain_min);
        let mut search = Self { space, objective, gain_min, first, deviations, others: Vec::new() };
        let logs = |index, one: &Measurement| (one.rows_per_s.ln(), search.log_tail(index, one));
        search.others = mean_of(search.space.len(), settings.others, logs);
        search
    }

    /// Trials, relative to what other models say of them.
    fn trials(&self, indices: &[usize], found: &[Measurement]) -> Trials {
        let each = indices.iter().zip(found);
        let rates = each.clone().map(|(index, one)| one.rows_per_s.ln() - self.of_others(*index).0);
        let tails = each.map(|(index, one)| self.log_tail(*index, one) - self.of_others(*index).1);
        Trials::new(indices.to_vec(), rates.collect(), tails.collect())
    }

    fn of_others(&self, index: usize) -> (f64, f64) {
        self.others.get(index).copied().unwrap_or_default()
    }

    /// The same with another first trial than one of the default settings.
    pub fn starting_at(self, first: usize) -> Self {
        Self { first: Some(first), ..self }
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

    /// Configurations that were not tried and may meet the objective.
    fn open(&self, measured: &Measured) -> Vec<usize> {
        // Larger batches take longer: what is too slow for the objective on average says so of all larger batches of the setup.
        let mut too_slow = vec![usize::MAX; self.space.setups().len()];
        for (index, result) in measured.in_order() {
            let (setup, batch) = self.space.parts(index);
            if let Some(one) = result
                && let Some(least) = too_slow.get_mut(setup)
                && 2.0 * self.mean_us(index, one.rows_per_s) > self.objective.slo_us
            {
                *least = batch.min(*least);
            }
        }
        let is_open = |index: &usize| {
            let (setup, batch) = self.space.parts(*index);
            !measured.contains(*index) && too_slow.get(setup).is_none_or(|least| batch < *least)
        };
        (0..self.space.len()).filter(is_open).collect()
    }

    /// What trials say about the open configurations.
    fn expected(&self, open: &[usize], trials: &Trials, constants: &Constants) -> Vec<(usize, Expected)> {
        let deviations = &self.deviations;
        let rate = deviations.rate_posterior(trials, constants);
        let tail = deviations.tail_posterior(trials, constants);
        let (Some(rate), Some(tail)) = (rate, tail) else { return Vec::new() };
        let of_tail = constants.tail.powi(2) / 2.0;
        let expected = open.iter().map(|&index| {
            let with = |kernel: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
                trials.indices.iter().map(|other| kernel(index, *other)).collect()
            };
            let rates = |one, other| deviations.rate(one, other, constants);
            let tails = |one, other| deviations.tail(one, other, constants);
            let of = rate.at(&with(&rates), rates(index, index));
            let (of_tails, doubt) = tail.at(&with(&tails), tails(index, index));
            let others = self.of_others(index);
            let mean = trials.rate_mean + others.0 + of.0;
            let p99 = self.mean_us(index, mean.exp()).ln() + trials.tail_mean + others.1 + of_tails;
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
        let (indices, found): (Vec<usize>, Vec<Measurement>) =
            measured.in_order().filter_map(|(index, result)| Some((index, result?))).unzip();
        if indices.is_empty() {
            let first = self.first.filter(|first| !measured.contains(*first));
            let first = first.or_else(|| (0..self.space.len()).find(|index| !measured.contains(*index)));
            return first.map_or(Choice::Stop(Reason::Exhausted), Choice::Try);
        }
        let trials = self.trials(&indices, &found);
        self.deviations.fit(&trials);
        let best = measured.best(self.objective).map(|(_, capacity)| capacity);
        let gain = |of: &Expected| match best {
            Some(best) => of.feasible * expected_relative_gain(of.rate.0, of.rate.1, best),
            // Until something meets the objective, what most probably does.
            None => of.feasible,
        };
        let open = self.open(measured);
        let mut expected_gain = 0.0_f64;
        // Few trials may make an effect look small that none of them shows: the search goes on until the constants expect no gain, too.
        for constants in [self.deviations.fitted(), self.deviations.constants()] {
            let expected = self.expected(&open, &trials, &constants);
            let gains = expected.iter().map(|(index, of)| (*index, gain(of)));
            let most = gains.fold(None, |most: Option<(usize, f64)>, next| match most {
                Some(most) if most.1 >= next.1 => Some(most),
                _ => Some(next),
            });
            match most {
                Some((index, gain)) if best.is_none() || gain >= self.gain_min => return Choice::Try(index),
                Some((_, gain)) => expected_gain = expected_gain.max(gain),
                None => {}
            }
        }
        Choice::Stop(Reason::NoGain { expected: expected_gain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Surface;
    use crate::replay::{Limits, replay};
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

    /// Trials until the search is within 1 % of the best of a table.
    fn trials(
        space: &Space,
        table: &[Option<Measurement>],
        first: usize,
        others: &[Surface],
    ) -> Option<usize> {
        let objective = Objective { slo_us: 60_000.0 };
        let settings = Settings { space, objective, seed: 1, others };
        let mut search = Tessera::new(&settings, Constants::default()).starting_at(first);
        let limits = Limits { trials: 100, least: 1, within: 0.01 };
        replay(&mut search, table, objective, limits)?.trials_to(0.01)
    }

    /// Two cores on which threads do not help and more threads than cores wait: two lanes of one thread are best, which neither lanes nor threads show alone.
    fn two_cores(space: &Space, slower: f64) -> Vec<Option<Measurement>> {
        let of = |index| {
            let of = space.get(index)?;
            let engine = if of.setup.engine == Engine::Tract { 2.0 } else { 1.0 };
            let waits = if of.setup.lanes * of.setup.threads > 2 { 4.0 } else { 1.0 };
            let threads = if of.setup.threads > 1 { 1.1 } else { 1.0 };
            let time_us = (500.0 + 1_000.0 * f64::from(of.batch)) * engine * waits * threads * slower;
            let rows_per_s = 1e6 * f64::from(of.setup.lanes.min(2) * of.batch) / time_us;
            Some(Measurement { p99_us: 1.05 * time_us * f64::from(of.setup.lanes.max(2)) / 2.0, rows_per_s })
        };
        (0..space.len()).map(of).collect()
    }

    #[test]
    fn what_only_two_knobs_together_show_is_found_from_any_first_trial() {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        let table = two_cores(&space, 1.0);
        for first in (0..space.len()).step_by(37) {
            let needed = trials(&space, &table, first, &[]);
            assert!(needed.is_some_and(|needed| needed <= 40), "from {first}: {needed:?}");
        }
    }

    #[test]
    fn trials_of_another_model_save_trials() {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        let table = two_cores(&space, 1.0);
        let other = two_cores(&space, 3.0).into_iter().enumerate();
        let other: Surface = other.filter_map(|(index, one)| Some((index, one?))).collect();
        let alone = trials(&space, &table, 500, &[]).unwrap();
        let with = trials(&space, &table, 500, std::slice::from_ref(&other)).unwrap();
        assert!(2 * with < alone, "{with} and {alone} trials");
        let mut damaged = other;
        damaged[0].1 = Measurement { p99_us: 0.0, rows_per_s: 0.0 };
        assert_eq!(trials(&space, &table, 500, &[damaged]), Some(with), "a trial that cannot be is ignored");
    }

    #[test]
    fn without_any_configuration_that_fits_it_ends() {
        let (_, measured, reason) = walk(100.0);
        assert!(measured.len() <= 720, "{}", measured.len());
        assert!(matches!(reason, Reason::NoGain { .. } | Reason::Exhausted), "{reason:?}");
    }
}
