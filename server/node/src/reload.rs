//! Takes up changes of the configuration while the server runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};

use serde::Serialize;

use crate::catalog::{LoadParameters, LoadPriority, LoadReport, Staging};
use crate::config::reference::TakesEffect;
use crate::config::{Change, Config, Origin, Problem, Problems, changes};
use crate::in_force::{ConfigView, InForce, LastReload};
use crate::logs;
use crate::metrics::{configuration_not_reloaded, configuration_reloaded};
use crate::node::{Node, detached};
use crate::reason::{Reason, Refusal};
use crate::tenants::TenantSet;

/// Path in messages about a configuration that was sent instead of read from a file.
const SENT: &str = "of the request";

/// What a reload did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadReport {
    /// Settings that have new values.
    pub changes: Vec<Change>,
    /// Settings that differ in the configuration and need a restart.
    pub pending: Vec<Change>,
    /// What was loaded or taken up, by model. Models that are as they were are left out.
    pub models: BTreeMap<String, LoadReport>,
    /// Models that did not serve before and cannot be loaded, with the reasons.
    pub not_loaded: BTreeMap<String, String>,
}

/// What a reload would do, apart from its effect on models.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadPreview {
    /// Settings that would have new values.
    pub changes: Vec<Change>,
    /// Settings that would differ from those in force until a restart.
    pub pending: Vec<Change>,
}

/// Configuration as its sources have it now.
struct Read {
    /// What is in force after a reload.
    next: Config,
    /// Settings that differ and need a restart.
    pending: Vec<Change>,
}

impl Node {
    /// Loads or reloads a model, with its settings as the configuration has them now. Its `config.pbtxt` and files are those of
    /// the repository, or those that the client sent. Returns when it is ready, the old version serving until then.
    ///
    /// # Errors
    /// Why the configuration or the model is refused. What serves then stays as it was.
    pub async fn load(&self, name: &str, sent: LoadParameters) -> Result<LoadReport, Refusal> {
        let load = self.catalog().check_load(name, sent)?;
        let no_reload = Arc::clone(&self.reloading).read_owned().await;
        let read = self.read_configuration(None).await;
        let Read { next, pending } = read.map_err(|problems| {
            let message =
                format!("model `{name}` is not loaded, because the configuration has mistakes: {problems}");
            Refusal::new(Reason::LoadFailed, message)
        })?;
        warn_of_pending(&pending);
        self.catalog().refresh_source().await.map_err(|error| {
            Refusal::new(Reason::LoadFailed, format!("model `{name}` is not loaded: {error}"))
        })?;
        let (catalog, in_force) = (Arc::clone(self.catalog()), Arc::clone(&self.in_force));
        // Detached, so that a client that leaves does not leave a model half loaded.
        detached(async move {
            let _no_reload = no_reload;
            let name = load.name().clone();
            let settings = next.models.get(name.as_str()).cloned();
            let report = catalog.load_with(load, settings, LoadPriority::Background).await?;
            let mut in_force = in_force.lock().unwrap_or_else(PoisonError::into_inner);
            in_force.config.take_model(name.as_str(), &next);
            Ok(report)
        })
        .await
    }

    /// Takes up the whole configuration: models, tenants, and the other settings that need no restart. Either all of it is in
    /// force afterwards or nothing has changed. Must run to its end: a caller that may be dropped spawns it.
    ///
    /// # Errors
    /// What is wrong with the configuration, or with a model that serves. It is logged too.
    pub async fn reload(&self) -> Result<ReloadReport, Refusal> {
        let _alone = self.reloading.write().await;
        let reloaded = self.reload_alone().await;
        self.in_force().last_reload = Some(LastReload::now(reloaded.as_ref().map(drop)));
        match &reloaded {
            Ok(report) => {
                let names = |changes: &[Change]| {
                    changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>().join(", ")
                };
                configuration_reloaded(report.pending.len());
                let (models_changed, settings) = (report.models.len(), names(&report.changes));
                let not_loaded = report.not_loaded.len();
                tracing::info!(models_changed, not_loaded, settings, "configuration reloaded");
            }
            Err(refusal) => {
                configuration_not_reloaded();
                for problem in refusal.message.lines() {
                    tracing::error!(problem, "configuration not reloaded: everything stays as it was");
                }
            }
        }
        reloaded
    }

