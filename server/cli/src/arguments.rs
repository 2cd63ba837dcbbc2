//! Options of `check`, `config`, `doctor`, `explain` and `models`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use node::config::ConfigArgs;

use crate::rest::ServerArgs;

/// Options of `check`.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Explain a setting instead: its meaning, values, default and an example. KEY is a path such as `limits.body`, a key, or
    /// a section.
    #[arg(long, value_name = "KEY")]
    pub explain: Option<String>,
    /// Also load every model with its engine.
    #[arg(long)]
    pub load: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `config`.
#[derive(Args, Clone, Debug)]
pub struct ConfigCommandArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Print the server's response as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with a server's configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigAction {
    /// Show the settings in force, where each came from, and what waits for a restart.
    Show {
        /// Show only this setting, or the settings of this section.
        key: Option<String>,
        /// Also show settings that have their defaults.
        #[arg(long)]
        all: bool,
    },
    /// Show what a reload would change. Nothing is changed.
    Diff {
        /// File to compare with what is in force. Default: the server's own file as it is now.
        file: Option<PathBuf>,
    },
    /// Reload the server's configuration file, as SIGHUP does.
    Reload,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug, Default)]
pub struct DoctorArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Id of a request: the `x-request-id` of its response. Without one, the last requests are listed.
    pub id: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Requests to this model only.
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub model: Option<String>,
    /// Requests of this tenant only: its name in `[tenants.NAME]`, `default` or `other`.
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub tenant: Option<String>,
    /// Requests that ended this way only: in_time, late, refused, failed or cancelled.
    #[arg(long, conflicts_with = "id")]
    pub outcome: Option<String>,
    /// Requests that were not answered for this reason only, such as deadline_unmeetable.
    #[arg(long, conflicts_with = "id")]
    pub reason: Option<String>,
    /// Most requests to list, 1 to 1000.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, conflicts_with = "id")]
    pub limit: u32,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `models`.
#[derive(Args, Clone, Debug)]
pub struct ModelsArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Print the result as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do; `list` if left out.
    #[command(subcommand)]
    pub action: Option<ModelsAction>,
}

/// What to do with a server's models.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelsAction {
    /// List all models of the repository with their state.
    List,
    /// Load or reload a model; the old version serves until the new one is ready.
    Load {
        /// Name of the model.
        model: String,
    },
    /// Unload a model; queued requests are answered first.
    Unload {
        /// Name of the model.
        model: String,
    },
    /// Show the roll-out of a new version of a model: under way, or the last one.
    Rollout {
        /// Name of the model.
        model: String,
    },
    /// Give the new version of a roll-out all requests now.
    Promote {
        /// Name of the model.
        model: String,
    },
    /// Take the new version of a roll-out out of service now.
    Rollback {
        /// Name of the model.
        model: String,
    },
}
