//! `[pipelines.NAME]` of problem files: each stage is planned as a workload, with a share of the objective.

use gpulet_core::problem::{Problem, Workload};
use gpulet_core::profile::{BATCH_MAX, Profile};
use router_core::Nanos;
use router_core::pipeline::{Budgets, Graph, StageCosts};
use serde::Serialize;
use variant_plan::each_batch;
use workload::{ObjectiveSplit, PipelineStage, WorkloadError, read_stages};

use super::document::PipelineSection;
use super::fields::{check_name, slo_us};
use super::study::kinds;

/// Steps that an objective is divided into.
const STEPS: u32 = 200;

/// A pipeline, with the split of its objective.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedPipeline {
    pub name: String,
    /// The objective in microseconds.
    pub slo_us: f64,
    /// Requests per second.
    pub rate: f64,
    pub split: SplitBy,
    pub stages: Vec<PlannedStage>,
    /// Devices that the work fills with this split: a lower bound, as if shares of devices were never left over. `None` if a stage
    /// cannot be done in its share.
    pub devices: Option<f64>,
    /// The same if each stage of a longest path had the same share.
    pub devices_even: Option<f64>,
    /// Whether the section asks for the split with the fewest devices.
    #[serde(skip)]
    is_planned: bool,
    #[serde(skip)]
    graph: Graph,
}

/// How an objective was divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitBy {
    /// So that the stages need the fewest devices.
    FewestDevices,
    /// Each stage of a longest path has the same share.
    Even,
    /// As the file says.
    Given,
}

/// A stage of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStage {
    pub name: String,
    /// Name of its workload in the plan.
    pub workload: String,
    /// Rows for each request of the pipeline, in the mean.
    pub rows: f64,
    /// Its share of the objective.
    pub share: f64,
    /// Devices that its work fills.
    pub devices: Option<f64>,
}

