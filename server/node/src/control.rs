//! The control loop: observes the load, chooses target rates, plans, and changes gpulets while they serve.
//!
//! `gpulet_core::control` makes all decisions, here and in the simulator. This module adds the clock, the lanes and the
//! operator's commands.

mod layout;
mod load;
mod operator_plan;
mod profile_corrections;
mod shapes;
mod shell;
mod task;
mod terms;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use gpulet::{LaneHandle, TimeSharing};
use gpulet_core::control::{ControlOptions, Controller, VariantPolicy};
use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::rollout::RolloutOptions;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use variant_plan::LivePolicy;

use crate::catalog::Catalog;
use crate::config::{Interference, Partition};
use crate::devices::Devices;
use crate::reason::{Reason, Refusal};
use crate::supervisor::Failures;
use layout::Layout;
use shell::EffectRunner;
use task::{Command, Task};
use terms::Terms;

pub use operator_plan::PutInForce;
pub use view::View;

/// Capacity of the queue of operator commands.
const COMMANDS: usize = 16;

/// Handle of the control loop; clones share the loop.
#[derive(Clone)]
pub struct Control {
    commands: mpsc::Sender<Command>,
}

/// Arguments of [`Control::start`].
pub struct ControlSetup {
    /// `[partition]`.
    pub options: Partition,
    /// The models.
    pub catalog: Arc<Catalog>,
    /// The devices that the models run on.
    pub devices: Arc<Devices>,
    /// Receives failures of gpulets.
    pub failures: Failures,
    /// The lanes that the server started with.
    pub lanes: Vec<LaneHandle>,
}

/// Refuses a policy with time quotas for devices that cannot keep them.
fn check_time_sharing(policy: &Policy, devices: &Devices) -> anyhow::Result<()> {
    let without = devices.infos().find(|info| info.guarantees.time_sharing == TimeSharing::No);
    if let Some(info) = without.filter(|_| policy.plans_time_windows()) {
        anyhow::bail!(
            "partition.policy: `{policy}`: device `{}` ({}) cannot share units in time, because each belongs to one gpulet: \
             expected another policy, or cores or emulated devices",
            info.name,
            info.backend
        );
    }
    Ok(())
}

fn variant_policy(options: &Partition) -> anyhow::Result<VariantPolicy> {
    let Some(name) = &options.variants else { return Ok(VariantPolicy::default()) };
    let policy = LivePolicy::named(name);
    let policy = policy.ok_or_else(|| anyhow::anyhow!("partition.variants: `{name}` is unknown"))?;
    Ok(VariantPolicy(Some(Arc::new(policy))))
}

impl Control {
    /// Starts the loop; it ends with `stop`.
    ///
    /// # Errors
    /// Says which option is invalid.
    pub fn start(setup: ControlSetup, stop: CancellationToken) -> anyhow::Result<Self> {
        let ControlSetup { options, catalog, devices, failures, lanes } = setup;
        let policy = Policy::named(&options.policy)
            .ok_or_else(|| anyhow::anyhow!("partition.policy: `{}` is unknown", options.policy))?;
        check_time_sharing(&policy, &devices)?;
        let policy = policy.with_quota_limit(options.quota_limit);
        let terms = Terms::new(Arc::clone(&devices), policy, variant_policy(&options)?);
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
        let task = Task::new(options, catalog, terms, EffectRunner::new(layout), controller);
        tokio::spawn(task.run(words, stop));
        Ok(Self { commands })
    }

    /// The plan in force, the reasons for it, and predicted and measured latencies.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn view(&self) -> Result<View, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::View(reply)).await?;
        answer.await.map(|view| *view).map_err(|_| stopping())
    }

    /// Aborts a change that has not switched yet, and starts no other until [`Control::thaw`].
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

    /// Puts an operator plan in force, and returns after its bake time. The plan then stays, whatever the load, until
    /// [`Control::thaw`].
    ///
    /// # Errors
    /// When the plan does not fit the devices, another change is in progress, or the rollout failed. The previous plan
    /// stays.
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
