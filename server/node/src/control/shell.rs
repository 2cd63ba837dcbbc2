//! The hands of the control loop: carry out what the rollout says, and tell what happened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet_core::id::{Epoch, ProposalId};
use gpulet_core::rollout::{Effect, Event, GpuletId, Outcome, Rollout, Step, StepId, Switch};
use gpulet_core::time::Micros;
use tokio::sync::mpsc;
use tokio::time::{Instant as TokioInstant, sleep_until};

use super::layout::Layout;

/// Events that may wait; steps come one at a time, and each gpulet rests once.
const EVENTS: usize = 1024;

/// What the rollout says that is not for its hands.
#[derive(Debug)]
pub enum Told {
    /// A proposal ended.
    Ended {
        /// Its number.
        proposal: ProposalId,
        /// How.
        outcome: Outcome,
    },
    /// The plan in force is no longer what was asked for.
    PlanNeeded,
}

/// Lanes and sessions, and a clock.
pub struct Hands {
    layout: Arc<Layout>,
    begun: Instant,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
}

impl Hands {
    /// On these lanes.
    pub fn new(layout: Arc<Layout>) -> Self {
        let (events, inbox) = mpsc::channel(EVENTS);
        Self { layout, begun: Instant::now(), events, inbox }
    }

    /// Whether models were loaded anew since the table in force was made.
    pub fn is_stale(&self) -> bool {
        self.layout.is_stale()
    }

    /// Puts the table in force again, for the models that there are now.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn refresh(&self) -> Result<(), String> {
        self.layout.refresh().await
    }

    /// The lane that the gpulet is.
    pub fn lane_number(&self, gpulet: GpuletId) -> Option<u32> {
        self.layout.lane_number(gpulet)
    }

    /// Time since their start.
    pub fn now(&self) -> Micros {
        self.begun.elapsed().into()
    }

    /// The next thing that happens by itself, time at the latest. Safe to be dropped and called again.
    pub async fn next(&mut self, wake: Option<Micros>) -> Event {
        let at = self.begun + Duration::from(wake.unwrap_or_default());
        tokio::select! {
            Some(event) = self.inbox.recv() => event,
            () = sleep_until(TokioInstant::from_std(at)), if wake.is_some() => Event::Tick,
        }
    }

    /// Whether a gpulet's lane ended.
    pub fn is_broken(&self, gpulet: GpuletId, is_up: impl Fn(u32) -> bool) -> bool {
        self.layout.lane_number(gpulet).is_some_and(|lane| !is_up(lane))
    }

    /// Does what the rollout says.
    pub fn carry_out(&self, effect: Effect, rollout: &Rollout) -> Option<Told> {
        match effect {
            Effect::Step { id, step, .. } => {
                self.layout.leave_free(step.gpulet(), |device| rollout.free_bytes(device));
                self.step(id, step);
            }
            Effect::Switch { switch, .. } => self.switch(switch, rollout.epoch()),
            Effect::Ended { proposal, outcome } => return Some(Told::Ended { proposal, outcome }),
            Effect::Incident { reason } => tracing::warn!(%reason, "incident while gpulets were changed"),
            Effect::PlanNeeded { reason } => {
                tracing::warn!(%reason, "another plan is needed");
                return Some(Told::PlanNeeded);
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
            // Nobody is left to tell when the server is stopping.
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
    layout.at_rest(gpulet).await;
    let _ = events.send(Event::Drained(gpulet)).await;
}

/// A rollout alone on real lanes, with nobody who makes plans: what tests of its hands need.
#[cfg(test)]
pub struct Shell {
    rollout: Rollout,
    hands: Hands,
}

#[cfg(test)]
impl Shell {
    /// With nothing in force.
    pub fn new(rollout: Rollout, layout: Arc<Layout>) -> Self {
        Self { rollout, hands: Hands::new(layout) }
    }

    /// The rollout, to be asked.
    pub fn rollout(&self) -> &Rollout {
        &self.rollout
    }

    /// The next thing that happens by itself.
    pub async fn next(&mut self) -> Event {
        self.hands.next(self.rollout.next_wake()).await
    }

    /// One turn of the rollout, and what follows from it.
    pub fn turn(&mut self, event: Event) -> Vec<Told> {
        let mut effects = Vec::new();
        self.rollout.handle(self.hands.now(), event, &mut effects);
        effects.into_iter().filter_map(|effect| self.hands.carry_out(effect, &self.rollout)).collect()
    }
}
