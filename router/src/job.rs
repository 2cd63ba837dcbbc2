//! What goes into the router and what comes out.

use std::time::{Duration, Instant};

use gpulet::{BatchError, Member};
use oip::Tensor;
use router_core::{Class, ModelId, Outcome, Reason, ShapeKey, Tenant};

/// A validated request.
#[derive(Clone, Debug)]
pub struct Job {
    /// Loaded version to run.
    pub model: ModelId,
    /// Priority class.
    pub class: Class,
    /// Who pays.
    pub tenant: Tenant,
    /// Batch compatibility: different shapes have different keys.
    pub shape: ShapeKey,
    /// Inputs and rows.
    pub member: Member,
    /// Bytes of all inputs.
    pub bytes: u64,
    /// When the answer is worthless, if ever.
    pub deadline: Option<Instant>,
}

/// Where an answered request's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From admission to dispatch.
    pub queue: Duration,
    /// From dispatch until the engine began: hand-over to the lane, gathering of the rows.
    pub batch_wait: Duration,
    /// In the engine.
    pub compute: Duration,
    /// From the engine's end until the router knew: rows dealt out again, hand-over back.
    pub hand_back: Duration,
    /// The lane that ran the batch.
    pub lane: u32,
    /// Rows of the batch.
    pub batch_rows: u32,
    /// True for exactly one of the answered requests of a batch: who counts batches counts these.
    pub leads_batch: bool,
}

/// Outputs in signature order.
#[derive(Debug)]
pub struct Answer {
    /// All outputs of the model.
    pub outputs: Vec<Tensor>,
    /// Where the time went.
    pub timing: Timing,
}

/// A request that ended without outputs.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason:?}")]
pub struct Rejection {
    /// Refused, expired, cancelled or failed.
    pub outcome: Outcome,
    /// Cause of the rejection.
    pub reason: Reason,
    /// What the engine said, if it ran.
    pub error: Option<BatchError>,
}

impl Rejection {
    pub(crate) fn refused(reason: Reason) -> Self {
        Self { outcome: Outcome::Refused, reason, error: None }
    }
}
