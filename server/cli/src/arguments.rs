//! Options of the commands that need no module of their own.

use clap::{Args, Subcommand};
use node::config::ConfigArgs;

/// Options of `check`.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckArgs {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Also load every model with its engine.
    #[arg(long)]
    pub load: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug, Default)]
pub struct DoctorArgs {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `models`.
#[derive(Args, Clone, Debug)]
pub struct ModelsArgs {
    /// Address of the server's REST interface.
    #[arg(long, short, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub server: String,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    /// What to do; `list` if left out.
    #[command(subcommand)]
    pub action: Option<ModelsAction>,
}

/// What to do with a server's models.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelsAction {
    /// All models of the repository, and their state.
    List,
    /// Load or reload a model; the old version serves until the new one is ready.
    Load {
        /// Its name.
        model: String,
    },
    /// Unload a model; queued requests are answered first.
    Unload {
        /// Its name.
        model: String,
    },
}