    async fn reload_alone(&self) -> Result<ReloadReport, Refusal> {
        let refused = |problems: Problems| Refusal::new(Reason::LoadFailed, problems.to_string());
        let Read { next, pending } = self.read_configuration(None).await.map_err(refused)?;
        warn_of_pending(&pending);
        let tenants = self.prepare_tenants(&next).map_err(refused)?;
        if let Err(error) = self.catalog().refresh_source().await {
            tracing::error!(%error, "models are reloaded from the local copy of the repository");
        }
        let (staging, not_loaded) = self.stage(&next).await?;
        if let Err(error) = logs::set_level(&next.server.log_level) {
            tracing::error!(%error, "server.log_level is not changed");
        }
        self.catalog().router().tenants_changed(tenants.table().clone()).await;
        self.catalog().tenants().replace(tenants);
        self.catalog().set_all_settings(next.models.clone());
        let mut models = staging.commit().await;
        models.retain(|_, report| *report != LoadReport::default());
        let mut in_force = self.in_force();
        let changes = changes(&in_force.config.effective, &next.effective);
        in_force.config = next;
        in_force.pending.clone_from(&pending);
        Ok(ReloadReport { changes, pending, models, not_loaded })
    }

    /// Stages all models that should be ready. Returns those that cannot be loaded and did not serve before too.
    async fn stage(&self, next: &Config) -> Result<(Staging, BTreeMap<String, String>), Refusal> {
        let mut not_loaded = BTreeMap::new();
        let mut staging = Staging::new(self.catalog()).await;
        for name in self.catalog().wanted_names() {
            let settings = next.models.get(&name).cloned();
            let Err(refusal) = staging.add(&name, settings, LoadPriority::Background).await else { continue };
            if !self.catalog().serving(&name).is_empty() {
                staging.abandon().await;
                return Err(refusal);
            }
            not_loaded.insert(name, refusal.message);
        }
        Ok((staging, not_loaded))
    }

    /// What a reload would change now, or with another text of the configuration file. Models are not loaded for it.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub async fn preview_reload(&self, text: Option<String>) -> Result<ReloadPreview, Refusal> {
        let reason = if text.is_some() { Reason::Malformed } else { Reason::LoadFailed };
        let refused = |problems: Problems| Refusal::new(reason, problems.to_string());
        let Read { next, pending } = self.read_configuration(text).await.map_err(refused)?;
        self.prepare_tenants(&next).map_err(refused)?;
        let changes = changes(&self.in_force().config.effective, &next.effective);
        Ok(ReloadPreview { changes, pending })
    }

    /// The settings in force, with where each came from.
    pub fn configuration(&self) -> ConfigView {
        self.in_force().view()
    }

    fn in_force(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the configuration, with the file's own text or another.
    async fn read_configuration(&self, text: Option<String>) -> Result<Read, Problems> {
        let source = self.config_source.clone();
        // A disk that does not answer holds up one thread, and no request.
        let read = tokio::task::spawn_blocking(move || match text {
            None => source.read(),
            Some(text) => source.load(Some((PathBuf::from(SENT), text))),
        });
        let ended_early = |error: tokio::task::JoinError| {
            let message = format!("the task that reads the configuration ended early: {error}");
            Problems(vec![Problem { path: String::new(), message, origin: Origin::Default }])
        };
        let new = read.await.map_err(ended_early)??;
        if let Ok(names) = self.catalog().known_names() {
            new.check_models(names.iter().map(String::as_str))?;
        }
        let in_force = self.in_force();
        let next = in_force.config.reloaded(&new)?;
        let mut pending = changes(&in_force.config.effective, &new.effective);
        pending.retain(|change| change.takes_effect == TakesEffect::Restart);
        Ok(Read { next, pending })
    }

    fn prepare_tenants(&self, next: &Config) -> Result<TenantSet, Problems> {
        self.catalog().tenants().prepare(next).map_err(|message| {
            let origin = next.origin("tenants");
            Problems(vec![Problem { path: "tenants".to_owned(), message, origin }])
        })
    }
}

fn warn_of_pending(pending: &[Change]) {
    for change in pending {
        tracing::warn!(setting = change.path, "changed in the configuration: takes effect after a restart");
    }
}

#[cfg(test)]
mod tests;
