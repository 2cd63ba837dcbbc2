//! `tessera parallel`: models split over several devices, planned and simulated.

pub mod arguments;
mod layout;
mod place;
mod split;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use node::output;

use arguments::{ParallelAction, ParallelArgs};

/// Runs the search and prints what it found.
pub fn run(arguments: &ParallelArgs) -> anyhow::Result<ExitCode> {
    output::write(report(arguments)?.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn report(arguments: &ParallelArgs) -> anyhow::Result<String> {
    match &arguments.action {
        ParallelAction::Place(arguments) => place::report(arguments),
        ParallelAction::Split(arguments) => split::report(arguments),
        ParallelAction::Layout(arguments) => layout::report(arguments),
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

/// Milliseconds for people.
fn ms(seconds: f64) -> String {
    format!("{:.2}", 1e3 * seconds)
}

/// How much more than the best cost, in percent.
fn gap(cost: f64, best: Option<f64>) -> String {
    best.map_or_else(|| "-".to_owned(), |best| format!("{:.2}", 100.0 * (cost / best - 1.0)))
}
