//! When requests of a model arrive.

use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

/// How requests of a model arrive.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// Independent arrivals at a rate in requests a second, above 0.
    Poisson {
        /// Requests a second.
        rate: f64,
    },
    /// Evenly spaced at a rate in requests a second, above 0.
    Uniform {
        /// Requests a second.
        rate: f64,
    },
    /// Recorded gaps in nanoseconds, from a place that the seed draws, again and again; not empty.
    Recorded {
        /// Nanoseconds between requests.
        gaps: Arc<[u64]>,
    },
    /// The next request arrives when the last one ends: training, and offline inference.
    BackToBack,
}

/// Times of arrival of one model, one after the other.
#[derive(Debug)]
pub(crate) struct Stream {
    arrivals: Arrivals,
    generator: Xoshiro256PlusPlus,
    place: usize,
    now: u64,
}

impl Stream {
    pub(crate) fn new(arrivals: Arrivals, seed: u64, client: usize) -> Self {
        // Clients get generators of their own, so that the traffic of one does not depend on the others.
        let mut generator =
            Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(client as u64));
        let place = match &arrivals {
            Arrivals::Recorded { gaps } => generator.random_range(0..gaps.len().max(1)),
            _ => 0,
        };
        Self { arrivals, generator, place, now: 0 }
    }

    /// The next arrival in nanoseconds; none for [`Arrivals::BackToBack`].
    pub(crate) fn next(&mut self) -> Option<u64> {
        let gap = match &self.arrivals {
            Arrivals::Poisson { rate } => {
                (-libm::log(1.0 - self.generator.random::<f64>()) / rate * 1e9) as u64
            }
            Arrivals::Uniform { rate } => (1e9 / rate) as u64,
            Arrivals::Recorded { gaps } => {
                let gap = gaps.get(self.place % gaps.len().max(1)).copied()?;
                self.place += 1;
                gap
            }
            Arrivals::BackToBack => return None,
        };
        self.now = self.now.saturating_add(gap.max(1));
        Some(self.now)
    }
}
