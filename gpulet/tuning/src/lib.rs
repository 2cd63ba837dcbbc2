//! Searches for the configuration of a model with the highest capacity at an objective, with few trials.
//!
//! A [`Space`] has all [`Configuration`]s of a machine: engine, lanes, threads, level of graph optimisation, spinning and batch. A trial of one
//! gives a [`Measurement`], and an [`Objective`] says what it is worth. A [`Search`] is a state machine: it gets what was [`Measured`] and
//! chooses what to try next, or stops with a [`Reason`]. [`search`] makes one from its word.
//!
//! Nothing here measures, reads a clock or a file, or draws random numbers other than from the seed that it is given. The same seed and the
//! same measurements give the same choices.

#![forbid(unsafe_code)]

mod gaussian_process;
mod generator;
mod measurement;
mod replay;
mod search;
mod space;

pub use self::measurement::{Measured, Measurement, Objective};
pub use self::replay::{Limits, Path, replay};
pub use self::search::{
    Choice, Constants, Reason, Search, Settings, Surface, Tessera, WORDS, compared_trials, search,
};
pub use self::space::{BATCHES, Configuration, Engine, KNOBS, Level, Setup, Space};
