//! The searches, by word.

mod autodeep;
mod bo;
mod exhaustive;
mod morphling;
mod others;
mod q_learning;
mod tessera;

use crate::measurement::{Measured, Measurement, Objective};
use crate::space::Space;

pub use tessera::{Constants, Tessera};

use autodeep::AutoDeep;
use bo::Bo;
use exhaustive::{Grid, Random};
use morphling::Morphling;
use q_learning::QLearning;

/// What a search wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// A trial of the configuration with this index, which was not tried.
    Try(usize),
    /// No more trials.
    Stop(Reason),
}

/// Why a search wants no more trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Every configuration was tried.
    Exhausted,
    /// No trial is expected to gain this much or more, as a share of the best capacity.
    NoGain {
        /// The largest gain that a trial is expected to have.
        expected: f64,
    },
}

/// Chooses what to try.
pub trait Search {
    /// The next choice, from what was measured. The caller adds the result of a trial to `measured` and asks again.
    fn next(&mut self, measured: &Measured) -> Choice;

    /// Number of steps so far, for searches whose steps are not all trials: a walk may pass a configuration again.
    fn steps(&self) -> Option<usize> {
        None
    }
}

/// Trials of another model on the same machine, by index of the same space.
pub type Surface = Vec<(usize, Measurement)>;

/// What every search is made from.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    /// What can be tried.
    pub space: &'a Space,
    /// What trials are worth.
    pub objective: Objective,
    /// Seed of random choices.
    pub seed: u64,
    /// Trials of other models. `tessera` and `morphling` learn from them, and `morphling` needs some.
    pub others: &'a [Surface],
}

/// The words of searches, and what each does.
pub const WORDS: &[(&str, &str)] = &[
    ("tessera", "the structure of the knobs, the batch and the tail; expected gain of capacity"),
    ("bo", "a Gaussian process over the knobs; expected improvement of capacity"),
    ("morphling", "the surface of other models, adapted; the best that is predicted"),
    ("rrl", "Q-learning in which a measurement updates a region"),
    ("q-learning", "Q-learning"),
    ("autodeep", "Bayesian optimisation of engine, lanes and threads; Q-learning of the rest"),
    ("random", "configurations in random order"),
    ("grid", "every configuration, in order"),
];

/// The search of a word.
///
/// # Errors
/// For an unknown word, and for `morphling` without trials of other models. The message says what is expected.
pub fn search(word: &str, settings: &Settings<'_>) -> Result<Box<dyn Search>, String> {
    match word {
        "tessera" => Ok(Box::new(Tessera::new(settings, Constants::default()))),
        "bo" => Ok(Box::new(Bo::new(settings))),
        "morphling" => Ok(Box::new(Morphling::new(settings)?)),
        "rrl" => Ok(Box::new(QLearning::with_regions(settings))),
        "q-learning" => Ok(Box::new(QLearning::plain(settings))),
        "autodeep" => Ok(Box::new(AutoDeep::new(settings))),
        "grid" => Ok(Box::new(Grid::new(settings))),
        "random" => Ok(Box::new(Random::new(settings))),
        _ => {
            let words: Vec<String> = WORDS.iter().map(|(word, _)| format!("`{word}`")).collect();
            let shown: String = word.chars().take(64).collect();
            Err(format!("expected one of {}, got `{shown}`", words.join(", ")))
        }
    }
}

/// Most trials of a search in a comparison: those with a Gaussian process take longer the more they know, and end after 100.
pub fn compared_trials(word: &str, space: &Space) -> usize {
    let has_process = matches!(word, "tessera" | "bo" | "morphling" | "autodeep");
    if has_process { space.len().min(100) } else { space.len() }
}
