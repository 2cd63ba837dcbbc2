//! Restarts failed lanes: removes them immediately, restarts them after a delay, and disables lanes that fail often.
//!
//! [`gpulet_core::supervision`] decides; this module has the clock, the lanes and the operator's commands. If
//! gpulets follow the load, their failed lanes are only removed: the next plan replaces them. Lanes of idle priority, which stay, are
//! restarted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet::{LaneHandle, PartitionWatch};
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

/// Capacity of the queue of operator commands.
const COMMANDS: usize = 16;

/// Reports to the supervisor. The channel is unbounded because a gpulet fails only once.
enum Report {
    Failed { lane: u32, incarnation: Incarnation, reason: String },
    Tried { lane: u32, incarnation: Incarnation, result: Result<(), String> },
}

/// Reports failed gpulets of one incarnation of a lane.
struct Watch {
    incarnation: Incarnation,
    reports: mpsc::UnboundedSender<Report>,
}

impl PartitionWatch for Watch {
    fn failed(&self, lane: u32, reason: &str) {
        let (incarnation, reason) = (self.incarnation, reason.to_owned());
        // The receiver is dropped when the server has stopped.
        let _ = self.reports.send(Report::Failed { lane, incarnation, reason });
    }
}

/// Sends failures of gpulets to the supervisor.
#[derive(Clone)]
pub struct Failures(mpsc::UnboundedSender<Report>);

/// Receives the reports for the supervisor.
pub struct Listener(mpsc::UnboundedReceiver<Report>);

/// A channel for failures, for gpulets that are opened before the supervisor starts.
pub fn failures() -> (Failures, Listener) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Failures(sender), Listener(receiver))
}

impl Failures {
    /// The watch for the first incarnation of a lane.
    pub fn watch(&self) -> Arc<dyn PartitionWatch> {
        self.of(Incarnation::FIRST)
    }

    fn of(&self, incarnation: Incarnation) -> Arc<dyn PartitionWatch> {
        Arc::new(Watch { incarnation, reports: self.0.clone() })
    }
}

/// One lane, as `GET /v2/lanes` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct LaneRow {
    /// Number of the lane.
    pub lane: u32,
    /// Share of the device that it runs on.
    #[serde(flatten)]
    share: Share,
    /// Its state, if it is supervised.
    #[serde(flatten)]
    view: Option<View>,
    /// Its state, if gpulets follow the load: lanes that fail leave the list, and the next plan replaces them.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

enum Command {
    View(oneshot::Sender<Vec<LaneRow>>),
    Enable(u32, oneshot::Sender<bool>),
}

/// Handle of the supervisor. Clones share it.
#[derive(Clone)]
pub struct Supervisor {
    commands: mpsc::Sender<Command>,
}

/// Arguments of [`Supervisor::start`].
pub struct SupervisorSetup {
    /// The models.
    pub catalog: Arc<Catalog>,
    /// The devices.
    pub devices: Arc<Devices>,
    /// Whether gpulets follow the load, so that the next plan replaces failed ones.
    pub live: bool,
}

impl Supervisor {
    /// Starts the supervisor, which ends with `stop`.
    ///
    /// # Errors
    /// An invalid option.
    pub fn start(
        setup: SupervisorSetup,
        (failures, listener): (Failures, Listener),
        stop: CancellationToken,
    ) -> Result<Self, OptionsError> {
        let SupervisorSetup { catalog, devices, live } = setup;
        let mut lanes = BTreeMap::new();
        for (lane, share) in (0..).zip(devices.start()).filter(|(_, share)| !live || share.idle_priority) {
            let machine = Supervision::new(SupervisionOptions::default())?;
            let metrics = LaneMetrics::new(lane);
            metrics.up(true);
            lanes.insert(lane, Lane { share: share.clone(), machine, metrics });
        }
        let (commands, words) = mpsc::channel(COMMANDS);
        let task = Task { catalog, devices, live, lanes, failures, begun: Instant::now() };
        tokio::spawn(task.run(listener.0, words, stop));
        Ok(Self { commands })
    }

