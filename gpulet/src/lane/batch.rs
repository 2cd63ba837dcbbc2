//! What goes to a lane and what comes back.

use std::time::{Duration, Instant};

use models::engine::{Member, Response, RunError};

/// A batch to run.
#[derive(Debug)]
pub struct LaneBatch {
    /// Repeated in the report. Larger than those of earlier batches of the lane.
    pub token: u64,
    /// Model whose installed session runs the batch.
    pub model: u32,
    /// Requests of the batch, all of one shape.
    pub members: Vec<Member>,
}

/// Why a batch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The engine refused the values or failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The batch could not be gathered or scattered, or the model is not installed on the lane.
    #[error("{0}")]
    Lane(String),
}

impl BatchError {
    /// Whether the lane failed, through no fault of the batch.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Run(RunError::DeviceFailed(_)))
    }
}

/// How a batch ended.
#[derive(Debug)]
pub enum BatchOutcome {
    /// The result of each member. A member fails by itself only where the session takes requests one by one.
    Done(Vec<Result<Response, RunError>>),
    /// The batch failed. The members are returned so that they can run again.
    Failed(BatchError, Vec<Member>),
    /// The batch was preempted. The members have to run again.
    Preempted(Vec<Member>),
}

/// Report of a lane on one batch.
#[derive(Debug)]
pub struct LaneReport {
    /// Number of the lane.
    pub lane: u32,
    /// Token of the batch.
    pub token: u64,
    /// When the batch finished or failed.
    pub ended: Instant,
    /// Time in the engine.
    pub compute: Duration,
    /// How the batch ended.
    pub outcome: BatchOutcome,
}
