//! A request that ended, as the server knows it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::context::{Parent, TraceContext};
use crate::ids::TraceId;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered within its objective, or answered without one.
    InTime,
    /// Answered after its objective.
    Late,
    /// Refused before it ran.
    Refused,
    /// It ran, and failed.
    Failed,
    /// The client stopped waiting.
    Cancelled,
}

impl Outcome {
    /// The value of `tessera.outcome`.
    pub fn name(self) -> &'static str {
        match self {
            Self::InTime => "in_time",
            Self::Late => "late",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP with JSON or binary tensors.
    Http,
    /// gRPC, one request a call or many in a stream.
    Grpc,
    /// A model of the server called another one.
    Model,
}

/// What decides whether a request is kept. Cheap to make for every request.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The model it named.
    pub model: &'a str,
    /// How it ended.
    pub outcome: Outcome,
    /// From arrival to the end.
    pub total: Duration,
    /// Its trace.
    pub trace_id: TraceId,
    /// The span of the client. `None` if the client named none.
    pub parent: Option<Parent>,
}

/// A request that ended, with all that its spans show.
#[derive(Clone, Debug)]
pub struct Request {
    /// The span of this request.
    pub context: TraceContext,
    /// The span of the client. `None` if the client named none.
    pub parent: Option<Parent>,
    /// Its id: the client's `x-request-id`, or the server's.
    pub id: Box<str>,
    /// The model it named.
    pub model: Box<str>,
    /// The version that took it. `None` if no version did.
    pub version: Option<u64>,
    /// Who sent it.
    pub tenant: Box<str>,
    /// Priority class, 1 the most urgent; 0 if it was not read.
    pub class: u32,
    /// Rows; 0 if they were not read.
    pub rows: u32,
    /// How it came.
    pub transport: Transport,
    /// How it ended.
    pub outcome: Outcome,
    /// Word of the error table. `None` if it was answered.
    pub reason: Option<&'static str>,
    /// What the client was told; empty if it was answered.
    pub message: Box<str>,
    /// When its first byte arrived.
    pub arrived: SystemTime,
    /// Time of each stage.
    pub stages: Stages,
    /// From arrival to deadline. `None` without one.
    pub objective: Option<Duration>,
    /// The batch it ran in. `None` if it did not run.
    pub batch: Option<Batch>,
    /// The stages that ended, if it is a request of a pipeline.
    pub pipeline: Vec<PipelineStage>,
}

/// A stage of a pipeline. It starts and ends at these times after the arrival of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineStage {
    /// Its name in the pipeline.
    pub name: Box<str>,
    /// The model that ran it.
    pub model: Box<str>,
    /// Version of the model.
    pub version: u64,
    /// Rows that it took.
    pub rows: u32,
    /// Its start.
    pub started: Duration,
    /// Time in the queue, of its first part.
    pub queued: Duration,
    /// Time in the engine, of its first part.
    pub executed: Duration,
    /// Its end.
    pub ended: Duration,
    /// The batch that its first part ran in. `None` if it did not run.
    pub batch: Option<BatchId>,
    /// Word of the error table. `None` if it ended well.
    pub reason: Option<&'static str>,
}

impl Request {
    /// What decides whether it is kept.
    pub fn ended(&self) -> Ended<'_> {
        Ended {
            model: &self.model,
            outcome: self.outcome,
            total: self.stages.total,
            trace_id: self.context.trace_id,
            parent: self.parent,
        }
    }
}

/// Time of each stage of a request; zero if the stage did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// From arrival to admission by the router: reading, decoding, validation.
    pub before_queue: Duration,
    /// From admission to dispatch.
    pub queued: Duration,
    /// From dispatch to the start of the engine.
    pub batch_wait: Duration,
    /// In the engine.
    pub executed: Duration,
    /// From arrival to the end.
    pub total: Duration,
}

/// Id of a batch, unique within a run of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// The batch that a request ran in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its id.
    pub id: BatchId,
    /// The lane that ran it.
    pub lane: u32,
    /// Rows of all its requests.
    pub rows: u32,
    /// When the engine started.
    pub started: SystemTime,
    /// When the engine ended.
    pub ended: SystemTime,
}
