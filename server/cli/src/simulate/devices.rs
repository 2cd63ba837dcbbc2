//! Devices that were needed, for people: a table of the runs, and when their number changed.

use node::output;
use sim::Report;
use sim::page::{number, percent};
use sim::report::PartitionFigures;

use super::study::Study;

/// Changes of the number of devices that are told one by one.
const STEPS_MAX: usize = 16;

/// Mean error, in percent, of predictions that neighbours change nothing from which on it is told what they do.
const WORTH_TELLING: f64 = 1.0;

/// What the devices were used for; empty for a workload that cuts none.
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

/// What a reader must know to trust the figures of a run.
pub fn notes(label: &str, run: &Report) -> Vec<String> {
    let Some(figures) = &run.partition else { return Vec::new() };
    let mut notes = Vec::new();
    if figures.share_least < 1.0 {
        notes.push(format!(
            "{label}: the {} devices were too few at times: plans were made for {} of what was wanted at least",
            figures.devices,
            percent(figures.share_least)
        ));
    }
    for known in &figures.interference {
        let (Some(error), Some(none)) = (known.error, known.error_uncorrected) else { continue };
        if none.mean_pct >= WORTH_TELLING {
            notes.push(format!(
                "{label}: batch times beside neighbours on `{}` were predicted {:.1} % off in the mean ({:.1} % at the 90th \
                 percentile); {:.1} % ({:.1} %) as if neighbours changed nothing",
                known.device_type, error.mean_pct, error.p90_pct, none.mean_pct, none.p90_pct
            ));
        }
    }
    if let Some(problem) = &figures.problem {
        notes.push(format!("{label}: a plan was not in force: {problem}"));
    }
    notes
}
