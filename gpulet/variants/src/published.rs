//! Published policies on the same question: which variants they use, on which devices, and at what cost.
//!
//! The systems behind them have no shares of devices, so each plans whole devices. What the papers leave open is favourable to
//! them: a device serves the most requests that the validator accepts within the objective, the user has picked the cheapest variant
//! with the quality asked for where a system does not choose, and rates are known. With one model a device, `mark`, `proportional` and
//! `proteus` are dedicated; `infaas` and `iris` share devices over time, placed by [`Policy::Temporal`](gpulet_core::placement::Policy).
//! Each file names its source.

mod dedicated;
mod infaas;
mod iris;
mod mark;
mod peaks;
mod proportional;
mod proteus;
mod shared;

use gpulet_core::plan::Plan;
use gpulet_core::problem::Problem;

use self::peaks::Peaks;
use crate::question::Question;

/// What a published policy plans: the variants as workloads, and the devices that serve them.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Variants with their rates.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
}

type Rule = fn(&Question, &Peaks) -> Option<Proposal>;

/// Every policy: its name, what it does in one line, and its rule.
const POLICIES: [(&str, &str, Rule); 5] = [
    (
        "infaas",
        "INFaaS (ATC 2021): the fastest variant, replicas, or an upgrade if they cost 1.5 times more",
        infaas::plan,
    ),
    (
        "mark",
        "MArk (ATC 2019): the cheapest device for each request, until 1.2 times the load is served",
        mark::plan,
    ),
    (
        "proportional",
        "Cho et al. (MLSys 2022): the cheapest device for its rate, requests in proportion to rates",
        proportional::plan,
    ),
    ("iris", "IRIS (CLOUD 2023): shared devices, filled by predicted rates", iris::plan),
    (
        "proteus",
        "Proteus (ASPLOS 2024): one variant on each device, by integer programming, for 1.05 times the load",
        proteus::plan,
    ),
];

/// Names of the policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|(name, ..)| *name)
}

/// What a policy does, in one line; `None` for an unknown name.
pub fn about(name: &str) -> Option<&'static str> {
    POLICIES.iter().find(|(known, ..)| *known == name).map(|(_, about, _)| *about)
}

/// The plan of a policy. `None` for an unknown name, or if the devices do not suffice.
pub fn propose(name: &str, question: &Question) -> Option<Proposal> {
    let (.., rule) = POLICIES.iter().find(|(known, ..)| *known == name)?;
    rule(question, &Peaks::of(question))
}
