//! The pairwise linear regression of the gpulet paper (Choi et al., USENIX ATC 2022), as in the authors' code.

use super::{Load, Runner, Slowdown};
use crate::profile::Profile;

/// Factor = own cache + other cache + own bandwidth + other bandwidth + constant. Each use is multiplied by the share
/// of units. With several co-located loads, the worst one counts. Coefficients are valid for one device type and one
/// software stack. Those published for an RTX 3080 are nearly constant, so fit your own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpulet {
    /// Coefficients of own cache, other cache, own bandwidth, other bandwidth, and the constant.
    pub coefficients: [f64; 5],
}

impl Gpulet {
    /// Coefficients published for an RTX 2080 Ti.
    pub const RTX_2080_TI: Self =
        Self { coefficients: [0.112_908, 0.715_960, 0.354_866, 0.088_204, 0.895_369] };
    /// Coefficients published for an RTX 3080.
    pub const RTX_3080: Self =
        Self { coefficients: [-0.179_887, 0.038_409, 0.125_518, -0.056_482, 1.018_427] };

    /// Returns the regression's terms for one co-located load, in the order of the coefficients.
    pub fn terms(own: &Load, other: &Load) -> [f64; 5] {
        [own.cache_scaled, other.cache_scaled, own.bandwidth_scaled, other.bandwidth_scaled, 1.0]
    }
}

impl Slowdown for Gpulet {
    const NAME: &'static str = "gpulet";

    fn lacks(&self, profile: &Profile) -> Option<String> {
        profile
            .utilisation(1)
            .is_none()
            .then(|| "utilisation lines (cache and bandwidth by batch)".to_owned())
    }

    fn slowdown(&self, own: &Runner<'_>, co_located: &[Load]) -> f64 {
        let mine = Load::of(own);
        let factor = |other: &Load| -> f64 {
            self.coefficients.iter().zip(Self::terms(&mine, other)).map(|(weight, term)| weight * term).sum()
        };
        co_located.iter().map(factor).fold(1.0, f64::max)
    }
}
