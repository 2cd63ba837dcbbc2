//! One generator for each use of chance.
//!
//! A generator belongs to (seed, purpose, name), so that what one model or lane draws never moves another's: a
//! model may be added, removed or moved in the file and the others' traffic stays the same to the byte.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use sha2::{Digest, Sha256};

/// The generator used everywhere here: portable, its values part of its contract.
pub(crate) type Generator = Xoshiro256PlusPlus;

/// What a generator is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// When requests of a model arrive.
    Arrivals,
    /// What the requests of a model look like.
    Requests,
    /// How far a model's true time lies from its profile.
    Spread,
    /// How batch times on a lane vary.
    Times,
    /// When a lane stalls.
    Stalls,
    /// Overhead in addition to the models.
    Overhead,
}

/// The generator of one purpose and one name.
pub(crate) fn generator(seed: u64, purpose: Purpose, name: &str) -> Generator {
    let tag: u8 = match purpose {
        Purpose::Arrivals => 1,
        Purpose::Requests => 2,
        Purpose::Spread => 3,
        Purpose::Times => 4,
        Purpose::Stalls => 5,
        Purpose::Overhead => 6,
    };
    let digest = Sha256::new().chain_update(seed.to_le_bytes()).chain_update([tag]).chain_update(name);
    Generator::from_seed(digest.finalize().into())
}
