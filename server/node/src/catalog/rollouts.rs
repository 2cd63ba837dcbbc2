//! Roll-outs of new versions: which version a request gets, and what happens to the versions in the end.

mod follow;
mod trial;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use models::{ContentHash, RolloutSettings, Share};
use tokio::sync::Notify;
use version_rollout::{Arm, Event, Rollout, Settings, Verdict};

use super::version::Loaded;
use super::{Catalog, Model};
use crate::metrics::{rollout_began, rollout_ended};
use crate::reason::{Reason, Refusal};

pub use trial::{Mirror, Trial};
pub use version_rollout::State as RolloutState;
pub use view::{RolloutView, VersionView};

/// Two versions of a model that share its requests.
pub struct VersionRollout {
    stable: Arc<Loaded>,
    canary: Arc<Loaded>,
    /// Whether the stable version is to be served after a promotion too, for requests that name it.
    keeps_stable: bool,
    core: Mutex<Rollout>,
    began: Instant,
    /// Told of a verdict, of other settings and of the end.
    changed: Notify,
}

/// The roll-outs of one model.
#[derive(Default)]
pub(super) struct ModelRollouts {
    /// The one under way.
    pub active: ArcSwapOption<VersionRollout>,
    /// Versions that were rolled back, with their files. They are not loaded again unless a client asks or the files change.
    rejected: Mutex<BTreeMap<u64, ContentHash>>,
    /// The one that ended last.
    last: Mutex<Option<RolloutView>>,
}

impl ModelRollouts {
    pub(super) fn rejected(&self) -> BTreeMap<u64, ContentHash> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn forget_rejected(&self) {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether a roll-out is the one under way.
    fn is_active(&self, rollout: &Arc<VersionRollout>) -> bool {
        self.active.load().as_ref().is_some_and(|active| Arc::ptr_eq(active, rollout))
    }

    /// Ends the roll-out under way without a verdict.
    pub(super) fn supersede(&self) {
        if let Some(active) = self.active.swap(None) {
            rollout_ended(&active.canary.name);
            active.changed.notify_one();
        }
    }
}

/// Versions of a load that are to share the requests.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub stable: u64,
    pub canary: u64,
    pub keeps_stable: bool,
    pub settings: RolloutSettings,
}

impl Plan {
    /// Why a version cannot be rolled out.
    pub(super) fn refuse(&self, canary: &Loaded) -> Option<String> {
        let table = format!("models.{}.rollout", canary.name);
        if canary.config().sequences.is_some() {
            return Some(format!(
                "{table}: is not supported with sequence_batching, because versions would share the requests of a sequence: remove it"
            ));
        }
        if canary.ensemble.is_some() {
            return Some(format!(
                "{table}: is not supported for ensembles: roll out the models that it runs"
            ));
        }
        let compares = self.settings.compare == Some(true) && canary.decoupled;
        compares.then(|| format!("{table}.compare: is not supported for decoupled models: remove it"))
    }
}

impl VersionRollout {
    fn new(stable: Arc<Loaded>, canary: Arc<Loaded>, keeps_stable: bool, settings: Settings) -> Self {
        Self {
            stable,
            canary,
            keeps_stable,
            core: Mutex::new(Rollout::new(settings, Duration::ZERO)),
            began: Instant::now(),
            changed: Notify::new(),
        }
    }

    /// The version that requests without one get but for the canary's share.
    pub(super) fn stable(&self) -> &Arc<Loaded> {
        &self.stable
    }

    /// Takes up an event.
    fn handle(&self, event: Event) -> Option<Verdict> {
        let now = self.began.elapsed();
        let verdict = self.core().handle(now, event);
        if verdict.is_some() {
            self.changed.notify_one();
        }
        verdict
    }

