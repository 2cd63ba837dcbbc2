//! Batching policies: when to fire a queue, how many rows to take, which requests to drop. Each is one file and one name.
//!
//! A policy reads a view and returns a decision. The machine takes the requests, checks limits, and chooses the lane. A
//! policy learns only in [`BatchPolicy::observe`].
//!
//! What only some policies can do is a *capability*: a trait in a file of its own, which also holds the state that it needs
//! for each model or pool. A policy says which capabilities it has in its [`BatchPolicy`].

mod chooses;
mod demand;
mod forecasts_wait;
mod plans;
mod plans_ahead;
mod preempts;
mod view;

use std::fmt;

use serde::Serialize;

use crate::{ConfigError, CostModel, Nanos};

pub use self::nexus::packing;
pub use crate::queue::Waiting;
pub use chooses::{Candidate, Chooses};
pub use demand::Demand;
pub(crate) use demand::{Counted, PoolDemand, Silence};
pub use forecasts_wait::ForecastsWait;
pub(crate) use forecasts_wait::WaitForecast;
pub(crate) use plans::NextPlan;
pub use plans::{Assignment, Plans, Session};
pub use plans_ahead::PlansAhead;
pub(crate) use plans_ahead::least_ahead;
pub use preempts::Preempts;
#[cfg(test)]
pub(crate) use view::Scene;
pub use view::{LaneEnd, PoolView, QueueView};

/// A batch that a policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Requests at the head of the queue to drop, so that those after them can be answered.
    pub skip: u32,
    /// At most this many rows; whole requests only, at least one.
    pub take: u32,
    /// Priority among queues that want the same lane: the smallest goes first. A time in nanoseconds for all policies
    /// that may share lanes with others.
    pub rank: u64,
    /// For people.
    pub reason: StartReason,
}

/// What to do with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start this as soon as there is a lane; what is waiting then is asked about again.
    Fire(Proposal),
    /// Look again then, or when the queue changes.
    Wait(Nanos),
}

/// Why a batch was started at that time with that many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StartReason {
    /// A lane was free; the policy never waits.
    LaneFree,
    /// As many rows as a batch may have.
    Full,
    /// One of the preferred sizes was reached.
    PreferredSize,
    /// The first request had waited for as long as the policy lets it.
    DelayOver,
    /// The first request could not have waited any longer.
    LastStart,
    /// Enough rows for the lanes that are free or soon will be, or no more are expected.
    Enough,
    /// The size that answers what waits soonest.
    SoonestOnAverage,
    /// The batch with the most requests of all queues.
    Largest,
    /// The size that the plan gives to this model on this lane.
    Planned,
    /// Runs alone because its batch failed.
    Alone,
    /// Those before it would be too late on this lane and wait for a faster one.
    PassedOver,
}

impl StartReason {
    /// Every reason, in the order of the enum.
    pub const ALL: [Self; 11] = [
        Self::LaneFree,
        Self::Full,
        Self::PreferredSize,
        Self::DelayOver,
        Self::LastStart,
        Self::Enough,
        Self::SoonestOnAverage,
        Self::Largest,
        Self::Planned,
        Self::Alone,
        Self::PassedOver,
    ];
}

/// When the machine drops a queued request without asking the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropMode {
    /// As soon as not even a batch of its own would be done by its deadline (early drop).
    Early,
    /// When its deadline has passed (lazy drop); a batch may be started that ends too late.
    Lazy,
}

/// A finished batch, for policies that learn.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Rows that ran.
    pub rows: u32,
    /// Payload bytes a row.
    pub row_bytes: u64,
    /// From the lane taking it up to its report.
    pub time: Nanos,
    /// From arrival to deadline of its first request, if that had one.
    pub slo: Option<Nanos>,
    /// Rows a second of the model that wanted in lately.
    pub rate: f64,
    /// The model's largest batch in rows.
    pub max_batch: u32,
    /// The shortest objective that was seen on the model's lanes lately.
    pub tightest: Nanos,
    /// What batches cost, this one included.
    pub cost: &'a CostModel,
}

/// The options a policy may take; each policy refuses those it has no use for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOptions {
    /// Longest time a request waits for others.
    pub max_delay: Option<Nanos>,
    /// Batch sizes worth firing at once, ascending; for a planning policy, the one size to use instead of its plan's.
    pub preferred: Vec<u32>,
    /// When hopeless requests are dropped, for policies that support both modes.
    pub drop: Option<DropMode>,
}

/// How batches are formed. What only some policies do is a capability with a trait of its own: [`Chooses`],
/// [`ForecastsWait`], [`Plans`], [`PlansAhead`], [`Preempts`].
pub trait BatchPolicy: Sized {
    /// The word in the configuration.
    const NAME: &'static str;
    /// One line for lists of policies.
    const SUMMARY: &'static str;

