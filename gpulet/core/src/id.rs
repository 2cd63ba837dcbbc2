//! Identifiers inside the core.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One loaded version of one model. The caller chooses the number and may reuse it after the version was unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelId(pub u32);

/// A routing table. Counts up with every switch; 0 is the empty table at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A proposed plan, numbered from 1 in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProposalId(pub u64);

/// A step of a rollout. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepId(pub u64);

/// A gpulet. Unlike its units, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuletId {
    /// The epoch in force when the gpulet was planned.
    pub epoch: Epoch,
    /// Number among the gpulets of that epoch.
    pub number: u64,
}

macro_rules! counts_up {
    ($($id:ident),+) => {
        $(impl $id {
            /// The one after it.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        })+
    };
}

counts_up![Epoch, ProposalId];

impl fmt::Display for GpuletId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch.0, self.number)
    }
}

macro_rules! displayed_as_number {
    ($($id:ident),+) => {
        $(impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        })+
    };
}

displayed_as_number![ModelId, Epoch, ProposalId];
