//! Working memory of models that were never run.

use crate::network::Network;

/// How much of their activations models keep in memory at a time.
///
/// An engine reuses memory of activations that are no longer needed, and needs more for some operators, by rules that the
/// operators alone do not say. So this is an upper end: the largest part that a known model took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArenaShare(f64);

impl Default for ArenaShare {
    /// Without known models: all activations at once.
    fn default() -> Self {
        Self(1.0)
    }
}

impl ArenaShare {
    /// Bytes that an engine may take besides activations. Known models with fewer bytes of activations do not say which part
    /// of them was kept.
    pub const OVERHEAD: u64 = 1_000_000;

    /// Learns from known arenas: the network, rows of the batch, and bytes in addition to the weights.
    pub fn of<'a>(arenas: impl IntoIterator<Item = (&'a Network, u32, u64)>) -> Self {
        let parts =
            arenas.into_iter().map(|(network, batch, bytes)| (activations(network, batch), bytes as f64));
        let large = parts.filter(|(activations, _)| *activations >= Self::OVERHEAD as f64);
        large
            .map(|(activations, bytes)| bytes / activations)
            .reduce(f64::max)
            .map_or_else(Self::default, Self)
    }

    /// Bytes that a batch needs at most, in addition to the weights.
    pub fn bytes(self, network: &Network, batch: u32) -> u64 {
        Self::OVERHEAD + (self.0 * activations(network, batch)).ceil() as u64
    }
}

fn activations(network: &Network, batch: u32) -> f64 {
    network.total().activation_bytes * f64::from(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Operator, OperatorClass};

    fn network(activation_bytes: f64) -> Network {
        let class = OperatorClass::Convolution;
        Network::new([Operator { class, macs: 1.0, weight_bytes: 1.0, activation_bytes, width: 1.0 }])
    }

    #[test]
    fn the_largest_part_of_known_models_counts() {
        let (one, other) = (network(10_000_000.0), network(5_000_000.0));
        let share = ArenaShare::of([(&one, 2, 5_000_000), (&other, 4, 10_000_000)]);
        assert_eq!(share.bytes(&network(3_000_000.0), 8), ArenaShare::OVERHEAD + 12_000_000);
        assert_eq!(ArenaShare::of([]).bytes(&network(300.0), 8), ArenaShare::OVERHEAD + 2_400);
    }

    #[test]
    fn an_engine_may_need_more_than_all_activations() {
        let share = ArenaShare::of([(&network(5_000_000.0), 4, 25_000_000)]);
        assert_eq!(share.bytes(&network(2_000_000.0), 4), ArenaShare::OVERHEAD + 10_000_000);
    }

    #[test]
    fn what_an_engine_takes_for_small_models_says_nothing_of_large_ones() {
        let (small, large) = (network(1_000.0), network(10_000_000.0));
        for bytes in [500_000, 2_000_000] {
            let share = ArenaShare::of([(&small, 1, bytes)]);
            assert_eq!(share.bytes(&large, 1), ArenaShare::OVERHEAD + 10_000_000);
        }
    }
}
