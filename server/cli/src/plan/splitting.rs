//! `parallel = "auto"` of workloads: whether a model is planned whole, or in stages that are workloads of their own.

use std::cmp::Ordering;
use std::path::Path;

use gpulet_core::placement::Policy;
use gpulet_core::problem::{Device, Problem};
use gpulet_core::profile::{Line, Profile, Quantile, Source};
use gpulet_core::validate::validate;
use model_parallel::budgeted_split::{BudgetedSplit, BudgetedStage, LAYERS_MAX, cheapest_splits};
use model_parallel::chain::Chain;
use model_parallel::device::Link;
use node::files::read_text;
use serde::{Deserialize, Serialize};
use workload::{StageSection, WorkloadError};

use super::document::{PipelineSection, WorkloadSection, planned};
use super::fields::{fault, slo_us};
use super::format;
use super::shortage::infeasible_words;

/// Largest table of layers.
const LAYERS_BYTES: u64 = 16 << 20;
/// Most stages of a model.
const STAGES_MAX: usize = 8;
/// Steps that an objective is divided into while split points are chosen.
const STEPS: u32 = 100;

/// A workload with `parallel = "auto"`, and what is known of its layers.
#[derive(Debug)]
pub struct Splittable {
    pub name: String,
    model: String,
    chain: Chain,
    link: Link,
    slo_us: f64,
    /// Requests per second to plan for.
    wanted: f64,
    batch_max: u32,
    profiles: Vec<Profile>,
}

/// The layers of each stage of a split model: the first, and the one after the last. A single one: the model is whole.
pub type Stages = Vec<(usize, usize)>;

/// How a workload with `parallel = "auto"` is planned, and what else was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitChoice {
    pub workload: String,
    /// Number of stages that are planned; 1 for the whole model.
    pub stages: usize,
    pub reason: String,
    pub tried: Vec<Tried>,
}

/// A number of stages that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    pub stages: usize,
    /// Layers of each stage: the first, and the one after the last. Empty if no split can be planned.
    pub layers: Stages,
    /// Devices that the work fills, times their cost, as if shares of devices were never left over. `None` if no batch is short enough.
    pub work: Option<f64>,
    /// The plan of the whole file with it.
    pub plan: Option<Figures>,
    /// The reason why planning failed.
    pub why_not: Option<String>,
}

/// What a plan needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    pub devices: usize,
    pub cost: f64,
}

