//! The inputs of planning: the devices, the models as workloads, and their profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::families::{Family, FamilyDemand, VariantPolicy};
use crate::id::DeviceId;
use crate::interference::Interference;
use crate::placement::{Policy, largest_share};
use crate::plan::{Gpulet, Plan, Slot};
use crate::problem::{Device, Problem, Workload};
use crate::profile::{Profile, Quantile};
use crate::rollout::{Proposal, ProposalError};
use crate::scaling::{Resident, Service, evict};
use crate::time::Micros;

/// Why an operator's plan was rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanRejected {
    /// An operator froze the gpulets.
    #[error("gpulets are frozen")]
    Frozen,
    /// The plan lacks a required model, or uses a feature that lanes do not have. The message names the key.
    #[error("{0}")]
    Malformed(String),
    /// The plan cannot be checked, for example because a model has no profile.
    #[error("{0}")]
    Unknown(String),
    /// The plan is impossible on these devices.
    #[error(transparent)]
    Impossible(#[from] ProposalError),
}

/// A gpulet that exists before the first plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialGpulet {
    /// Name of the device.
    pub device: DeviceId,
    /// Its first unit.
    pub first_unit: u32,
    /// Number of units.
    pub units: u32,
}

/// A model that takes requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name in plans.
    pub name: String,
    /// Name in profiles.
    pub model: String,
    /// Objective: microseconds from arrival to answer.
    pub slo_us: f64,
    /// Rows per batch at most. Plans use no more than every profile covers.
    pub batch_max: u32,
    /// One profile per device type, or the reason why they are missing.
    pub profiles: Result<Arc<[Profile]>, String>,
    /// Time to load it.
    pub load_us: Micros,
    /// Number of fault domains that must hold it; all, if there are fewer.
    pub replicas_min: u32,
    /// Whether it may be evicted while it serves.
    pub may_leave: bool,
    /// Whether requests wait for it to get a gpulet.
    pub is_waited_for: bool,
    /// Whether it has a gpulet.
    pub has_place: bool,
    /// Stages of pipelines that run it. A plan may have slots for them instead of slots for the model.
    pub stages: Vec<StageOf>,
}

/// A stage of a pipeline that runs a model.
#[derive(Clone, Debug, PartialEq)]
pub struct StageOf {
    /// Its name in plans that `tessera plan` writes: `PIPELINE.STAGE`.
    pub name: String,
    /// Its share of the pipeline's objective in microseconds. `None` if the pipeline has no objective.
    pub slo_us: Option<f64>,
}

impl StageOf {
    /// The objective that a model is planned with: the shortest of its `own` and those of its stages. `None` if none of them has one.
    pub fn objective_us(own: Option<f64>, stages: &[Self]) -> Option<f64> {
        stages.iter().filter_map(|stage| stage.slo_us).chain(own).reduce(f64::min)
    }
}

impl Model {
    /// The profiles of the model.
    ///
    /// # Errors
    /// Why it has no profile.
    fn known(&self) -> Result<&[Profile], String> {
        self.profiles.as_deref().map_err(Clone::clone)
    }

    /// The model as a service of a scaler.
    ///
    /// # Errors
    /// When there is no profile of it.
    pub fn service(&self) -> Result<Service, String> {
        let best = |profile: &Profile| {
            let most = self.batch_max.clamp(1, profile.batches().1.max(1));
            let rate = |batch: u32| {
                let time = profile.latency_us(Quantile::P99, batch, profile.units_total()).ok()?;
                (batch == 1 || 2.0 * time <= self.slo_us).then_some(1e6 * f64::from(batch) / time)
            };
            (1..=most).filter_map(rate).reduce(f64::max)
        };
        // Of several device types the slowest: a replica may run there.
        let replica_rate = self.known()?.iter().filter_map(best).reduce(f64::min).unwrap_or(1.0);
        Ok(Service {
            name: self.name.clone(),
            replica_rate,
            replica_share: 1.0,
            warm_load_us: Micros::ZERO,
            cold_load_us: Micros::ZERO,
            // The whole device: what `static` asks for is then an equal share for each.
            peak_rate: replica_rate,
            replicas_min: u32::from(!self.may_leave),
        })
    }

    fn resident(&self, targets: &Targets, asked_us: &BTreeMap<String, Micros>) -> Result<Resident, String> {
        let bytes = |profile: &Profile| {
            let [weights, arena] =
                [profile.weights_bytes(), profile.arena_bytes(1)].map(Option::unwrap_or_default);
            weights.saturating_add(arena)
        };
        let bytes = self.known()?.iter().map(bytes).max();
        Ok(Resident {
            bytes: bytes.unwrap_or_default().max(1),
            rate: targets.rates.get(&self.name).copied().unwrap_or_default(),
            load_us: self.load_us,
            asked_us: asked_us.get(&self.name).copied().unwrap_or_default(),
            is_needed: !self.may_leave || self.is_waited_for || targets.unplaced.contains(&self.name),
        })
    }
}

