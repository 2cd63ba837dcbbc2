//! Pipelines: requests that run several models, one stage after the other, under one deadline.
//!
//! A pipeline is a [`Graph`] of stages. Its caller keeps the [`Progress`] of each request: which stages have ended, and which can
//! start. Stages are ordinary requests of their models ([`crate::Event::Arrive`] for the first, [`crate::Event::StageDone`] for later
//! ones) that carry their [`Position`]. They wait in the queues of their models with all other requests of the same shape, so batches
//! form across pipelines. From the position, the router knows how much time the rest of the pipeline needs.

mod budget;
mod graph;
mod progress;

pub use budget::{BudgetError, Budgets, StageCosts, best_throughput};
pub use graph::{Graph, GraphError, STAGES_MAX};
pub use progress::Progress;

use serde::{Deserialize, Serialize};

use crate::{ModelId, Nanos};

/// A pipeline that the router knows. The caller may reuse a number after `Event::PipelineDown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PipelineId(pub u32);

/// Where in its pipeline a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The pipeline. A request of one that the router does not know is treated as if it were alone.
    pub pipeline: PipelineId,
    /// Number of the stage.
    pub stage: u32,
    /// When the request of the pipeline arrived.
    pub begun: Nanos,
}

/// How the time of a request is divided among the stages of its pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// One deadline. Batches are sized for a stage's share of the time that is left, so time that earlier stages did not use is used by
    /// later ones. A request is dropped once the stages after this one would not finish in the time that they took recently, but not
    /// before its share is over.
    #[default]
    EndToEnd,
    /// Each stage has a deadline of its own, counted from the arrival at the pipeline: the sum of the shares up to it (Nexus, Shen et
    /// al., SOSP 2019).
    Static,
    /// Each stage has its share from the moment it is queued, whatever earlier stages left over (InferLine, Crankshaw et al., SoCC
    /// 2020).
    PerStage,
}

/// A stage of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PipelineStage {
    /// The model that it runs.
    pub model: ModelId,
    /// Rows of it for each request of the pipeline, in the mean.
    pub rows: f64,
    /// Its share of the objective: more than 0, and at most 1 in total along each path.
    pub share: f64,
}

/// A pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineSpec {
    /// Its id. A spec of a known pipeline takes the place of the old one.
    pub pipeline: PipelineId,
    /// Which stage follows which.
    pub graph: Graph,
    /// Its stages, as many as the graph has.
    pub stages: Vec<PipelineStage>,
    /// How the time is divided.
    pub split: Split,
}

/// By when a request should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Batches are sized for this time.
    pub due: Nanos,
    /// Beyond it, the answer comes too late.
    pub latest: Nanos,
    /// How long such requests may take. Of a stage, it is the time of the whole pipeline if that has one deadline: what is left of it
    /// says how late this request is, and not how long the next ones can wait.
    pub objective: Nanos,
}

/// A known pipeline, with the sums over its paths.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pipeline {
    spec: PipelineSpec,
    /// Share of the longest path to the end of each stage, and from its start.
    to: Vec<f64>,
    from: Vec<f64>,
    /// How long requests of each stage took recently.
    took: Vec<Took>,
}

/// How long requests of a stage took recently.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Took {
    /// Nanoseconds in the mean.
    mean: f64,
    /// When the last one ended.
    last: Nanos,
}

impl Took {
    /// How long a request takes now, not less than `shortest`. What it took longer is halved with each `half_life` in which none ended,
    /// because stages that do not run cannot show that they are faster again.
    fn expected(&self, now: Nanos, shortest: Nanos, half_life: Nanos) -> Nanos {
        let longer = CAUTION * self.mean - shortest.0 as f64;
        if longer <= 0.0 {
            return shortest;
        }
        let halvings = now.since(self.last).0 as f64 / half_life.0.max(1) as f64;
        shortest.after(Nanos((longer * (-halvings).exp2()) as u64))
    }
}

/// Weight of a request in the mean time of its stage: about the last 50 count.
const WEIGHT: f64 = 0.02;
/// Later stages take up to this many times their mean time. With 1, half of the requests that start would end too late; with 2, stages
/// are left idle.
const CAUTION: f64 = 1.5;

impl Pipeline {
    /// `None` if the spec has not as many stages as its graph.
    pub(crate) fn new(spec: &PipelineSpec) -> Option<Self> {
        if spec.stages.len() != spec.graph.len() {
            return None;
        }
        let share = |stage: usize| spec.stages.get(stage).map_or(0.0, |stage| stage.share);
        let (to, from) = (spec.graph.longest_to(share), spec.graph.longest_from(share));
        Some(Self { spec: spec.clone(), to, from, took: vec![Took::default(); spec.stages.len()] })
    }

    /// Takes over what was learned of an earlier spec with as many stages: only the versions of its models changed.
    pub(crate) fn keep_times_of(&mut self, before: &Self) {
        if before.took.len() == self.took.len() {
            self.took.clone_from(&before.took);
        }
    }

    pub(crate) fn stage(&self, stage: u32) -> Option<&PipelineStage> {
        self.spec.stages.get(stage as usize)
    }

    /// Learns how long a request of a stage took that ends now, from the time it was queued.
    pub(crate) fn took(&mut self, now: Nanos, stage: u32, time: Nanos) {
        if let Some(took) = self.took.get_mut(stage as usize) {
            took.mean += WEIGHT * (time.0 as f64 - took.mean);
            took.last = now;
        }
    }

    /// How long the stages after one take: the longest path. `shortest` is the least time of each, and whether a lane is free for it,
    /// so that it would not wait. `objective` is that of the request.
    pub(crate) fn rest(
        &self,
        now: Nanos,
        stage: u32,
        objective: Nanos,
        shortest: impl Fn(&PipelineStage) -> (Nanos, bool),
    ) -> Nanos {
        let time = |number: usize| {
            let (Some(stage), Some(took)) = (self.spec.stages.get(number), self.took.get(number)) else {
                return 0;
            };
            match shortest(stage) {
                (shortest, true) => shortest.0,
                (shortest, false) => took.expected(now, shortest, objective).0,
            }
        };
        Nanos(self.spec.graph.longest_after(stage, time))
    }

    /// By when a stage should end that is queued now, and the last moment that is not too late. `latest` is the deadline of the
    /// request without the rest of the pipeline.
    pub(crate) fn times(&self, now: Nanos, position: &Position, deadline: Nanos, latest: Nanos) -> Times {
        let stage = position.stage as usize;
        let of = |list: &[f64]| list.get(stage).copied().unwrap_or(1.0);
        let share = self.spec.stages.get(stage).map_or(1.0, |stage| stage.share);
        let part = |time: Nanos, part: f64| Nanos((time.0 as f64 * part.clamp(0.0, 1.0)) as u64);
        let own = |end: Nanos| Times { due: end, latest: end, objective: end.since(now) };
        match self.spec.split {
            Split::EndToEnd => {
                let due = now.after(part(deadline.since(now), share / of(&self.from).max(share)));
                Times {
                    due,
                    latest: due.max(latest).min(deadline),
                    objective: deadline.since(position.begun),
                }
            }
            Split::Static => {
                let end = position.begun.after(part(deadline.since(position.begun), of(&self.to)));
                own(end)
            }
            Split::PerStage => {
                let end = now.after(part(deadline.since(position.begun), share)).min(deadline);
                own(end)
            }
        }
    }
}
