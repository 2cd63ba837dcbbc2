//! Lanes whose gpulets are lost: taken out at once, started again after a while, and left alone where that happens too
//! often.
//!
//! All decisions are those of [`gpulet_core::supervision`]; here are the clock, the lanes and the operator's word. Where
//! gpulets move with the load, lost ones are only taken out: the next plan replaces them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet::PartitionWatch;
use gpulet_core::supervision::{
    Effect, Event, Incarnation, OptionsError, Supervision, SupervisionOptions, View,
};
use gpulet_core::time::Micros;
use router_core::LaneId;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant as TokioInstant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::catalog::Catalog;
use crate::devices::{Devices, Share};
use crate::metrics::LaneMetrics;
use crate::reason::{Reason, Refusal};

/// Operators' words that may wait.
const COMMANDS: usize = 16;

/// What supervisors hear of by themselves. Not bounded by a number: a gpulet is lost once.
enum Heard {
    Down { lane: u32, incarnation: Incarnation, reason: String },
    Tried { lane: u32, incarnation: Incarnation, result: Result<(), String> },
}

/// Hears of the loss of gpulets of one incarnation of a lane.
struct Watch {
    incarnation: Incarnation,
    heard: mpsc::UnboundedSender<Heard>,
}

impl PartitionWatch for Watch {
    fn failed(&self, lane: u32, reason: &str) {
        let (incarnation, reason) = (self.incarnation, reason.to_owned());
        // Nobody is left to tell when the server has stopped.
        let _ = self.heard.send(Heard::Down { lane, incarnation, reason });
    }
}

/// Where losses are told of.
#[derive(Clone)]
pub struct Losses(mpsc::UnboundedSender<Heard>);

/// What a supervisor listens to.
pub struct Listener(mpsc::UnboundedReceiver<Heard>);

/// A way to tell of losses, for gpulets that are opened before there is a supervisor.
pub fn losses() -> (Losses, Listener) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Losses(sender), Listener(receiver))
}

impl Losses {
    /// For gpulets that a lane begins with.
    pub fn watch(&self) -> Arc<dyn PartitionWatch> {
        self.of(Incarnation::FIRST)
    }

    fn of(&self, incarnation: Incarnation) -> Arc<dyn PartitionWatch> {
        Arc::new(Watch { incarnation, heard: self.0.clone() })
    }
}

/// One lane, as `GET /v2/lanes` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct LaneRow {
    /// Its number.
    lane: u32,
    /// Its gpulet.
    #[serde(flatten)]
    share: Share,
    /// How it fares.
    #[serde(flatten)]
    view: View,
}

enum Command {
    View(oneshot::Sender<Vec<LaneRow>>),
    Enable(u32, oneshot::Sender<bool>),
}

/// Talks to the supervisor; clones share it.
#[derive(Clone)]
pub struct Supervisor {
    commands: mpsc::Sender<Command>,
}

/// What a supervisor is started with.
pub struct SupervisorSetup {
    /// The models.
    pub catalog: Arc<Catalog>,
    /// What lanes are gpulets of.
    pub devices: Arc<Devices>,
    /// Whether gpulets move with the load, so that lost ones are replaced by the next plan.
    pub live: bool,
}

impl Supervisor {
    /// Starts it; it ends with `stop`.
    ///
    /// # Errors
    /// An option that makes no sense.
    pub fn start(
        setup: SupervisorSetup,
        (losses, listener): (Losses, Listener),
        stop: CancellationToken,
    ) -> Result<Self, OptionsError> {
        let SupervisorSetup { catalog, devices, live } = setup;
        let mut lanes = BTreeMap::new();
        for (lane, share) in (0..).zip(devices.start()).filter(|_| !live) {
            let machine = Supervision::new(SupervisionOptions::default())?;
            let metrics = LaneMetrics::new(lane);
            metrics.up(true);
            lanes.insert(lane, Lane { share: share.clone(), machine, metrics });
        }
        let (commands, words) = mpsc::channel(COMMANDS);
        let task = Task { catalog, devices, lanes, losses, begun: Instant::now() };
        tokio::spawn(task.run(listener.0, words, stop));
        Ok(Self { commands })
    }

    /// Every lane that is supervised, and how it fares.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn view(&self) -> Result<Vec<LaneRow>, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::View(reply)).await?;
        answer.await.map_err(|_| stopping())
    }

    /// Starts a lane again that was given up.
    ///
    /// # Errors
    /// When there is no such lane, or the server is stopping.
    pub async fn enable(&self, lane: u32) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Enable(lane, reply)).await?;
        if answer.await.map_err(|_| stopping())? {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::UnknownPath,
            format!("lane {lane}: unknown, `GET /v2/lanes` lists those there are"),
        ))
    }

    async fn tell(&self, command: Command) -> Result<(), Refusal> {
        self.commands.send(command).await.map_err(|_| stopping())
    }
}

