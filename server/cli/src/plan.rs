//! `tessera plan`: computes gpulets, batch sizes and the number of devices from objectives, rates and profiles.
//!
//! `gpulet-core` makes the decisions. The figures about a plan come from the validator, not from the planner.

pub mod arguments;
mod document;
mod explain;
mod explanation;
mod fields;
mod format;
mod json;
mod picture;
mod pipelines;
pub mod reading;
mod report;
mod shapes;
mod study;

use std::process::ExitCode;

use anyhow::Context as _;
use gpulet_core::placement::Policy;
use node::output;

use arguments::PlanArgs;
use reading::PlanQuery;
use study::Study;

/// Exit code for a wrong command line or an error in a file, the same as for unknown flags.
const WRONG_USAGE: u8 = 2;

/// Plans, and prints the result.
pub fn run(arguments: &PlanArgs) -> anyhow::Result<ExitCode> {
    let query = match reading::read(&arguments.problem, &arguments.devices) {
        Ok(query) => query,
        Err(error) => {
            output::complain(&format!("error: {error:#}"));
            return Ok(ExitCode::from(WRONG_USAGE));
        }
    };
    let study = study::study(&query.problem, policies(arguments));
    output::write(answer(arguments, &query, &study)?.as_bytes());
    if let Some(path) = &arguments.svg {
        match drawn(&query, &study) {
            Some(svg) => {
                std::fs::write(path, svg)
                    .with_context(|| format!("--svg: cannot write `{}`", path.display()))?;
                if !arguments.json {
                    output::line(&format!("picture: {}", path.display()));
                }
            }
            None => output::complain(&format!(
                "--svg: cannot write `{}`: there is no plan to draw",
                path.display()
            )),
        }
    }
    let sound = report::best(&study).is_some_and(|(_, planned)| planned.validation.is_sound());
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn policies(arguments: &PlanArgs) -> Vec<Policy> {
    let named = |names: &mut dyn Iterator<Item = &str>| names.filter_map(Policy::named).collect();
    if arguments.compare {
        return named(&mut Policy::NAMES.iter().copied());
    }
    if arguments.policy.is_empty() {
        return vec![Policy::default()];
    }
    let mut names: Vec<&str> = arguments.policy.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    named(&mut names.into_iter())
}

fn answer(arguments: &PlanArgs, query: &PlanQuery, study: &Study) -> anyhow::Result<String> {
    let best = report::best(study).filter(|_| arguments.explain);
    let explained = best.map(|(_, planned)| explain::explain(query, &planned.plan));
    if arguments.json {
        return Ok(json::json(query, study, explained.as_deref())? + "\n");
    }
    let mut text = report::text(query, study);
    if let (Some((_, planned)), Some(explained)) = (best, explained) {
        text.push_str(&explanation::text(query, &planned.plan, &explained));
    }
    Ok(text)
}

/// The best plan as a picture; `None` if there is no plan.
fn drawn(query: &PlanQuery, study: &Study) -> Option<String> {
    let (entry, planned) = report::best(study)?;
    Some(picture::picture(query, entry.policy.name(), planned))
}

#[cfg(test)]
mod tests;
