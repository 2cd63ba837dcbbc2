//! Replaces one plan by the next without losing requests: which steps, in which order, and what happens if one fails.
//!
//! A change has three phases:
//! 1. The new gpulets are opened next to the running ones, loaded, warmed and verified.
//! 2. The router switches from the old table to the new one atomically.
//! 3. The old gpulets finish their batches, stay open during the bake time for a rollback, and are closed.
//!
//! Before the switch everything can be discarded, and after it the old table can be restored, so a failed step costs
//! only time. Where old and new gpulets do not fit into memory together, the change runs in waves. Each wave has all
//! three phases.
//!
//! [`Rollout`] decides and the shell carries out: it tells what happened ([`Event`]) and is told what to do
//! ([`Effect`]). A device carries out one step at a time, and devices work in parallel. There is no clock here; times are
//! microseconds on whatever clock the caller has.
//!
//! What holds at every moment, whatever fails:
//! - one table is in force; when nothing is under way, the gpulets that exist are those of that table;
//! - memory, by the profiles, fits on every device while old and new gpulets exist at the same time;
//! - each workload keeps at least the smaller of the rates that the old and the new plan serve (invariant G3). Rates
//!   are those of the slots; the moment in which a new gpulet waits for an old one's last batch is not counted;
//! - no two active gpulets own a unit at the same time, and an active gpulet that shares units with a draining one
//!   receives no batch until the draining one is idle.
//!
//! A device's limit on gpulets (`gpulets_max`) counts active gpulets, not those that are being opened or closed.
//!
//! A removed device or a failed gpulet is the exception to the third point, and is reported.

mod changes;
mod closing;
mod failures;
mod history;
mod invariants;
mod known;
mod message;
mod options;
mod order;
mod phase;
mod proposal;
mod snapshot;
mod steps;
mod switching;
mod waves;

use std::collections::BTreeMap;

use self::changes::Table;
pub use self::history::{Entry, EntryKind};
use self::history::{History, bounded};
pub use self::invariants::BrokenInvariant;
use self::known::Known;
pub use self::message::{Active, Effect, Event, Outcome, Refusal, Route, RouteSlot, Step, Switch};
pub use self::options::{OptionsError, RolloutOptions};
use self::phase::{Phase, Target};
pub use self::proposal::{GPULETS_MAX, Proposal, ProposalError};
pub use self::snapshot::{GpuletState, GpuletView, Snapshot};
pub use crate::id::{DeviceId, Epoch, GpuletId, ProposalId, StepId};
use crate::plan::{Gpulet, Plan};
use crate::time::Micros;

/// The state machine of a rollout. It begins with an empty plan in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    options: RolloutOptions,
    now: Micros,
    /// Epoch of the last requested table.
    last_epoch: Epoch,
    /// Epoch of the table in force.
    in_force: Epoch,
    gpulets_of_epoch: u64,
    steps: u64,
    proposals: ProposalId,
    known: BTreeMap<GpuletId, Known>,
    table: Table,
    /// Bytes by device of gpulets that could not be closed.
    written_off: BTreeMap<DeviceId, u64>,
    target: Option<Target>,
    waiting: Option<(ProposalId, Proposal)>,
    phase: Phase,
    frozen: bool,
    history: History,
    effects: Vec<Effect>,
}

impl Rollout {
    /// A rollout without gpulets.
    ///
    /// # Errors
    /// [`OptionsError`] where an option is out of range.
    pub fn new(options: RolloutOptions) -> Result<Self, OptionsError> {
        options.validate()?;
        let history = History::new(options.history);
        Ok(Self {
            options,
            now: Micros::ZERO,
            last_epoch: Epoch::default(),
            in_force: Epoch::default(),
            gpulets_of_epoch: 0,
            steps: 0,
            proposals: ProposalId::default(),
            known: BTreeMap::new(),
            table: Table::new(),
            written_off: BTreeMap::new(),
            target: None,
            waiting: None,
            phase: Phase::Idle,
            frozen: false,
            history,
            effects: Vec::new(),
        })
    }

