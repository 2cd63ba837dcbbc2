//! What holds for estimates of any model.

use estimator::{Estimator, Known, Network, Operator, OperatorClass, Place, Prediction, Timing};
use proptest::prelude::*;

const BATCHES: [u32; 5] = [1, 2, 4, 8, 16];
const SHARES: [f64; 3] = [0.25, 0.5, 1.0];

fn places() -> impl Iterator<Item = Place> {
    SHARES.into_iter().flat_map(|share| BATCHES.map(|batch| Place { batch, share }))
}

/// A network of convolutions, activations and products, of work that differs between networks.
fn network(convolutions: u32, products: u32, millions: f64) -> Network {
    let operator = |class, macs: f64, weight_bytes, activation_bytes| Operator {
        class,
        macs,
        weight_bytes,
        activation_bytes,
        width: 1e4,
    };
    let convolution = (0..convolutions).flat_map(|_| {
        [
            operator(OperatorClass::Convolution, millions * 1e6, millions * 4e3, 3e5 + millions * 1e4),
            operator(OperatorClass::Elementwise, 0.0, 0.0, 4e5),
        ]
    });
    let product =
        (0..products).map(|_| operator(OperatorClass::MatrixProduct, millions * 2e5, millions * 8e5, 2e4));
    Network::new(convolution.chain(product))
}

/// Times that are linear in the work.
fn linear_us(network: &Network, place: Place) -> f64 {
    let (all, rows) = (network.total(), f64::from(place.batch));
    5.0 * all.operators
        + rows * (all.macs * 2e-5 + all.activation_bytes * 1e-4) / place.share
        + all.weight_bytes * 1e-5
}

fn known(network: Network) -> Known {
    let timings = places().map(|place| Timing { place, time_us: linear_us(&network, place) }).collect();
    Known { network, timings }
}

fn usual() -> Vec<Known> {
    [
        (5, 1, 20.0),
        (20, 0, 50.0),
        (12, 4, 200.0),
        (50, 1, 8.0),
        (8, 8, 90.0),
        (33, 3, 33.0),
        (60, 2, 120.0),
        (16, 6, 5.0),
    ]
    .map(|(convolutions, products, millions)| known(network(convolutions, products, millions)))
    .to_vec()
}

fn is_sound(prediction: Prediction) -> bool {
    let Prediction { time_us, low_us, high_us } = prediction;
    low_us > 0.0 && low_us <= time_us && time_us <= high_us && high_us.is_finite()
}

#[test]
fn times_that_are_linear_in_the_work_are_predicted_exactly_without_measurements() {
    let estimator = Estimator::new(&usual());
    for of in [network(25, 2, 60.0), network(10, 5, 30.0), network(45, 1, 100.0)] {
        let estimate = estimator.estimate(Some(&of), &[]);
        for place in places() {
            let (predicted, wanted) = (estimate.at(place), linear_us(&of, place));
            assert!((predicted.time_us / wanted - 1.0).abs() < 0.01, "{place:?}: {predicted:?}, {wanted}");
            assert!(predicted.low_us <= wanted && wanted <= predicted.high_us);
        }
    }
}

#[test]
fn predictions_rise_with_the_batch_where_times_do() {
    let estimator = Estimator::new(&usual());
    let of = network(30, 3, 70.0);
    let slower = |place| Timing { place, time_us: 1.3 * linear_us(&of, place) };
    let few = [Place { batch: 2, share: 0.5 }, Place { batch: 16, share: 1.0 }].map(slower);
    for timings in [&[][..], &few] {
        let estimate = estimator.estimate(Some(&of), timings);
        for share in SHARES {
            let times = BATCHES.map(|batch| estimate.at(Place { batch, share }).time_us);
            assert!(times.is_sorted(), "{times:?}");
        }
    }
}

