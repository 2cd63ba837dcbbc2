//! Working memory of models that were never run.

use crate::network::Network;

/// How much of their activations models keep in memory at a time.
///
/// An engine reuses memory of activations that are no longer needed, by rules that the operators alone do not say. So this is an upper end:
/// the largest part that a known model took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArenaShare(f64);

impl Default for ArenaShare {
    /// Without known models: all activations at once.
    fn default() -> Self {
        Self(1.0)
    }
}

impl ArenaShare {
    /// Learns from known arenas: the network, rows of the batch, and bytes in addition to the weights.
    pub fn of<'a>(arenas: impl IntoIterator<Item = (&'a Network, u32, u64)>) -> Self {
        let parts = arenas.into_iter().filter_map(|(network, batch, bytes)| {
            let all = activations(network, batch);
            (all > 0.0).then(|| bytes as f64 / all)
        });
        parts.reduce(f64::max).map_or_else(Self::default, Self)
    }

    /// Bytes that a batch needs at most, in addition to the weights.
    pub fn bytes(self, network: &Network, batch: u32) -> u64 {
        (self.0 * activations(network, batch)).ceil() as u64
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
        let (one, other, empty) = (network(1_000.0), network(500.0), network(0.0));
        let share = ArenaShare::of([(&one, 2, 500), (&other, 4, 1_000), (&empty, 1, 9)]);
        assert_eq!(share.bytes(&network(300.0), 8), 1_200);
        assert_eq!(ArenaShare::of([]).bytes(&network(300.0), 8), 2_400);
    }
}
