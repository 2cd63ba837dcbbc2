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
    pub fn draw(&self, of: (u64, &str), request: u64, stage: u32, rows: u32) -> (bool, u32) {
        let Some(drawn) = self.stages.get(stage as usize) else { return (false, rows) };
        let (answers, each) = drawn.draws(of, request, stage);
        (answers, each.take(rows as usize).fold(0, u32::saturating_add))
    }

    /// The rows that come of each row of each stage, as [`draw`](Self::draw) draws them for a request of one row that no stage answers
    /// early.
    pub fn rows_of(&self, of: (u64, &str), request: u64) -> Vec<Vec<u32>> {
        let mut rows: Vec<Vec<u32>> = Vec::with_capacity(self.stages.len());
        for (number, stage) in (0_u32..).zip(&self.stages) {
            let came = |before: &u32| {
                let before = rows.get(*before as usize)?;
                Some(before.iter().fold(0_u32, |sum, rows| sum.saturating_add(*rows)))
            };
            let own = stage.after.iter().filter_map(came).max().unwrap_or(1);
            rows.push(stage.draws(of, request, number).1.take(own as usize).collect());
        }
        rows
    }
}

impl PipelineStage {
    /// Whether it answers a request early, and the rows that come of each of its rows.
    fn draws(
        &self,
        (seed, name): (u64, &str),
        request: u64,
        stage: u32,
    ) -> (bool, impl Iterator<Item = u32>) {
        let mut generator = generator(seed, Purpose::Stage, &format!("{name}/{request}/{stage}"));
        let answers = self.answers > 0.0
            && Shares::weighted(&[
                (true, self.answers),
                (false, (1.0 - self.answers).max(f64::MIN_POSITIVE)),
            ])
            .and_then(|shares| shares.draw(&mut generator))
            .unwrap_or(false);
        (answers, std::iter::repeat_with(move || self.fan_out.draw(&mut generator).unwrap_or(1)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_each_row_add_up_to_those_of_the_stage() {
        let stage = |after: &[u32], fan_out: &[(u32, f64)]| PipelineStage {
            name: String::new(),
            model: 0,
            after: after.to_vec(),
            fan_out: Shares::weighted(fan_out).unwrap(),
            answers: 0.0,
        };
        let few = [(0, 0.3), (2, 0.4), (5, 0.3)];
        let stages = vec![stage(&[], &[(3, 1.0)]), stage(&[0], &few), stage(&[1], &few), stage(&[0], &few)];
        let pipeline = Pipeline { stages, split: ObjectiveSplit::Even, deadlines: Deadlines::EndToEnd };
        for request in 0..200 {
            let rows = pipeline.rows_of((7, "p"), request);
            let sums: Vec<u32> = rows.iter().map(|rows| rows.iter().sum()).collect();
            assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3, sums[1] as usize, 3]);
            for (number, own) in (0..).zip(&rows) {
                let drawn = pipeline.draw((7, "p"), request, number, u32::try_from(own.len()).unwrap());
                assert_eq!(drawn, (false, sums[number as usize]));
            }
        }
    }
}
