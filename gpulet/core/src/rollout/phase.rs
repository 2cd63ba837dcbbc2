//! The phases of a rollout.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::changes::Table;
use super::message::{Outcome, Step};
use super::proposal::Proposal;
use crate::id::{Epoch, GpuletId, ProposalId, StepId};
use crate::time::Micros;

/// The plan that is being carried out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub number: ProposalId,
    pub proposal: Proposal,
    /// Requests a second that each workload keeps during the whole change.
    pub guaranteed: BTreeMap<String, f64>,
    pub began_us: Micros,
    /// Number of waves in force.
    pub switched: u32,
    /// Why no further wave begins, if none does.
    pub stop: Option<String>,
    /// A device of the plan was removed during the change.
    pub lost: Option<String>,
}

/// One wave of preparing, switching and closing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wave {
    pub before: Table,
    pub after: Table,
    /// Gpulets that it makes active.
    pub fresh: Vec<GpuletId>,
    /// Gpulets that the wave adds or changes.
    pub touched: BTreeSet<GpuletId>,
}

/// A step that was requested.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Running {
    pub id: StepId,
    pub step: Step,
    pub since_us: Micros,
    pub deadline_us: Micros,
}

/// New gpulets are opened next to the running ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preparing {
    pub wave: Wave,
    pub steps: VecDeque<Step>,
    /// At most one on each device.
    pub running: Vec<Running>,
    /// The wave must be planned again, because its starting point has changed.
    pub again: bool,
    /// Why a gpulet of the wave failed, if one did.
    pub broken: Option<String>,
}

/// A table was requested and is not confirmed yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Switching {
    pub wave: Wave,
    /// Why it is a rollback, if it is one.
    pub back: Option<String>,
    pub epoch: Epoch,
    /// Epoch of the wave's own table.
    pub forward: Epoch,
    pub since_us: Micros,
    pub until_us: Micros,
    /// Tables requested since the rollback began.
    pub attempts: u32,
    /// The wave's own table was never confirmed.
    pub unconfirmed: bool,
    /// Gpulets that drained before the table was confirmed.
    pub drained: BTreeSet<GpuletId>,
}

/// The new table is in force and can be rolled back.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Baking {
    pub wave: Wave,
    pub until_us: Micros,
}

/// What comes after closing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum After {
    NextWave,
    End(Outcome),
}

/// Gpulets that are not needed are closed, and arenas are freed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Closing {
    /// Gpulets to close, each as soon as it is idle.
    pub leaving: Vec<GpuletId>,
    pub steps: VecDeque<Step>,
    pub running: Option<Running>,
    /// Failed attempts of the first step.
    pub tries: u32,
    pub shrinks: bool,
    /// Sessions that could not be shrunk this time.
    pub spared: BTreeSet<(GpuletId, String)>,
    pub after: After,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Phase {
    #[default]
    Idle,
    Preparing(Preparing),
    Switching(Switching),
    Baking(Baking),
    Closing(Closing),
}

impl Phase {
    /// Steps that were requested and not answered.
    pub fn running(&self) -> impl Iterator<Item = &Running> {
        let (several, one) = match self {
            Self::Preparing(preparing) => (preparing.running.as_slice(), None),
            Self::Closing(closing) => (&[][..], closing.running.as_ref()),
            Self::Idle | Self::Switching(_) | Self::Baking(_) => (&[][..], None),
        };
        several.iter().chain(one)
    }

    /// The running step of this number, which is then not running any more.
    pub fn take_running(&mut self, id: StepId) -> Option<Running> {
        match self {
            Self::Preparing(preparing) => {
                let at = preparing.running.iter().position(|running| running.id == id)?;
                Some(preparing.running.remove(at))
            }
            Self::Closing(closing) => closing.running.take_if(|running| running.id == id),
            Self::Idle | Self::Switching(_) | Self::Baking(_) => None,
        }
    }

    pub fn wave_mut(&mut self) -> Option<&mut Wave> {
        match self {
            Self::Preparing(preparing) => Some(&mut preparing.wave),
            Self::Switching(switching) => Some(&mut switching.wave),
            Self::Baking(baking) => Some(&mut baking.wave),
            Self::Idle | Self::Closing(_) => None,
        }
    }
}
