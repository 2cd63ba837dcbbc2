//! Whether splitting models over devices gains or costs, by how much, and why.

use std::fmt;

use serde::Serialize;

use crate::error::ParallelError;
use crate::placement::alpaserve::{Scope, place_within};
use crate::placement::replication::replicate;
use crate::placement::{Placement, Problem};
use crate::profile::Layout;
use crate::simulation::{Report, Request, Window, stage_clocks};

/// Attainments that differ by less count as equal.
const EQUAL: f64 = 0.005;

/// Replication compared with the best placement in which every group has several devices, on the same requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Figures of replication.
    pub replicated: Report,
    /// Figures of splitting.
    pub split: Report,
    /// The placement that splits.
    pub split_placement: Placement,
    /// Which one is better.
    pub outcome: Better,
    /// The properties of the problem that explain the outcome.
    pub reasons: Vec<Reason>,
}

/// Which way to use the devices is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Splitting serves more requests in time.
    Split,
    /// Replication serves more requests in time.
    Replicated,
    /// The difference is below half a percentage point.
    Equal,
}

/// A property of the problem that explains the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Memory holds few copies, so a burst reaches few devices unless models are split.
    MemoryScarce {
        /// Devices on which a model has a copy with replication, on average over requests.
        replicated_reach: f64,
        /// Devices that run a model when it is split, on average over requests.
        split_reach: f64,
    },
    /// Some models fit no single device.
    FitsNoDevice {
        /// How many.
        models: usize,
    },
    /// Memory is plentiful: replication has a copy of every model on every device, so that splitting adds only overhead.
    MemoryPlentiful,
    /// The load is close to or above what the pipelines can serve.
    Saturated {
        /// Requests a second that are offered.
        offered: f64,
        /// Requests a second that the pipelines can serve at most, with the shares of the load.
        split_capacity: f64,
        /// Requests a second that single devices can serve at most.
        replicated_capacity: f64,
    },
    /// Even an idle pipeline takes longer than the objective allows.
    LatencyAboveObjective {
        /// Share of the requests whose model is that slow, from 0 to 1.
        share: f64,
    },
    /// Split devices serve fewer requests than single ones: stages are uneven and pass tensors on, or devices share operators.
    CapacityCost {
        /// Devices times the slowest stage divided by the time on one device, averaged over requests. Above 1: the share of
        /// the capacity that splitting costs is 1 minus the inverse.
        bottleneck_ratio: f64,
        /// Time of all stages divided by the time on one device, averaged over requests.
        latency_ratio: f64,
    },
    /// Devices share the operators of a stage, which makes a single request faster.
    FasterSingleRequest {
        /// Time of all stages divided by the time on one device, averaged over requests.
        latency_ratio: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryScarce { replicated_reach, split_reach } => write!(
                formatter,
                "memory is scarce: a burst reaches {replicated_reach:.1} devices with replication, {split_reach:.1} with splitting"
            ),
            Self::FitsNoDevice { models } => write!(formatter, "{models} models fit no single device"),
            Self::MemoryPlentiful => {
                formatter.write_str("memory is plentiful: replication has every model on every device")
            }
            Self::Saturated { offered, split_capacity, replicated_capacity } => write!(
                formatter,
                "the load saturates: {offered:.1} requests/s offered; capacity {split_capacity:.1} split, \
                 {replicated_capacity:.1} replicated"
            ),
            Self::LatencyAboveObjective { share } => write!(
                formatter,
                "an idle pipeline takes longer than the objective for {:.0} % of the requests",
                100.0 * share
            ),
            Self::CapacityCost { bottleneck_ratio, latency_ratio } => write!(
                formatter,
                "splitting costs {:.0} % of the capacity (uneven stages, or devices that share operators); a request takes \
                 {latency_ratio:.2} times as long as on one device",
                100.0 * (1.0 - 1.0 / bottleneck_ratio.max(1.0))
            ),
            Self::FasterSingleRequest { latency_ratio } => {
                write!(formatter, "a split request takes {latency_ratio:.2} times as long as on one device")
            }
        }
    }
}

/// Places with and without splitting on the requests of the problem, and compares both on `requests`, which may be others.
pub fn compare(problem: &Problem, requests: &[Request], window: Window) -> Result<Verdict, ParallelError> {
    let replicated_placement = replicate(problem)?.placement;
    let split_placement = place_within(problem, Scope::Split)?.placement;
    let objectives_s = problem.objectives_s();
    let figures = |placement: &Placement| -> Result<Report, ParallelError> {
        let outcome = stage_clocks(&problem.system(placement)?, requests, problem.overheads.fixed_s);
        Ok(outcome.report(requests, &objectives_s, window))
    };
    let (replicated, split) = (figures(&replicated_placement)?, figures(&split_placement)?);
    let gain = split.attainment - replicated.attainment;
    let outcome = match gain {
        gain if gain > EQUAL => Better::Split,
        gain if gain < -EQUAL => Better::Replicated,
        _ => Better::Equal,
    };
    let facts = Facts::new(problem, &replicated_placement, &split_placement);
    let reasons = facts.reasons(problem, outcome);
    Ok(Verdict { replicated, split, split_placement, outcome, reasons })
}

