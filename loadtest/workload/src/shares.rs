//! A choice among a few values, each with its share.

use std::sync::Arc;

use rand::RngExt as _;

use crate::seeds::Generator;

/// Values and how often each is drawn; never empty, shares add up to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares<T> {
    /// Value, its share, and the sum of the shares up to and with it.
    choices: Arc<[(T, f64, f64)]>,
}

impl<T: Copy> Shares<T> {
    /// Always the same value.
    pub(crate) fn only(value: T) -> Self {
        Self { choices: Arc::from([(value, 1.0, 1.0)]) }
    }

    /// Creates shares in proportion to weights. `None` without weights, or if a weight is not positive and finite.
    pub(crate) fn weighted(weights: &[(T, f64)]) -> Option<Self> {
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let sound = weights.iter().all(|(_, weight)| *weight > 0.0) && total.is_finite();
        if weights.is_empty() || !sound {
            return None;
        }
        let mut sum = 0.0;
        let choices = weights.iter().map(|&(value, weight)| {
            sum += weight / total;
            (value, weight / total, sum)
        });
        Some(Self { choices: choices.collect() })
    }

    /// Each value with its share, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (T, f64)> + '_ {
        self.choices.iter().map(|&(value, share, _)| (value, share))
    }

    pub(crate) fn draw(&self, generator: &mut Generator) -> Option<T> {
        match &*self.choices {
            [(only, ..)] => Some(*only),
            choices => {
                let point: f64 = generator.random();
                let found = choices.iter().find(|(.., sum)| point < *sum).or(choices.last());
                found.map(|&(value, ..)| value)
            }
        }
    }
}

impl Shares<u32> {
    /// The value drawn on average.
    pub fn mean(&self) -> f64 {
        self.iter().map(|(value, share)| f64::from(value) * share).sum()
    }
}
