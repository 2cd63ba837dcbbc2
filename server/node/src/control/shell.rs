//! The imperative shell of the control loop: carries out the effects of the rollout, and reports events to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet_core::id::{Epoch, ProposalId};
use gpulet_core::rollout::{Effect, Event, GpuletId, Outcome, Rollout, Step, StepId, Switch};
use gpulet_core::time::Micros;
use tokio::sync::mpsc;
use tokio::time::{Instant as TokioInstant, sleep_until};

use super::layout::Layout;

/// Capacity of the event queue. Each device runs one step at a time, and each gpulet drains once.
const EVENTS: usize = 1024;

/// Effects that the control loop handles itself.
#[derive(Debug)]
pub enum Notice {
    /// A proposal ended.
    Ended {
        /// Number of the proposal.
        proposal: ProposalId,
        /// How the proposal ended.
        outcome: Outcome,
    },
    /// The plan in force is no longer the one that was proposed.
    PlanNeeded,
}

/// Carries out effects on lanes and sessions, and keeps the clock.
pub struct EffectRunner {
    layout: Arc<Layout>,
    begun: Instant,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
}

impl EffectRunner {
    /// Creates a shell for the lanes of `layout`.
    pub fn new(layout: Arc<Layout>) -> Self {
        let (events, inbox) = mpsc::channel(EVENTS);
        Self { layout, begun: Instant::now(), events, inbox }
    }

    /// Whether models were reloaded since the table in force was made.
    pub fn is_stale(&self) -> bool {
        self.layout.is_stale()
    }

    /// Puts the table in force again, for the versions that serve now.
    ///
    /// # Errors
    /// Says why the table is not in force.
    pub async fn refresh(&self) -> Result<(), String> {
        self.layout.refresh().await
    }

    /// Number of the gpulet's lane.
    pub fn lane_number(&self, gpulet: GpuletId) -> Option<u32> {
        self.layout.lane_number(gpulet)
    }

    /// Time since the shell was created.
    pub fn now(&self) -> Micros {
        self.begun.elapsed().into()
    }

    /// Waits for the next event, or until `wake`. Cancel-safe.
    pub async fn next(&mut self, wake: Option<Micros>) -> Event {
        let at = self.begun + Duration::from(wake.unwrap_or_default());
        tokio::select! {
            Some(event) = self.inbox.recv() => event,
            () = sleep_until(TokioInstant::from_std(at)), if wake.is_some() => Event::Tick,
        }
    }

    /// Whether the gpulet's lane has ended.
    pub fn is_broken(&self, gpulet: GpuletId, is_up: impl Fn(u32) -> bool) -> bool {
        self.layout.lane_number(gpulet).is_some_and(|lane| !is_up(lane))
    }

    /// Carries out an effect, or returns it for the control loop to handle.
    pub fn carry_out(&self, effect: Effect, rollout: &Rollout) -> Option<Notice> {
        match effect {
            Effect::Step { id, step, .. } => {
                self.layout.leave_free(step.gpulet(), |device| rollout.free_bytes(device));
                self.step(id, step);
            }
            Effect::Switch { switch, .. } => self.switch(switch, rollout.epoch()),
            Effect::Ended { proposal, outcome } => return Some(Notice::Ended { proposal, outcome }),
            Effect::Incident { reason } => tracing::warn!(%reason, "incident while gpulets were changed"),
            // The control loop logs the lost device.
            Effect::CannotOpen { .. } => {}
            Effect::PlanNeeded { reason } => {
                tracing::warn!(%reason, "another plan is needed");
                return Some(Notice::PlanNeeded);
            }
        }
        None
    }

    fn step(&self, id: StepId, step: Step) {
        let (layout, events) = (Arc::clone(&self.layout), self.events.clone());
        tokio::spawn(async move {
            let event = match layout.carry_out(&step).await {
                Ok(()) => Event::StepDone(id),
                Err(reason) => Event::StepFailed { step: id, reason },
            };
            // The receiver no longer exists when the server is stopping.
            let _ = events.send(event).await;
        });
    }

    fn switch(&self, switch: Switch, in_force: Epoch) {
        let (layout, events) = (Arc::clone(&self.layout), self.events.clone());
        tokio::spawn(async move {
            let epoch = switch.epoch;
            if let Err(reason) = layout.switch(&switch).await {
                let _ = events.send(Event::SwitchFailed { epoch, in_force, reason }).await;
                return;
            }
            if events.send(Event::Switched { epoch }).await.is_ok() {
                for gpulet in switch.draining {
                    tokio::spawn(rest(Arc::clone(&layout), gpulet, events.clone()));
                }
            }
        });
    }
}

async fn rest(layout: Arc<Layout>, gpulet: GpuletId, events: mpsc::Sender<Event>) {
    layout.wait_until_idle(gpulet).await;
    let _ = events.send(Event::Drained(gpulet)).await;
}
