//! Selective replication: every copy on one device (AlpaServe's baseline `sr-greedy`).

use super::greedy::fill;
use super::{Problem, Score};
use crate::error::ParallelError;
use crate::profile::Layout;

/// Copies of whole models, each on one device, chosen by the same greedy search as AlpaServe's.
pub fn replicate(problem: &Problem) -> Result<Score, ParallelError> {
    problem.check()?;
    let models: Vec<usize> = (0..problem.models.len()).collect();
    let layouts = vec![Layout::SINGLE; problem.cluster.devices];
    problem.score(fill(problem, &layouts, &models)?)
}
