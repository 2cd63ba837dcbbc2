//! Events and effects of a rollout.

use serde::Serialize;

use super::Proposal;
use crate::id::{DeviceId, Epoch, GpuletId, ProposalId, StepId};
use crate::plan::Gpulet;
use crate::time::Micros;

/// A step for the shell. Steps of one device come one at a time, those of several devices at once. A failed step
/// changes nothing. A step past its deadline is not cancelled, so closing its gpulet must wait for it or end it. Closing
/// what does not exist succeeds immediately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum Step {
    /// Open a gpulet next to the running ones: create its context and queue.
    Open {
        /// Name of the new gpulet.
        gpulet: GpuletId,
        /// Device that it is opened on.
        device: DeviceId,
        /// Its first unit.
        first_unit: u32,
        /// Number of units.
        units: u32,
    },
    /// Load a model on a gpulet and warm it up for batches up to that size. The gpulet may be active, with the model
    /// loaded for smaller batches: it then prepares only the larger ones and keeps serving.
    Prepare {
        /// Gpulet that loads the model.
        gpulet: GpuletId,
        /// Model to load.
        model: String,
        /// Rows of the largest batch.
        batch: u32,
    },
    /// Run a known input and compare with the known output.
    Verify {
        /// Gpulet that runs the input.
        gpulet: GpuletId,
        /// Model to verify.
        model: String,
        /// Rows of the largest batch.
        batch: u32,
    },
    /// Free the memory that only larger batches need.
    Shrink {
        /// Gpulet that holds the model.
        gpulet: GpuletId,
        /// Model to shrink.
        model: String,
        /// Rows of the largest batch from now on.
        batch: u32,
    },
    /// Close the session of a model on a gpulet that is not active.
    CloseSession {
        /// Gpulet that holds the session.
        gpulet: GpuletId,
        /// Model of the session.
        model: String,
    },
    /// Close a gpulet that has no sessions left.
    Close {
        /// Gpulet to close.
        gpulet: GpuletId,
    },
}

impl Step {
    /// The gpulet of the step.
    pub fn gpulet(&self) -> GpuletId {
        match self {
            Self::Open { gpulet, .. }
            | Self::Prepare { gpulet, .. }
            | Self::Verify { gpulet, .. }
            | Self::Shrink { gpulet, .. }
            | Self::CloseSession { gpulet, .. }
            | Self::Close { gpulet } => *gpulet,
        }
    }
}

/// A gpulet that is active after a switch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Active {
    /// Its name.
    pub id: GpuletId,
    /// Where it is and what it runs.
    pub gpulet: Gpulet,
    /// Draining gpulets that share a unit with it. It receives no batch while one of them still holds a batch.
    pub after: Vec<GpuletId>,
}

/// One gpulet that serves a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RouteSlot {
    /// The gpulet.
    pub gpulet: GpuletId,
    /// Rows of the largest batch.
    pub batch: u32,
    /// Microseconds that its batch may take.
    pub budget_us: f64,
    /// Planned rate, requests a second.
    pub rate: f64,
}

/// The gpulets that serve a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Route {
    /// Its name.
    pub workload: String,
    /// At least one.
    pub slots: Vec<RouteSlot>,
}

/// A new table for the router, which applies it atomically or not at all. Waiting requests move to the new routes.
/// Batches in flight finish where they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Switch {
    /// Its epoch. A table is never replaced by one of a lower epoch.
    pub epoch: Epoch,
    /// Number of the proposal that it is for.
    pub proposal: ProposalId,
    /// Whether it restores the previous table.
    pub is_rollback: bool,
    /// Every gpulet that takes batches from now on, by name.
    pub active: Vec<Active>,
    /// Gpulets that take no batches from now on, by name. The shell sends [`Event::Drained`] for each once it is idle,
    /// even if it already was.
    pub draining: Vec<GpuletId>,
    /// Every workload that is served, by name.
    pub routes: Vec<Route>,
}

