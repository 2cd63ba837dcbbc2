//! HexGen's first phase: stages for a group of GPUs. And symmetric pipelines to compare with.

use serde::Serialize;

use super::Pool;
use super::cost::StageGpus;
use crate::chain_program::{Choice, Objective, Program};
use crate::error::ParallelError;

/// A stage: consecutive layers on some GPUs that share its operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelineStage {
    /// Number of the machine. The first one, if the GPUs of a symmetric stage are in several.
    pub machine: usize,
    /// GPUs that share the operators.
    pub gpus: usize,
    /// Number of layers.
    pub layers: usize,
    /// Seconds of a request, with the hand-over to the next stage.
    pub time_s: f64,
    /// Memory on each GPU, in bytes.
    pub memory_bytes: u64,
}

/// Stages in the order in which a request passes them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelinePlan {
    /// The stages.
    pub stages: Vec<PipelineStage>,
    /// Seconds of the slowest stage.
    pub bottleneck_s: f64,
    /// Seconds of all stages.
    pub latency_s: f64,
}

/// A symmetric pipeline, or why it does not fit.
#[derive(Clone, Debug, PartialEq)]
pub struct SymmetricPipeline {
    /// Number of stages.
    pub stages: usize,
    /// The stages, or the first one that does not fit.
    pub plan: Result<PipelinePlan, ParallelError>,
}

impl PipelinePlan {
    fn new(stages: Vec<PipelineStage>) -> Self {
        let bottleneck_s = stages.iter().map(|stage| stage.time_s).fold(0.0, f64::max);
        let latency_s = stages.iter().map(|stage| stage.time_s).sum();
        Self { stages, bottleneck_s, latency_s }
    }

    /// The value that is minimized, in seconds.
    pub fn cost_s(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Bottleneck => self.bottleneck_s,
            Objective::Latency => self.latency_s,
        }
    }

    /// Layers and GPUs of the stages, such as `48/20/12 on 4/2/2`.
    pub fn shape(&self) -> String {
        let join = |of: fn(&PipelineStage) -> usize| {
            let numbers: Vec<String> = self.stages.iter().map(|stage| of(stage).to_string()).collect();
            numbers.join("/")
        };
        format!("{} on {}", join(|stage| stage.layers), join(|stage| stage.gpus))
    }
}

/// How many GPUs a stage may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageSize {
    /// 1, 2, 4, ... GPUs of one machine.
    PartOfMachine,
    /// All given GPUs of one machine, as in HexGen's example.
    WholeMachine,
}

/// The pipeline of least cost that uses all of the given GPUs (by machine). `None` if no pipeline fits.
pub fn best_pipeline(
    pool: &Pool,
    gpus: &[usize],
    size: StageSize,
    objective: Objective,
) -> Result<Option<PipelinePlan>, ParallelError> {
    pool.check()?;
    if gpus.len() != pool.machines.len() || gpus.iter().zip(pool.gpus()).any(|(used, all)| *used > all) {
        let expected = format!("at most {:?} GPUs by machine", pool.gpus());
        return Err(ParallelError::invalid("gpus", expected, format!("{gpus:?}")));
    }
    let degrees = |count: usize| {
        (1..=count).filter(move |degree| match size {
            StageSize::PartOfMachine => degree.is_power_of_two(),
            StageSize::WholeMachine => *degree == count,
        })
    };
    let choices: Vec<Choice> = gpus
        .iter()
        .enumerate()
        .flat_map(|(pool, count)| degrees(*count).map(move |devices| Choice { pool, devices }))
        .collect();
    let program = Program { layers: pool.model.layers, pools: gpus, choices: &choices, objective };
    let stage = |from: usize, to: usize, choice: Choice| stage(pool, from, to, choice);
    let segments =
        program.solve(|used| used == gpus, |from, to, choice| Some(stage(from, to, choice)?.time_s))?;
    let stages = segments.map(|segments| {
        segments.into_iter().filter_map(|segment| stage(segment.from, segment.to, segment.choice)).collect()
    });
    Ok(stages.map(PipelinePlan::new))
}

