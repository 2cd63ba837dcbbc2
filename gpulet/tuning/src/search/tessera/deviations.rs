//! What deviations fit the trials: the constants are what is expected of them, and the trials of this model say more.

use std::ops::Range;

use crate::gaussian_process::Posterior;
use crate::space::{KNOBS, Space};

/// The constants of the search. [`Default`] has those that are used; the comparison varies each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Deviation of the effect of one value of a knob, as a logarithm of rows per second.
    pub knob: f64,
    /// Deviation of the effect of how many threads all lanes have together, as a multiple of that of a knob.
    pub threads: f64,
    /// Deviation of the effect of two values of knobs together.
    pub pair: f64,
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
    /// Deviation of the tail, as a logarithm. Half of its square is for each trial, half for each setup, and half for each number of threads that all
    /// lanes have together: if there are more than cores, some wait.
    pub tail: f64,
    /// Expected gain of a trial below which the search stops, as a share.
    pub gain_min: f64,
    /// How far the deviations of a model are from the constants, as a power of two. 0: they are the constants.
    pub spread: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            knob: 0.3,
            threads: 1.0,
            pair: 0.1,
            setup: 0.1,
            shared_curve: 0.2,
            own_curve: 0.1,
            length: 1.5,
            noise: 0.02,
            tail: 0.1,
            gain_min: 0.0002,
            spread: 1.0,
        }
    }
}

/// Deviations that are fitted, in the order of [`Deviations::powers`]. The last one is that of the tail.
const FITTED: usize = 7;
const TAIL: usize = FITTED - 1;
/// Step of a power of two.
const STEP: f64 = 0.5;
/// Deviation of what all configurations have alike, as a logarithm: nothing is expected of it, so that it is what the trials say.
const LEVEL: f64 = 3.0;
/// Most sweeps over all deviations for one more trial.
const SWEEPS_MAX: usize = 8;

/// Trials that the deviations are fitted to.
pub(super) struct Trials {
    /// Index of each configuration.
    pub indices: Vec<usize>,
    /// Logarithm of rows per second, and its mean.
    pub rates: Vec<f64>,
    pub rate_mean: f64,
    /// Logarithm of how much longer the 99th percentile is than the mean of a batch, and its mean.
    pub tails: Vec<f64>,
    pub tail_mean: f64,
}

impl Trials {
    pub fn new(indices: Vec<usize>, mut rates: Vec<f64>, mut tails: Vec<f64>) -> Self {
        let centre = |values: &mut [f64]| {
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            values.iter_mut().for_each(|value| *value -= mean);
            mean
        };
        let (rate_mean, tail_mean) = (centre(&mut rates), centre(&mut tails));
        Self { indices, rates, rate_mean, tails, tail_mean }
    }

    fn at(&self, place: usize) -> usize {
        self.indices.get(place).copied().unwrap_or_default()
    }
}

/// The two Gaussian processes, with the deviations that are most probable.
pub(super) struct Deviations {
    constants: Constants,
    /// How many times as large as its constant each deviation is, as a power of two.
    powers: [f64; FITTED],
    places: Vec<[usize; KNOBS]>,
    /// Setup of each configuration.
    setups: Vec<usize>,
    /// Threads of all lanes of each configuration.
    threads: Vec<u32>,
    /// How alike two batches are, by their places.
    near: Vec<Vec<f64>>,
}

impl Deviations {
    pub fn new(space: &Space, constants: Constants) -> Self {
        let places = (0..space.len()).map(|index| space.place(index)).collect();
        let setups = (0..space.len()).map(|index| space.parts(index).0).collect();
        let logs: Vec<f64> = space.batches().iter().map(|batch| f64::from(*batch).ln()).collect();
        let alike = |one: f64, other: f64| (-0.5 * ((one - other) / constants.length).powi(2)).exp();
        let near = logs.iter().map(|one| logs.iter().map(|other| alike(*one, *other)).collect()).collect();
        let of = |index| space.get(index).map_or(0, |of| of.setup.lanes.saturating_mul(of.setup.threads));
        let threads = (0..space.len()).map(of).collect();
        Self { constants, powers: [0.0; FITTED], places, setups, threads, near }
    }

    /// The constants, as they are.
    pub const fn constants(&self) -> Constants {
        self.constants
    }

    /// The constants, with the fitted deviations in their place.
    pub fn fitted(&self) -> Constants {
        with_powers(self.constants, self.powers)
    }

