//! `tessera tune` finds the configuration of a model with the highest capacity at an objective.

pub mod arguments;
mod attempts;
mod comparison;
mod confirmation;
mod grid_file;
mod path;
mod report;
mod search_run;
mod settings;
mod trial;

use std::process::ExitCode;

use node::config::Config;
use node::environment::Environment;

use crate::load::interruption;
use arguments::TuneArgs;

/// Searches, and prints the settings.
pub fn run(config: &Config, arguments: &TuneArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let stop = interruption::flag()?;
    search_run::run(config, arguments, environment, &stop)
}