impl Splittable {
    /// Reads the layers of a workload. Returns `None` without `parallel = "auto"`.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn read(
        name: &str,
        section: &WorkloadSection,
        profiles: &[Profile],
        folder: &Path,
    ) -> Result<Option<Self>, WorkloadError> {
        let field = |key: &str| format!("workloads.{name}.{key}");
        if section.parallel.is_none() {
            let set = [("layers", section.layers.is_some()), ("bandwidth", section.bandwidth.is_some())];
            return match set.into_iter().find(|(_, is_set)| *is_set) {
                Some((key, _)) => fault(field(key), "of use with `parallel = \"auto\"` only"),
                None => Ok(None),
            };
        }
        let Some(layers) = &section.layers else {
            return fault(
                field("layers"),
                "expected the path of a table with the columns name,latency_s,memory_bytes,output_bytes",
            );
        };
        let Some(bandwidth) = section.bandwidth.filter(|bandwidth| bandwidth.0 > 0) else {
            return fault(field("bandwidth"), "expected the bytes a second between devices, such as `12GiB`");
        };
        let wrong = |problem: String| WorkloadError::apart(field("layers"), format!("`{layers}`: {problem}"));
        let text =
            read_text(&folder.join(layers), LAYERS_BYTES).map_err(|error| wrong(format!("{error:#}")))?;
        let chain = Chain::parse(&text).map_err(|error| wrong(error.to_string()))?;
        if chain.len() > LAYERS_MAX || chain.latency_s(0, chain.len()) <= 0.0 {
            let problem = format!("expected 1 to {LAYERS_MAX} layers that take time, got {}", chain.len());
            return Err(wrong(problem));
        }
        let model = section.model.clone().unwrap_or_else(|| name.to_owned());
        let profiles: Vec<Profile> =
            profiles.iter().filter(|profile| profile.model() == model).cloned().collect();
        let has_coefficients =
            |profile: &&Profile| profile.lines().iter().any(|line| matches!(line, Line::Coefficients(_)));
        if let Some(profile) = profiles.iter().find(has_coefficients) {
            let problem = format!(
                "the profile of `{model}` on `{}` has coefficients, which layers do not have: expected measured times",
                profile.device()
            );
            return fault(field("parallel"), problem);
        }
        Ok(Some(Self {
            name: name.to_owned(),
            model,
            chain,
            link: Link { latency_s: 0.0, bytes_per_second: bandwidth.0 as f64 },
            slo_us: slo_us(&field("slo"), section.slo)?,
            wanted: section.rate * section.headroom.unwrap_or(1.0),
            batch_max: section.batch_max.unwrap_or(u32::MAX),
            profiles,
        }))
    }

    /// The model whole.
    pub fn whole(&self) -> Stages {
        vec![(0, self.chain.len())]
    }

    /// The profiles of the stages, which are models of their own, as `tessera split` names them.
    ///
    /// # Errors
    /// The times of a stage are no profile.
    pub fn stage_profiles(&self, stages: &Stages) -> Result<Vec<Profile>, WorkloadError> {
        let mut found = Vec::new();
        for (number, layers) in (1..).zip(stages) {
            for profile in &self.profiles {
                let lines = profile.lines().into_iter().map(|line| self.of_stage(line, number, *layers));
                let read = Profile::of_lines(lines);
                found.extend(read.map_err(|error| {
                    WorkloadError::apart(format!("workloads.{}.layers", self.name), error.to_string())
                })?);
            }
        }
        Ok(found)
    }

    fn of_stage(&self, line: Line, number: usize, (from, to): (usize, usize)) -> Line {
        match line {
            Line::Profile(mut header) => {
                header.note = format!(
                    "layers {} to {to} of {}: times in proportion to those of the layers",
                    from + 1,
                    self.model
                );
                header.model = self.stage(number);
                header.source = Source::Synthesised;
                header.model_sha256 = None;
                header.weights_bytes = Some(self.chain.memory_bytes(from, to));
                if from > 0 {
                    header.load_us_per_row = 0.0;
                }
                Line::Profile(header)
            }
            Line::Cell(mut cell) => {
                for time in [&mut cell.p50_us, &mut cell.p95_us, &mut cell.p99_us] {
                    *time = self.stage_us(*time, cell.batch, (from, to));
                }
                Line::Cell(cell)
            }
            other => other,
        }
    }

    fn stage(&self, number: usize) -> String {
        format!("{}-{number}", self.model)
    }

    /// Microseconds of a batch of which the whole model takes `whole_us`, with sending its output.
    fn stage_us(&self, whole_us: f64, batch: u32, (from, to): (usize, usize)) -> f64 {
        let share = self.chain.latency_s(from, to) / self.chain.latency_s(0, self.chain.len());
        let bytes = self.chain.crossing_bytes(to).saturating_mul(u64::from(batch));
        let sending = if to < self.chain.len() { self.link.time_s(bytes) } else { 0.0 };
        (whole_us * share + 1e6 * sending).max(f64::MIN_POSITIVE)
    }

    /// The pipeline of the stages.
    ///
    /// # Errors
    /// Never: the text is made here.
    pub fn pipeline(
        &self,
        section: &WorkloadSection,
        stages: &Stages,
    ) -> Result<PipelineSection, WorkloadError> {
        #[derive(Deserialize)]
        struct Sections {
            stages: Vec<StageSection>,
        }
        let mut list: Vec<toml::Table> = Vec::new();
        for number in 1..=stages.len() {
            let mut stage = toml::Table::from_iter([("model".to_owned(), self.stage(number).into())]);
            if number > 1 {
                stage.insert("from".to_owned(), self.stage(number - 1).into());
            }
            list.push(stage);
        }
        let table = toml::Table::from_iter([("stages".to_owned(), list.into())]);
        let sections: Sections = table.try_into().map_err(|error: toml::de::Error| {
            WorkloadError::apart(format!("workloads.{}.parallel", self.name), error.to_string())
        })?;
        Ok(PipelineSection {
            slo: section.slo,
            rate: section.rate,
            stages: sections.stages,
            split: planned(),
            headroom: section.headroom,
            replicas_min: section.replicas_min,
            batch_max: section.batch_max,
            tenant: section.tenant.clone(),
            not_with: section.not_with.clone(),
        })
    }

    /// Bytes of the whole model in batches of one row, if no device has as much memory, and the most that a device has.
    pub fn too_large(&self, devices: &[Device]) -> Option<(u64, u64)> {
        let needed = |profile: &Profile| {
            profile.weights_bytes().unwrap_or(0).saturating_add(profile.arena_bytes(1).unwrap_or(0))
        };
        let fits = |device: &Device| {
            let mut profiles = self.profiles.iter();
            let profile = profiles.find(|profile| profile.device() == device.device_type.name);
            profile.is_some_and(|profile| needed(profile) <= memory_of(device))
        };
        if devices.iter().any(fits) {
            return None;
        }
        let least = self.profiles.iter().map(needed).min()?;
        Some((least, devices.iter().map(memory_of).max()?))
    }

    /// The split into each number of stages whose work costs the least, by a dynamic program over split points and the objective.
    ///
    /// # Errors
    /// Bounds that the layers exceed.
    pub fn splits(
        &self,
        devices: &[Device],
        quantile: Quantile,
    ) -> Result<Vec<Option<BudgetedSplit>>, WorkloadError> {
        let layers = self.chain.len();
        let stages_max = STAGES_MAX.min(layers).min(devices.len().max(1));
        let width = STEPS as usize + 1;
        let at = |from: usize, to: usize| (from * (layers + 1) + to) * width;
        let batches = self.batches(devices, quantile);
        let mut costs = vec![f64::INFINITY; (layers + 1) * (layers + 1) * width];
        for from in 0..layers {
            for to in from + 1..=layers {
                let place = at(from, to);
                if let Some(own) = costs.get_mut(place..place + width) {
                    self.add_costs(&batches, (from, to), own);
                }
            }
        }
        let cost = |from: usize, to: usize, steps: u32| {
            costs.get(at(from, to) + steps as usize).copied().unwrap_or(f64::INFINITY)
        };
        cheapest_splits(layers, stages_max, STEPS, cost).map_err(|error| {
            WorkloadError::apart(format!("workloads.{}.layers", self.name), error.to_string())
        })
    }

    /// Batches of powers of two and the largest one, on each share of each type of device.
    fn batches(&self, devices: &[Device], quantile: Quantile) -> Vec<WholeBatch> {
        let mut found = Vec::new();
        for profile in &self.profiles {
            let own = devices.iter().filter(|device| device.device_type.name == profile.device());
            let memory_bytes = own.clone().map(memory_of).max();
            let cost = own.clone().map(|device| device.cost).reduce(f64::min);
            let Some((device, (memory_bytes, cost))) = own.clone().next().zip(memory_bytes.zip(cost)) else {
                continue;
            };
            let largest = profile.batches().1.min(self.batch_max).max(1);
            let sizes =
                (0..u32::BITS).map(|log| 1_u32 << log).take_while(|rows| *rows < largest).chain([largest]);
            for batch in sizes {
                for units in &device.device_type.sizes {
                    let Ok(time_us) = profile.latency_us(quantile, batch, *units) else { continue };
                    let share = f64::from(*units) / f64::from(device.device_type.units);
                    let memory_left = memory_bytes.checked_sub(profile.arena_bytes(batch).unwrap_or(0));
                    let Some(memory_left) = memory_left else { continue };
                    found.push(WholeBatch { batch, time_us, cost: share * cost, memory_left });
                }
            }
        }
        found
    }

    /// What a stage costs by the steps of the objective that it has.
    fn add_costs(&self, batches: &[WholeBatch], (from, to): (usize, usize), costs: &mut [f64]) {
        let weights = match (from, to == self.chain.len()) {
            (0, true) => self.profiles.iter().filter_map(Profile::weights_bytes).max().unwrap_or(0),
            _ => self.chain.memory_bytes(from, to),
        };
        for batch in batches.iter().filter(|batch| batch.memory_left >= weights) {
            let time_us = self.stage_us(batch.time_us, batch.batch, (from, to));
            // A request that just misses a batch waits for two.
            let steps = (2.0 * time_us / self.slo_us * f64::from(STEPS) * (1.0 - 1e-9)).ceil();
            let cost = self.wanted * batch.cost * time_us / (1e6 * f64::from(batch.batch));
            if let Some(least) = costs.get_mut((steps as usize).max(1)) {
                *least = least.min(cost);
            }
        }
        let mut least = f64::INFINITY;
        for cost in costs {
            least = least.min(*cost);
            *cost = least;
        }
    }

    /// Plans the file with the model whole and with each split, and takes the plan that costs the least; of equal ones the one with the
    /// fewest devices, and then with the fewest stages.
    ///
    /// # Errors
    /// Those of `planned`.
    pub fn choose(
        &self,
        splits: &[Option<BudgetedSplit>],
        devices: &[Device],
        planned: impl Fn(&Stages) -> Result<Problem, WorkloadError>,
    ) -> Result<(Stages, SplitChoice), WorkloadError> {
        let mut tried = Vec::new();
        for (count, split) in (1..).zip(splits) {
            let stages = match (count, split) {
                (1, _) => self.whole(),
                (_, Some(split)) => {
                    split.stages.iter().map(|stage: &BudgetedStage| (stage.from, stage.to)).collect()
                }
                (_, None) => Stages::new(),
            };
            let work = split.as_ref().map(|split| split.cost);
            let outcome = match stages.is_empty() {
                true => Err("no split meets the objective in batches that fit".to_owned()),
                false => figures(&planned(&stages)?),
            };
            let (plan, why_not) = match outcome {
                Ok(plan) => (Some(plan), None),
                Err(why_not) => (None, Some(why_not)),
            };
            tried.push(Tried { stages: count, layers: stages, work, plan, why_not });
        }
        let found = tried.iter().filter(|one| one.plan.is_some()).min_by(|one, other| order(one, other));
        let (count, stages) = found.map_or((1, self.whole()), |found| (found.stages, found.layers.clone()));
        let reason = reason(&tried, count, self.too_large(devices));
        Ok((stages, SplitChoice { workload: self.name.clone(), stages: count, reason, tried }))
    }
}

