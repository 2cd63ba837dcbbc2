//! Carries out the verdict of a roll-out.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};

use version_rollout::{Event, Verdict};

use super::VersionRollout;
use crate::catalog::version::Loaded;
use crate::catalog::{Catalog, LoadState, Model};
use crate::metrics::{rollout_decided, rollout_ended};

/// Waits for the verdict and carries it out. Ends early if another load takes the place of the roll-out.
pub(super) async fn follow(catalog: Weak<Catalog>, model: Weak<Model>, rollout: Arc<VersionRollout>) {
    loop {
        let (verdict, next) = {
            let core = rollout.core();
            (core.verdict(), core.next_tick())
        };
        if !model.upgrade().is_some_and(|model| model.rollouts.is_active(&rollout)) {
            return;
        }
        if verdict.is_some() {
            break;
        }
        let tick = async {
            match next {
                Some(at) => tokio::time::sleep_until((rollout.began + at).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = rollout.changed.notified() => {}
            () = tick => drop(rollout.handle(Event::Tick)),
        }
    }
    if let (Some(catalog), Some(model)) = (catalog.upgrade(), model.upgrade()) {
        catalog.conclude(&model, &rollout).await;
    }
}

impl Catalog {
    /// Carries out the verdict, unless that was done before.
    pub(super) async fn conclude(&self, model: &Model, rollout: &Arc<VersionRollout>) {
        let _layout = self.changing.read().await;
        let _control = model.control.lock().await;
        let verdict = rollout.core().verdict().filter(|_| model.rollouts.is_active(rollout));
        let Some(verdict) = verdict else { return };
        let view = rollout.view(self.tenants());
        log(&view, verdict);
        rollout_decided(&rollout.canary.name, verdict.is_promotion());
        rollout_ended(&rollout.canary.name);
        let replaced = match verdict {
            Verdict::Promoted { .. } => (!rollout.keeps_stable).then_some(&rollout.stable),
            Verdict::RolledBack { .. } => Some(&rollout.canary),
        };
        let mut serving = BTreeMap::clone(&model.serving.load());
        if let Some(replaced) = replaced {
            serving.retain(|_, loaded: &mut Arc<Loaded>| !Arc::ptr_eq(loaded, replaced));
        }
        model.serving.store(Arc::new(serving));
        *model.rollouts.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
        model.rollouts.active.store(None);
        let Some(replaced) = replaced else { return };
        if verdict.is_promotion() {
            model.keep_states(|version| version != replaced.version);
        } else {
            let mut rejected = model.rollouts.rejected.lock().unwrap_or_else(PoisonError::into_inner);
            rejected.insert(replaced.version, replaced.hash);
            drop(rejected);
            let reason = format!("rolled back: {}", view.cause.unwrap_or_default());
            model.set(replaced.version, LoadState::Unavailable(reason));
        }
        self.retire(replaced).await;
    }
}

fn log(view: &super::RolloutView, verdict: Verdict) {
    let figures = &view.figures;
    macro_rules! line {
        ($level:ident, $what:literal) => {
            tracing::$level!(
                model = view.model,
                stable = view.stable.version,
                canary = view.canary.version,
                digest = view.canary.digest,
                cause = view.cause,
                tenant = view.tenant,
                elapsed_s = figures.elapsed.as_secs_f64(),
                requests = figures.canary.requests,
                failed = figures.canary.failed,
                attainment = figures.canary.attainment(),
                stable_failed = figures.stable.failed,
                stable_attainment = figures.stable.attainment(),
                compared = figures.compared,
                disagreed = figures.disagreed,
                $what
            )
        };
    }
    match verdict {
        Verdict::Promoted { .. } => line!(info, "version promoted"),
        Verdict::RolledBack { .. } => line!(warn, "version rolled back"),
    }
}
