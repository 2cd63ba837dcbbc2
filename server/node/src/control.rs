//! The control loop: looks at the load, says which rates to plan for, plans, and changes gpulets while they serve.
//!
//! All decisions are those of `gpulet_core::control`, which the simulator runs too; here are the clock, the lanes and the
//! operator's word.

mod by_hand;
mod layout;
mod load;
mod shell;
mod task;
mod terms;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use gpulet::LaneHandle;
use gpulet_core::control::{ControlOptions, Controller};
use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::rollout::RolloutOptions;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::catalog::Catalog;
use crate::config::{Interference, Partition};
use crate::devices::Devices;
use crate::reason::{Reason, Refusal};
use crate::supervisor::Failures;
use layout::Layout;
use shell::Hands;
use task::{Command, Task};
use terms::Terms;

pub use by_hand::PutInForce;
pub use view::View;

/// Operators' words that may wait.
const COMMANDS: usize = 16;

/// Talks to the control loop; clones share it.
#[derive(Clone)]
pub struct Control {
    commands: mpsc::Sender<Command>,
}

/// What a control loop is started with.
pub struct ControlSetup {
    /// `[partition]`.
    pub options: Partition,
    /// The models.
    pub catalog: Arc<Catalog>,
    /// What they run on.
    pub devices: Arc<Devices>,
    /// Where gpulets that are lost are told of.
    pub failures: Failures,
    /// The lanes that the server started with.
    pub lanes: Vec<LaneHandle>,
}

impl Control {
    /// Starts the loop; it ends with `stop`.
    ///
    /// # Errors
    /// What is wrong with the options.
    pub fn start(setup: ControlSetup, stop: CancellationToken) -> anyhow::Result<Self> {
        let ControlSetup { options, catalog, devices, failures, lanes } = setup;
        let policy = Policy::named(&options.policy)
            .ok_or_else(|| anyhow::anyhow!("partition.policy: `{}` is unknown", options.policy))?;
        let terms = Terms::new(Arc::clone(&devices), policy);
        let layout = Arc::new(Layout::new(Arc::clone(&catalog), devices, failures, lanes));
        let rollout = RolloutOptions {
            prepare_us: options.prepare_timeout.0.into(),
            bake_us: options.bake_time.0.into(),
            history: options.history.get(),
            ..RolloutOptions::default()
        };
        let control = ControlOptions {
            scaling: options.scaling.clone(),
            idle_us: options.idle.map(|idle| idle.0.into()),
            period_us: options.period.0.into(),
            uses_learned: options.interference == Interference::Learned,
            rollout,
        };
        let controller = Controller::new(control, terms.terms().clone())?;
        let (commands, words) = mpsc::channel(COMMANDS);
        let task = Task::new(options, catalog, terms, Hands::new(layout), controller);
        tokio::spawn(task.run(words, stop));
        Ok(Self { commands })
    }

    /// The plan in force, what led to it, and what is predicted and measured.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn view(&self) -> Result<View, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::View(reply)).await?;
        answer.await.map(|view| *view).map_err(|_| stopping())
    }

    /// Ends a change that is under way, if it is not in force yet, and begins no other until [`Control::thaw`].
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn freeze(&self) -> Result<(), Refusal> {
        self.tell(Command::Freeze).await
    }

    /// Lets plans follow the load again.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn thaw(&self) -> Result<(), Refusal> {
        self.tell(Command::Thaw).await
    }

    /// Puts a plan of an operator's in force and returns when it is, for good; the load moves nothing from then on, until
    /// [`Control::thaw`].
    ///
    /// # Errors
    /// When it cannot be in force on these devices, something else is under way, or it failed; the plan before it stays.
    pub async fn plan(&self, plan: Plan) -> Result<PutInForce, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Plan(plan, reply)).await?;
        answer.await.map_err(|_| stopping())?
    }

    async fn tell(&self, command: Command) -> Result<(), Refusal> {
        self.commands.send(command).await.map_err(|_| stopping())
    }
}

fn stopping() -> Refusal {
    Refusal::new(Reason::Draining, "the server is shutting down: gpulets are not moved any more")
}
