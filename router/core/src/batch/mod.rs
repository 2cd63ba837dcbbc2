//! Batching policies: when to fire a queue, and how many rows to take. One file and one word each.
//!
//! A policy looks and answers; the machine takes the requests, checks deadlines and limits, and chooses the
//! lane. A policy learns only in [`BatchPolicy::observe`].

use std::fmt;

use crate::{ConfigError, CostModel, Nanos};

/// One queue as a policy sees it: requests of one model, class and shape, earliest deadline first. Never empty.
#[derive(Clone, Copy, Debug)]
pub struct QueueView<'a> {
    /// Rows waiting.
    pub rows: u32,
    /// Rows of the first request.
    pub head_rows: u32,
    /// Deadline of the first request, [`Nanos::NEVER`] if it has none.
    pub head_deadline: Nanos,
    /// Arrival of the request that waits longest.
    pub oldest_arrival: Nanos,
    /// Payload bytes a row.
    pub row_bytes: u64,
    /// The model's largest batch in rows.
    pub max_batch: u32,
    /// Lanes that run this model, at least 1.
    pub lanes: u32,
    /// What its batches cost.
    pub cost: &'a CostModel,
}

/// What to do with a queue when a lane is free for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start a batch of at most this many rows; whole requests only, at least the first one.
    Fire {
        /// Rows.
        take: u32,
    },
    /// Look again then, or when the queue changes.
    WaitUntil(Nanos),
}

/// A finished batch, for policies that learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Rows that ran.
    pub rows: u32,
    /// Payload bytes a row.
    pub row_bytes: u64,
    /// From the lane taking it up to its report.
    pub time: Nanos,
}

/// The options a policy may take; each policy refuses those it has no use for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOptions {
    /// Longest time a request waits for others.
    pub max_delay: Option<Nanos>,
    /// Batch sizes worth firing at once, ascending.
    pub preferred: Vec<u32>,
}

/// How batches are formed.
pub trait BatchPolicy: Sized {
    /// The word in the configuration.
    const NAME: &'static str;
    /// One line for lists of policies.
    const SUMMARY: &'static str;

    /// Refuses options that it does not take or that make no sense.
    fn new(options: &BatchOptions) -> Result<Self, ConfigError>;

    /// Looks, never changes.
    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision;

    /// The only place where a policy learns.
    fn observe(&mut self, _now: Nanos, _done: &Observation) {}
}

macro_rules! policies {
    ($($module:ident :: $policy:ident),+ $(,)?) => {
        $(mod $module; pub use $module::$policy;)+

        /// Any of the policies.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Policy { $(
            #[doc = concat!("See [`", stringify!($policy), "`].")]
            $policy($policy),
        )+ }

        impl Policy {
            /// Every policy's name and summary, in the order of the list.
            pub const ALL: &'static [(&'static str, &'static str)] =
                &[$(($policy::NAME, $policy::SUMMARY)),+];

            /// The policy of that name.
            pub fn new(name: &str, options: &BatchOptions) -> Result<Self, ConfigError> {
                $(if name == $policy::NAME { return $policy::new(options).map(Self::$policy); })+
                let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
                Err(ConfigError::new("policy", format!("unknown policy `{name}`, expected one of {}", names.join(", "))))
            }

            /// Its name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$policy(_) => $policy::NAME),+ }
            }

            pub(crate) fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
                match self { $(Self::$policy(policy) => policy.decide(now, queue)),+ }
            }

            pub(crate) fn observe(&mut self, now: Nanos, done: &Observation) {
                match self { $(Self::$policy(policy) => policy.observe(now, done)),+ }
            }
        }
    };
}

policies![deadline::Deadline, greedy::Greedy, window::Window];

impl Default for Policy {
    fn default() -> Self {
        Self::Deadline(Deadline)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn refuse_max_delay(policy: &str, options: &BatchOptions) -> Result<(), ConfigError> {
    match options.max_delay {
        Some(_) => Err(ConfigError::new(
            "max_delay",
            format!("policy `{policy}` never waits, remove it or use `window`"),
        )),
        None => Ok(()),
    }
}

fn refuse_preferred(policy: &str, options: &BatchOptions) -> Result<(), ConfigError> {
    if options.preferred.is_empty() {
        return Ok(());
    }
    Err(ConfigError::new(
        "preferred",
        format!("policy `{policy}` chooses sizes itself, remove it or use `window`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_list_builds_its_policy() {
        for (name, _) in Policy::ALL {
            let options = if *name == "window" {
                BatchOptions { max_delay: Some(Nanos::from_millis(1)), preferred: vec![4] }
            } else {
                BatchOptions::default()
            };
            assert_eq!(Policy::new(name, &options).unwrap().name(), *name);
        }
        let error = Policy::new("magic", &BatchOptions::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "policy: unknown policy `magic`, expected one of deadline, greedy, window"
        );
    }
}