/// What the rollout is told, in the order in which it happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A plan was proposed. Proposals are numbered from 1 in order.
    Propose(Proposal),
    /// A step was carried out.
    StepDone(StepId),
    /// A step failed and left nothing behind.
    StepFailed {
        /// The step that failed.
        step: StepId,
        /// Why it failed.
        reason: String,
    },
    /// A table is in force.
    Switched {
        /// Its epoch.
        epoch: Epoch,
    },
    /// A table could not be put in force.
    SwitchFailed {
        /// Its epoch.
        epoch: Epoch,
        /// The epoch that is in force.
        in_force: Epoch,
        /// Why the switch failed.
        reason: String,
    },
    /// A draining gpulet is idle. The shell sends this before the answer to any later switch.
    Drained(GpuletId),
    /// A gpulet failed and must not be used any more.
    Fault {
        /// The gpulet that failed.
        gpulet: GpuletId,
        /// What happened.
        reason: String,
    },
    /// A gpulet exceeds its latency bound. This matters only during the bake time of a gpulet that is new or was
    /// changed.
    Late {
        /// The gpulet that is late.
        gpulet: GpuletId,
        /// What was measured.
        reason: String,
    },
    /// A device was removed with everything on it. If it returns, it is empty and belongs to a later proposal.
    DeviceRemoved {
        /// Its name.
        device: DeviceId,
        /// Why it was removed.
        reason: String,
    },
    /// An operator aborts the change that is under way.
    Abort,
    /// An operator aborts the change that is under way. Proposals are refused until [`Event::Thaw`].
    Freeze,
    /// An operator allows proposals again.
    Thaw,
    /// Time passed.
    Tick,
}

/// Why a plan was refused.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "refusal")]
pub enum Refusal {
    /// An operator froze the rollout.
    #[error("plans are frozen by an operator")]
    Frozen,
    /// A device that the plan uses was removed after the plan was made.
    #[error("device `{device}`: removed after the plan was made")]
    DeviceRemoved {
        /// Its name.
        device: DeviceId,
    },
    /// Old and new gpulets do not fit together, and no order of steps avoids that.
    #[error(
        "device `{device}`: old and new gpulets together need {needed_bytes} bytes, there are {has_bytes}, and no order of steps fits"
    )]
    Memory {
        /// Its name.
        device: DeviceId,
        /// Bytes needed at once.
        needed_bytes: u64,
        /// Bytes that gpulets may take there.
        has_bytes: u64,
    },
    /// More gpulets would be active than the device allows, in every order of steps.
    #[error(
        "device `{device}`: {gpulets} gpulets active at once, expected at most {most}, and no order of steps fits"
    )]
    Gpulets {
        /// Its name.
        device: DeviceId,
        /// Active at once.
        gpulets: usize,
        /// At most.
        most: usize,
    },
    /// The remaining gpulets of the plan would serve too little.
    #[error("workload `{workload}`: {left} requests a second are left, expected at least {least}")]
    Capacity {
        /// Its name.
        workload: String,
        /// Requests a second that would be served.
        left: f64,
        /// Requests a second that must be served.
        least: f64,
    },
}

/// How a proposal ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It is in force.
    Done,
    /// It was in force already.
    Unchanged,
    /// It was refused before it began.
    Refused {
        /// Why it was refused.
        refusal: Refusal,
    },
    /// A later proposal took its place.
    Superseded,
    /// It was abandoned before the first switch.
    Failed {
        /// Why it was abandoned.
        reason: String,
    },
    /// It was in force and was rolled back.
    RolledBack {
        /// Why it was rolled back.
        reason: String,
    },
    /// Only a part of it is in force.
    Stopped {
        /// Why it stopped.
        reason: String,
    },
}

impl Outcome {
    /// Why the plan is not in force; none where it is, or another took its place.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Done | Self::Unchanged | Self::Superseded => None,
            Self::Refused { refusal } => Some(refusal.to_string()),
            Self::Failed { reason } | Self::RolledBack { reason } | Self::Stopped { reason } => {
                Some(reason.clone())
            }
        }
    }
}

/// What the shell must do, or should report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// Carry out a step, then send [`Event::StepDone`] or [`Event::StepFailed`].
    Step {
        /// Identifies the step in the answer.
        id: StepId,
        /// What to do.
        #[serde(flatten)]
        step: Step,
        /// Microseconds on the caller's clock; later answers count as failure.
        deadline_us: Micros,
    },
    /// Put a table in force, then send [`Event::Switched`] or [`Event::SwitchFailed`].
    Switch {
        /// The table.
        switch: Switch,
        /// Microseconds on the caller's clock; later answers count as failure.
        deadline_us: Micros,
    },
    /// A proposal ended; sent once for each.
    Ended {
        /// Its number.
        proposal: ProposalId,
        /// How it ended.
        outcome: Outcome,
    },
    /// An incident that an operator should know. The rollout continues.
    Incident {
        /// What happened.
        reason: String,
    },
    /// A gpulet could not be opened on a device that has no sound gpulet, so the device may be lost. Sent before the end
    /// of the proposal.
    CannotOpen {
        /// Name of the device.
        device: DeviceId,
        /// Why the gpulet could not be opened.
        reason: String,
    },
    /// The plan in force no longer matches its proposal: make another plan.
    PlanNeeded {
        /// Why another plan is needed.
        reason: String,
    },
}