    /// Refuses options that it does not take or that make no sense.
    fn new(options: &BatchOptions) -> Result<Self, ConfigError>;

    /// Looks, never changes.
    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision;

    /// Learns from a finished batch.
    fn observe(&mut self, _now: Nanos, _done: &Observation<'_>) {}

    /// When queued requests are dropped.
    fn drop_mode(&self) -> DropMode {
        DropMode::Early
    }

    /// Itself, if it chooses among queues.
    fn choosing(&self) -> Option<&dyn Chooses> {
        None
    }

    /// Itself, if it forecasts waits.
    fn forecasting(&self) -> Option<&dyn ForecastsWait> {
        None
    }

    /// Itself, if it plans.
    fn planning(&self) -> Option<&dyn Plans> {
        None
    }

    /// The same as [`planning`](Self::planning), to be changed.
    fn planning_mut(&mut self) -> Option<&mut dyn Plans> {
        None
    }

    /// Itself, if it plans ahead.
    fn planning_ahead(&self) -> Option<&dyn PlansAhead> {
        None
    }

    /// Itself, if it preempts.
    fn preempting(&self) -> Option<&dyn Preempts> {
        None
    }
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

            pub(crate) fn is_kin(&self, other: &Self) -> bool {
                std::mem::discriminant(self) == std::mem::discriminant(other)
            }

            /// See [`BatchPolicy::drop_mode`].
            pub fn drop_mode(&self) -> DropMode {
                match self { $(Self::$policy(policy) => policy.drop_mode()),+ }
            }

            pub(crate) fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
                match self { $(Self::$policy(policy) => policy.decide(now, queue)),+ }
            }

            pub(crate) fn observe(&mut self, now: Nanos, done: &Observation<'_>) {
                match self { $(Self::$policy(policy) => policy.observe(now, done)),+ }
            }

            pub(crate) fn choosing(&self) -> Option<&dyn Chooses> {
                match self { $(Self::$policy(policy) => policy.choosing()),+ }
            }

            pub(crate) fn forecasting(&self) -> Option<&dyn ForecastsWait> {
                match self { $(Self::$policy(policy) => policy.forecasting()),+ }
            }

            pub(crate) fn planning(&self) -> Option<&dyn Plans> {
                match self { $(Self::$policy(policy) => policy.planning()),+ }
            }

            pub(crate) fn planning_mut(&mut self) -> Option<&mut dyn Plans> {
                match self { $(Self::$policy(policy) => policy.planning_mut()),+ }
            }

            fn planning_ahead(&self) -> Option<&dyn PlansAhead> {
                match self { $(Self::$policy(policy) => policy.planning_ahead()),+ }
            }

            fn preempting(&self) -> Option<&dyn Preempts> {
                match self { $(Self::$policy(policy) => policy.preempting()),+ }
            }
        }
    };
}

policies![
    deadline::Deadline,
    triton::Triton,
    aimd::Aimd,
    rafiki::Rafiki,
    nanily::Nanily,
    nexus::Nexus,
    clockwork::Clockwork,
    shepherd::Shepherd,
    symphony::Symphony,
];

impl Default for Policy {
    fn default() -> Self {
        Self::Deadline(Deadline::default())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl BatchOptions {
    /// Refuses what a policy has no use for.
    pub(crate) fn only(&self, policy: &str, takes: &[&str]) -> Result<(), ConfigError> {
        let given = [
            ("max_delay", self.max_delay.is_some()),
            ("preferred", !self.preferred.is_empty()),
            ("drop", self.drop.is_some()),
        ];
        match given.iter().find(|(name, given)| *given && !takes.contains(name)) {
            Some((name, _)) => {
                Err(ConfigError::new(*name, format!("policy `{policy}` has no use for it, remove it")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_list_builds_its_policy() {
        for (name, _) in Policy::ALL {
            assert_eq!(Policy::new(name, &BatchOptions::default()).unwrap().name(), *name);
        }
        let error = Policy::new("magic", &BatchOptions::default()).unwrap_err().to_string();
        assert!(error.starts_with("policy: unknown policy `magic`, expected one of deadline, "), "{error}");
    }

    #[test]
    fn options_without_use_are_refused_by_name() {
        let options = BatchOptions { max_delay: Some(Nanos(1)), ..BatchOptions::default() };
        let error = Policy::new("deadline", &options).unwrap_err().to_string();
        assert_eq!(error, "max_delay: policy `deadline` has no use for it, remove it");
    }
}
