//! The invariants that hold after every event.

use std::collections::BTreeMap;

use super::Rollout;
use super::known::Known;
use super::phase::Phase;
use super::proposal::collide;
use crate::id::GpuletId;

/// A broken invariant: a bug in this module, never a mistake of the shell or an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenInvariant {
    /// A gpulet of the table does not exist.
    #[error("gpulet {0} is active but unknown")]
    Unknown(GpuletId),
    /// A gpulet is active that was not prepared and verified for its batches.
    #[error("gpulet {0} is active but not ready")]
    Unready(GpuletId),
    /// A gpulet is active and draining.
    #[error("gpulet {0} is active and draining")]
    ActiveWhileDraining(GpuletId),
    /// A gpulet that is not in force exists although no change is under way.
    #[error("gpulet {0} was left behind")]
    Leaked(GpuletId),
    /// Two active gpulets own a unit at the same time.
    #[error("gpulets {0} and {1} are active on the same units at the same time")]
    Collision(GpuletId, GpuletId),
    /// A change is under way but does not wait for any event.
    #[error("stuck")]
    Stuck,
    /// There is a target while no change is under way, or a change without a target.
    #[error("phase and target disagree")]
    Aimless,
    /// The history is longer than it may be.
    #[error("history is unbounded")]
    History,
}

impl Rollout {
    /// Checks all invariants. Linear in the number of gpulets, quadratic in those that share a device.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check(&self) -> Result<(), BrokenInvariant> {
        let mut devices: BTreeMap<&str, Vec<GpuletId>> = BTreeMap::new();
        for (id, sized) in &self.table {
            let known = self.known.get(id).ok_or(BrokenInvariant::Unknown(*id))?;
            if !known.is_ready(sized) {
                return Err(BrokenInvariant::Unready(*id));
            }
            if known.drain.is_some() {
                return Err(BrokenInvariant::ActiveWhileDraining(*id));
            }
            let earlier = devices.entry(known.device()).or_default();
            for other in earlier.iter() {
                if self.table.get(other).is_some_and(|other| collide(&other.gpulet, &sized.gpulet)) {
                    return Err(BrokenInvariant::Collision(*other, *id));
                }
            }
            earlier.push(*id);
        }
        if matches!(self.phase, Phase::Idle) {
            let leaked = self.known.keys().find(|id| !self.table.contains_key(id));
            leaked.map_or(Ok(()), |id| Err(BrokenInvariant::Leaked(*id)))?;
        }
        if matches!(self.phase, Phase::Idle) != self.target.is_none() {
            return Err(BrokenInvariant::Aimless);
        }
        if !self.history.is_bounded() {
            return Err(BrokenInvariant::History);
        }
        self.check_liveness()
    }

    /// Checks that a change under way waits for an answer, a time, or a gpulet that drains.
    fn check_liveness(&self) -> Result<(), BrokenInvariant> {
        let draining = |known: &Known| known.drain.is_some_and(|rest| !rest.drained);
        let moves = match &self.phase {
            Phase::Idle => self.waiting.is_none(),
            Phase::Preparing(preparing) => !preparing.running.is_empty(),
            Phase::Switching(_) | Phase::Baking(_) => true,
            Phase::Closing(closing) => {
                let left = |id: &GpuletId| self.known.get(id).is_some_and(draining);
                closing.running.is_some() || closing.leaving.iter().any(left)
            }
        };
        if moves { Ok(()) } else { Err(BrokenInvariant::Stuck) }
    }
}
