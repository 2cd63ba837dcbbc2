//! Exponential, normal and gamma draws, the same to the last bit in every build.
//!
//! Elementary functions come from the `libm` crate. `rand_distr` would take them from the platform as soon as any
//! other crate in the build turns on `num-traits/std`; then two builds of one commit part after some ten million
//! arrivals, and a simulation with them.

use std::f64::consts::TAU;

use rand::RngExt as _;

use crate::seeds::Generator;

/// Exponential, mean 1.
pub(crate) fn exponential(generator: &mut Generator) -> f64 {
    -libm::log(1.0 - generator.random::<f64>())
}

/// Normal, mean 0, variance 1 (Box and Muller).
pub(crate) fn normal(generator: &mut Generator) -> f64 {
    let radius = libm::sqrt(2.0 * exponential(generator));
    radius * libm::cos(TAU * generator.random::<f64>())
}

/// Gamma with a given shape and scale 1 (Marsaglia and Tsang 2000, "A simple method for generating gamma
/// variables").
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gamma {
    d: f64,
    c: f64,
    /// One over the shape where that is below 1; drawn from the shape plus 1 then.
    boost: Option<f64>,
}

impl Gamma {
    /// For a shape above 0.
    pub(crate) fn new(shape: f64) -> Self {
        let (raised, boost) = if shape < 1.0 { (shape + 1.0, Some(1.0 / shape)) } else { (shape, None) };
        let d = raised - 1.0 / 3.0;
        Self { d, c: 1.0 / libm::sqrt(9.0 * d), boost }
    }

    pub(crate) fn draw(&self, generator: &mut Generator) -> f64 {
        let raised = self.draw_raised(generator);
        match self.boost {
            Some(power) => raised * libm::pow(1.0 - generator.random::<f64>(), power),
            None => raised,
        }
    }

    fn draw_raised(&self, generator: &mut Generator) -> f64 {
        loop {
            let x = normal(generator);
            let root = 1.0 + self.c * x;
            if root <= 0.0 {
                continue;
            }
            let (v, square) = (root * root * root, x * x);
            let u = 1.0 - generator.random::<f64>();
            // The first test decides nearly always, without a logarithm.
            let kept = u < 1.0 - 0.0331 * square * square
                || libm::log(u) < 0.5 * square + self.d * (1.0 - v + libm::log(v));
            if kept {
                return self.d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::{Purpose, generator};

    /// Largest distance between the share of draws below a value and its probability (Kolmogorov and Smirnov),
    /// times the root of their number: above 1.95 once in a thousand times.
    fn distance(draw: impl Fn(&mut Generator) -> f64, below: impl Fn(f64) -> f64) -> f64 {
        let mut generator = generator(3, Purpose::Times, "test");
        let mut draws: Vec<f64> = (0..100_000).map(|_| draw(&mut generator)).collect();
        draws.sort_by(f64::total_cmp);
        let count = draws.len() as f64;
        let apart = draws.iter().enumerate().map(|(i, x)| {
            let probability = below(*x);
            (probability - i as f64 / count).abs().max((probability - (i + 1) as f64 / count).abs())
        });
        apart.fold(0.0, f64::max) * count.sqrt()
    }

    #[test]
    fn draws_follow_their_distributions() {
        let exponential_below = |x: f64| 1.0 - (-x).exp();
        let found = [
            ("exponential", distance(exponential, exponential_below)),
            ("normal", distance(normal, |x| libm::erfc(-x / 2.0_f64.sqrt()) / 2.0)),
            ("gamma 1", distance(|g| Gamma::new(1.0).draw(g), exponential_below)),
            ("gamma 2", distance(|g| Gamma::new(2.0).draw(g), |x| 1.0 - (1.0 + x) * (-x).exp())),
            ("gamma 1/2", distance(|g| Gamma::new(0.5).draw(g), |x| libm::erf(x.sqrt()))),
            (
                "gamma 3/2",
                distance(
                    |g| Gamma::new(1.5).draw(g),
                    |x| libm::erf(x.sqrt()) - 2.0 * (x / std::f64::consts::PI).sqrt() * (-x).exp(),
                ),
            ),
        ];
        println!("{found:?}");
        assert!(found.iter().all(|(_, distance)| *distance < 1.95), "{found:?}");
    }

    #[test]
    fn gammas_of_extreme_shapes_have_their_mean() {
        for shape in [0.0625, 1e4] {
            let mut generator = generator(4, Purpose::Times, "test");
            let gamma = Gamma::new(shape);
            let mean = (0..400_000).map(|_| gamma.draw(&mut generator)).sum::<f64>() / 400_000.0;
            let sigmas = (mean - shape) / (shape / 400_000.0).sqrt();
            assert!(sigmas.abs() < 4.0, "{shape}: {mean}");
        }
    }
}
