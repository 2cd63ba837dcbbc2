//! `tessera colocate`: published policies for sharing GPUs between online and offline work, in virtual time.

pub mod arguments;
mod cluster;
mod jobs;
mod kernels;
mod lists;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use node::output;

use arguments::{ColocateAction, ColocateArgs};

/// Runs the comparison and prints it.
pub fn run(arguments: &ColocateArgs) -> anyhow::Result<ExitCode> {
    output::write(report(arguments)?.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn report(arguments: &ColocateArgs) -> anyhow::Result<String> {
    match &arguments.action {
        ColocateAction::Kernels(arguments) => kernels::report(arguments),
        ColocateAction::Jobs(arguments) => jobs::report(arguments),
        ColocateAction::Cluster(arguments) => cluster::report(arguments),
    }
}

/// The words that were asked for: all, if one of them is `all`.
fn words<'a>(asked: &'a [String], all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    if asked.iter().any(|word| word == "all") {
        all.collect()
    } else {
        asked.iter().map(String::as_str).collect()
    }
}

/// A mean over runs.
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// The figures of all runs, with their digits.
fn each(values: impl Iterator<Item = f64>, digits: usize) -> String {
    values.map(|value| format!("{value:.digits$}")).collect::<Vec<_>>().join(" ")
}
