//! A checked workload, with the copies of every model expanded.

use crate::family::Family;
use crate::fleet::Fleet;
use crate::lanes::Lanes;
use crate::limits::{DURATION_MAX, REQUESTS_MAX};
use crate::overhead::Spans;
use crate::partition::Partition;
use crate::pipeline::Pipeline;
use crate::process::Process;
use crate::profile::Profile;
use crate::rollout::RolloutPlan;
use crate::shares::Shares;
use crate::spans::{SECOND, show};
use units::Fault as WorkloadError;

/// Models, their traffic and the lanes that run them. Only [`Workload::parse`] creates it, so its invariants hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Workload {
    /// Name of the workload.
    pub name: String,
    /// Purpose, in one line.
    pub about: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// When the traffic ends.
    pub extent: Extent,
    /// Nanoseconds at the start that are not measured.
    pub warmup: u64,
    /// Lanes that run the batches of a simulation.
    pub lanes: Lanes,
    /// How much longer best-effort work may make a percentile of other models' requests. `None`: as long as it does.
    pub protect: Option<units::PercentileLimit>,
    /// Devices that a simulation partitions into gpulets. `None` if its lanes are fixed.
    pub partition: Option<Partition>,
    /// The machines that the lanes are on. `None`: one.
    pub fleet: Option<Fleet>,
    /// Tenants by number. Number 0 is `default`, the tenant of requests that name none.
    pub tenants: Vec<Tenant>,
    /// Models by number, in the order of the file, copies one after the other. Pipelines and families follow: their requests arrive like those
    /// of models, and run the models of their stages, or one of their variants.
    pub models: Vec<Model>,
}

/// When the traffic of a workload ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// After this many nanoseconds. Requests arrive before this time, never at it.
    Time(u64),
    /// After this many requests of all models together.
    Requests(u64),
}

/// A tenant of the workload, the owner of requests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tenant {
    /// Name of the tenant.
    pub name: String,
    /// Its share of contended lanes, relative to the other tenants'.
    pub weight: f64,
    /// What it may use at most.
    pub quota: Quota,
}

/// What a tenant may use at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Quota {
    /// Seconds of lane time. `None`: no limit.
    pub device_seconds: Option<Allowance>,
    /// Requests. `None`: no limit.
    pub requests: Option<Allowance>,
    /// Whether requests beyond the quota run on lanes that no other tenant wants, instead of being refused.
    pub borrow: bool,
}

/// A rate, and how much of it may be used at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Amount per second, above 0.
    pub per_second: f64,
    /// Largest amount at once after a pause.
    pub burst: f64,
}

/// One model and its traffic.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Model {
    /// Name: the key in the file, with a number if there are copies.
    pub name: String,
    /// The key in the file.
    pub group: String,
    /// Name in the profiles of devices.
    pub model: String,
    /// Nanoseconds that loading it onto a gpulet takes. `None` for the value of `[partition]`.
    pub load: Option<u64>,
    /// Numbers of the lanes that run it, in ascending order. `None`: all.
    pub lanes: Option<Vec<u32>>,
    /// Latency objective in nanoseconds.
    pub slo: u64,
    /// Batch times that the scheduler knows. A live server needs no profile.
    pub profile: Option<Profile>,
    /// Rows of a request: at most the largest batch, or 4096 without a profile.
    pub rows: Shares<u32>,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Class of its requests, from 0, the most urgent, to 7.
    pub priority: u8,
    /// Whether its requests run only on lanes that no other request wants. They have no deadline and no class.
    pub best_effort: bool,
    /// Numbers of the tenants that send them.
    pub tenants: Shares<u16>,
    /// Whether requests have a deadline. Without a deadline the SLO only appears in reports.
    pub deadline: bool,
    /// Overhead of a request between its client and the scheduler, both ways: network, decoding, encoding, event loops.
    /// It is part of the latency but not of the deadline, which the scheduler counts from when a request reached it.
    /// Zero in a simulation of the scheduler alone.
    pub overhead: Spans,
    /// Its stages, if it is a pipeline. It then has no profile of its own.
    pub pipeline: Option<Pipeline>,
    /// Its variants, if it is a family. It then has no profile of its own.
    pub family: Option<Family>,
    /// A new version that is rolled out. The simulator plays it; a live server has its own.
    pub rollout: Option<RolloutPlan>,
    pub(crate) process: Process,
}

impl Model {
    /// Requests per second in the long run. A flash crowd does not count because it passes. A trace that does not
    /// repeat counts for its own length.
    pub fn mean_rate(&self) -> f64 {
        self.process.rate() * SECOND as f64
    }

    /// Requests expected in the first `time` nanoseconds.
    pub fn expected_requests(&self, time: u64) -> f64 {
        self.process.expected(time)
    }

    /// The profile, for callers that require one.
    ///
    /// # Errors
    /// If the workload gives none.
    pub fn profiled(&self) -> Result<&Profile, WorkloadError> {
        self.profile.as_ref().ok_or_else(|| {
            WorkloadError::apart(
                format!("models.{}.profile", self.group),
                "missing: a simulation needs to know how long batches take",
            )
        })
    }

    /// Whether it runs on lanes itself, and not as a pipeline or a family.
    pub fn is_single(&self) -> bool {
        self.pipeline.is_none() && self.family.is_none()
    }

