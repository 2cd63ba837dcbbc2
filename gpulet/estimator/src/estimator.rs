//! Times of a model from its operators, from similar models, and from measurements of its own.

use crate::gaussian_process::{Kernel, Posterior, Surface};
use crate::known::{Known, Place, Timing};
use crate::network::Network;
use crate::operator_model::{Freedom, OperatorModel};
use crate::similarity::{RELATED, Similarity, Trust, distance};

/// Number of known models from which on the operator model is used.
pub const MODELS_MIN: usize = 3;
/// Exponents of batch and share in times on a device of which nothing is known: between constant and proportional.
const WEAK_EXPONENTS: (f64, f64) = (0.8, -0.7);
/// Logarithm of a millisecond, in microseconds: the middle of times of which nothing is known.
const WEAK_LEVEL: f64 = 6.907_755;
/// Standard normal quantile of 95 %: intervals hold 90 % of the times.
const QUANTILE: f64 = 1.644_853_6;
/// Largest and smallest logarithm of a time, microseconds: an hour, and a nanosecond.
const LOG_RANGE: (f64, f64) = (-6.9, 22.0);

/// What is known of a device from the models that were measured on it.
#[derive(Clone, Debug)]
pub struct Estimator {
    learned: Option<Learned>,
}

/// What the known models say of others.
#[derive(Clone, Debug)]
struct Learned {
    model: OperatorModel,
    similarity: Similarity,
    trust: Trust,
    /// What is left of times of models that are similar to a known one.
    related: Kernel,
    /// What is left of times of other models.
    strange: Kernel,
    /// Half the width of a 90 % interval, in standard deviations.
    quantile: f64,
    /// Largest distance of a model that was predicted from others to the nearest of these.
    reach: f64,
}

/// A time that was predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Median of the time, microseconds.
    pub time_us: f64,
    /// Lower end of the 90 % interval, microseconds.
    pub low_us: f64,
    /// Upper end of the 90 % interval, microseconds.
    pub high_us: f64,
}

/// How far plans go from the expected time to the upper end of the interval, in logarithms, as planners of `gpulet_core` do.
pub(crate) const PLANNED: f64 = 0.5;

impl Prediction {
    /// The time that plans count on, microseconds: the geometric mean of the expected time and the upper end.
    pub fn planned_us(&self) -> f64 {
        self.time_us * (self.high_us / self.time_us).powf(PLANNED)
    }
}

impl Learned {
    fn new(known: &[Known]) -> Option<Self> {
        let all: Vec<&Known> = known.iter().collect();
        let sets = left_out_together(&all);
        let mut best: Option<(f64, Freedom, Trust, Vec<Surface>)> = None;
        for freedom in Freedom::all() {
            let fold = |set: &Vec<&Known>| {
                let others = known_but(&all, |other| !set.iter().any(|own| std::ptr::eq(*own, other)));
                Fold::new(&others, freedom)
            };
            let folds: Vec<Fold> = sets.iter().map(fold).collect();
            for trust in Trust::all() {
                let surfaces: Vec<Surface> =
                    sets.iter().zip(&folds).map(|(set, fold)| fold.left(set, trust)).collect();
                let error = surfaces.iter().map(|(_, errors)| mean_size(errors)).sum::<f64>();
                if best.as_ref().is_none_or(|(least, ..)| error < *least) {
                    best = Some((error, freedom, trust, surfaces));
                }
            }
        }
        let (_, freedom, trust, surfaces) = best?;
        let Fold { model, similarity } = Fold::new(&all, freedom);
        let mut reach = RELATED;
        let strange = sets.iter().zip(&surfaces).filter_map(|(set, surface)| {
            let mix = model.mix(&set.first()?.network);
            let far = |other: &Known| distance(&mix, &model.mix(&other.network));
            let others = known_but(&all, |other| far(other) > RELATED);
            let nearest = others.iter().map(|other| far(other)).fold(f64::INFINITY, f64::min);
            if nearest.is_finite() {
                reach = f64::max(reach, nearest);
            }
            match others.len() {
                few if few + 1 < MODELS_MIN => None,
                most if most + set.len() == all.len() => Some(surface.clone()),
                _ => Some(Fold::new(&others, freedom).left(set, trust)),
            }
        });
        let strange: Vec<Surface> = strange.collect();
        Some(Self {
            related: Kernel::fit(&surfaces),
            strange: if strange.len() < MODELS_MIN { Kernel::WEAK } else { Kernel::fit(&strange) },
            quantile: student(sets.len().saturating_sub(1)),
            model,
            similarity,
            trust,
            reach,
        })
    }
}

