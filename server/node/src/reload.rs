//! Takes up changes of the configuration while the server runs.

use std::sync::Arc;

use crate::catalog::{LoadParameters, LoadPriority, LoadReport};
use crate::config::{Config, Effective, Problems, reference};
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
        let config = self.configuration().map_err(|problems| {
            let message =
                format!("model `{name}` is not loaded, because the configuration has mistakes: {problems}");
            Refusal::new(Reason::LoadFailed, message)
        })?;
        self.catalog().refresh_source().await.map_err(|error| {
            Refusal::new(Reason::LoadFailed, format!("model `{name}` is not loaded: {error}"))
        })?;
        self.catalog().set_settings(name, config.models.get(name));
        // Detached, so that a client that leaves does not leave a model half loaded.
        let (catalog, name) = (Arc::clone(self.catalog()), name.to_owned());
        detached(async move { catalog.load_with(&name, sent, LoadPriority::Background).await }).await
    }

    /// Takes up the whole configuration: settings of models, and the others that need no restart. What is invalid changes
    /// nothing and is logged.
    pub async fn reload(&self) {
        let config = match self.configuration() {
            Ok(config) => config,
            Err(Problems(problems)) => {
                for problem in problems {
                    tracing::error!(%problem, "configuration not reloaded: the settings in force stay");
                }
                return;
            }
        };
        if let Err(error) = self.catalog().refresh_source().await {
            tracing::error!(%error, "models are reloaded from the local copy of the repository");
        }
        if let Err(error) = logs::set_level(&config.server.log_level) {
            tracing::error!(%error, "server.log_level is not changed");
        }
        let names = match self.catalog().known_names() {
            Ok(names) => names,
            Err(refusal) => {
                tracing::error!(error = %refusal, "configuration not reloaded: the repository cannot be read");
                return;
            }
        };
        for name in &names {
            self.catalog().set_settings(name, config.models.get(name.as_str()));
        }
        let mut changed = 0_usize;
        for name in self.catalog().wanted_names() {
            // A failure is logged where it happens, and the old version serves on.
            if let Ok(report) = self.catalog().load(&name, LoadPriority::Background).await
                && report != LoadReport::default()
            {
                changed += 1;
            }
        }
        tracing::info!(models_changed = changed, "configuration reloaded");
    }

    /// The configuration as its sources have it now. Changes that need a restart are logged.
    fn configuration(&self) -> Result<Config, Problems> {
        let config = (self.read_again)()?;
        if let Ok(names) = self.catalog().known_names() {
            config.check_models(names.iter().map(String::as_str))?;
        }
        for path in waiting_for_restart(&self.effective, &config.effective) {
            tracing::warn!(setting = path, "changed in the configuration: takes effect after a restart");
        }
        Ok(config)
    }
}

/// Settings that differ and cannot be changed while the server runs.
fn waiting_for_restart<'a>(old: &'a [Effective], new: &[Effective]) -> Vec<&'a str> {
    let changed = |before: &&Effective| {
        let now = new.iter().find(|after| after.path == before.path);
        !reference::is_live(&before.path) && now.is_none_or(|now| now.value != before.value)
    };
    old.iter().filter(changed).map(|effective| effective.path.as_str()).collect()
}
