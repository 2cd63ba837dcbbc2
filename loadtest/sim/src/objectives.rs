//! How the objectives of pipelines are divided among their stages.

use router_core::pipeline::{Budgets, Graph, StageCosts};
use workload::{Model, ObjectiveSplit, Pipeline, PipelineStage, WorkloadError};

/// Steps that an objective is divided into. More make the split finer than batch times are known.
pub(crate) const STEPS: u32 = 200;

/// The stages of a pipeline, and the share of the objective of each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Divided {
    pub graph: Graph,
    pub shares: Vec<f64>,
}

impl Divided {
    /// `costs` says what a stage costs by its budget, with its rows in the mean. A pipeline of which the division is still to be chosen
    /// is divided as by Nexus.
    ///
    /// # Errors
    /// The pipeline has more stages than one may have.
    pub fn new(
        model: &Model,
        pipeline: &Pipeline,
        costs: impl Fn(&PipelineStage, f64) -> StageCosts,
    ) -> Result<Self, WorkloadError> {
        let after = pipeline.stages.iter().map(|stage| stage.after.clone()).collect();
        let graph = Graph::new(after)
            .map_err(|error| WorkloadError::apart(format!("pipelines.{}", model.name), error.to_string()))?;
        let shares = match &pipeline.split {
            ObjectiveSplit::Shares(shares) => shares.clone(),
            ObjectiveSplit::Even => graph.even_shares(),
            ObjectiveSplit::Nexus | ObjectiveSplit::Plan => {
                let stages = pipeline.stages.iter().zip(pipeline.mean_rows());
                let costs: Vec<StageCosts> = stages.map(|(stage, rows)| costs(stage, rows)).collect();
                // An objective too short for the rule of Nexus can still be met.
                Budgets::plan(&graph, &costs, STEPS)
                    .map_or_else(|_| graph.even_shares(), |budgets| budgets.shares(STEPS))
            }
        };
        Ok(Self { graph, shares })
    }
}