    fn core(&self) -> std::sync::MutexGuard<'_, Rollout> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Catalog {
    /// Begins a roll-out, or goes on with the one under way if it is of the same versions. Must be called before they serve.
    pub(super) fn roll_out(
        self: &Arc<Self>,
        model: &Arc<Model>,
        plan: &Plan,
        versions: &BTreeMap<u64, Arc<Loaded>>,
    ) {
        let (Some(stable), Some(canary)) = (versions.get(&plan.stable), versions.get(&plan.canary)) else {
            return model.rollouts.supersede();
        };
        let settings = self.rollout_settings(&plan.settings);
        let is_same = |active: &VersionRollout| {
            Arc::ptr_eq(&active.stable, stable)
                && Arc::ptr_eq(&active.canary, canary)
                && active.keeps_stable == plan.keeps_stable
        };
        if let Some(active) = model.rollouts.active.load_full().filter(|active| is_same(active)) {
            active.core().change(settings);
            active.changed.notify_one();
            return;
        }
        model.rollouts.supersede();
        let (stable, canary) = (Arc::clone(stable), Arc::clone(canary));
        tracing::info!(
            model = canary.name,
            stable = stable.version,
            canary = canary.version,
            digest = %canary.hash,
            share = settings.canary,
            bake = ?settings.bake,
            "roll-out begins"
        );
        rollout_began(&canary.name);
        let begun = Arc::new(VersionRollout::new(stable, canary, plan.keeps_stable, settings));
        model.rollouts.active.store(Some(Arc::clone(&begun)));
        tokio::spawn(follow::follow(Arc::downgrade(self), Arc::downgrade(model), begun));
    }

    fn rollout_settings(&self, settings: &RolloutSettings) -> Settings {
        let tenants = self.tenants().numbers().len();
        let default = Settings::default();
        Settings {
            canary: settings.canary.map_or(default.canary, Share::get),
            bake: settings.bake.map_or(default.bake, |bake| bake.0),
            samples: settings.samples.map_or(default.samples, |samples| samples.get()),
            compare: settings.compare.unwrap_or(default.compare),
            agreement: settings.agreement.map_or(default.agreement, Share::get),
            tenants: u16::try_from(tenants).unwrap_or(u16::MAX).max(1),
        }
    }

    /// The part of a version in a roll-out that is under way.
    pub fn rollout_part(&self, loaded: &Arc<Loaded>) -> Option<Arm> {
        let model = self.models.get(&loaded.name)?;
        let active = model.rollouts.active.load();
        let active = active.as_ref()?;
        match loaded {
            loaded if Arc::ptr_eq(loaded, &active.canary) => Some(Arm::Canary),
            loaded if Arc::ptr_eq(loaded, &active.stable) => Some(Arm::Stable),
            _ => None,
        }
    }

    /// The roll-out of a model that is under way, or else the one that ended last since the model was loaded.
    ///
    /// # Errors
    /// The model is unknown, or had no roll-out.
    pub fn rollout(&self, name: &str) -> Result<RolloutView, Refusal> {
        let model = self.model(name)?;
        if let Some(active) = &*model.rollouts.active.load() {
            return Ok(active.view(self.tenants()));
        }
        let last = model.rollouts.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.ok_or_else(|| none_under_way(name, "had no roll-out"))
    }

    /// Promotes the canary of a model now, or rolls it back. Returns when the other version serves all requests.
    ///
    /// # Errors
    /// The model is unknown, or is not being rolled out.
    pub async fn end_rollout(&self, name: &str, promote: bool) -> Result<RolloutView, Refusal> {
        let model = self.model(name)?;
        let active = model.rollouts.active.load_full();
        let active = active.ok_or_else(|| none_under_way(name, "has no roll-out under way"))?;
        active.handle(if promote { Event::Promote } else { Event::RollBack });
        self.conclude(&model, &active).await;
        self.rollout(name)
    }
}

fn none_under_way(name: &str, what: &str) -> Refusal {
    let how = "a new version begins one if `models.NAME.rollout` is set";
    Refusal::new(Reason::Unsupported, format!("model `{name}` {what}: {how}"))
}