    /// Processes an event and appends its effects, in order. Answers to steps and tables that are no longer expected
    /// change nothing. Time never runs backwards: an earlier `now` counts as the latest one.
    pub fn handle(&mut self, now: Micros, event: Event, effects: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        self.expire();
        match event {
            Event::Propose(proposal) => self.proposed(proposal),
            Event::StepDone(step) => self.step_done(step),
            Event::StepFailed { step, reason } => self.step_failed(step, bounded(reason)),
            Event::Switched { epoch } => self.switched(epoch),
            Event::SwitchFailed { epoch, in_force, reason } => {
                self.switch_failed(epoch, in_force, bounded(reason));
            }
            Event::Drained(gpulet) => self.drained(gpulet),
            Event::Fault { gpulet, reason } => self.fault(gpulet, &bounded(reason)),
            Event::Late { gpulet, reason } => self.late(gpulet, &bounded(reason)),
            Event::DeviceRemoved { device, reason } => self.device_removed(&device, &bounded(reason)),
            Event::Abort => self.abort(),
            Event::Freeze => self.freeze(),
            Event::Thaw => self.thaw(),
            Event::Tick => {}
        }
        self.advance();
        effects.append(&mut self.effects);
    }

    /// When [`Event::Tick`] is due if nothing else happens before; none while only an event can change anything.
    pub fn next_wake(&self) -> Option<Micros> {
        let running = self.phase.running().map(|running| running.deadline_us).min();
        let phase = match &self.phase {
            Phase::Switching(switching) => Some(switching.until_us),
            Phase::Baking(baking) => Some(baking.until_us),
            Phase::Idle | Phase::Preparing(_) | Phase::Closing(_) => None,
        };
        let rests = self.known.values().filter_map(|known| known.drain);
        let drains = rests.filter(|rest| !rest.drained && !rest.reported).map(|rest| rest.until_us);
        running.into_iter().chain(phase).chain(drains).min()
    }

    /// Whether no change is under way and none waits.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.waiting.is_none()
    }

    /// Whether an operator froze the rollout, so that proposals are refused.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Epoch of the table in force; 0 before the first.
    pub fn epoch(&self) -> Epoch {
        self.in_force
    }

    /// The plan in force. Between the waves of a change it is a mixture of the old and the new one.
    pub fn plan(&self) -> Plan {
        Plan::new(self.table.values().map(|sized| sized.gpulet.clone()).collect())
    }

    /// Gpulets of the table in force, by name.
    pub fn active(&self) -> impl Iterator<Item = (GpuletId, &Gpulet)> {
        self.table.iter().map(|(id, sized)| (*id, &sized.gpulet))
    }

    /// Every gpulet that exists, is being opened or is being closed.
    pub fn known(&self) -> impl Iterator<Item = GpuletId> {
        self.known.keys().copied()
    }

    /// Bytes of a device that no gpulet takes, including gpulets that are being opened or closed; none while no change
    /// is under way. A warm pool on the device must fit into them.
    pub fn free_bytes(&self, device: &str) -> Option<u64> {
        let limit = self.target.as_ref()?.proposal.limits.get(device).map_or(0, |limits| limits.bytes);
        let lost = self.written_off.get(device).copied().unwrap_or(0);
        let mut weights: BTreeMap<&str, u64> = BTreeMap::new();
        let mut taken = lost;
        for known in self.known.values().filter(|known| *known.device() == *device) {
            taken = taken.saturating_add(known.own_bytes());
            for (model, bytes) in known.weights() {
                let held = weights.entry(model).or_default();
                *held = bytes.max(*held);
            }
        }
        let taken = weights.into_values().fold(taken, u64::saturating_add);
        Some(limit.saturating_sub(taken))
    }

    /// Number of proposals so far, which is the number of the last one.
    pub fn proposals(&self) -> ProposalId {
        self.proposals
    }

    /// What happened, oldest first.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.history.entries().iter()
    }

    fn record(&mut self, kind: EntryKind, message: String) {
        let proposal = self.target.as_ref().map(|target| target.number).unwrap_or_default();
        self.record_for(proposal, kind, message);
    }

    fn record_for(&mut self, proposal: ProposalId, kind: EntryKind, message: String) {
        self.history.push(Entry { at_us: self.now, proposal, kind, message });
    }

    fn incident(&mut self, reason: String) {
        self.record(EntryKind::Incident, reason.clone());
        self.effects.push(Effect::Incident { reason });
    }

    fn place(&self, gpulet: GpuletId) -> String {
        let place = self.known.get(&gpulet).map_or_else(|| "removed".to_owned(), Known::place);
        format!("gpulet {gpulet} ({place})")
    }
}