/// A given pipeline, as (machine, GPUs, layers) of each stage. `None` if a stage does not fit, or if the layers do not add up.
pub fn evaluate_pipeline(
    pool: &Pool,
    stages: &[(usize, usize, usize)],
) -> Result<Option<PipelinePlan>, ParallelError> {
    pool.check()?;
    let mut plan = Vec::new();
    let mut from = 0_usize;
    for (machine, gpus, layers) in stages {
        let to = from.saturating_add(*layers);
        let choice = Choice { pool: *machine, devices: *gpus };
        let Some(stage) = stage(pool, from, to, choice).filter(|_| *gpus > 0 && to <= pool.model.layers)
        else {
            return Ok(None);
        };
        plan.push(stage);
        from = to;
    }
    Ok((from == pool.model.layers).then(|| PipelinePlan::new(plan)))
}

/// Layers `from..to` on GPUs of one machine. `None` if they do not fit.
fn stage(pool: &Pool, from: usize, to: usize, choice: Choice) -> Option<PipelineStage> {
    let machine = pool.machines.get(choice.pool)?;
    let memory_bytes = pool.model.memory_bytes(to - from, choice.devices, &pool.task);
    if memory_bytes > machine.memory_bytes {
        return None;
    }
    let gpus = StageGpus {
        count: choice.devices,
        bandwidth: machine.bandwidth,
        flops: machine.flops,
        link: machine.link,
    };
    let last = to == pool.model.layers;
    let hand_over = if last { 0.0 } else { pool.task.hand_over_s(&pool.model, &pool.network) };
    let time_s = pool.task.stage_s(&pool.model, to - from, &gpus) + hand_over;
    Some(PipelineStage {
        machine: choice.pool,
        gpus: choice.devices,
        layers: to - from,
        time_s,
        memory_bytes,
    })
}

/// Every symmetric pipeline over all GPUs: stages with the same number of GPUs, which may be in several machines, and the same
/// number of layers (one more in the first stages, if they do not divide).
pub fn symmetric_pipelines(pool: &Pool) -> Result<Vec<SymmetricPipeline>, ParallelError> {
    pool.check()?;
    let total: usize = pool.gpus().iter().sum();
    let counts = (1..=total).filter(|stages| total.is_multiple_of(*stages) && *stages <= pool.model.layers);
    let pipeline = |stages| SymmetricPipeline { stages, plan: symmetric(pool, stages, total / stages) };
    Ok(counts.map(pipeline).collect())
}

fn symmetric(pool: &Pool, stages: usize, degree: usize) -> Result<PipelinePlan, ParallelError> {
    let owners: Vec<usize> =
        pool.gpus().iter().enumerate().flat_map(|(machine, gpus)| vec![machine; *gpus]).collect();
    let mut plan = Vec::new();
    for (number, owners) in owners.chunks(degree).enumerate() {
        let layers = pool.model.layers / stages + usize::from(number < pool.model.layers % stages);
        let machines: Vec<_> =
            owners.iter().filter_map(|owner| Some((*owner, pool.machines.get(*owner)?))).collect();
        let memory_bytes = pool.model.memory_bytes(layers, degree, &pool.task);
        if let Some((_, machine)) = machines.iter().find(|(_, machine)| machine.memory_bytes < memory_bytes) {
            return Err(ParallelError::DoesNotFit {
                what: format!("stage {number} of {stages}"),
                problem: format!(
                    "expected at most {} bytes on a GPU of type {}, needs {memory_bytes}",
                    machine.memory_bytes, machine.name
                ),
            });
        }
        let Some((first, machine)) = machines.first() else { continue };
        let least = |of: fn(&super::Machine) -> f64| {
            machines.iter().map(|(_, machine)| of(machine)).fold(f64::INFINITY, f64::min)
        };
        let across = owners.iter().any(|owner| owner != first);
        let gpus = StageGpus {
            count: degree,
            bandwidth: least(|machine| machine.bandwidth),
            flops: least(|machine| machine.flops),
            link: if across { pool.network } else { machine.link },
        };
        let last = number + 1 == stages;
        let hand_over = if last { 0.0 } else { pool.task.hand_over_s(&pool.model, &pool.network) };
        let time_s = pool.task.stage_s(&pool.model, layers, &gpus) + hand_over;
        plan.push(PipelineStage { machine: *first, gpus: degree, layers, time_s, memory_bytes });
    }
    Ok(PipelinePlan::new(plan))
}