fn stopping() -> Refusal {
    Refusal::new(Reason::Draining, "the server is shutting down: lanes are not started again any more")
}

struct Lane {
    share: Share,
    machine: Supervision,
    metrics: LaneMetrics,
}

struct Task {
    catalog: Arc<Catalog>,
    devices: Arc<Devices>,
    lanes: BTreeMap<u32, Lane>,
    losses: Losses,
    begun: Instant,
}

impl Task {
    async fn run(
        mut self,
        mut heard: mpsc::UnboundedReceiver<Heard>,
        mut commands: mpsc::Receiver<Command>,
        stop: CancellationToken,
    ) {
        loop {
            let wake = self.lanes.values().filter_map(|lane| lane.machine.next_wake()).min();
            let at = self.begun + Duration::from(wake.unwrap_or_default());
            tokio::select! {
                () = stop.cancelled() => return,
                Some(heard) = heard.recv() => self.hear(heard),
                Some(command) = commands.recv() => self.command(command),
                () = sleep_until(TokioInstant::from_std(at)), if wake.is_some() => self.tick(),
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::View(reply) => {
                let row = |(&lane, known): (&u32, &Lane)| LaneRow {
                    lane,
                    share: known.share.clone(),
                    view: known.machine.view(),
                };
                // Whoever asked may have left.
                let _ = reply.send(self.lanes.iter().map(row).collect());
            }
            Command::Enable(lane, reply) => {
                let _ = reply.send(self.lanes.contains_key(&lane));
                self.turn(lane, Event::Enable);
            }
        }
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Down { lane, incarnation, reason } => {
                if self.lanes.contains_key(&lane) {
                    self.turn(lane, Event::Died { incarnation, reason });
                } else {
                    tracing::warn!(lane, %reason, "a lane is lost: another plan will replace it");
                    self.take_out(lane);
                }
            }
            Heard::Tried { lane, incarnation, result } => {
                self.turn(
                    lane,
                    match result {
                        Ok(()) => Event::Restarted { incarnation },
                        Err(reason) => Event::RestartFailed { incarnation, reason },
                    },
                );
            }
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        let due = |lane: &Lane| lane.machine.next_wake().is_some_and(|at| at <= now);
        let due: Vec<u32> = self.lanes.iter().filter(|(_, lane)| due(lane)).map(|(lane, _)| *lane).collect();
        for lane in due {
            self.turn(lane, Event::Tick);
        }
    }

    fn now(&self) -> Micros {
        self.begun.elapsed().into()
    }

    fn turn(&mut self, lane: u32, event: Event) {
        let now = self.now();
        let Some(known) = self.lanes.get_mut(&lane) else { return };
        if let Event::RestartFailed { reason, .. } = &event {
            tracing::warn!(lane, %reason, "the lane could not be started again");
        }
        let mut effects = Vec::new();
        known.machine.handle(now, event, &mut effects);
        for effect in effects {
            self.carry_out(lane, effect);
        }
    }

    fn carry_out(&mut self, lane: u32, effect: Effect) {
        let Some(known) = self.lanes.get(&lane) else { return };
        match effect {
            Effect::Down { reason, .. } => {
                tracing::warn!(lane, %reason, "a lane is lost: others run what it ran");
                known.metrics.lost();
                self.take_out(lane);
            }
            Effect::Restart { incarnation } => self.restart(lane, incarnation),
            Effect::Up { .. } => {
                tracing::info!(lane, "the lane is up again");
                known.metrics.up(true);
            }
            Effect::Disabled { reason } => {
                tracing::error!(lane, %reason, "the lane stays down: `POST /v2/lanes/{lane}/enable` starts it again");
            }
        }
    }

    fn take_out(&self, lane: u32) {
        let catalog = Arc::clone(&self.catalog);
        tokio::spawn(async move {
            catalog.router().lane_failed(LaneId(lane)).await;
            catalog.take_out(lane);
        });
    }

    fn restart(&self, lane: u32, incarnation: Incarnation) {
        let Some(share) = self.lanes.get(&lane).map(|known| known.share.clone()) else { return };
        let (catalog, devices) = (Arc::clone(&self.catalog), Arc::clone(&self.devices));
        let (heard, watch) = (self.losses.0.clone(), self.losses.of(incarnation));
        tokio::spawn(async move {
            let result = async {
                // What the lane ran when it was lost has come back then.
                catalog.router().lane_failed(LaneId(lane)).await;
                catalog.take_out(lane);
                let sink = catalog.router().lane_sink();
                let open = move || devices.open(lane, &share, sink, watch);
                let opened = tokio::task::spawn_blocking(open).await.map_err(|error| error.to_string())?;
                catalog.bring_up(opened.map_err(|error| error.to_string())?).await
            };
            let result = result.await;
            // Nobody is left to tell when the server has stopped.
            let _ = heard.send(Heard::Tried { lane, incarnation, result });
        });
    }
}

#[cfg(test)]
mod tests;