    /// Every lane and its state.
    ///
    /// # Errors
    /// If the server is stopping.
    pub async fn view(&self) -> Result<Vec<LaneRow>, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::View(reply)).await?;
        answer.await.map_err(|_| stopping())
    }

    /// Restarts a disabled lane.
    ///
    /// # Errors
    /// If the lane is unknown or the server is stopping.
    pub async fn enable(&self, lane: u32) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Enable(lane, reply)).await?;
        if answer.await.map_err(|_| stopping())? {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::UnknownPath,
            format!(
                "lane {lane}: no lane of this number can be restarted, `GET /v2/lanes` lists those there are"
            ),
        ))
    }

    async fn tell(&self, command: Command) -> Result<(), Refusal> {
        self.commands.send(command).await.map_err(|_| stopping())
    }
}

fn stopping() -> Refusal {
    Refusal::new(Reason::Draining, "the server is shutting down: lanes are not restarted")
}

struct Lane {
    share: Share,
    machine: Supervision,
    metrics: LaneMetrics,
}

struct Task {
    catalog: Arc<Catalog>,
    devices: Arc<Devices>,
    live: bool,
    lanes: BTreeMap<u32, Lane>,
    failures: Failures,
    begun: Instant,
}

impl Task {
    async fn run(
        mut self,
        mut reports: mpsc::UnboundedReceiver<Report>,
        mut commands: mpsc::Receiver<Command>,
        stop: CancellationToken,
    ) {
        loop {
            let wake = self.lanes.values().filter_map(|lane| lane.machine.next_wake()).min();
            let at = self.begun + Duration::from(wake.unwrap_or_default());
            tokio::select! {
                () = stop.cancelled() => return,
                Some(report) = reports.recv() => self.receive(report),
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
                    view: Some(known.machine.view()),
                    state: None,
                };
                let is_planned = |lane: &LaneHandle| self.live && !self.lanes.contains_key(&lane.id());
                let planned = self.catalog.lanes().into_iter().filter(is_planned).filter_map(|lane| {
                    let share = self.devices.share_of(lane.id())?;
                    Some(LaneRow { lane: lane.id(), share, view: None, state: Some("up") })
                });
                // The caller may have disconnected.
                let _ = reply.send(self.lanes.iter().map(row).chain(planned).collect());
            }
            Command::Enable(lane, reply) => {
                let _ = reply.send(self.lanes.contains_key(&lane));
                self.handle(lane, Event::Enable);
            }
        }
    }

    fn receive(&mut self, report: Report) {
        match report {
            Report::Failed { lane, incarnation, reason } => {
                if self.lanes.contains_key(&lane) {
                    self.handle(lane, Event::Died { incarnation, reason });
                } else {
                    tracing::warn!(lane, %reason, "a lane failed: the next plan will replace it");
                    LaneMetrics::new(lane).failed();
                    self.take_out(lane);
                }
            }
            Report::Tried { lane, incarnation, result } => {
                self.handle(
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
            self.handle(lane, Event::Tick);
        }
    }

    fn now(&self) -> Micros {
        self.begun.elapsed().into()
    }

    fn handle(&mut self, lane: u32, event: Event) {
        let now = self.now();
        let Some(known) = self.lanes.get_mut(&lane) else { return };
        if let Event::RestartFailed { reason, .. } = &event {
            tracing::warn!(lane, %reason, "the lane could not be restarted");
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
                tracing::warn!(lane, %reason, "a lane failed: other lanes run its requests");
                known.metrics.failed();
                self.take_out(lane);
            }
            Effect::Restart { incarnation } => self.restart(lane, incarnation),
            Effect::Up { .. } => {
                tracing::info!(lane, "the lane is up again");
                known.metrics.up(true);
            }
            Effect::Disabled { reason } => {
                tracing::error!(lane, %reason, "the lane stays down: `POST /v2/lanes/{lane}/enable` restarts it");
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
        let (reports, watch) = (self.failures.0.clone(), self.failures.of(incarnation));
        tokio::spawn(async move {
            let result = async {
                // When this returns, the router has requeued the lane's requests.
                catalog.router().lane_failed(LaneId(lane)).await;
                catalog.take_out(lane);
                let sink = catalog.router().lane_sink();
                let open = move || devices.open(lane, &share, sink, watch);
                let opened = tokio::task::spawn_blocking(open).await.map_err(|error| error.to_string())?;
                catalog.bring_up(opened.map_err(|error| error.to_string())?).await
            };
            let result = result.await;
            // The receiver is dropped when the server has stopped.
            let _ = reports.send(Report::Tried { lane, incarnation, result });
        });
    }
}

#[cfg(test)]
mod tests;
