//! Random generators, one for each purpose.
//!
//! A generator belongs to a seed, a purpose and a name, so the draws of one model or lane do not affect another.
//! Adding, removing or moving a model in the file leaves the traffic of the others unchanged.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use sha2::{Digest, Sha256};

/// The random generator. It is portable, and its values are part of its contract.
pub(crate) type Generator = Xoshiro256PlusPlus;

/// What a generator is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// When requests of a model arrive.
    Arrivals,
    /// Rows and tenants of a model's requests.
    Requests,
    /// How far a model's true time lies from its profile.
    Spread,
    /// How batch times on a lane vary.
    Times,
    /// When a lane stalls.
    Stalls,
    /// Overhead in addition to the models.
    Overhead,
    /// The workload itself, if it is random.
    Workload,
    /// Which requests of a new version fail.
    Version,
    /// What the stages of a pipeline's request do.
    Stage,
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
        Purpose::Workload => 7,
        Purpose::Version => 8,
        Purpose::Stage => 9,
    };
    let digest = Sha256::new().chain_update(seed.to_le_bytes()).chain_update([tag]).chain_update(name);
    Generator::from_seed(digest.finalize().into())
}
