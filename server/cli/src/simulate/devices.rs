//! Table of the devices that runs used, and when their number changed.

use charts::{number, percent};
use node::output;
use sim::report::PartitionFigures;

use super::study::Study;

/// Maximum number of changes that are listed one by one.
const STEPS_MAX: usize = 16;

/// The table; empty for a workload without `[partition]`.
pub fn text(study: &Study) -> String {
    let runs: Vec<(&str, &PartitionFigures)> = study
        .standings
        .iter()
        .filter_map(|standing| Some((standing.label.as_str(), standing.first()?.partition.as_ref()?)))
        .collect();
    let Some((best, first)) = runs.first() else { return String::new() };
    let header =
        ["devices", "placement", "rates by", "at most", "mean", "device hours", "tables", "least share"];
    let rows = runs.iter().map(|(label, figures)| {
        vec![
            (*label).to_owned(),
            figures.policy.clone(),
            figures.plan.clone().unwrap_or_else(|| figures.scaling.clone()),
            format!("{} of {}", figures.devices_most, figures.devices),
            number(figures.devices_mean),
            number(figures.device_seconds / 3_600.0),
            number(figures.changes as f64),
            percent(figures.share_least),
        ]
    });
    let mut text = output::table(&header, rows);
    if runs.len() == 1 {
        text.push_str(&format!("devices used by {best}: {}\n", steps(first)));
    }
    text
}

/// `4 at 0 s, 1 at 6 s ...`.
fn steps(figures: &PartitionFigures) -> String {
    let steps = figures.steps.iter().take(STEPS_MAX);
    let mut told: Vec<String> =
        steps.map(|step| format!("{} from {} s", step.devices, number(step.t))).collect();
    if figures.steps.len() > STEPS_MAX {
        told.push(format!("and {} changes more", figures.steps.len() - STEPS_MAX));
    }
    told.join(", ")
}
