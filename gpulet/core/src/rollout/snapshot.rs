//! The state of a rollout, for operators.

use serde::Serialize;

use super::Rollout;
use super::phase::Phase;
use crate::id::{DeviceId, Epoch, GpuletId, ProposalId};
use crate::plan::Gpulet;

/// The state of a gpulet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuletState {
    /// It is being opened and loaded.
    Preparing,
    /// It takes batches.
    Active,
    /// It takes no further batches but still holds some.
    Draining,
    /// It holds nothing: it is kept for a rollback, or waits to be closed.
    Idle,
}

/// A gpulet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuletView {
    /// Its name.
    pub id: GpuletId,
    /// Its state.
    pub state: GpuletState,
    /// Whether it failed.
    pub faulty: bool,
    /// Where it is and what it runs.
    pub gpulet: Gpulet,
}

/// The state of a rollout at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Epoch of the table in force.
    pub epoch: Epoch,
    /// Number of the proposal that is being carried out.
    pub proposal: Option<ProposalId>,
    /// Number of the proposal that waits for it.
    pub waiting: Option<ProposalId>,
    /// The current phase, as a message.
    pub phase: String,
    /// Whether an operator froze the rollout, so that proposals are refused.
    pub frozen: bool,
    /// Bytes by device that could not be freed.
    pub written_off_bytes: Vec<(DeviceId, u64)>,
    /// Every gpulet that exists, by name.
    pub gpulets: Vec<GpuletView>,
    /// Entries of history that were forgotten.
    pub history_forgotten: u64,
}

impl Rollout {
    /// The current state, for reports.
    pub fn snapshot(&self) -> Snapshot {
        let view = |(id, known): (&GpuletId, &super::known::Known)| {
            let state = match (self.table.contains_key(id), known.drain) {
                (true, _) => GpuletState::Active,
                (false, None) => GpuletState::Preparing,
                (false, Some(rest)) if rest.drained => GpuletState::Idle,
                (false, Some(_)) => GpuletState::Draining,
            };
            let gpulet = self.table.get(id).unwrap_or(&known.sized).gpulet.clone();
            GpuletView { id: *id, state, faulty: known.faulty, gpulet }
        };
        let step = |word: &str, left: usize| format!("{word}, {left} steps left");
        let phase = match &self.phase {
            Phase::Idle => "idle".to_owned(),
            Phase::Preparing(preparing) => step("preparing", preparing.steps.len().saturating_add(1)),
            Phase::Switching(switching) if switching.back.is_some() => "switching back".to_owned(),
            Phase::Switching(_) => "switching".to_owned(),
            Phase::Baking(baking) => format!("baking until {} us", baking.until_us),
            Phase::Closing(closing) => format!("closing, {} gpulets left", closing.leaving.len()),
        };
        Snapshot {
            epoch: self.in_force,
            proposal: self.target.as_ref().map(|target| target.number),
            waiting: self.waiting.as_ref().map(|(number, _)| *number),
            phase,
            frozen: self.frozen,
            written_off_bytes: self.written_off.iter().map(|(name, bytes)| (name.clone(), *bytes)).collect(),
            gpulets: self.known.iter().map(view).collect(),
            history_forgotten: self.history.forgotten(),
        }
    }
}
