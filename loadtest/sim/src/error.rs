//! Errors of a simulation: an invalid setup or workload, or a broken invariant of the core.

use std::fmt;

use invariant::Violation;
use router_core::ConfigError;
use workload::WorkloadError;

/// Why a simulation failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The setup is invalid.
    #[error(transparent)]
    Setup(#[from] ConfigError),
    /// The workload cannot be offered at this rate.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// An invariant does not hold: a bug in the core or in a policy.
    #[error(transparent)]
    Broken(#[from] Box<Broken>),
}

/// A broken invariant, and how to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// R1 to R14, G3, or the name of a state that cannot happen, such as `rollout.end_without_target`.
    pub id: &'static str,
    /// Description of the breach.
    pub detail: String,
    /// Name of the workload.
    pub workload: String,
    /// Name of the policy.
    pub policy: String,
    /// Seed of the run.
    pub seed: u64,
    /// Nanoseconds of virtual time.
    pub at: u64,
    /// Events that the router had processed by then, including the last one.
    pub event: u64,
    /// The last events and effects, oldest first, if the setup asked for them.
    pub trace: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, detail, workload, policy, seed, at, event, trace } = self;
        write!(
            f,
            "{id} is broken: {detail} (workload `{workload}`, policy `{policy}`, seed {seed}, at {at} ns, event {event})"
        )?;
        trace.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for Broken {}

/// A broken invariant, before the run is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub id: &'static str,
    pub detail: String,
}

impl Breach {
    /// Returns an error unless the invariant holds.
    pub(crate) fn unless(holds: bool, id: &'static str, detail: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self { id, detail: detail() }) }
    }
}

impl Breach {
    /// Returns an error that lists the states that cannot happen and were reached between two lists of them.
    pub(crate) fn of_violations(before: &[Violation], after: &[Violation]) -> Result<(), Self> {
        let count_before = |found: &Violation| {
            let known = before.iter().find(|known| (known.file, known.line) == (found.file, found.line));
            known.map_or(0, |known| known.count)
        };
        let grown = after.iter().map(|found| (found, found.count.saturating_sub(count_before(found))));
        let reached: Vec<(&Violation, u64)> = grown.filter(|(_, count)| *count > 0).collect();
        let Some((first, _)) = reached.first() else { return Ok(()) };
        let places = reached
            .iter()
            .map(|(found, count)| format!("`{}` at {}:{} (count {count})", found.id, found.file, found.line));
        let places: Vec<String> = places.collect();
        let detail = format!("states that cannot happen were reached: {}", places.join("; "));
        Err(Self { id: first.id, detail })
    }
}

impl From<router_core::Violation> for Breach {
    fn from(violation: router_core::Violation) -> Self {
        Self { id: violation.id, detail: violation.detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_reached_during_the_run_is_an_error() {
        let at = |id, line, count| Violation { id, file: "waves.rs", line, count };
        let before = [at("rollout.old", 7, 2)];
        assert_eq!(Breach::of_violations(&before, &before), Ok(()));
        let after = [at("rollout.old", 7, 3), at("rollout.new", 9, 4)];
        let breach = Breach::of_violations(&before, &after).unwrap_err();
        assert_eq!(breach.id, "rollout.old");
        assert_eq!(
            breach.detail,
            "states that cannot happen were reached: `rollout.old` at waves.rs:7 (count 1); \
             `rollout.new` at waves.rs:9 (count 4)"
        );
    }

    #[test]
    fn a_broken_invariant_tells_how_to_see_it_again() {
        let broken = Broken {
            id: "R2",
            detail: "started too late".to_owned(),
            workload: "busy".to_owned(),
            policy: "magic".to_owned(),
            seed: 7,
            at: 12,
            event: 34,
            trace: vec!["11 ns Tick".to_owned()],
        };
        assert_eq!(
            SimError::from(Box::new(broken)).to_string(),
            "R2 is broken: started too late (workload `busy`, policy `magic`, seed 7, at 12 ns, event 34)\n  11 ns Tick"
        );
    }
}
