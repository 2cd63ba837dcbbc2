//! `tessera variants`: makes variants of a model, and measures the quality of models for `[families.NAME]` and for votes.

mod answers;
pub mod arguments;
mod classifiers;
mod make;
mod measure;
mod vote;

use std::process::ExitCode;

use node::config::Config;
use node::environment::Environment;

use arguments::{VariantsAction, VariantsArgs};

/// Runs the command.
pub fn run(config: &Config, arguments: &VariantsArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    match &arguments.action {
        VariantsAction::Measure(arguments) => measure::run(config, arguments, environment),
        VariantsAction::Vote(arguments) => vote::run(config, arguments, environment),
        VariantsAction::Make(arguments) => make::run(config, arguments),
    }
}
