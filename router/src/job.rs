//! Requests to the router and their answers.

use std::time::{Duration, Instant};

use gpulet::{BatchError, Member, Response};
use router_core::{
    BatchId, Class, FamilyId, FamilyRequest, Gather, ModelId, Nanos, Outcome, PipelineId, Reason, RequestId,
    ShapeKey, Tenant, TimeoutAction,
};

use crate::sequences::SequenceStep;

/// A validated request.
#[derive(Clone, Debug)]
pub struct Job {
    /// Loaded version to run.
    pub model: ModelId,
    /// Priority class.
    pub class: Class,
    /// Tenant that sent it.
    pub tenant: Tenant,
    /// Batch compatibility: different shapes have different keys.
    pub shape: ShapeKey,
    /// Inputs and rows.
    pub member: Member,
    /// Bytes of all inputs.
    pub bytes: u64,
    /// Time after which the answer is worthless, if there is one.
    pub deadline: Option<Instant>,
    /// What happens if it cannot meet its deadline.
    pub timeout_action: TimeoutAction,
    /// Where in its sequence it is, if its model takes sequences.
    pub sequence: Option<SequenceStep>,
    /// The batch that its sender put it into, if any. A request of a sequence does not wait for others.
    pub gather: Option<Gather>,
    /// Where in its pipeline it is. `deadline` is then that of the whole pipeline.
    pub stage: Option<Stage>,
    /// The family of which `model` is the variant that it got.
    pub family: Option<FamilyId>,
}

/// A request to a family that is to get a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariantQuery {
    /// What it asks for.
    pub wanted: FamilyRequest,
    /// Its class.
    pub class: Class,
    /// Its rows. For a model without batches, it is one row.
    pub rows: u32,
    /// Payload bytes of all of them.
    pub bytes: u64,
    /// Time after which the answer is worthless, if there is one.
    pub deadline: Option<Instant>,
}

/// Where in its pipeline a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The pipeline.
    pub pipeline: PipelineId,
    /// Number of the stage.
    pub stage: u32,
    /// When the request of the pipeline arrived.
    pub begun: Instant,
    /// Whether it is the first one of its request, which counts against the quota of its tenant.
    pub is_first: bool,
}

/// How long each stage of a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From admission to dispatch.
    pub queue: Duration,
    /// From dispatch to the start of the engine: hand-over to the lane and gathering of the rows.
    pub batch_wait: Duration,
    /// In the engine.
    pub compute: Duration,
    /// From the end of the engine to the report: scattering of the rows and hand-over to the router.
    pub hand_back: Duration,
    /// The lane that ran the batch.
    pub lane: u32,
    /// The batch, as the router's decisions name it. `None`: it ran in none.
    pub batch: Option<BatchId>,
    /// Rows of the batch.
    pub batch_rows: u32,
    /// True for exactly one of the answered requests of a batch, so that batches can be counted.
    pub leads_batch: bool,
}

/// Where the router's decisions about an ended request are on record ([`RouterHandle::explain`](crate::RouterHandle::explain)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKey {
    /// The request; its id may be in use again.
    pub request: RequestId,
    /// When it ended, on the router's clock.
    pub ended: Nanos,
}

/// An answered request.
#[derive(Debug)]
pub struct Answer {
    /// The outputs of the model. Without any for a decoupled model, whose responses go to the request's sink.
    pub response: Response,
    /// Time of each stage.
    pub timing: Timing,
    /// When the router took the request.
    pub admitted: Instant,
    /// Its decisions.
    pub record: RecordKey,
}

/// A request that ended without outputs.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason:?}")]
pub struct Rejection {
    /// Refused, expired, cancelled or failed.
    pub outcome: Outcome,
    /// Cause of the rejection.
    pub reason: Reason,
    /// Error of the engine, if it ran.
    pub error: Option<BatchError>,
    /// Its decisions. `None` if it never reached the router.
    pub record: Option<RecordKey>,
    /// When the quota of the tenant allows another request, if it was used up.
    pub retry_after: Option<Duration>,
}

impl Rejection {
    pub(crate) fn refused(reason: Reason) -> Self {
        Self { outcome: Outcome::Refused, reason, error: None, retry_after: None, record: None }
    }

    pub(crate) fn ended(
        outcome: Outcome,
        reason: Reason,
        error: Option<BatchError>,
        record: RecordKey,
    ) -> Self {
        Self { outcome, reason, error, retry_after: None, record: Some(record) }
    }
}
