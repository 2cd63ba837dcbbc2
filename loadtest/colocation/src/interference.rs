//! A model of how kernels that run at the same time slow each other down. It is a model: only a GPU knows.
//!
//! Orion measured three pairs on a V100 (EuroSys 2024, table 2): running together instead of one after the other takes
//! 1/0.98 of the time for two convolutions, 1/1.08 for two batch normalisations and 1/1.41 for one of each. A
//! batch normalisation needs 40 % of the SMs; we assume that a convolution, at 89 % of the arithmetic peak, needs all.

use crate::kernel::Class;

/// Speed-up of two compute-bound kernels, of two memory-bound ones and of one of each (Orion, table 2).
pub const PAIRS: [f64; 3] = [0.98, 1.08, 1.41];
/// Share of the SMs that each of the two batch normalisations of Orion's table 2 needs.
const MEMORY_SHARE: f64 = 0.4;

/// How much a kernel is slowed down by another one: a word for each model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interference {
    /// Fits table 2 given the SMs that its kernels need. Convolutions compete for SMs, which the simulated GPU has
    /// anyway; memory-bound kernels also compete for bandwidth.
    Fitted,
    /// Reads table 2 as if SMs did not matter: two kernels on half of the SMs each take as long as the table says.
    Pairs,
    /// Kernels compete for SMs only.
    SmsOnly,
}

impl Interference {
    /// The words and what they select.
    pub const ALL: &'static [(&'static str, Self)] =
        &[("fitted", Self::Fitted), ("pairs", Self::Pairs), ("sms-only", Self::SmsOnly)];

    /// Slowdown of a kernel that another one of class `other` adds if it held all SMs; a part of them adds that part of it.
    #[must_use]
    pub fn weight(self, own: Class, other: Class) -> f64 {
        let [compute, memory, opposite] = PAIRS;
        match (self, own, other) {
            (Self::SmsOnly, _, _) => 0.0,
            // Each of the two gets half of the SMs: 1 / (2 * 0.98) of the speed alone, of which the SMs explain 1 / 2.
            (Self::Fitted, Class::Compute, Class::Compute) => (1.0 / compute - 1.0) / 0.5,
            // Both fit, so the SMs explain nothing: 1.08 / 2 of the speed alone, next to a kernel on 40 % of the SMs.
            (Self::Fitted, Class::Memory, Class::Memory) => (2.0 / memory - 1.0) / MEMORY_SHARE,
            // The SMs alone give 1.33, less than the measured 1.41: nothing is left to explain.
            (Self::Fitted, _, _) => 0.0,
            (Self::Pairs, Class::Compute, Class::Compute) => (2.0 / compute - 1.0) / 0.5,
            (Self::Pairs, Class::Memory, Class::Memory) => (2.0 / memory - 1.0) / 0.5,
            (Self::Pairs, _, _) => (2.0 / opposite - 1.0) / 0.5,
        }
    }
}
