//! Policies as named on the command line, and the settings that a comparison runs.

use models::TimeSpan;
use router_core::Nanos;
use router_core::batch::{BatchOptions, DropMode, Policy};
use sim::Setup;
use units::nearest;
use workload::Workload;

/// Names of the options after a policy's colon.
const OPTIONS: [&str; 3] = ["max_delay", "preferred", "drop"];
/// Preferred batch sizes of the `triton` policy in a comparison.
const PREFERRED: [u32; 3] = [4, 8, 16];

/// A policy in a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Options and label of the policy.
    pub setup: Setup,
    /// Index of its colour in plots.
    pub colour: usize,
}

/// A policy from `NAME` or `NAME:OPTION=VALUE,...`. Policies with options are told apart by their number among
/// those.
pub fn parse(text: &str, setting: usize) -> Result<Candidate, String> {
    let text = text.trim();
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let name = name.trim();
    let colour = |options: &str| if options.is_empty() { number(name) } else { Policy::ALL.len() + setting };
    let batching = read_options(options).map_err(|problem| format!("policy `{text}`: {problem}"))?;
    let setup = Setup::named(name, &batching).map_err(|error| {
        let known: Vec<_> = Policy::ALL.iter().map(|(known, _)| *known).collect();
        match nearest(name, &known) {
            Some(meant) if meant != name => format!("{}; did you mean `{meant}`?", error.problem),
            None => error.problem,
            Some(_) => error.to_string(),
        }
    })?;
    Ok(Candidate { setup: setup.labelled(text), colour: colour(options) })
}

/// Place of a policy in the list of all.
fn number(name: &str) -> usize {
    Policy::ALL.iter().position(|(known, _)| *known == name).unwrap_or(0)
}

fn read_options(text: &str) -> Result<BatchOptions, String> {
    let mut options = BatchOptions::default();
    for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let (key, value) =
            option.split_once('=').ok_or_else(|| format!("`{option}`: expected OPTION=VALUE"))?;
        match key.trim() {
            "max_delay" => {
                let span: TimeSpan = value.parse().map_err(|error| format!("max_delay: {error}"))?;
                options.max_delay = Some(Nanos::from(span.0));
            }
            "preferred" => {
                let sizes: Result<Vec<u32>, _> = value.split('|').map(|size| size.trim().parse()).collect();
                options.preferred =
                    sizes.map_err(|_| format!("preferred: expected rows like 4|8, got `{value}`"))?;
            }
            "drop" => {
                options.drop = Some(match value.trim() {
                    "early" => DropMode::Early,
                    "lazy" => DropMode::Lazy,
                    other => return Err(format!("drop: expected early or lazy, got `{other}`")),
                });
            }
            other => {
                if let Some(problem) = workload::not_simulated(other) {
                    return Err(format!("{other}: {problem}"));
                }
                let hint = nearest(other, &OPTIONS).map(|meant| format!("; did you mean `{meant}`?"));
                let hint = hint.unwrap_or_default();
                return Err(format!(
                    "unknown option `{other}`, expected one of {}{hint}",
                    OPTIONS.join(", ")
                ));
            }
        }
    }
    Ok(options)
}

/// Every policy as published, and the other settings of policies that have some:
///
/// * `triton`: no delay; a delay of half the SLO less the time of the largest batch (a request that just missed a
///   full batch waits for one and runs in the next); and each of the preferred sizes 4, 8 and 16 with a delay of
///   half the SLO less the time of such a batch. Settings hold for all models, so the least of the models' delays
///   counts; a delay of zero equals no delay and is left out.
/// * `nexus`: early drop, and lazy drop (`drop=lazy`).
pub fn field(workload: &Workload) -> Result<Vec<Candidate>, String> {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut settings = 0;
    for (name, _) in Policy::ALL {
        let others = match *name {
            "triton" => triton(workload),
            "nexus" => vec!["nexus:drop=lazy".to_owned()],
            _ => Vec::new(),
        };
        candidates.push(parse(name, 0)?);
        for text in others {
            candidates.push(parse(&text, settings)?);
            settings += 1;
        }
    }
    Ok(candidates)
}

