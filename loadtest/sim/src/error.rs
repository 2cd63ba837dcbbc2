//! Errors of a simulation: an invalid setup or workload, or a broken invariant of the core.

use std::fmt;

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
    /// R1 to R9.
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

impl From<router_core::Violation> for Breach {
    fn from(violation: router_core::Violation) -> Self {
        Self { id: violation.id, detail: violation.detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