/// Known models with the same work, such as copies of one network: they are left out together, because a copy that stays known would not show
/// how wrong predictions of other networks are. If too few others would stay, each is left out alone.
fn left_out_together<'a>(known: &[&'a Known]) -> Vec<Vec<&'a Known>> {
    let mut sets: Vec<Vec<&Known>> = Vec::new();
    for model in known {
        match sets.iter_mut().find(|set| set.first().is_some_and(|first| first.network == model.network)) {
            Some(set) => set.push(model),
            None => sets.push(vec![model]),
        }
    }
    let can_be_left_out = |set: &Vec<&Known>| known.len() - set.len() + 1 >= MODELS_MIN;
    if sets.iter().all(can_be_left_out) { sets } else { known.iter().map(|model| vec![*model]).collect() }
}

/// An operator model and its errors on the models that it was fitted to.
struct Fold {
    model: OperatorModel,
    similarity: Similarity,
}

impl Fold {
    fn new(known: &[&Known], freedom: Freedom) -> Self {
        let model = OperatorModel::fit(known, freedom);
        let similarity = Similarity::of(&model, known);
        Self { model, similarity }
    }

    /// What is left of the times of models that were left out: the only errors that a model will have that is not known.
    fn left(&self, known: &[&Known], trust: Trust) -> Surface {
        let left = known.iter().flat_map(|known| {
            let mix = self.model.mix(&known.network);
            known.timings.iter().map(move |timing| {
                let expected = self.similarity.expected(trust, &mix, timing.place);
                (timing.place.logs(), self.model.log_error(&known.network, timing) - expected)
            })
        });
        left.unzip()
    }
}

fn known_but<'a>(all: &[&'a Known], keep: impl Fn(&Known) -> bool) -> Vec<&'a Known> {
    all.iter().copied().filter(|known| keep(known)).collect()
}

fn mean_size(values: &[f64]) -> f64 {
    values.iter().map(|value| value.abs()).sum::<f64>() / values.len().max(1) as f64
}

impl Estimator {
    /// Learns from known models of a device. With fewer than [`MODELS_MIN`], only measurements of a model itself say something about it.
    /// Timings that are not valid are left out.
    pub fn new(known: &[Known]) -> Self {
        let valid = |model: &Known| Known {
            network: model.network.clone(),
            timings: model.timings.iter().copied().filter(Timing::is_valid).collect(),
        };
        let known: Vec<Known> = known.iter().map(valid).filter(|model| !model.timings.is_empty()).collect();
        Self { learned: if known.len() < MODELS_MIN { None } else { Learned::new(&known) } }
    }

    /// Whether times of a model can be predicted that was never measured.
    pub fn knows_operators(&self) -> bool {
        self.learned.is_some()
    }

    /// An estimate of a model. Without `network`, or without known models, only its own measurements say something about it. Timings that
    /// are not valid are left out; of those of the same place, the last counts.
    pub fn estimate(&self, network: Option<&Network>, timings: &[Timing]) -> Estimate<'_> {
        let known = self.learned.as_ref().zip(network.cloned());
        let known = known.map(|(learned, network)| {
            let mix = learned.model.mix(&network);
            (learned, network, mix)
        });
        let (kernel, quantile) = match &known {
            Some((learned, _, mix)) if learned.similarity.nearest(mix) <= RELATED => {
                (learned.related, learned.quantile)
            }
            // Farther from all known models than any of them was from the others: nothing says how wrong such a prediction is.
            Some((learned, _, mix)) => {
                let beyond = (learned.similarity.nearest(mix) / learned.reach).max(1.0);
                (learned.strange, learned.quantile * beyond)
            }
            None => (Kernel::WEAK, QUANTILE),
        };
        let mut estimate = Estimate { known, kernel, quantile, measured: Vec::new(), posterior: None };
        for timing in timings {
            estimate.add(*timing);
        }
        estimate.update();
        estimate
    }
}

/// Quantile of 95 % of Student's t distribution (Cornish and Fisher's expansion): with few known models, the spread between models is
/// known badly.
fn student(freedom: usize) -> f64 {
    let (z, freedom) = (QUANTILE, freedom.max(1) as f64);
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + (z.powi(3) + z) / (4.0 * freedom) + second / freedom.powi(2)
}

/// What is known of one model.
#[derive(Clone, Debug)]
pub struct Estimate<'a> {
    known: Option<(&'a Learned, Network, Vec<f64>)>,
    kernel: Kernel,
    quantile: f64,
    measured: Vec<Timing>,
    posterior: Option<Posterior>,
}

