//! Events and effects of the control loop.

use std::collections::{BTreeMap, BTreeSet};

use super::{AcceptedPlan, BatchTotals, Family, InForce, LostDevice, ModelLoad, PlanRequest, PlanResponse};
use crate::id::{DeviceId, ProposalId};
use crate::rollout::{self, Outcome};

/// The load at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Every model that takes requests.
    pub models: Vec<ModelLoad>,
    /// Families whose variants are among the models; each model is in one of them at most.
    pub families: Vec<Family>,
    /// Totals of the batches that the gpulets in force ran so far.
    pub ran: Vec<BatchTotals>,
    /// Bytes of each device's memory that models outside the plans have. Plans do without them.
    pub reserved: BTreeMap<DeviceId, u64>,
}

/// What the control loop is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A report of the load: about once a period, and sooner where requests wait for a model without a gpulet.
    Load(LoadReport),
    /// The response to a plan request.
    Planned(PlanResponse),
    /// An operator's plan, accepted by [`super::Controller::accept`] just before.
    OperatorPlan(AcceptedPlan),
    /// Plans follow the load again.
    Thaw,
    /// An event of the rollout: steps, switches, faults, time, and freezing.
    Rollout(rollout::Event),
}

/// What the caller must do, or should report.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Compute the plan ([`PlanRequest::answer`]) or refuse it ([`PlanRequest::refused`]), and send [`Event::Planned`].
    Plan(Box<PlanRequest>),
    /// An effect of the rollout. The loop has already handled the end of a proposal and the need for another plan.
    Rollout(rollout::Effect),
    /// An operator's plan ended.
    OperatorPlanEnded {
        /// The proposal's number.
        proposal: ProposalId,
        /// The plan in force, or why it is not.
        answer: Result<InForce, Outcome>,
    },
    /// An operator's plan can no longer stay in force. Plans follow the load again.
    OperatorPlanReleased,
    /// Planning failed, and gpulets stay as they are. Sent once per reason.
    NoPlan {
        /// Why planning failed.
        reason: String,
    },
    /// No gpulet can be opened on a device and none of its own is sound: plans do without it. Sent again after each
    /// attempt that fails.
    DeviceLost(LostDevice),
    /// A gpulet serves on a device that had been lost.
    DeviceBack {
        /// Its name.
        device: DeviceId,
    },
    /// Memory is short: these models are evicted from their gpulets.
    Evicted {
        /// Their names.
        models: BTreeSet<String>,
    },
}
