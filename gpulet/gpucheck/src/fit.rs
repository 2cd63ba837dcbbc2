//! Models of interference, fitted to measured pairs, and which of them predicts unseen pairs best.
//!
//! Two regressions are fitted: the gpulet paper's on both sides' use of cache and bandwidth, and `contention` with the
//! terms that pairs of this kind have (a constant and the cache traffic of co-located batches; a batch's power and its
//! number of kernels are not measured here). Terms that the pairs cannot separate are left out. Each regression is
//! cross-validated on pairs of models that it was not fitted to, and compared with assuming no interference.

use std::collections::BTreeMap;

use gpulet_core::interference::{
    Contention, DevicePower, Errors, FitError, Gpulet, Interference, Load, NoInterference, Runner, Sample,
    cross_validated, errors, least_squares,
};
use gpulet_core::profile::Profile;
use serde_json::{Value, json};

use crate::pairs::{KernelSide, Other, Pair};

/// A term whose values are all below this carries no information.
const NOTHING: f64 = 1e-9;

/// A kind of regression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Regression {
    Gpulet,
    Contention,
}

impl Regression {
    const ALL: [Self; 2] = [Self::Gpulet, Self::Contention];

    fn name(self) -> &'static str {
        match self {
            Self::Gpulet => "gpulet",
            Self::Contention => "contention",
        }
    }

    /// Sets of terms to try, largest first.
    fn attempts(self) -> &'static [&'static [usize]] {
        match self {
            // Own cache, other cache, own bandwidth, other bandwidth, constant.
            Self::Gpulet => &[&[0, 1, 2, 3, 4], &[1, 3, 4], &[3, 4], &[1, 4], &[4]],
            // Constant, cache, power, launches.
            Self::Contention => &[&[0, 1], &[0]],
        }
    }

    fn terms(self, own: &Runner<'_>, other: &Load) -> Vec<f64> {
        match self {
            Self::Gpulet => Gpulet::terms(&Load::of(own), other).to_vec(),
            Self::Contention => Contention::terms(&DevicePower::UNKNOWN, own, &[*other]).to_vec(),
        }
    }

    fn interference(self, coefficients: &[f64]) -> Interference {
        let at = |index: usize| coefficients.get(index).copied().unwrap_or(0.0);
        match self {
            Self::Gpulet => Interference::Gpulet(Gpulet { coefficients: [0, 1, 2, 3, 4].map(at) }),
            Self::Contention => Interference::Contention(Contention {
                coefficients: [0, 1, 2, 3].map(at),
                power: DevicePower::UNKNOWN,
            }),
        }
    }
}

/// A fitted regression.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    regression: Regression,
    pub(crate) coefficients: Vec<f64>,
    samples: usize,
    /// Errors on the samples it was fitted to.
    fitted: Errors,
    /// Errors on rows and on pairs of models that were left out of the fit.
    by_row: Errors,
    pub(crate) by_pair: Errors,
}

impl Fit {
    pub(crate) fn name(&self) -> &'static str {
        self.regression.name()
    }

    pub(crate) fn to_json(&self, none: &Errors) -> Value {
        let errors = |errors: &Errors| json!({"mean_pct": errors.mean_pct, "p90_pct": errors.p90_pct, "max_pct": errors.max_pct});
        json!({
            "coefficients": self.coefficients, "samples": self.samples, "fitted": errors(&self.fitted),
            "rows_left_out": errors(&self.by_row), "pairs_of_models_left_out": errors(&self.by_pair),
            "without_a_model": errors(none),
        })
    }
}

/// The fits.
pub(crate) struct Fits {
    /// By the regression's name; an error says why there is no fit.
    pub(crate) fits: Vec<(&'static str, Result<Fit, String>)>,
    /// Errors of assuming no interference; none without pairs.
    pub(crate) none: Option<Errors>,
}

impl Fits {
    /// The best fit on unseen pairs of models; none if assuming no interference is better.
    pub(crate) fn best(&self) -> Option<&Fit> {
        let none = self.none?;
        let known = self.fits.iter().filter_map(|(_, fit)| fit.as_ref().ok());
        let best = known.min_by(|one, other| one.by_pair.mean_pct.total_cmp(&other.by_pair.mean_pct))?;
        (best.by_pair.mean_pct < none.mean_pct).then_some(best)
    }

    /// The model of interference for a plan.
    pub(crate) fn interference(&self) -> Interference {
        match self.best() {
            Some(fit) => fit.regression.interference(&fit.coefficients),
            None => Interference::NoInterference(NoInterference),
        }
    }
}

/// Fits every regression to the pairs whose models have a profile.
pub(crate) fn fit<'a>(pairs: &[Pair], profiles: impl IntoIterator<Item = &'a Profile>) -> Fits {
    let profiles: BTreeMap<&str, &Profile> =
        profiles.into_iter().map(|profile| (profile.model(), profile)).collect();
    let known: Vec<Known<'_>> = pairs.iter().filter_map(|pair| Known::of(pair, &profiles)).collect();
    let fits = Regression::ALL.map(|regression| (regression.name(), fitted(regression, &known)));
    let plain: Vec<Sample> = known.iter().map(|known| known.sample(vec![1.0], 0)).collect();
    Fits { fits: fits.into_iter().collect(), none: errors(&plain, &[1.0]) }
}