impl Estimate<'_> {
    /// Adds a measurement. One that is not valid changes nothing; one of a place that was measured before replaces that.
    pub fn measure(&mut self, timing: Timing) {
        self.add(timing);
        self.update();
    }

    /// Whether a measurement of the place was added.
    pub fn is_measured(&self, place: Place) -> bool {
        self.measured.iter().any(|timing| timing.place == place)
    }

    fn add(&mut self, timing: Timing) {
        if timing.is_valid() {
            self.measured.retain(|other| other.place != timing.place);
            self.measured.push(timing);
        }
    }

    fn update(&mut self) {
        let points = self.measured.iter().map(|timing| timing.place.logs()).collect();
        let left =
            self.measured.iter().map(|timing| timing.time_us.ln() - self.prior(timing.place)).collect();
        self.posterior = Posterior::new(self.kernel, (points, left));
    }

    /// Logarithm of the time that is expected without measurements of the model.
    fn prior(&self, place: Place) -> f64 {
        match &self.known {
            Some((learned, network, mix)) => {
                learned.model.time_us(network, place).ln()
                    + learned.similarity.expected(learned.trust, mix, place)
            }
            None => {
                let (batch, share) = place.logs();
                WEAK_LEVEL + WEAK_EXPONENTS.0 * batch + WEAK_EXPONENTS.1 * share
            }
        }
    }

    /// Predicts the median time of batches. What was measured is what it was measured as.
    pub fn at(&self, place: Place) -> Prediction {
        if let Some(Timing { time_us, .. }) = self.measured.iter().find(|timing| timing.place == place) {
            return Prediction { time_us: *time_us, low_us: *time_us, high_us: *time_us };
        }
        let (mean, deviation) = self.log_at(place);
        let half = self.quantile * deviation;
        let time = |log: f64| log.clamp(LOG_RANGE.0, LOG_RANGE.1).exp();
        Prediction { time_us: time(mean), low_us: time(mean - half), high_us: time(mean + half) }
    }

    /// Mean and standard deviation of the logarithm of a time.
    fn log_at(&self, place: Place) -> (f64, f64) {
        let (point, prior) = (place.logs(), self.prior(place));
        match &self.posterior {
            Some(posterior) => {
                (prior + posterior.mean(point), (posterior.variance(point) + posterior.noise()).sqrt())
            }
            // Measurements that no surface fits: what is known before them, with a wide interval.
            None => (prior, Kernel::WEAK.deviation(point)),
        }
    }

    /// Logarithms of the times of all places: means, and covariances of them with noise on the diagonal. What was measured is known.
    pub(crate) fn joint(&self, places: &[Place]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let points: Vec<_> = places.iter().map(Place::logs).collect();
        let mut covariance = match &self.posterior {
            Some(posterior) => posterior.covariance(&points),
            None => Kernel::WEAK.covariances(&points),
        };
        let is_open: Vec<bool> = places.iter().map(|place| !self.is_measured(*place)).collect();
        for (at, (row, open)) in covariance.iter_mut().zip(&is_open).enumerate() {
            for (column, (value, other)) in row.iter_mut().zip(&is_open).enumerate() {
                let own = if at == column { self.kernel.noise() } else { 0.0 };
                *value = if *open && *other { *value + own } else { 0.0 };
            }
        }
        (places.iter().map(|place| self.at(*place).time_us.ln()).collect(), covariance)
    }

    /// Half the width of a 90 % interval, in standard deviations.
    pub(crate) fn quantile(&self) -> f64 {
        self.quantile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planners_read_the_planned_time_from_a_profile() {
        let predicted = Prediction { time_us: 300.0, low_us: 200.0, high_us: 700.0 };
        let profile = format!(
            "{}\n{}\n",
            r#"{"profile":{"version":1,"model":"m","device":"d","engine":"e","source":"predicted","units_total":1}}"#,
            r#"{"cell":{"batch":1,"units":1,"p50_us":300,"p95_us":300,"p99_us":300,"count":0,"source":"predicted","low_us":200,"high_us":700}}"#
        );
        let profile = gpulet_core::profile::Profile::read(&profile).unwrap().remove(0);
        let planned_us = profile.latency_us(gpulet_core::profile::Quantile::P50, 1, 1).unwrap();
        assert!(
            (planned_us - predicted.planned_us()).abs() < 1e-6,
            "{planned_us} {}",
            predicted.planned_us()
        );
    }

    #[test]
    fn few_known_models_widen_intervals() {
        // Tables of Student's t at 95 %: 1.833 and 1.729.
        assert!((student(9) - 1.833).abs() < 0.01 && (student(19) - 1.729).abs() < 0.01);
        assert!(student(2) > 2.6 && student(0) == student(1));
    }
}
