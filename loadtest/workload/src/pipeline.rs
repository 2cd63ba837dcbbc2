//! Pipelines: requests that run several models, one stage after the other.

use serde::{Deserialize, Serialize};

use crate::seeds::{Purpose, generator};
use crate::shares::Shares;

/// What the deadlines of a pipeline's stages are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadlines {
    /// That of the whole request, less the shortest time of the stages that follow.
    #[default]
    EndToEnd,
    /// The sum of the shares up to the stage, from the arrival of the request on.
    Static,
    /// The share of the stage, from the end of the stage before on.
    PerStage,
}

/// How the objective of a pipeline is divided.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectiveSplit {
    /// As the simulation finds the best; it chooses the deadlines too.
    Plan,
    /// So that the stages need the least lane time, by their profiles (Nexus).
    Nexus,
    /// Each stage of a longest path gets the same. The default.
    Even,
    /// Each stage has this share.
    Shares(Vec<f64>),
}

/// The stages of a pipeline.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pipeline {
    /// Its stages, each after those that it follows.
    pub stages: Vec<PipelineStage>,
    /// How its objective is divided.
    pub split: ObjectiveSplit,
    /// What the deadlines of its stages are.
    pub deadlines: Deadlines,
}

/// A stage of a pipeline.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PipelineStage {
    /// Name in the pipeline.
    pub name: String,
    /// Number of its model in [`crate::Workload::models`].
    pub model: u32,
    /// Numbers of the stages that it follows, each smaller than its own.
    pub after: Vec<u32>,
    /// Rows that come of each of its rows.
    pub fan_out: Shares<u32>,
    /// Share of requests that it answers, so that no later stage runs.
    pub answers: f64,
}

impl Pipeline {
    /// [`mean_rows`] of its stages.
    pub fn mean_rows(&self) -> Vec<f64> {
        mean_rows(&self.stages)
    }

    /// Whether a stage answers a request early, and how many rows come of `rows` rows of it. It depends on the request's number only, so
    /// that every policy meets the same requests.
    pub fn draw(&self, (seed, name): (u64, &str), request: u64, stage: u32, rows: u32) -> (bool, u32) {
        let Some(drawn) = self.stages.get(stage as usize) else { return (false, rows) };
        let mut generator = generator(seed, Purpose::Stage, &format!("{name}/{request}/{stage}"));
        let answers = drawn.answers > 0.0
            && Shares::weighted(&[
                (true, drawn.answers),
                (false, (1.0 - drawn.answers).max(f64::MIN_POSITIVE)),
            ])
            .and_then(|shares| shares.draw(&mut generator))
            .unwrap_or(false);
        let rows = (0..rows).map(|_| drawn.fan_out.draw(&mut generator).unwrap_or(1));
        (answers, rows.fold(0, u32::saturating_add))
    }
}

/// Rows of each stage for a request of one row, in the mean.
pub fn mean_rows(stages: &[PipelineStage]) -> Vec<f64> {
    let mut rows: Vec<f64> = Vec::with_capacity(stages.len());
    for stage in stages {
        let before = stage.after.iter().filter_map(|&before| {
            let earlier = stages.get(before as usize)?;
            Some(rows.get(before as usize)? * earlier.fan_out.mean() * (1.0 - earlier.answers))
        });
        rows.push(before.reduce(f64::max).unwrap_or(1.0));
    }
    rows
}