/// Rates to plan for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// Requests a second by model, headroom included.
    pub rates: BTreeMap<String, f64>,
    /// Models and families that get no gpulet.
    pub unplaced: BTreeSet<String>,
    /// Variants of families: they get the gpulets that the policy for variants chooses.
    pub variants: BTreeSet<String>,
}

/// The families that are planned, with their rates. A variant for which requests of its own wait is planned as a
/// separate model, and one without a place has no part.
fn demands(families: &[Family], models: &[Model], targets: &Targets) -> Vec<FamilyDemand> {
    let planned = families.iter().filter(|family| !targets.unplaced.contains(&family.name));
    let demand = |family: &Family| {
        let mut own = family.clone();
        own.variants.retain(|variant| {
            let model = models.iter().find(|model| model.name == variant.name);
            model.is_some_and(|model| !model.is_waited_for) && !targets.unplaced.contains(&variant.name)
        });
        let rate = targets.rates.get(&family.name).copied().unwrap_or_default();
        (!own.variants.is_empty()).then_some(FamilyDemand { family: own, rate })
    };
    planned.filter_map(demand).collect()
}

/// A plan, its problem, and the share of the targets that it serves.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// What the plan was made for.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// Share of every target that it was made for: 1 unless the devices are too small.
    pub share: f64,
}

/// Inputs that all plans share.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanningInputs {
    /// Devices that plans partition.
    pub devices: Vec<Device>,
    /// Gpulets that exist before the first plan.
    pub start: Vec<InitialGpulet>,
    /// The placement policy.
    pub policy: Policy,
    /// The policy for the variants of families.
    pub variants: VariantPolicy,
    /// The interference that plans assume.
    pub interference: Interference,
    /// Which of the profiled times to plan with.
    pub quantile: Quantile,
}

impl PlanningInputs {
    /// The problem with `share` of every target.
    fn problem(
        &self,
        models: &[Model],
        targets: &Targets,
        current: Option<&Plan>,
        share: f64,
    ) -> Result<Problem, String> {
        let mut profiles: BTreeMap<(&str, &str), &Profile> = BTreeMap::new();
        let mut workloads = Vec::with_capacity(models.len());
        for model in models {
            let known = model.known()?;
            let largest = known.iter().map(|profile| profile.batches().1).min().unwrap_or(1);
            let is_chosen = targets.variants.contains(&model.name) && !model.is_waited_for;
            let unplaced = is_chosen || targets.unplaced.contains(&model.name);
            let target = targets.rates.get(&model.name).copied().unwrap_or(0.0);
            let has_profile =
                |device: &&Device| known.iter().any(|profile| profile.device() == device.device_type.name);
            let domains: BTreeSet<&str> =
                self.devices.iter().filter(has_profile).map(|device| device.fault_domain.as_str()).collect();
            let domains = u32::try_from(domains.len()).unwrap_or(u32::MAX).max(1);
            workloads.push(Workload {
                name: model.name.clone(),
                model: model.model.clone(),
                tenant: String::new(),
                not_with: Vec::new(),
                slo_us: model.slo_us,
                rate: if unplaced { 0.0 } else { target * share },
                headroom: 1.0,
                replicas_min: if unplaced { 0 } else { model.replicas_min.clamp(1, domains) },
                batch_max: model.batch_max.clamp(1, largest.max(1)),
            });
            profiles.extend(known.iter().map(|profile| ((profile.model(), profile.device()), profile)));
        }
        // A lane holds one batch at a time, so copies do not overlap with another batch and count in full.
        let profiles = profiles.into_values().cloned().map(Profile::without_overlap).collect();
        let problem = Problem::new(self.devices.clone(), workloads, profiles, self.interference.clone());
        // Other policies plan windows only where that is their own way of sharing units.
        let problem =
            problem.map_err(|error| error.to_string())?.at_quantile(self.quantile).without_time_windows();
        Ok(match current {
            Some(plan) => problem.from_current(plan.clone()),
            None => problem,
        })
    }

    /// A plan for these targets; where the devices are too small, for the largest share of all of them that they serve.
    ///
    /// # Errors
    /// Why planning fails even for a target of 0.
    pub fn plan(
        &self,
        (models, families): (&[Model], &[Family]),
        targets: &Targets,
        current: Option<&Plan>,
    ) -> Result<Planned, String> {
        let attempt = |share: f64| {
            let problem = self.problem(models, targets, current, share)?;
            let demands = demands(families, models, targets);
            if let Some(policy) = self.variants.0.as_ref().filter(|_| !demands.is_empty()) {
                let part =
                    |demand: &FamilyDemand| FamilyDemand { rate: share * demand.rate, ..demand.clone() };
                let demands: Vec<FamilyDemand> = demands.iter().map(part).collect();
                let (problem, plan) = policy.choose(&problem, &demands, &self.policy)?;
                return Ok(Planned { problem, plan, share });
            }
            let plan = self.policy.place(&problem).map_err(|error| error.to_string())?;
            Ok::<_, String>(Planned { problem, plan, share })
        };
        largest_share(attempt).map(|(planned, _)| planned)
    }