impl PlannedPipeline {
    /// Reads a section. Returns the workloads of its stages too, with even shares if the split is to be planned.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn read(
        name: &str,
        section: &PipelineSection,
        profiles: &[Profile],
    ) -> Result<(Self, Vec<Workload>), WorkloadError> {
        let wrong = |key: &str, problem: String| WorkloadError {
            file: String::new(),
            line: None,
            field: format!("pipelines.{name}.{key}"),
            problem,
        };
        check_name(&format!("pipelines.{name}"), name)?;
        let slo_us = slo_us(&format!("pipelines.{name}.slo"), section.slo)?;
        let mut models: Vec<&str> = profiles.iter().map(Profile::model).collect();
        models.sort_unstable();
        models.dedup();
        let (stages, split) =
            read_stages(&section.stages, &section.split, (&models, "no profile of this model"))
                .map_err(|(key, problem)| wrong(key, problem))?;
        let after = stages.iter().map(|stage| stage.after.clone()).collect();
        let graph = Graph::new(after).map_err(|error| wrong("stages", error.to_string()))?;
        let rows = workload::mean_rows(&stages);
        let (shares, split, is_planned) = match split {
            ObjectiveSplit::Shares(shares) => (shares, SplitBy::Given, false),
            ObjectiveSplit::Even => (graph.even_shares(), SplitBy::Even, false),
            ObjectiveSplit::Plan | ObjectiveSplit::Nexus => (graph.even_shares(), SplitBy::Even, true),
        };
        let of_stage = |(stage, rows): (&PipelineStage, f64)| Workload {
            name: format!("{name}.{}", stage.name),
            model: models.get(stage.model as usize).copied().unwrap_or_default().to_owned(),
            tenant: section.tenant.clone(),
            not_with: section.not_with.clone(),
            slo_us,
            rate: section.rate * rows,
            headroom: section.headroom.unwrap_or(1.0),
            replicas_min: section.replicas_min.unwrap_or(1),
            batch_max: section.batch_max.unwrap_or(BATCH_MAX),
        };
        let mut workloads: Vec<Workload> = stages.iter().zip(rows.iter().copied()).map(of_stage).collect();
        let planned = stages.iter().zip(&workloads).zip(rows).map(|((stage, workload), rows)| PlannedStage {
            name: stage.name.clone(),
            workload: workload.name.clone(),
            rows,
            share: 0.0,
            devices: None,
        });
        let stages = planned.collect();
        let mut own = Self {
            name: name.to_owned(),
            slo_us,
            rate: section.rate,
            split,
            stages,
            devices: None,
            devices_even: None,
            is_planned,
            graph,
        };
        own.share_out(&shares, &mut workloads);
        Ok((own, workloads))
    }

    /// Sets the shares of the stages, and the objectives of their workloads.
    fn share_out(&mut self, shares: &[f64], workloads: &mut [Workload]) {
        for (stage, share) in self.stages.iter_mut().zip(shares) {
            stage.share = *share;
            if let Some(workload) = workloads.iter_mut().find(|workload| workload.name == stage.workload) {
                workload.slo_us = self.slo_us * share;
            }
        }
    }

    /// Divides the objective so that the stages need the fewest devices, if the section asks for it, and says what the split costs.
    /// Returns a warning if that was not possible.
    pub fn divide(&mut self, problem: &Problem, workloads: &mut [Workload]) -> Option<String> {
        let batches: Option<Vec<Batches>> =
            self.stages.iter().map(|stage| Batches::of(problem, stage, self.slo_us)).collect();
        let Some(batches) = batches else {
            let problem =
                "its profiles have too many batches and shares to try all: its objective is divided evenly";
            return self.is_planned.then(|| format!("pipelines.{}.split: {problem}", self.name));
        };
        let mut warning = None;
        if self.is_planned {
            let slo = Nanos((self.slo_us * 1e3) as u64);
            let costs: Vec<StageCosts> = batches
                .iter()
                .map(|batches| StageCosts::of(slo, STEPS, |budget| batches.devices(budget.0 as f64 / 1e3)))
                .collect();
            match Budgets::plan(&self.graph, &costs, STEPS) {
                Ok(budgets) => {
                    let shares = budgets.shares(STEPS);
                    // Steps that would gain nothing are headroom.
                    let longest = self.graph.longest_to(|stage| shares.get(stage).copied().unwrap_or(0.0));
                    let longest = longest.into_iter().fold(f64::MIN_POSITIVE, f64::max);
                    let shares: Vec<f64> = shares.iter().map(|share| share / longest).collect();
                    self.share_out(&shares, workloads);
                    self.split = SplitBy::FewestDevices;
                }
                Err(error) => {
                    let name = &self.name;
                    warning =
                        Some(format!("pipelines.{name}.split: {error}: its objective is divided evenly"));
                }
            }
        }
        for (stage, batches) in self.stages.iter_mut().zip(&batches) {
            let devices = batches.devices(self.slo_us * stage.share);
            stage.devices = devices.is_finite().then_some(devices);
        }
        self.devices = self.stages.iter().map(|stage| stage.devices).sum();
        let even = self.graph.even_shares();
        let even: f64 =
            batches.iter().zip(even).map(|(batches, share)| batches.devices(self.slo_us * share)).sum();
        self.devices_even = even.is_finite().then_some(even);
        warning
    }
}

/// What the work of a stage costs, by its share of the objective.
struct Batches {
    /// Twice the microseconds of a batch, ascending, with the devices that the work fills in the best batches up to it.
    devices: Vec<(f64, f64)>,
}

impl Batches {
    /// `None` after too many lookups.
    fn of(problem: &Problem, stage: &PlannedStage, slo_us: f64) -> Option<Self> {
        let workload = problem.workloads().iter().find(|workload| workload.name == stage.workload)?;
        let mut devices = Vec::new();
        let mut lookups = 0;
        for kind in kinds(problem) {
            let found = |time: f64, seconds: f64| devices.push((2.0 * time, workload.wanted() * seconds));
            if !each_batch(problem, (workload, slo_us), kind, &mut lookups, found) {
                return None;
            }
        }
        devices.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        let mut least = f64::INFINITY;
        devices.retain(|(_, own)| {
            let is_better = *own < least;
            least = least.min(*own);
            is_better
        });
        Some(Self { devices })
    }

    /// Devices that the work fills if requests have `budget_us` microseconds. Infinite if no batch is short enough.
    fn devices(&self, budget_us: f64) -> f64 {
        let short = self.devices.partition_point(|(time, _)| *time <= budget_us * (1.0 + 1e-9));
        short.checked_sub(1).and_then(|last| self.devices.get(last)).map_or(f64::INFINITY, |(_, own)| *own)
    }
}
