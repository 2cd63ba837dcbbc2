//! `tessera plan`: computes gpulets, batch sizes and the number of devices from objectives, rates and profiles.
//!
//! `gpulet-core` makes the decisions. The figures about a plan come from the validator, not from the planner.

pub mod arguments;
mod document;
mod doubt;
mod explain;
mod explanation;
mod families;
mod fields;
mod format;
mod json;
mod picture;
mod pipelines;
pub mod reading;
mod report;
mod shapes;
mod shortage;
mod splitting;
mod study;

use std::process::ExitCode;

use anyhow::Context as _;
use gpulet_core::placement::Policy;
use node::output;

use arguments::PlanArgs;
use families::FamilyStudy;
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
    if let Some(problem) = unknown_policy(arguments, &query) {
        output::complain(&format!("error: {problem}"));
        return Ok(ExitCode::from(WRONG_USAGE));
    }
    let (query, study, families) = studied(arguments, query);
    output::write(answer(arguments, &query, &study, families.as_ref())?.as_bytes());
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
    let sound = match (&families, &query.question) {
        (Some(families), Some(question)) => families.best().is_some_and(|(_, plan)| plan.is_sound(question)),
        _ => study::best(&study).is_some_and(|(_, planned)| planned.validation.is_sound()),
    };
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the policies. The query that comes back has the problem of the best plan.
fn studied(arguments: &PlanArgs, query: PlanQuery) -> (PlanQuery, Study, Option<FamilyStudy>) {
    let Some(question) = &query.question else {
        let study = study::study(&query.problem, policies(arguments));
        return (query, study, None);
    };
    let wanted = |name: &&str| match (arguments.compare, arguments.policy.as_slice()) {
        (true, _) => true,
        (false, []) => *name == Policy::default().name(),
        (false, named) => named.iter().any(|known| known == name),
    };
    let names: Vec<&'static str> = families::names().into_iter().filter(wanted).collect();
    let families = families::study(question, &names, arguments.explain);
    let (query, study) = match families.of_best() {
        Some((problem, study)) => (PlanQuery { problem, ..query }, study),
        None => (query, Study::default()),
    };
    (query, study, Some(families))
}

/// A policy that is of no use with this file.
fn unknown_policy(arguments: &PlanArgs, query: &PlanQuery) -> Option<String> {
    let is_placement = |name: &str| Policy::named(name).is_some();
    let wrong = |name: &&String| match query.question {
        Some(_) => is_placement(name) && !families::PLACED.contains(&name.as_str()),
        None => !is_placement(name),
    };
    let name = arguments.policy.iter().find(wrong)?;
    Some(match query.question {
        Some(_) => format!(
            "--policy: `{name}` does not place families: expected one of {}",
            families::names().join(", ")
        ),
        None => format!(
            "--policy: `{name}` chooses variants: expected [families.NAME] in the file, or one of {}",
            Policy::NAMES.join(", ")
        ),
    })
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

fn answer(
    arguments: &PlanArgs,
    query: &PlanQuery,
    study: &Study,
    families: Option<&FamilyStudy>,
) -> anyhow::Result<String> {
    let best = study::best(study).filter(|_| arguments.explain);
    let explained = best.map(|(_, planned)| explain::explain(query, &planned.plan));
    if arguments.json {
        return Ok(json::json(query, study, explained.as_deref(), families)? + "\n");
    }
    let mut text = report::text(query, study, families);
    if let (Some((_, planned)), Some(explained)) = (best, explained) {
        text.push_str(&explanation::text(query, &planned.plan, &explained));
    }
    Ok(text)
}

/// The best plan as a picture; `None` if there is no plan.
fn drawn(query: &PlanQuery, study: &Study) -> Option<String> {
    let (entry, planned) = study::best(study)?;
    Some(picture::picture(query, entry.policy, planned))
}

#[cfg(test)]
mod tests;
