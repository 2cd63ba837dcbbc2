//! Stages that run one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use models::Signature;
use models::engine::{Batch, Session};
use oip::Tensor;

use super::timing::Clock;

/// Sessions of all stages.
pub struct Pipeline {
    pub stages: Vec<Box<dyn Session>>,
    /// How stages are timed.
    pub clock: Clock,
}

/// What a run of all stages gave.
pub struct PipelineRun {
    /// Outputs of the whole, in its order.
    pub outputs: Vec<Tensor>,
    /// Time of each stage.
    pub times: Vec<Duration>,
}

impl Pipeline {
    /// Runs a batch through all stages.
    ///
    /// # Errors
    /// What the engine says of a stage, or a tensor that no stage gives.
    pub fn run(&mut self, whole: &Signature, batch: &Batch) -> anyhow::Result<PipelineRun> {
        let mut tensors: BTreeMap<String, Tensor> =
            batch.inputs.iter().flatten().map(|tensor| (tensor.name.clone(), tensor.clone())).collect();
        let mut times = Vec::with_capacity(self.stages.len());
        for (number, session) in (1..).zip(&mut self.stages) {
            let inputs =
                session.signature().inputs.iter().map(|spec| tensors.get(&spec.name).cloned()).collect();
            let started = self.clock.now();
            let outputs = session.run(&Batch { inputs, rows: batch.rows });
            times.push(self.clock.now().saturating_sub(started));
            let outputs = outputs.with_context(|| format!("stage {number}"))?;
            tensors.extend(outputs.into_iter().map(|tensor| (tensor.name.clone(), tensor)));
        }
        let output =
            |name: &String| tensors.get(name).cloned().with_context(|| format!("no stage gives `{name}`"));
        let outputs = whole.outputs.iter().map(|spec| output(&spec.name)).collect::<anyhow::Result<_>>()?;
        Ok(PipelineRun { outputs, times })
    }
}