#[test]
fn a_measurement_replaces_the_prediction_and_moves_others() {
    let estimator = Estimator::new(&usual());
    let of = network(30, 3, 70.0);
    let mut estimate = estimator.estimate(Some(&of), &[]);
    let (here, there) = (Place { batch: 4, share: 0.5 }, Place { batch: 8, share: 0.5 });
    let before = estimate.at(there);
    let time_us = 2.0 * linear_us(&of, here);
    estimate.measure(Timing { place: here, time_us });
    assert_eq!(estimate.at(here), Prediction { time_us, low_us: time_us, high_us: time_us });
    assert!(estimate.at(there).time_us > 1.5 * before.time_us);
    estimate.measure(Timing { place: here, time_us: f64::NAN });
    assert_eq!(estimate.at(here).time_us, time_us, "what is not valid changes nothing");
}

#[test]
fn with_few_known_models_only_own_measurements_say_something() {
    let estimator = Estimator::new(&usual()[..2]);
    assert!(!estimator.knows_operators() && Estimator::new(&usual()[..3]).knows_operators());
    let of = network(30, 3, 70.0);
    let place = Place { batch: 4, share: 1.0 };
    let unknown = estimator.estimate(Some(&of), &[]).at(place);
    assert!(unknown.high_us / unknown.low_us > 1e3, "{unknown:?}");
    let timing = Timing { place, time_us: linear_us(&of, place) };
    let near = estimator.estimate(Some(&of), &[timing]).at(Place { batch: 8, share: 1.0 });
    assert!(near.high_us / near.low_us < 5.0, "{near:?}");
}

/// Known models that are faster and slower than the work says.
fn uneven() -> Vec<Known> {
    let factors = [1.4, 0.7, 1.3, 0.75, 1.2, 0.8, 1.35, 0.72];
    let mut all = usual();
    for (model, factor) in all.iter_mut().zip(factors) {
        for timing in &mut model.timings {
            timing.time_us *= factor;
        }
    }
    all
}

#[test]
fn copies_of_known_models_do_not_make_predictions_of_others_look_better() {
    let alone = uneven();
    for model in 0..alone.len() {
        let width = |copies: usize| {
            let others = alone.iter().enumerate().filter(|(other, _)| *other != model);
            let known: Vec<Known> =
                others.flat_map(|(_, other)| std::iter::repeat_n(other.clone(), copies)).collect();
            let estimator = Estimator::new(&known);
            let estimate = estimator.estimate(Some(&alone[model].network), &[]);
            let predicted = estimate.at(Place { batch: 4, share: 0.5 });
            (predicted.high_us / predicted.low_us).ln()
        };
        let (once, twice) = (width(1), width(2));
        assert!(twice > 0.9 * once, "model {model}: {once} and {twice}");
    }
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0_f64..1e12,
        1 => prop::num::f64::ANY,
    ]
}

fn any_known() -> impl Strategy<Value = Known> {
    let operator = (
        prop::sample::select(OperatorClass::ALL.to_vec()),
        any_number(),
        any_number(),
        any_number(),
        any_number(),
    )
        .prop_map(|(class, macs, weight_bytes, activation_bytes, width)| Operator {
            class,
            macs,
            weight_bytes,
            activation_bytes,
            width,
        });
    let timing = (0_u32..5_000, 0.0_f64..1.2, any_number())
        .prop_map(|(batch, share, time_us)| Timing { place: Place { batch, share }, time_us });
    (prop::collection::vec(operator, 0..6), prop::collection::vec(timing, 0..6))
        .prop_map(|(operators, timings)| Known { network: Network::new(operators), timings })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_input_gives_finite_intervals_that_contain_the_prediction_and_the_same_each_time(
        models in prop::collection::vec(any_known(), 0..6),
        own in any_known(),
    ) {
        let estimator = Estimator::new(&models);
        let again = Estimator::new(&models);
        for timings in [&[][..], &own.timings] {
            let estimate = estimator.estimate(Some(&own.network), timings);
            for place in places() {
                let predicted = estimate.at(place);
                prop_assert!(is_sound(predicted), "{place:?}: {predicted:?}");
                prop_assert_eq!(predicted, again.estimate(Some(&own.network), timings).at(place));
            }
        }
    }
}