/// A batch of the whole model on a share of a device.
struct WholeBatch {
    batch: u32,
    time_us: f64,
    /// Cost of its share of the device.
    cost: f64,
    /// Bytes that are left for weights.
    memory_left: u64,
}

/// Bytes that a device has for the weights and arenas of one gpulet.
fn memory_of(device: &Device) -> u64 {
    let used = device.device_type.base_bytes.saturating_add(device.device_type.gpulet_bytes);
    device.memory_bytes.saturating_sub(used)
}

fn figures(problem: &Problem) -> Result<Figures, String> {
    let plan = Policy::default().place(problem).map_err(|infeasible| infeasible_words(&infeasible))?;
    let validation = validate(problem, &plan);
    match validation.violations.first() {
        None => Ok(Figures { devices: validation.devices_used, cost: validation.cost }),
        Some(violation) => Err(violation.to_string()),
    }
}

fn order(one: &Tried, other: &Tried) -> Ordering {
    let key =
        |tried: &Tried| tried.plan.map_or((f64::INFINITY, usize::MAX), |plan| (plan.cost, plan.devices));
    let (own, others) = (key(one), key(other));
    own.0.total_cmp(&others.0).then(own.1.cmp(&others.1)).then(one.stages.cmp(&other.stages))
}

fn reason(tried: &[Tried], chosen: usize, too_large: Option<(u64, u64)>) -> String {
    let of = |count: usize| tried.iter().find(|one| one.stages == count);
    let why_not = |one: &Tried| one.why_not.clone().unwrap_or_default();
    let Some((whole, taken)) = of(1).zip(of(chosen)) else { return String::new() };
    let split = tried
        .iter()
        .filter(|one| one.stages > 1 && one.plan.is_some())
        .min_by(|one, other| order(one, other));
    if chosen > 1 {
        let because = match (too_large, whole.plan, taken.plan) {
            (Some((needed, most)), ..) => {
                format!(
                    "it fits no single device: it needs {}, and a device has at most {}",
                    format::bytes(needed),
                    format::bytes(most)
                )
            }
            (None, Some(whole), Some(taken)) => format!("{} instead of {}", needs(taken), amount(whole)),
            (None, ..) => format!("whole, it has no plan: {}", why_not(whole)),
        };
        return format!("split into {chosen} stages: {because}");
    }
    match (whole.plan, split.and_then(|split| Some((split, split.plan?)))) {
        (None, _) => format!("left whole: neither the whole nor stages have a plan: {}", why_not(whole)),
        (Some(_), None) => match tried.get(1) {
            Some(two) => format!("left whole: in stages, it has no plan: {}", why_not(two)),
            None => "left whole: there is one layer, or one device".to_owned(),
        },
        (Some(whole_plan), Some((split, plan))) => {
            let work = |one: &Tried| one.work.map_or_else(|| "more".to_owned(), |work| format!("{work:.3}"));
            let more = if plan == whole_plan {
                "as many".to_owned()
            } else {
                format!("{} instead of {}", amount(plan), amount(whole_plan))
            };
            format!(
                "left whole: splitting loses. {} stages need {more}, and their work fills {} instead of {}: each has a part of the objective, so its batches are smaller, and tensors are sent",
                split.stages,
                work(split),
                work(whole)
            )
        }
    }
}

fn needs(plan: Figures) -> String {
    format!("it needs {}", amount(plan))
}

fn amount(plan: Figures) -> String {
    let devices = format::counted(plan.devices, "device");
    match (plan.cost - plan.devices as f64).abs() > 1e-9 {
        true => format!("{devices} at a cost of {}", charts::number(plan.cost)),
        false => devices,
    }
}

/// What was tried for a workload, for people.
pub fn text(choice: &SplitChoice) -> String {
    let header = ["stages", "layers", "work", "devices", "cost", "why not"];
    let rows = choice.tried.iter().map(|tried| {
        let layers = tried.layers.iter().map(|(from, to)| format!("{}-{to}", from + 1)).collect::<Vec<_>>();
        vec![
            tried.stages.to_string(),
            layers.join(" / "),
            tried.work.map_or_else(|| "-".to_owned(), |work| format!("{work:.3}")),
            tried.plan.map_or_else(|| "-".to_owned(), |plan| plan.devices.to_string()),
            tried.plan.map_or_else(|| "-".to_owned(), |plan| charts::number(plan.cost)),
            tried.why_not.clone().unwrap_or_default(),
        ]
    });
    format!("\n{}: {}\n{}", choice.workload, choice.reason, node::output::table(&header, rows))
}
