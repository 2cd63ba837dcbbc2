//! The placement policies by word.

use super::alpaserve::{self, Scope};
use super::{Problem, Score, optimum, replication};
use crate::error::ParallelError;

/// Places the models of a problem.
pub type Place = fn(&Problem) -> Result<Score, ParallelError>;

/// Each policy: its word, what it does, and the search.
pub const POLICIES: [(&str, &str, Place); 4] = [
    (
        "alpaserve",
        "AlpaServe: groups, layouts and copies by simulator-guided greedy search",
        alpaserve::place,
    ),
    (
        "replication",
        "selective replication: every copy on one device (AlpaServe's baseline sr-greedy)",
        replication::replicate,
    ),
    ("model-parallel", "AlpaServe's search over groups of several devices only", model_parallel),
    ("optimum", "the best placement by enumeration; small problems only", optimum::enumerate),
];

fn model_parallel(problem: &Problem) -> Result<Score, ParallelError> {
    alpaserve::place_within(problem, Scope::Split)
}

/// The policy of a word.
pub fn find(word: &str) -> Result<Place, ParallelError> {
    let found = POLICIES.iter().find(|(name, ..)| *name == word);
    found.map(|(.., place)| *place).ok_or_else(|| {
        let names: Vec<&str> = POLICIES.iter().map(|(name, ..)| *name).collect();
        ParallelError::invalid("policy", format!("one of {}", names.join(", ")), format!("`{word}`"))
    })
}