    /// Takes the most probable deviations: each is log-normal around its constant, and the trials say how likely they are.
    pub fn fit(&mut self, trials: &Trials) {
        if self.constants.spread <= 0.0 {
            return;
        }
        let of_rate = |of: &Constants| self.rate_posterior(trials, of).map(|found| found.log_likelihood());
        let of_tail = |of: &Constants| self.tail_posterior(trials, of).map(|found| found.log_likelihood());
        let powers = self.climb(self.powers, 0..TAIL, of_rate);
        self.powers = self.climb(powers, TAIL..FITTED, of_tail);
    }

    /// Moves some powers, one step at a time, as long as that makes them more probable.
    fn climb(
        &self,
        mut powers: [f64; FITTED],
        moved: Range<usize>,
        log_likelihood: impl Fn(&Constants) -> Option<f64>,
    ) -> [f64; FITTED] {
        let score = |powers: [f64; FITTED]| {
            let unlikely: f64 = powers.iter().map(|power| (power / self.constants.spread).powi(2)).sum();
            Some(log_likelihood(&with_powers(self.constants, powers))? - 0.5 * unlikely)
        };
        let mut best = score(powers).unwrap_or(f64::NEG_INFINITY);
        for _ in 0..SWEEPS_MAX {
            let before = powers;
            for at in moved.clone() {
                let steps = [-STEP, STEP].map(|step| {
                    let mut next = powers;
                    if let Some(power) = next.get_mut(at) {
                        *power += step;
                    }
                    next
                });
                let mut scored = steps.into_iter().filter_map(|next| Some((next, score(next)?)));
                if let Some(found) = scored.find(|(_, score)| *score > best) {
                    (powers, best) = found;
                }
            }
            if powers == before {
                break;
            }
        }
        powers
    }

    pub fn rate_posterior(&self, trials: &Trials, of: &Constants) -> Option<Posterior> {
        let kernel = |one, other| self.rate(trials.at(one), trials.at(other), of);
        Posterior::new(trials.indices.len(), kernel, of.noise.powi(2), &trials.rates)
    }

    pub fn tail_posterior(&self, trials: &Trials, of: &Constants) -> Option<Posterior> {
        let kernel = |one, other| self.tail(trials.at(one), trials.at(other), of);
        Posterior::new(trials.indices.len(), kernel, of.tail.powi(2) / 2.0, &trials.tails)
    }

    /// Covariance of the rates of two configurations.
    pub fn rate(&self, one: usize, other: usize, of: &Constants) -> f64 {
        let place = |index: usize| self.places.get(index).copied().unwrap_or_default();
        let (place, other_place) = (place(one), place(other));
        let batch = |place: &[usize; KNOBS]| place.last().copied().unwrap_or(0);
        let row = self.near.get(batch(&place));
        let near = row.and_then(|row| row.get(batch(&other_place))).copied().unwrap_or(0.0);
        let knobs = place.iter().zip(&other_place).take(KNOBS - 1);
        let same = knobs.filter(|(value, other)| value == other).count();
        let pairs = same * same.saturating_sub(1) / 2;
        let mut sum = LEVEL.powi(2)
            + of.knob.powi(2) * same as f64
            + of.pair.powi(2) * pairs as f64
            + of.shared_curve.powi(2) * near;
        if self.threads.get(one) == self.threads.get(other) {
            sum += (of.threads * of.knob).powi(2);
        }
        if same == KNOBS - 1 {
            sum += of.setup.powi(2) + of.own_curve.powi(2) * near;
        }
        sum
    }

    /// Covariance of the tails of two configurations.
    pub fn tail(&self, one: usize, other: usize, of: &Constants) -> f64 {
        let half = of.tail.powi(2) / 2.0;
        let of_setup = if self.setups.get(one) == self.setups.get(other) { half } else { 0.0 };
        let of_threads = if self.threads.get(one) == self.threads.get(other) { half } else { 0.0 };
        LEVEL.powi(2) + of_setup + of.threads.powi(2) * of_threads
    }
}

fn with_powers(constants: Constants, powers: [f64; FITTED]) -> Constants {
    let [knob, pair, setup, shared_curve, own_curve, noise, tail] = powers.map(f64::exp2);
    Constants {
        knob: constants.knob * knob,
        pair: constants.pair * pair,
        setup: constants.setup * setup,
        shared_curve: constants.shared_curve * shared_curve,
        own_curve: constants.own_curve * own_curve,
        noise: constants.noise * noise,
        tail: constants.tail * tail,
        ..constants
    }
}