    /// Name of the arrival process, as in the file.
    pub fn process(&self) -> &'static str {
        self.process.word()
    }
}

impl Workload {
    /// Whether the figures of all models together count each model. Those of best effort have no objective and wait for as long as
    /// it takes, so they count only if there are no others.
    pub fn counted(&self) -> Vec<bool> {
        let all = self.models.iter().all(|model| model.best_effort);
        self.models.iter().map(|model| all || !model.best_effort).collect()
    }

    /// The pipelines, with their numbers in the list of models.
    pub fn pipelines(&self) -> impl Iterator<Item = (u32, &Model, &Pipeline)> {
        let models = (0..).zip(&self.models);
        models.filter_map(|(number, model)| Some((number, model, model.pipeline.as_ref()?)))
    }

    /// The families, with their numbers in the list of models.
    pub fn families(&self) -> impl Iterator<Item = (u32, &Model, &Family)> {
        let models = (0..).zip(&self.models);
        models.filter_map(|(number, model)| Some((number, model, model.family.as_ref()?)))
    }

    /// Index of the device type of a lane, 0 without a fleet.
    pub fn device_type_of(&self, lane: u32) -> usize {
        let node = |fleet: &Fleet| lane / (self.lanes.count / fleet.nodes.max(1)).max(1);
        self.fleet.as_ref().map_or(0, |fleet| fleet.type_of(node(fleet)))
    }

    /// Offered requests per second of all models: over the duration, or in the long run for a workload that ends by
    /// count.
    pub fn mean_rate(&self) -> f64 {
        match self.extent {
            Extent::Time(time) => {
                let expected: f64 = self.models.iter().map(|model| model.expected_requests(time)).sum();
                expected / (time.max(1) as f64 / SECOND as f64)
            }
            Extent::Requests(_) => self.models.iter().map(Model::mean_rate).sum(),
        }
    }

    /// The same workload at `factor` times the offered rate, every model alike.
    ///
    /// Processes keep their shape: the same bursts at the same times, more requests in each. Traces of counts are
    /// sampled at the higher rate; traces of single requests are played faster by this factor, and from the start
    /// again when they end (unless `repeat = false`). The same seed gives the same draws: a Poisson process of
    /// twice the rate is the same sequence in half the time.
    pub fn scaled(&self, factor: f64) -> Result<Self, WorkloadError> {
        if !(factor > 0.0 && factor.is_finite()) {
            let problem = format!("expected a factor above 0, got {factor}");
            return Err(WorkloadError::new("scale", problem));
        }
        let mut scaled = self.clone();
        for model in &mut scaled.models {
            model.process = model.process.scaled(factor);
        }
        scaled.check_load()?;
        Ok(scaled)
    }

    /// The same workload, ended after `time` nanoseconds. The warm-up is unchanged.
    ///
    /// # Errors
    /// If `time` is 0, more than [`DURATION_MAX`], or would offer more than [`REQUESTS_MAX`].
    pub fn lasting(&self, time: u64) -> Result<Self, WorkloadError> {
        if !(1..=DURATION_MAX).contains(&time) {
            let problem = format!("expected more than 0 and at most 400d, got {}", show(time));
            return Err(WorkloadError::apart("duration", problem));
        }
        let lasting = Self { extent: Extent::Time(time), ..self.clone() };
        lasting.check_load()?;
        Ok(lasting)
    }

    /// Refuses traffic without bound.
    pub(crate) fn check_load(&self) -> Result<(), WorkloadError> {
        let rate: f64 = self.mean_rate();
        match self.extent {
            Extent::Time(time) => {
                let expected: f64 = self.models.iter().map(|model| model.expected_requests(time)).sum();
                if expected.is_nan() || expected > REQUESTS_MAX as f64 {
                    let problem = format!("offers {expected:.3e} requests: expected at most {REQUESTS_MAX}");
                    return Err(WorkloadError::new("duration", problem));
                }
            }
            Extent::Requests(requests) => {
                let days = requests as f64 / rate / 86_400.0;
                if days.is_nan() || days > 400.0 {
                    let problem =
                        format!("takes {days:.0} days at {rate} requests a second: expected at most 400");
                    return Err(WorkloadError::new("requests", problem));
                }
            }
        }
        Ok(())
    }

    /// The same models without pipelines and families: stages have traffic of their own, as often as in them, and the variants of a family
    /// the same part of its requests each, all at random.
    #[must_use]
    pub fn stages_alone(&self) -> Self {
        let mut alone = self.clone();
        alone.models.retain(Model::is_single);
        for (_, pipeline, stages) in self.pipelines() {
            for (stage, rows) in stages.stages.iter().zip(stages.mean_rows()) {
                // Pipelines are the last of the models.
                if let Some(model) = alone.models.get_mut(stage.model as usize) {
                    let rate = model.process.rate() + pipeline.process.rate() * rows;
                    model.process = Process::Poisson { rate };
                }
            }
        }
        for (_, family, variants) in self.families() {
            for variant in &variants.variants {
                if let Some(model) = alone.models.get_mut(variant.model as usize) {
                    let part = family.process.rate() / variants.variants.len().max(1) as f64;
                    model.process = Process::Poisson { rate: model.process.rate() + part };
                }
            }
        }
        alone
    }

    /// The same workload with another seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }
}
