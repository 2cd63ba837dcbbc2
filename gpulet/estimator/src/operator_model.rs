//! The time of a batch as a sum of terms with coefficients of 0 and more: per operator, per operation and per byte.

use crate::cholesky::dot;
use crate::known::{Known, Place, Timing};
use crate::least_squares::non_negative;
use crate::network::{Network, OperatorClass, Work};

/// Price of a term of one class, in comparison with the terms that all classes share. The first is nearly as free as the shared ones, the
/// last leaves them out.
const PRICES: [f64; 5] = [0.003, 0.01, 0.03, 0.1, 10.0];
/// How launches and work add up: exponents of the norm of both. 1: one after the other. More: the longer one hides the other, as on a
/// GPU that computes while the next kernels are launched.
const OVERLAPS: [f64; 3] = [1.0, 2.0, 6.0];
/// Steps of the fit with an overlap above 1.
const STEPS: usize = 8;
/// Shortest time that is predicted, microseconds.
const TIME_MIN_US: f64 = 1e-3;

/// How freely a model is fitted. The one with the least error on models left out of the fit is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Freedom {
    price: f64,
    overlap: f64,
}

impl Freedom {
    /// All that are tried.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        OVERLAPS.into_iter().flat_map(|overlap| PRICES.map(|price| Self { price, overlap }))
    }
}

/// A fitted operator model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OperatorModel {
    launches: Vec<f64>,
    work: Vec<f64>,
    overlap: f64,
}

/// The terms of a network at one batch size on one share. On a share s of the device, work that is spread over it takes 1/s as long;
/// launches, and operations that must follow each other, take as long as on the whole device. The second part is the price of each.
struct Terms {
    launches: Vec<f64>,
    work: Vec<f64>,
}

/// Whether an operator of the class has weights to multiply with. Engines merge most others into these.
fn is_heavy(class: OperatorClass) -> bool {
    use OperatorClass::{
        Convolution, Depthwise, Elementwise, LocalResponse, MatrixProduct, Movement, Normalisation, Other,
        Recurrent, Reduction,
    };
    match class {
        Convolution | Depthwise | MatrixProduct | Recurrent => true,
        Normalisation | LocalResponse | Elementwise | Reduction | Movement | Other => false,
    }
}

/// Whether the terms of the class have no price. The prices say that the same work costs about the same in all classes. A power of each
/// element is neither an operation nor a byte.
fn is_free(class: OperatorClass) -> bool {
    class == OperatorClass::LocalResponse
}

fn terms(network: &Network, place: Place) -> Terms {
    let (rows, per_share) = (f64::from(place.batch), 1.0 / place.share);
    let all = network.total();
    let by_class = || OperatorClass::ALL.into_iter().zip(network.work());
    let heavy: f64 = by_class().filter(|(class, _)| is_heavy(*class)).map(|(_, work)| work.operators).sum();
    let mut launches = vec![all.operators, heavy];
    launches.extend(network.work().iter().map(|work| work.operators));
    let mut work = vec![
        all.macs * rows,
        all.macs * rows * per_share,
        all.activation_bytes * rows,
        all.activation_bytes * rows * per_share,
        all.weight_bytes,
        all.weight_bytes * per_share,
        heavy * per_share,
        all.path,
    ];
    for Work { macs, activation_bytes, weight_bytes, .. } in network.work() {
        work.extend([macs * rows * per_share, activation_bytes * rows * per_share, weight_bytes * per_share]);
    }
    Terms { launches, work }
}

/// Numbers of terms of each part that all classes share.
const SHARED_LAUNCHES: usize = 2;
const SHARED_WORK: usize = 8;