/// A pair whose loads are known.
struct Known<'a> {
    pair: &'a Pair,
    own: Runner<'a>,
    other: Load,
}

impl<'a> Known<'a> {
    fn of(pair: &'a Pair, profiles: &BTreeMap<&str, &'a Profile>) -> Option<Self> {
        let runner = |side: &crate::pairs::Side| {
            let profile = *profiles.get(side.model.as_str())?;
            // Without these, its use of shared resources is unknown.
            profile.utilisation(side.rows)?;
            Some(Runner { profile, batch: side.rows, units: side.units })
        };
        let other = match &pair.other {
            Other::Batch(side) => Load::of(&runner(side)?),
            Other::Kernel(kernel) => load(kernel, pair.units_total),
        };
        Some(Self { pair, own: runner(&pair.own)?, other })
    }

    fn sample(&self, terms: Vec<f64>, fold: u32) -> Sample {
        Sample { terms, factor: self.pair.factor, fold }
    }
}

/// A kernel as [`Load::of`] describes a batch that uses as much.
fn load(kernel: &KernelSide, units_total: u32) -> Load {
    let running = f64::from(kernel.duty_pct.min(100)) / 100.0;
    let (cache, bandwidth) = (kernel.cache * running, kernel.bandwidth * running);
    let share = f64::from(kernel.units) / f64::from(units_total.max(1));
    Load {
        cache_scaled: cache * share,
        bandwidth_scaled: bandwidth * share,
        cache_pct: 100.0 * cache.max(bandwidth),
        power_w: 0.0,
    }
}

