//! Batching policies: when to fire a queue, how many rows to take, which requests to drop. Each is one file and one name.
//!
//! A policy reads a view and returns a decision. The machine takes the requests, checks limits, and chooses the lane. A
//! policy learns only in [`BatchPolicy::observe`], and gets its plan only in [`BatchPolicy::assign`].

mod view;

use std::fmt;

use serde::Serialize;

use crate::{ConfigError, CostModel, LaneId, Nanos};

pub use self::nexus::packing;
pub use crate::queue::Waiting;
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

/// A queue that would fire, among others that want the same lane.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// What it would fire.
    pub proposal: Proposal,
    /// Time that it should take.
    pub time: Nanos,
    /// The traffic of its model alone is more than the lanes answer, so that admission rejects part of it.
    pub overloaded: bool,
    /// When the remaining batch must start if the first request is dropped; `NEVER` if none remains.
    pub last_start_of_rest: Nanos,
    pub(crate) queue: u32,
}

/// What a model needs of its lanes, so that policies know their share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Rows of the batches that it aims at. Models differ, so it is 0 in a sum.
    pub target_batch: f64,
    /// Such batches a second.
    pub batches: f64,
    /// Lanes that they keep busy.
    pub lanes: f64,
    /// The same, if they are done within the shortest objective seen on their lanes; else zero.
    pub short_lanes: f64,
    /// Rows a second of the models that `short_lanes` counts.
    pub short_rate: f64,
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
    /// Enough rows for the lanes that are free or soon will be.
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

/// A model as a planning policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// Rows a second that arrive.
    pub rate: f64,
    /// From arrival to deadline; zero while no request with a deadline was seen.
    pub slo: Nanos,
    /// The model's largest batch in rows.
    pub max_batch: u32,
    /// Payload bytes a row.
    pub row_bytes: u64,
    /// What its batches cost.
    pub cost: &'a CostModel,
}

/// A planning policy's answer for one model on one lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assignment {
    /// Lane that serves the model.
    pub lane: LaneId,
    /// Rows a second that it gets there.
    pub rate: f64,
    /// Rows a batch.
    pub batch: u32,
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

/// How batches are formed.
pub trait BatchPolicy: Sized {
    /// The word in the configuration.
    const NAME: &'static str;
    /// One line for lists of policies.
    const SUMMARY: &'static str;
    /// How often [`BatchPolicy::plan`] is asked, if it plans.
    const EPOCH: Option<Nanos> = None;
    /// How long before a lane is free the policy wants to hand over the next batch. Lanes without time slices comply if
    /// all their models have such a policy.
    const AHEAD: Nanos = Nanos::ZERO;

    /// Whether admission learns from admitted requests that were dropped later, and rejects similar ones at arrival.
    const LEARNS_WAIT: bool = false;

    /// How many of the queues that want a lane are put before [`BatchPolicy::choose`].
    const CHOICES: u32 = 1;

    /// Refuses options that it does not take or that make no sense.
    fn new(options: &BatchOptions) -> Result<Self, ConfigError>;

    /// Looks, never changes.
    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision;

    /// Which of several queues of equal priority gets the lane: a position in `candidates`, which are in order of rank.
    fn choose(_now: Nanos, _candidates: &[Candidate], _pool: &PoolView<'_>) -> usize {
        0
    }

    /// The only place where a policy learns.
    fn observe(&mut self, _now: Nanos, _done: &Observation<'_>) {}

    /// What the model needs of its lanes; nothing if unknown.
    fn demand(&self) -> Demand {
        Demand::default()
    }

    /// When queued requests are dropped.
    fn drop_mode(&self) -> DropMode {
        DropMode::Early
    }

    /// A running batch is preempted when one of this many times its rows, in percent, finds no lane.
    fn preempts(&self) -> Option<u32> {
        None
    }

    /// Distributes all models of the policy over the lanes: for each session, in the order given, where it runs.
    fn plan(_sessions: &[Session<'_>], _lanes: &[LaneId]) -> Vec<Vec<Assignment>> {
        Vec::new()
    }

    /// Its part of the plan.
    fn assign(&mut self, _assignments: Vec<Assignment>) {}

    /// The lane that a request is bound to at arrival, if the policy binds requests to lanes.
    fn bind(&mut self) -> Option<LaneId> {
        None
    }

    /// A batch of the model was handed to a lane.
    fn fired(&mut self, _now: Nanos, _lane: LaneId) {}
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

            /// Whether it hands over batches before a lane is free, so that lanes hold up to two.
            pub fn plans_ahead(&self) -> bool {
                self.ahead() > Nanos::ZERO
            }

            pub(crate) fn ahead(&self) -> Nanos {
                match self { $(Self::$policy(_) => $policy::AHEAD),+ }
            }

            /// See [`BatchPolicy::drop_mode`].
            pub fn drop_mode(&self) -> DropMode {
                match self { $(Self::$policy(policy) => policy.drop_mode()),+ }
            }

            pub(crate) fn learns_wait(&self) -> bool {
                match self { $(Self::$policy(_) => $policy::LEARNS_WAIT),+ }
            }

            pub(crate) fn epoch(&self) -> Option<Nanos> {
                match self { $(Self::$policy(_) => $policy::EPOCH),+ }
            }

            pub(crate) fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
                match self { $(Self::$policy(policy) => policy.decide(now, queue)),+ }
            }

            pub(crate) fn observe(&mut self, now: Nanos, done: &Observation<'_>) {
                match self { $(Self::$policy(policy) => policy.observe(now, done)),+ }
            }

            pub(crate) fn choices(&self) -> u32 {
                match self { $(Self::$policy(_) => $policy::CHOICES),+ }
            }

            pub(crate) fn choose(&self, now: Nanos, candidates: &[Candidate], pool: &PoolView<'_>) -> usize {
                match self { $(Self::$policy(_) => $policy::choose(now, candidates, pool)),+ }
            }

            pub(crate) fn demand(&self) -> Demand {
                match self { $(Self::$policy(policy) => policy.demand()),+ }
            }

            /// See [`BatchPolicy::preempts`].
            pub fn preempts(&self) -> Option<u32> {
                match self { $(Self::$policy(policy) => policy.preempts()),+ }
            }

            pub(crate) fn plan(&self, sessions: &[Session<'_>], lanes: &[LaneId]) -> Vec<Vec<Assignment>> {
                match self { $(Self::$policy(_) => $policy::plan(sessions, lanes)),+ }
            }

            pub(crate) fn assign(&mut self, assignments: Vec<Assignment>) {
                match self { $(Self::$policy(policy) => policy.assign(assignments)),+ }
            }

            pub(crate) fn bind(&mut self) -> Option<LaneId> {
                match self { $(Self::$policy(policy) => policy.bind()),+ }
            }

            pub(crate) fn fired(&mut self, now: Nanos, lane: LaneId) {
                match self { $(Self::$policy(policy) => policy.fired(now, lane)),+ }
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
