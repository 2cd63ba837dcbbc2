//! Batch times of a model from few measurements, or none.
//!
//! An [`Estimator`] learns from [`Known`] models of a device: their [`Network`]s, which say how much work each class of operators has, and
//! their measured times. Its [`Estimate`] of another model has three parts, each of which explains what the one before leaves:
//!
//! 1. An operator model: the time of a batch as a sum of terms with coefficients of 0 and more, per operator, operation and byte.
//! 2. A similarity: networks that use a device alike have alike errors of the operator model (Sniper, DAC 2022).
//! 3. A Gaussian process over the logarithms of batch and share, with the model's own measurements. It gives the intervals.
//!
//! Each choice (prices of terms, overlap, trust, kernel) is the one with the least error on known models that are left out of the fit, so
//! intervals are as wide as such errors were. [`Estimate::next`] says which measurement would change the plan most.
//!
//! [`ArenaShare`] bounds the working memory of a model that never ran.
//!
//! Times are medians in microseconds, shares are parts of the device from above 0 to 1. Nothing is random.

#![forbid(unsafe_code)]

mod choice;
mod cholesky;
mod estimator;
mod gaussian_process;
mod known;
mod least_squares;
mod memory;
mod network;
mod operator_model;
mod similarity;

pub use self::choice::{CHANGE_MIN, Choice, Next, Objective, plan};
pub use self::cholesky::Cholesky;
pub use self::estimator::{Estimate, Estimator, MODELS_MIN, Prediction};
pub use self::known::{Known, Place, Timing};
pub use self::memory::ArenaShare;
pub use self::network::{Network, OPERATORS_MAX, Operator, OperatorClass, Work};
