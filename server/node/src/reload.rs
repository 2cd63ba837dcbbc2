//! Takes up changes of the configuration while the server runs.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use crate::catalog::{LoadParameters, LoadPriority, LoadReport, Staging};
use crate::config::reference::TakesEffect;
use crate::config::{Change, Config, Problem, Problems, changes};
use crate::logs;
use crate::metrics::{configuration_not_reloaded, configuration_reloaded};
use crate::node::{Node, detached};
use crate::reason::{Reason, Refusal};

/// What a reload did.
#[derive(Clone, Debug, Default)]
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
        let no_reload = Arc::clone(&self.reloading).read_owned().await;
        let Read { next, .. } = self.read_configuration().map_err(|problems| {
            let message =
                format!("model `{name}` is not loaded, because the configuration has mistakes: {problems}");
            Refusal::new(Reason::LoadFailed, message)
        })?;
        self.catalog().refresh_source().await.map_err(|error| {
            Refusal::new(Reason::LoadFailed, format!("model `{name}` is not loaded: {error}"))
        })?;
        let (catalog, in_force) = (Arc::clone(self.catalog()), Arc::clone(&self.in_force));
        let name = name.to_owned();
        // Detached, so that a client that leaves does not leave a model half loaded.
        detached(async move {
            let _no_reload = no_reload;
            let settings = next.models.get(&name).cloned();
            let report = catalog.load_with(&name, sent, settings, LoadPriority::Background).await?;
            in_force.lock().unwrap_or_else(PoisonError::into_inner).take_model(&name, &next);
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
        let Read { next, pending } = self.read_configuration().map_err(refused)?;
        let tenants = self.catalog().tenants().prepare(&next).map_err(|message| {
            let origin = next.origin("tenants");
            refused(Problems(vec![Problem { path: "tenants".to_owned(), message, origin }]))
        })?;
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
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = changes(&in_force.effective, &next.effective);
        *in_force = next;
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

    /// Reads the configuration. Changes that need a restart are logged.
    fn read_configuration(&self) -> Result<Read, Problems> {
        let new = (self.read_again)()?;
        if let Ok(names) = self.catalog().known_names() {
            new.check_models(names.iter().map(String::as_str))?;
        }
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let next = in_force.reloaded(&new)?;
        let mut pending = changes(&in_force.effective, &new.effective);
        pending.retain(|change| change.takes_effect == TakesEffect::Restart);
        for change in &pending {
            tracing::warn!(
                setting = change.path,
                "changed in the configuration: takes effect after a restart"
            );
        }
        Ok(Read { next, pending })
    }
}

#[cfg(test)]
mod tests;