fn triton(workload: &Workload) -> Vec<String> {
    let spare = |rows: Option<u32>| {
        let models = workload.models.iter().filter(|model| model.deadline);
        let delays = models.filter_map(|model| {
            let profile = model.profile.as_ref()?;
            let rows = rows.unwrap_or(u32::MAX).min(profile.max_batch());
            Some((model.slo / 2).saturating_sub(profile.time(rows)))
        });
        // Whole hundredths of a millisecond, for a name that people can read.
        delays.min().map_or(0, |delay| delay / 10_000)
    };
    let shown = |delay: u64| format!("{}ms", delay as f64 / 100.0);
    let full = Some(spare(None))
        .filter(|delay| *delay > 0)
        .map(|delay| format!("triton:max_delay={}", shown(delay)));
    let preferred = PREFERRED.into_iter().filter_map(|size| {
        let delay = Some(spare(Some(size))).filter(|delay| *delay > 0)?;
        Some(format!("triton:max_delay={},preferred={size}", shown(delay)))
    });
    full.into_iter().chain(preferred).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(slo: &str, max_batch: u32) -> Workload {
        let text = format!(
            "name = \"w\"\nduration = \"1s\"\n[models.m]\nslo = \"{slo}\"\nrate = 10.0\nprofile = {{ alpha = \"1ms\", beta = \"5ms\", max_batch = {max_batch} }}"
        );
        Workload::parse(&text, &mut |_: &str| Err("no files".to_owned())).unwrap()
    }

    #[test]
    fn options_reach_the_policy() {
        let candidate = parse("triton:max_delay=2ms,preferred=4|8", 3).unwrap();
        let options =
            BatchOptions { max_delay: Some(Nanos::from_millis(2)), preferred: vec![4, 8], drop: None };
        assert_eq!(candidate.setup.policy, Policy::new("triton", &options).unwrap());
        assert_eq!(candidate.setup.label, "triton:max_delay=2ms,preferred=4|8");
        assert_eq!(parse("deadline", 3).unwrap().colour, 0);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("deadlin", "unknown policy `deadlin`, expected one of deadline, "),
            ("deadlin", "did you mean `deadline`?"),
            ("", "unknown policy ``"),
            ("deadline:max_delay=2ms", "max_delay: policy `deadline` has no use for it, remove it"),
            ("triton:max_delay=2", "max_delay: expected a duration such as `50ms`"),
            ("triton:max_dely=2ms", "unknown option `max_dely`, expected one of max_delay, preferred, drop"),
            ("triton:max_dely=2ms", "did you mean `max_delay`?"),
            (
                "triton:timeout_action=DELAY",
                "timeout_action: the simulator and the planner have no queue policies",
            ),
            ("triton:preferred=4;8", "preferred: expected rows like 4|8, got `4;8`"),
            ("triton:preferred", "`preferred`: expected OPTION=VALUE"),
            ("triton:drop=never", "expected early or lazy, got `never`"),
        ] {
            let error = parse(text, 0).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn the_field_has_every_policy_and_the_settings_that_fit() {
        let labels = |workload: &Workload| -> Vec<String> {
            field(workload).unwrap().into_iter().map(|candidate| candidate.setup.label).collect()
        };
        let tight = labels(&workload("25ms", 64));
        let mut colours: Vec<_> =
            field(&workload("100ms", 16)).unwrap().iter().map(|candidate| candidate.colour).collect();
        colours.sort_unstable();
        assert!(colours.iter().copied().eq(0..colours.len()), "one for each: {colours:?}");
        for (name, _) in Policy::ALL {
            assert!(tight.iter().any(|label| label == name), "{name}");
        }
        let settings: Vec<_> = tight.iter().filter(|label| label.starts_with("triton")).collect();
        assert_eq!(
            settings,
            ["triton", "triton:max_delay=3.5ms,preferred=4"],
            "half of 25 ms is 12.5, less 9"
        );
        let loose = labels(&workload("100ms", 16));
        assert!(loose.contains(&"triton:max_delay=29ms".to_owned()), "{loose:?}");
        assert!(loose.contains(&"triton:max_delay=37ms,preferred=8".to_owned()), "{loose:?}");
    }
}
