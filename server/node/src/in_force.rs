//! The configuration that is in force, as operators see it.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::config::reference::{TakesEffect, is_live};
use crate::config::{Change, Config, toml_as_json};
use crate::reason::Refusal;

/// The configuration of the start with what reloads took up, and what the last reload found.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) config: Config,
    pub(crate) pending: Vec<Change>,
    pub(crate) last_reload: Option<LastReload>,
}

/// The last reload.
#[derive(Clone, Debug, Serialize)]
pub struct LastReload {
    /// When it ended, as in RFC 3339.
    pub at: String,
    /// Whether the new configuration is in force.
    pub successful: bool,
    /// Why not.
    pub problem: Option<String>,
}

/// The settings of the process.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigView {
    /// The configuration file, if there was one.
    pub file: Option<String>,
    /// Every setting in force, in the order of the reference.
    pub settings: Vec<SettingView>,
    /// Settings that differed at the last reload and need a restart.
    pub pending: Vec<Change>,
    /// `None`: no reload since the start.
    pub last_reload: Option<LastReload>,
}

/// One setting in force.
#[derive(Clone, Debug, Serialize)]
pub struct SettingView {
    /// `section.key`.
    pub setting: String,
    /// `None`: not set, the default depends on other settings or on the machine.
    pub value: Option<Value>,
    /// Where the value came from.
    pub origin: String,
    /// When a change has an effect.
    pub takes_effect: TakesEffect,
}

impl LastReload {
    pub(crate) fn now(result: Result<(), &Refusal>) -> Self {
        let problem = result.err().map(|refusal| refusal.message.clone());
        Self { at: Timestamp::now().to_string(), successful: problem.is_none(), problem }
    }
}

impl InForce {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, pending: Vec::new(), last_reload: None }
    }

    pub(crate) fn view(&self) -> ConfigView {
        let settings = self.config.effective.iter().map(|one| SettingView {
            setting: one.path.clone(),
            value: one.value.as_deref().map(toml_as_json),
            origin: one.origin.to_string(),
            takes_effect: if is_live(&one.path) { TakesEffect::Reload } else { TakesEffect::Restart },
        });
        ConfigView {
            file: self.config.file.as_ref().map(|file| file.0.display().to_string()),
            settings: settings.collect(),
            pending: self.pending.clone(),
            last_reload: self.last_reload.clone(),
        }
    }
}
