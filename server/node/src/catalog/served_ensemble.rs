//! What a version that is an ensemble runs, and what the router knows of it.

use std::sync::{Mutex, PoisonError};

use models::Ensemble;
use router_core::pipeline::Graph;
use router_core::{ModelId, PipelineId, PipelineSpec, PipelineStage, Split};

use super::families::ServedFamily;
use super::votes::ServedVote;

/// What a version that is an ensemble runs.
pub struct ServedEnsemble {
    /// Its steps, each after those that it follows.
    pub ensemble: Ensemble,
    /// Which step follows which.
    pub graph: Graph,
    /// Its number in the router.
    pub pipeline: PipelineId,
    /// Share of the objective of each step.
    pub shares: Vec<f64>,
    /// What the shares are for.
    pub split: Split,
    /// Its steps are the variants of a family, of which a request runs one.
    pub family: Option<ServedFamily>,
    /// Its steps vote for the class of each row.
    pub vote: Option<ServedVote>,
    /// Versions that the router knows as those of its steps.
    known: Mutex<Vec<ModelId>>,
}

impl ServedEnsemble {
    /// An ensemble of which the router knows nothing yet.
    pub(super) fn new(
        ensemble: Ensemble,
        graph: Graph,
        pipeline: PipelineId,
        (shares, split): (Vec<f64>, Split),
        (family, vote): (Option<ServedFamily>, Option<ServedVote>),
    ) -> Self {
        Self { ensemble, graph, pipeline, shares, split, family, vote, known: Mutex::default() }
    }

    /// Whether the router knows these versions as those of the steps.
    pub(super) fn knows(&self, models: impl Iterator<Item = ModelId>) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().eq(models)
    }

    /// What the router is to know, if the versions of the steps are not those that it knows.
    pub(super) fn changed(&self, models: &[ModelId]) -> Option<PipelineSpec> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == models {
            return None;
        }
        known.clear();
        known.extend_from_slice(models);
        let rows = self.mean_rows();
        let stage =
            |((model, &share), rows): ((&ModelId, &f64), f64)| PipelineStage { model: *model, rows, share };
        Some(PipelineSpec {
            pipeline: self.pipeline,
            graph: self.graph.clone(),
            stages: models.iter().zip(&self.shares).zip(rows).map(stage).collect(),
            split: self.split,
        })
    }

    /// Rows of each step for a request of one row, in the mean.
    fn mean_rows(&self) -> Vec<f64> {
        let mut rows: Vec<f64> = Vec::new();
        for (number, _) in (0_u32..).zip(&self.ensemble.steps) {
            let before = self.graph.after(number).iter().filter_map(|&before| {
                let earlier = self.ensemble.steps.get(before as usize)?;
                Some(rows.get(before as usize)? * earlier.fan_out)
            });
            rows.push(before.reduce(f64::max).unwrap_or(1.0));
        }
        rows
    }
}
