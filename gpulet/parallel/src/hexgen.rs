//! Layouts of a transformer on unequal GPUs, after HexGen (ICML 2024): stages with different numbers of layers and GPUs.
//!
//! Two phases, as in the paper: [`best_pipeline`] finds stages for a group of GPUs by a dynamic program, and [`genetic_groups`]
//! divides all GPUs into groups by a genetic search whose fitness is simulated attainment. Tensor parallelism is a cost model
//! ([`Machine`], [`Task`]); nothing here runs it.

mod cost;
mod groups;
mod pipeline;

pub use cost::{Machine, Task, Transformer};
pub use groups::{Grouping, Traffic, best_groups, genetic_groups};
pub use pipeline::{
    PipelinePlan, PipelineStage, StageSize, SymmetricPipeline, best_pipeline, evaluate_pipeline,
    symmetric_pipelines,
};

use crate::device::Link;
use crate::error::{ParallelError, within};

/// A model, the machines that may run it, and what a request asks of it.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The model.
    pub model: Transformer,
    /// The machines. GPUs of one machine are equal.
    pub machines: Vec<Machine>,
    /// The link between machines.
    pub network: Link,
    /// A request.
    pub task: Task,
}

impl Pool {
    /// Refuses impossible values. Every search calls it.
    pub fn check(&self) -> Result<(), ParallelError> {
        self.model.check()?;
        within("machines", self.machines.len(), 1, 16)?;
        for (number, machine) in self.machines.iter().enumerate() {
            machine.check(number)?;
        }
        self.network.check()?;
        self.task.check()
    }

    /// GPUs of each machine.
    pub fn gpus(&self) -> Vec<usize> {
        self.machines.iter().map(|machine| machine.gpus).collect()
    }
}