fn fitted(regression: Regression, known: &[Known<'_>]) -> Result<Fit, String> {
    let all: Vec<Vec<f64>> = known.iter().map(|known| regression.terms(&known.own, &known.other)).collect();
    let (rows, pairs) = (
        folds(known.iter().map(|known| known.pair.row())),
        folds(known.iter().map(|known| known.pair.names())),
    );
    let says_something =
        |term: &usize| all.iter().any(|terms| terms.get(*term).is_some_and(|value| value.abs() > NOTHING));
    let mut why = format!("{} samples: expected more, to separate all terms", known.len());
    for attempt in regression.attempts() {
        let terms: Vec<usize> = attempt.iter().copied().filter(says_something).collect();
        let samples = |folds: &[u32]| -> Vec<Sample> {
            let of = |values: &[f64]| terms.iter().filter_map(|term| values.get(*term).copied()).collect();
            let each = known.iter().zip(&all).zip(folds);
            each.map(|((known, values), fold)| known.sample(of(values), *fold)).collect()
        };
        match assessed(&samples(&rows), &samples(&pairs)) {
            Ok((weights, [fitted, by_row, by_pair])) => {
                let length = all.first().map_or(0, Vec::len);
                let weight = |term| terms.iter().zip(&weights).find(|(of, _)| **of == term);
                let coefficients =
                    (0..length).map(|term| weight(term).map_or(0.0, |(_, weight)| *weight)).collect();
                return Ok(Fit { regression, coefficients, samples: known.len(), fitted, by_row, by_pair });
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Coefficients, and errors on all samples, on left-out rows and on left-out pairs.
fn assessed(by_row: &[Sample], by_pair: &[Sample]) -> Result<(Vec<f64>, [Errors; 3]), String> {
    let said = |error: FitError| error.to_string();
    let none = || "expected at least two pairs of models".to_owned();
    let weights = least_squares(by_row).map_err(said)?;
    let fitted = errors(by_row, &weights).ok_or_else(none)?;
    let row = cross_validated(by_row).map_err(said)?.ok_or_else(none)?;
    let pair = cross_validated(by_pair).map_err(said)?.ok_or_else(none)?;
    Ok((weights, [fitted, row, pair]))
}

/// Equal names get equal numbers.
fn folds<T: Ord>(names: impl Iterator<Item = T>) -> Vec<u32> {
    let mut known: BTreeMap<T, u32> = BTreeMap::new();
    names
        .map(|name| {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *known.entry(name).or_insert(next)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::tests::{pair, side};

    const MODELS: [(&str, f64, f64); 4] =
        [("a", 0.1, 0.7), ("b", 0.5, 0.2), ("c", 0.9, 0.4), ("d", 0.3, 0.3)];
    const PLANTED: Gpulet = Gpulet { coefficients: [0.3, 0.6, 0.2, 0.4, 0.98] };

    fn profiles() -> Vec<Profile> {
        let profile = |(model, cache, bandwidth): (&str, f64, f64)| {
            let mut text = format!(
                "{{\"profile\":{{\"version\":1,\"model\":\"{model}\",\"device\":\"gpu\",\"engine\":\"e\",\
                 \"source\":\"typed_in\",\"units_total\":16}}}}\n"
            );
            for (rows, units) in [(1, 4), (1, 8), (1, 16), (8, 4), (8, 8), (8, 16)] {
                let us = 100.0 * f64::from(rows) + 4_000.0 / f64::from(units);
                text += &format!(
                    "{{\"cell\":{{\"batch\":{rows},\"units\":{units},\"p50_us\":{us},\"p95_us\":{us},\
                     \"p99_us\":{us},\"count\":9}}}}\n"
                );
            }
            for (rows, factor) in [(1, 0.5), (8, 1.0)] {
                let (cache, bandwidth) = (cache * factor, bandwidth * factor);
                text += &format!(
                    "{{\"utilisation\":{{\"batch\":{rows},\"cache\":{cache},\"bandwidth\":{bandwidth}}}}}\n"
                );
            }
            Profile::read(&text).unwrap().remove(0)
        };
        MODELS.map(profile).into_iter().collect()
    }

    fn load_of(profiles: &[Profile], side: &crate::pairs::Side) -> Load {
        let profile = profiles.iter().find(|profile| profile.model() == side.model).unwrap();
        Load::of(&Runner { profile, batch: side.rows, units: side.units })
    }

    /// All pairs of models, rows and shares, with this factor.
    fn pairs(factor: impl Fn(&crate::pairs::Side, &crate::pairs::Side) -> f64) -> Vec<Pair> {
        let mut all = Vec::new();
        for (own, ..) in MODELS {
            for (other, ..) in MODELS.into_iter().filter(|(other, ..)| *other != own) {
                for (rows, units, other_rows) in [(1, 8, 8), (8, 8, 8), (8, 4, 1), (1, 4, 1)] {
                    let (own, other) = (side(own, rows, units), side(other, other_rows, 8));
                    let factor = factor(&own, &other);
                    all.push(pair(own, Other::Batch(other), factor));
                }
            }
        }
        all
    }

    #[test]
    fn a_planted_regression_is_found() {
        let profiles = profiles();
        let planted = |own: &crate::pairs::Side, other: &crate::pairs::Side| {
            let terms = Gpulet::terms(&load_of(&profiles, own), &load_of(&profiles, other));
            PLANTED.coefficients.iter().zip(terms).map(|(weight, term)| weight * term).sum()
        };
        let fits = fit(&pairs(planted), &profiles);
        let best = fits.best().unwrap();
        assert_eq!(best.name(), "gpulet");
        for (found, planted) in best.coefficients.iter().zip(PLANTED.coefficients) {
            assert!((found - planted).abs() < 1e-6, "{:?}", best.coefficients);
        }
        assert!(best.by_pair.mean_pct < 1e-6 && fits.none.unwrap().mean_pct > 5.0);
        let Interference::Gpulet(_) = fits.interference() else { panic!("{:?}", fits.interference()) };
    }

    #[test]
    fn a_constant_cost_is_found_and_noise_is_not() {
        let profiles = profiles();
        let fits = fit(&pairs(|_, _| 1.2), &profiles);
        let best = fits.best().unwrap();
        let own = Runner { profile: &profiles[0], batch: 8, units: 8 };
        let co_located = Load::of(&Runner { profile: &profiles[1], batch: 8, units: 8 });
        let predicted = fits.interference().slowdown(&own, &[&[co_located]]);
        assert!((predicted - 1.2).abs() < 1e-6 && best.by_pair.mean_pct < 1e-6, "{predicted}");
        assert_eq!(fit(&pairs(|_, _| 1.0), &profiles).interference().name(), "none");
    }

    #[test]
    fn terms_that_pairs_cannot_separate_are_left_out() {
        let profiles = profiles();
        // One share, one size, one kernel: only a constant can be fitted.
        let kernel = |duty_pct| {
            let word = "stream".to_owned();
            Other::Kernel(KernelSide { name: word, units: 8, duty_pct, cache: 0.0, bandwidth: 0.0 })
        };
        let measured = |duty| pair(side("a", 8, 8), kernel(duty), 1.1);
        let few = fit(&[measured(50), measured(100)], &profiles);
        let gpulet = few.fits[0].1.as_ref().unwrap();
        assert_eq!(gpulet.coefficients[..4], [0.0; 4]);
        assert!((gpulet.coefficients[4] - 1.1).abs() < 1e-9, "{:?}", gpulet.coefficients);
        assert!(few.best().is_some());
        for (_, fit) in fit(&[], &profiles).fits {
            assert!(fit.unwrap_err().starts_with("samples: expected more than "));
        }
        assert!(fit(&[measured(50)], &[]).none.is_none(), "its model has no profile");
    }

    #[test]
    fn the_load_of_a_kernel_is_proportional_to_its_duty() {
        let word = "stream".to_owned();
        let kernel = KernelSide { name: word, units: 4, duty_pct: 50, cache: 0.4, bandwidth: 0.8 };
        let load = load(&kernel, 16);
        assert_eq!((load.cache_scaled, load.bandwidth_scaled, load.cache_pct), (0.05, 0.1, 40.0));
    }
}
