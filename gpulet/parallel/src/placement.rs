//! Which group of devices holds which models.

pub mod alpaserve;
mod buckets;
mod greedy;
pub mod optimum;
pub mod policy;
pub mod replication;

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{ParallelError, positive, within};
use crate::profile::{Layout, ModelProfile};
use crate::simulation::{Outcome, Pipeline, Request, System, stage_clocks};

/// A model with its traffic.
#[derive(Clone, Debug)]
pub struct ServedModel {
    /// Number of its profile.
    pub profile: usize,
    /// Requests a second.
    pub rate: f64,
    /// Seconds from arrival to end that a request may take.
    pub objective_s: f64,
}

/// Equal devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Number of devices.
    pub devices: usize,
    /// Memory for weights on each device, in bytes.
    pub memory_bytes: u64,
    /// Devices of one machine. A larger group takes whole machines.
    pub devices_per_machine: usize,
}

/// What the authors' simulator adds to measured times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overheads {
    /// Seconds of each request for dispatch and runtime.
    pub fixed_s: f64,
    /// Share by which a request is slower for each stage.
    pub per_stage: f64,
}

impl Overheads {
    /// No overhead.
    pub const NONE: Self = Self { fixed_s: 0.0, per_stage: 0.0 };
    /// AlpaServe's: 11 ms and 0.9 % for each stage.
    pub const PUBLISHED: Self = Self { fixed_s: 0.011, per_stage: 0.009 };
}

/// Models to place on a cluster.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Profiles, which models refer to.
    pub profiles: Vec<ModelProfile>,
    /// The models.
    pub models: Vec<ServedModel>,
    /// The devices.
    pub cluster: Cluster,
    /// What is added to measured times.
    pub overheads: Overheads,
    /// The requests with which placements are compared, in order of arrival.
    pub requests: Vec<Request>,
}

/// Devices with one layout and the models that they hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Group {
    /// How the group runs a model.
    pub layout: Layout,
    /// Numbers of the models, ascending.
    pub models: Vec<usize>,
}

/// Groups that share the devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Placement {
    /// The groups.
    pub groups: Vec<Group>,
}

impl fmt::Display for Placement {
    /// Shapes of the groups, such as `4x(op1:pp4)`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shapes: BTreeMap<Layout, usize> = BTreeMap::new();
        for group in &self.groups {
            *shapes.entry(group.layout).or_default() += 1;
        }
        let shapes: Vec<String> =
            shapes.iter().rev().map(|(layout, count)| format!("{count}x({layout})")).collect();
        formatter.write_str(&shapes.join(" "))
    }
}

impl Placement {
    /// Copies of a model.
    pub fn replicas(&self, model: usize) -> usize {
        self.groups.iter().filter(|group| group.models.contains(&model)).count()
    }

    /// Copies of all models.
    pub fn total_replicas(&self) -> usize {
        self.groups.iter().map(|group| group.models.len()).sum()
    }

    /// Devices in groups.
    pub fn devices(&self) -> usize {
        self.groups.iter().map(|group| group.layout.devices()).sum()
    }
}

/// How good a placement is for the requests of the problem.
#[derive(Clone, Debug)]
pub struct Score {
    /// The placement.
    pub placement: Placement,
    /// Share of requests within their objective.
    pub attainment: f64,
    /// Attainment, with small terms that prefer low latency and many copies (as in the authors' search).
    pub value: f64,
}

impl Problem {
    /// Refuses impossible values. Every policy calls it.
    pub fn check(&self) -> Result<(), ParallelError> {
        within("cluster.devices", self.cluster.devices, 1, 1_024)?;
        within("cluster.devices_per_machine", self.cluster.devices_per_machine, 1, 1_024)?;
        within("models", self.models.len(), 1, 10_000)?;
        if self.requests.is_empty() {
            return Err(ParallelError::invalid("requests", "at least one", 0));
        }
        for (number, model) in self.models.iter().enumerate() {
            positive(format!("models.{number}.rate"), model.rate)?;
            positive(format!("models.{number}.objective_s"), model.objective_s)?;
            within(
                &format!("models.{number}.profile"),
                model.profile,
                0,
                self.profiles.len().saturating_sub(1),
            )?;
        }
        if self.profiles.is_empty() {
            return Err(ParallelError::invalid("profiles", "at least one", 0));
        }
        Ok(())
    }

    /// The profile of a model.
    pub fn profile(&self, model: usize) -> Option<&ModelProfile> {
        self.profiles.get(self.models.get(model)?.profile)
    }

    /// Memory of a model on each device of a group. `None` if the layout was not measured.
    pub fn memory_bytes(&self, model: usize, layout: Layout) -> Option<u64> {
        Some(self.profile(model)?.stages(layout)?.memory_bytes)
    }

    /// Memory that a group takes on each of its devices.
    pub fn used_bytes(&self, group: &Group) -> u64 {
        let memory = group.models.iter().filter_map(|model| self.memory_bytes(*model, group.layout));
        memory.fold(0, u64::saturating_add)
    }

    /// Whether the group can hold one more model.
    pub fn fits(&self, group: &Group, model: usize) -> bool {
        let needed = self.memory_bytes(model, group.layout);
        let total = needed.map(|needed| self.used_bytes(group).saturating_add(needed));
        !group.models.contains(&model) && total.is_some_and(|total| total <= self.cluster.memory_bytes)
    }

    /// Objectives in seconds, by number of the model.
    pub fn objectives_s(&self) -> Vec<f64> {
        self.models.iter().map(|model| model.objective_s).collect()
    }

    /// The placement as pipelines with stage times, overheads per stage included.
    pub fn system(&self, placement: &Placement) -> Result<System, ParallelError> {
        let pipeline = |group: &Group| {
            let times = |model: usize| {
                let held = group
                    .models
                    .contains(&model)
                    .then(|| self.profile(model)?.stages(group.layout))
                    .flatten()?;
                let factor = 1.0 + self.overheads.per_stage * held.times_s.len() as f64;
                Some(held.times_s.iter().map(|time| time * factor).collect())
            };
            Pipeline { times_s: (0..self.models.len()).map(times).collect() }
        };
        System::new(placement.groups.iter().map(pipeline).collect(), self.objectives_s())
    }

    fn run(&self, placement: &Placement) -> Result<Outcome, ParallelError> {
        Ok(stage_clocks(&self.system(placement)?, &self.requests, self.overheads.fixed_s))
    }

    /// Simulates the requests of the problem and scores the placement, with its groups in a fixed order: the order decides which
    /// of two idle groups gets a request.
    pub fn score(&self, mut placement: Placement) -> Result<Score, ParallelError> {
        placement.groups.sort_unstable();
        let outcome = self.run(&placement)?;
        let count = self.requests.len().max(1) as f64;
        let attainment = outcome.served.iter().sum::<u64>() as f64 / count;
        let latencies = self
            .requests
            .iter()
            .zip(&outcome.ends_s)
            .filter_map(|(request, end)| Some((*end)? - request.at_s));
        let mean_s = latencies.sum::<f64>() / count;
        let value = attainment - mean_s / 1e4 + placement.total_replicas() as f64 / 1e6;
        Ok(Score { placement, attainment, value })
    }
}

/// The best score; the first of equal ones.
fn best(scores: impl IntoIterator<Item = Score>) -> Option<Score> {
    scores.into_iter().reduce(|best, next| if next.value > best.value { next } else { best })
}
