//! Takes up changes of the configuration while the server runs.

use std::sync::Arc;

use crate::catalog::{LoadParameters, LoadPriority, LoadReport};
use crate::config::reference::TakesEffect;
use crate::config::{Change, Config, Problem, Problems, changes};
use crate::logs;
use crate::node::{Node, detached};
use crate::reason::{Reason, Refusal};

impl Node {
    /// Loads or reloads a model, with its settings as the configuration has them now. Its `config.pbtxt` and files are those of
    /// the repository, or those that the client sent. Returns when it is ready, the old version serving until then.
    ///
    /// # Errors
    /// Why the configuration or the model is refused. What serves then stays as it was.
    pub async fn load(&self, name: &str, sent: LoadParameters) -> Result<LoadReport, Refusal> {
        let mut in_force = self.in_force.lock().await;
        let mixed = self.configuration(&in_force).map_err(|problems| {
            let message =
                format!("model `{name}` is not loaded, because the configuration has mistakes: {problems}");
            Refusal::new(Reason::LoadFailed, message)
        })?;
        self.catalog().refresh_source().await.map_err(|error| {
            Refusal::new(Reason::LoadFailed, format!("model `{name}` is not loaded: {error}"))
        })?;
        in_force.take_model(name, &mixed);
        self.catalog().set_settings(name, in_force.models.get(name));
        drop(in_force);
        // Detached, so that a client that leaves does not leave a model half loaded.
        let (catalog, name) = (Arc::clone(self.catalog()), name.to_owned());
        detached(async move { catalog.load_with(&name, sent, LoadPriority::Background).await }).await
    }

    /// Takes up the whole configuration: settings of models and tenants, and the others that need no restart. What is invalid
    /// changes nothing and is logged.
    pub async fn reload(&self) {
        // Held to the end: reloads come one after the other.
        let mut in_force = self.in_force.lock().await;
        let refused = |Problems(problems)| {
            for problem in problems {
                tracing::error!(%problem, "configuration not reloaded: the settings in force stay");
            }
        };
        let mixed = match self.configuration(&in_force) {
            Ok(mixed) => mixed,
            Err(problems) => return refused(problems),
        };
        let tenants = match self.catalog().tenants().prepare(&mixed) {
            Ok(tenants) => tenants,
            Err(message) => {
                let origin = mixed.origin("tenants");
                return refused(Problems(vec![Problem { path: "tenants".to_owned(), message, origin }]));
            }
        };
        if let Err(error) = self.catalog().refresh_source().await {
            tracing::error!(%error, "models are reloaded from the local copy of the repository");
        }
        let names = match self.catalog().known_names() {
            Ok(names) => names,
            Err(refusal) => {
                tracing::error!(error = %refusal, "configuration not reloaded: the repository cannot be read");
                return;
            }
        };
        if let Err(error) = logs::set_level(&mixed.server.log_level) {
            tracing::error!(%error, "server.log_level is not changed");
        }
        let changed = changes(&in_force.effective, &mixed.effective);
        self.catalog().router().tenants_changed(tenants.table().clone()).await;
        self.catalog().tenants().replace(tenants);
        for name in &names {
            self.catalog().set_settings(name, mixed.models.get(name.as_str()));
        }
        *in_force = mixed;
        let mut models_changed = 0_usize;
        for name in self.catalog().wanted_names() {
            // A failure is logged where it happens, and the old version serves on.
            if let Ok(report) = self.catalog().load(&name, LoadPriority::Background).await
                && report != LoadReport::default()
            {
                models_changed += 1;
            }
        }
        let settings: Vec<&str> = changed.iter().map(|change| change.path.as_str()).collect();
        tracing::info!(models_changed, settings = settings.join(", "), "configuration reloaded");
    }

    /// What would be in force after a reload of the configuration as its sources have it now. Changes that need a restart are
    /// logged.
    fn configuration(&self, in_force: &Config) -> Result<Config, Problems> {
        let new = (self.read_again)()?;
        if let Ok(names) = self.catalog().known_names() {
            new.check_models(names.iter().map(String::as_str))?;
        }
        let mixed = in_force.reloaded(&new)?;
        let waits = |change: &&Change| change.takes_effect == TakesEffect::Restart;
        for change in changes(&in_force.effective, &new.effective).iter().filter(waits) {
            tracing::warn!(
                setting = change.path,
                "changed in the configuration: takes effect after a restart"
            );
        }
        Ok(mixed)
    }
}