    /// A plan, and the models that it evicts because memory is too short for all. Evicts the least valuable model
    /// first, one at a time, among those that may leave and that no request waits for.
    ///
    /// # Errors
    /// Why planning fails even without those models.
    pub fn plan_without(
        &self,
        models: &[Model],
        targets: &Targets,
        asked_us: &BTreeMap<String, Micros>,
        make: impl Fn(&Targets) -> Result<Planned, String>,
    ) -> Result<(Planned, BTreeSet<String>), String> {
        let (mut targets, mut evicted) = (targets.clone(), BTreeSet::new());
        loop {
            let reason = match make(&targets) {
                Ok(planned) => return Ok((planned, evicted)),
                Err(reason) => reason,
            };
            let residents = models.iter().map(|model| model.resident(&targets, asked_us));
            let residents = residents.collect::<Result<Vec<Resident>, String>>()?;
            // One at a time: only the planner knows how much memory is missing.
            let leaves = evict(&residents, 1).ok().and_then(|places| models.get(*places.first()?));
            let Some(leaves) = leaves else { return Err(reason) };
            targets.unplaced.insert(leaves.name.clone());
            evicted.insert(leaves.name.clone());
        }
    }

    /// The first plan: every model that is not unplaced runs on every initial gpulet.
    ///
    /// # Errors
    /// When there is no profile of a model.
    pub fn initial_plan(&self, models: &[Model], targets: &Targets) -> Result<Planned, String> {
        let unplaced = targets.unplaced.clone();
        let problem = self.problem(models, &Targets { unplaced, ..Targets::default() }, None, 1.0)?;
        let slots: Vec<Slot> = problem
            .workloads()
            .iter()
            .filter(|workload| workload.is_needed())
            .map(|workload| {
                let (name, batch) = (workload.name.clone(), workload.batch_max);
                Slot { workload: name, batch, budget_us: workload.slo_us, rate: 0.0 }
            })
            .collect();
        let duty_us = (slots.len() > 1).then(|| slots.iter().map(|slot| slot.budget_us).sum());
        let gpulets = self.start.iter().map(|start| Gpulet {
            device: start.device.clone(),
            first_unit: start.first_unit,
            units: start.units,
            window: None,
            duty_us,
            slots: slots.clone(),
        });
        let plan = Plan::new(if slots.is_empty() { Vec::new() } else { gpulets.collect() });
        Ok(Planned { problem, plan, share: 1.0 })
    }

    /// An operator's plan with its problem at the current targets, as a proposal.
    ///
    /// # Errors
    /// The plan lacks a required model, uses windows although the policy does not, names something unknown, or is
    /// impossible.
    pub(super) fn operator_plan(
        &self,
        models: &[Model],
        targets: &Targets,
        plan: &Plan,
    ) -> Result<(Planned, Proposal), PlanRejected> {
        let plan = plan.by_model(|name| {
            let runs = |model: &&Model| model.stages.iter().any(|stage| stage.name == name);
            let own = models.iter().find(|model| model.name == name);
            let model = own.or_else(|| models.iter().find(runs))?;
            Some((model.name.as_str(), model.batch_max))
        });
        let missing =
            models.iter().find(|model| !model.may_leave && plan.slots_of(&model.name).next().is_none());
        if let Some(model) = missing {
            let stages: Vec<&str> = model.stages.iter().map(|stage| stage.name.as_str()).collect();
            let of = match stages.is_empty() {
                true => String::new(),
                false => format!(", or one for {}", stages.join(" or ")),
            };
            let reason = format!("gpulets: model `{}` has no slot: expected one at least{of}", model.name);
            return Err(PlanRejected::Malformed(reason));
        }
        let windowed = plan.gpulets.iter().find(|gpulet| gpulet.window.is_some());
        if let Some(gpulet) = windowed.filter(|_| !self.policy.plans_time_windows()) {
            let (device, unit, policy) = (&gpulet.device, gpulet.first_unit, &self.policy);
            let reason = format!(
                "gpulets: `{device}` from unit {unit}: window: expected none with policy `{policy}`, or policy `fast-gshare`"
            );
            return Err(PlanRejected::Malformed(reason));
        }
        let problem = self.problem(models, targets, None, 1.0).map_err(PlanRejected::Unknown)?;
        let planned = Planned { problem, plan: Plan::new(plan.gpulets), share: 1.0 };
        let proposal = Proposal::new(&planned.plan, &planned.problem)?;
        Ok((planned, proposal))
    }
}
