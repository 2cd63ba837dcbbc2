//! Searches that learn nothing: every configuration, in order or at random.

use super::{Choice, Reason, Search, Settings};
use crate::generator::Generator;
use crate::measurement::Measured;

/// The next of these that was not tried.
fn next_of(order: impl IntoIterator<Item = usize>, measured: &Measured) -> Choice {
    let open = order.into_iter().find(|index| !measured.contains(*index));
    open.map_or(Choice::Stop(Reason::Exhausted), Choice::Try)
}

/// Every configuration, in the order of indices.
pub(super) struct Grid {
    count: usize,
}

impl Grid {
    pub fn new(settings: &Settings<'_>) -> Self {
        Self { count: settings.space.len() }
    }
}

impl Search for Grid {
    fn next(&mut self, measured: &Measured) -> Choice {
        next_of(0..self.count, measured)
    }
}

/// Configurations in random order.
pub(super) struct Random {
    order: Vec<usize>,
}

impl Random {
    pub fn new(settings: &Settings<'_>) -> Self {
        let mut order: Vec<usize> = (0..settings.space.len()).collect();
        Generator::new(settings.seed).shuffle(&mut order);
        Self { order }
    }
}

impl Search for Random {
    fn next(&mut self, measured: &Measured) -> Choice {
        next_of(self.order.iter().copied(), measured)
    }
}