/// Averages over the requests of all models.
struct Facts {
    replicated_reach: f64,
    split_reach: f64,
    unplaceable: usize,
    latency_ratio: f64,
    bottleneck_ratio: f64,
    too_slow: f64,
    offered: f64,
    split_capacity: f64,
    replicated_capacity: f64,
}

impl Facts {
    fn new(problem: &Problem, replicated: &Placement, split: &Placement) -> Self {
        let offered: f64 = problem.models.iter().map(|model| model.rate).sum();
        let devices = problem.cluster.devices as f64;
        let mut facts = Self {
            replicated_reach: 0.0,
            split_reach: 0.0,
            unplaceable: 0,
            latency_ratio: 0.0,
            bottleneck_ratio: 0.0,
            too_slow: 0.0,
            offered,
            split_capacity: 0.0,
            replicated_capacity: 0.0,
        };
        let (mut single_work, mut split_work) = (0.0, 0.0);
        for (number, model) in problem.models.iter().enumerate() {
            let Some(profile) = problem.profile(number) else { continue };
            let share = model.rate / offered;
            let fits = problem.memory_bytes(number, Layout::SINGLE);
            facts.unplaceable += usize::from(fits.is_none_or(|bytes| bytes > problem.cluster.memory_bytes));
            facts.replicated_reach += share * replicated.replicas(number) as f64;
            let holders: Vec<_> =
                split.groups.iter().filter(|group| group.models.contains(&number)).collect();
            facts.split_reach +=
                share * holders.iter().map(|group| group.layout.devices()).sum::<usize>() as f64;
            let single = profile.single_s();
            single_work += share * single;
            // The same layout in all groups of an even grouping; the first one stands for the others.
            let Some(stages) =
                holders.first().and_then(|group| Some((profile.stages(group.layout)?, group.layout)))
            else {
                facts.too_slow += share;
                continue;
            };
            let (stages, layout) = stages;
            let factor = 1.0 + problem.overheads.per_stage * layout.stages as f64;
            let latency = factor * stages.times_s.iter().sum::<f64>();
            let slowest = factor * stages.times_s.iter().copied().fold(0.0, f64::max);
            facts.latency_ratio += share * latency / single;
            facts.bottleneck_ratio += share * layout.devices() as f64 * slowest / single;
            facts.too_slow +=
                share * f64::from(u8::from(latency + problem.overheads.fixed_s > model.objective_s));
            split_work += share * slowest * layout.devices() as f64;
        }
        facts.replicated_capacity = devices / (single_work * (1.0 + problem.overheads.per_stage));
        facts.split_capacity = if split_work > 0.0 { devices / split_work } else { 0.0 };
        facts
    }

    fn reasons(&self, problem: &Problem, outcome: Better) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let everywhere = self.replicated_reach >= problem.cluster.devices as f64 - 1e-9;
        if outcome != Better::Replicated {
            if self.unplaceable > 0 {
                reasons.push(Reason::FitsNoDevice { models: self.unplaceable });
            } else if !everywhere && self.split_reach > self.replicated_reach {
                let (replicated_reach, split_reach) = (self.replicated_reach, self.split_reach);
                reasons.push(Reason::MemoryScarce { replicated_reach, split_reach });
            }
            if self.latency_ratio < 0.95 && self.latency_ratio > 0.0 {
                reasons.push(Reason::FasterSingleRequest { latency_ratio: self.latency_ratio });
            }
        }
        if outcome != Better::Split {
            if everywhere {
                reasons.push(Reason::MemoryPlentiful);
            }
            if self.too_slow > 0.0 {
                reasons.push(Reason::LatencyAboveObjective { share: self.too_slow });
            }
            if self.offered > 0.8 * self.split_capacity {
                reasons.push(Reason::Saturated {
                    offered: self.offered,
                    split_capacity: self.split_capacity,
                    replicated_capacity: self.replicated_capacity,
                });
            }
            if self.bottleneck_ratio > 1.005 {
                let (latency_ratio, bottleneck_ratio) = (self.latency_ratio, self.bottleneck_ratio);
                reasons.push(Reason::CapacityCost { bottleneck_ratio, latency_ratio });
            }
        }
        reasons
    }
}