impl OperatorModel {
    /// Fits the coefficients to known models, each with the same weight, so that the squares of relative errors are least.
    pub(crate) fn fit(known: &[&Known], freedom: Freedom) -> Self {
        let (mut rows, mut models) = (Vec::new(), 0.0_f64);
        for model in known {
            models += 1.0;
            let weight = 1.0 / (model.timings.len().max(1) as f64).sqrt();
            rows.extend(
                model
                    .timings
                    .iter()
                    .map(|timing| (terms(&model.network, timing.place), timing.time_us, weight)),
            );
        }
        let price = |shared: usize, fields: usize| {
            let of = |class| if is_free(class) { 0.0 } else { freedom.price * models.sqrt() };
            let own =
                OperatorClass::ALL.into_iter().flat_map(move |class| std::iter::repeat_n(of(class), fields));
            std::iter::repeat_n(0.0, shared).chain(own)
        };
        let prices: Vec<f64> = price(SHARED_LAUNCHES, 1).chain(price(SHARED_WORK, 3)).collect();
        let launches = SHARED_LAUNCHES + OperatorClass::ALL.len();
        let right: Vec<f64> = rows.iter().map(|(_, _, weight)| *weight).collect();
        let mut found = Self { launches: Vec::new(), work: Vec::new(), overlap: freedom.overlap };
        let steps = if freedom.overlap > 1.0 { STEPS } else { 1 };
        // A norm of degree 1 is the sum of its parts, each times its derivative (Euler). Taking these from the last step makes each step
        // linear in the coefficients.
        let mut slopes = vec![(1.0, 1.0); rows.len()];
        for _ in 0..steps {
            let scaled =
                |((terms, time, weight), (launch, work)): (&(Terms, f64, f64), &(f64, f64))| -> Vec<f64> {
                    let launches = terms.launches.iter().map(|term| term * launch);
                    launches
                        .chain(terms.work.iter().map(|term| term * work))
                        .map(|term| term * weight / time)
                        .collect()
                };
            let matrix: Vec<Vec<f64>> = rows.iter().zip(&slopes).map(scaled).collect();
            let mut coefficients = non_negative(&matrix, &right, &prices);
            found.work = coefficients.split_off(launches);
            found.launches = coefficients;
            for ((terms, _, _), slope) in rows.iter().zip(&mut slopes) {
                let next = found.slopes(terms);
                // Half steps: whole ones may alternate between two solutions.
                *slope = (0.5 * (slope.0 + next.0), 0.5 * (slope.1 + next.1));
            }
        }
        found
    }

    /// Derivatives of the time with respect to its two parts.
    fn slopes(&self, terms: &Terms) -> (f64, f64) {
        let (launches, work) = self.parts(terms);
        let whole = self.norm(launches, work).max(TIME_MIN_US);
        let slope = |part: f64| (part / whole).powf(self.overlap - 1.0);
        (slope(launches).max(1e-3), slope(work).max(1e-3))
    }

    fn parts(&self, terms: &Terms) -> (f64, f64) {
        (dot(&self.launches, &terms.launches), dot(&self.work, &terms.work))
    }

    fn norm(&self, launches: f64, work: f64) -> f64 {
        let most = launches.max(work).max(TIME_MIN_US);
        let sum = (launches / most).powf(self.overlap) + (work / most).powf(self.overlap);
        most * sum.powf(1.0 / self.overlap)
    }

    /// Time of a batch, microseconds. Above 0.
    pub(crate) fn time_us(&self, network: &Network, place: Place) -> f64 {
        let (launches, work) = self.parts(&terms(network, place));
        let time = self.norm(launches, work);
        if time.is_finite() { time.max(TIME_MIN_US) } else { TIME_MIN_US }
    }

    /// Logarithm of the measured time over the predicted one.
    pub(crate) fn log_error(&self, network: &Network, timing: &Timing) -> f64 {
        (timing.time_us / self.time_us(network, timing.place)).ln()
    }

    /// Shares of the time by term, at two corners of the usual range: how the network uses a device.
    pub(crate) fn mix(&self, network: &Network) -> Vec<f64> {
        let corners = [Place { batch: 1, share: 1.0 }, Place { batch: 16, share: 0.5 }];
        let mix = corners.into_iter().flat_map(|place| {
            let terms = terms(network, place);
            let launches = terms.launches.iter().zip(&self.launches);
            let parts: Vec<f64> = launches
                .chain(terms.work.iter().zip(&self.work))
                .map(|(term, factor)| term * factor)
                .collect();
            let sum = parts.iter().sum::<f64>().max(TIME_MIN_US);
            parts.into_iter().map(move |part| part / sum)
        });
        mix.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Operator;

    /// Known models of convolutions, and one in which an operator of a class takes most of the time.
    fn known(class: OperatorClass) -> Vec<Known> {
        let operator = |class, macs: f64| Operator {
            class,
            macs,
            weight_bytes: macs * 1e-3,
            activation_bytes: 1e6,
            width: 1e4,
        };
        let place = Place { batch: 1, share: 1.0 };
        let convolutions = |macs: f64| Known {
            network: Network::new([operator(OperatorClass::Convolution, macs)]),
            timings: vec![Timing { place, time_us: 100.0 + macs * 1e-5 }],
        };
        let mut all: Vec<Known> = [1e6, 3e6, 1e7, 3e7, 1e8].into_iter().map(convolutions).collect();
        all.push(Known {
            network: Network::new([operator(OperatorClass::Convolution, 1e7), operator(class, 0.0)]),
            timings: vec![Timing { place, time_us: 2_200.0 }],
        });
        all
    }

    #[test]
    fn only_a_class_without_a_price_is_learned_from_one_model_at_the_highest_price() {
        let error = |class| {
            let known = known(class);
            let model =
                OperatorModel::fit(&known.iter().collect::<Vec<_>>(), Freedom { price: 10.0, overlap: 1.0 });
            let last = &known[5];
            model.log_error(&last.network, &last.timings[0])
        };
        assert!(error(OperatorClass::LocalResponse).abs() < 0.05);
        assert!(error(OperatorClass::Reduction) > 0.5);
    }
}
