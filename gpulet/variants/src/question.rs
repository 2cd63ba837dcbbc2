//! What is to be planned: devices with costs, workloads, and families of variants.

use std::sync::Arc;

use gpulet_core::id::DeviceId;
use gpulet_core::problem::{Device, DeviceType, Problem, ProblemError, Workload};

/// Most variants of all families.
const VARIANTS_MAX: usize = 1_024;

/// A model that answers the requests of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Name of its workload.
    pub name: String,
    /// Name of the model in profiles.
    pub model: String,
    /// Rows of a batch at most, if that is less than those of the family.
    pub batch_max: u32,
    /// Share of right answers, from 0 to 1.
    pub quality: f64,
}

impl Variant {
    /// A model whose workload has its name, with batches as large as those of the family.
    pub fn of_model(model: String, quality: f64) -> Self {
        Self { name: model.clone(), model, batch_max: u32::MAX, quality }
    }
}

/// Models that answer the same requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Name in reports.
    pub name: String,
    /// The workload of all its requests; its model does not matter.
    pub demand: Workload,
    /// Least quality of each answer.
    pub quality_min: f64,
    /// Least mean quality of all answers.
    pub quality_mean: f64,
    /// Its variants.
    pub variants: Vec<Variant>,
}

/// A device that its owner may reclaim at any time.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    /// Name of the device.
    pub device: DeviceId,
    /// How often it is lost, per hour.
    pub loss_per_hour: f64,
    /// Seconds until another device serves in its place.
    pub replace_s: f64,
}

/// The devices that may be lost, and how much of the load may be lost with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpotRules {
    /// Devices that may be lost.
    pub devices: Vec<Spot>,
    /// Largest share of the requests of a workload or family that is lost with them in the long run.
    pub lost_max: f64,
}

/// Devices of one type and cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Their type.
    pub device_type: Arc<DeviceType>,
    /// Cost of each.
    pub cost: f64,
    /// Share of the time that each is lost.
    pub lost: f64,
    /// Their names, in the order of the problem.
    pub devices: Vec<DeviceId>,
}

/// One stream of requests: a workload, or a family with its variants.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Name in reports.
    pub name: String,
    /// Requests a second, headroom included.
    pub wanted: f64,
    /// Requests a second.
    pub rate: f64,
    /// Least mean quality.
    pub quality_mean: f64,
    /// Places of its variants in [`Question::entries`], with their qualities. Only those that each request may get.
    pub entries: Vec<(usize, f64)>,
}

/// Devices, workloads and families.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    problem: Problem,
    families: Vec<Family>,
    spot: SpotRules,
    /// Workloads of the problem, then the variants of all families, each with the rate of its family.
    entries: Vec<Workload>,
    demands: Vec<Demand>,
    groups: Vec<Group>,
}

fn fault<T>(field: String, problem: impl Into<String>) -> Result<T, ProblemError> {
    Err(ProblemError { field, problem: problem.into() })
}

impl Question {
    /// Checks families and spot devices against a problem, whose workloads are those without variants.
    ///
    /// # Errors
    /// [`ProblemError`] names the key: a quality out of range, a variant of two families or without profile, or a device that does
    /// not exist.
    pub fn new(problem: Problem, families: Vec<Family>, spot: SpotRules) -> Result<Self, ProblemError> {
        check_spot(&problem, &spot)?;
        let mut entries: Vec<Workload> = problem.workloads().to_vec();
        let mut demands: Vec<Demand> = entries.iter().enumerate().map(of_workload).collect();
        for family in &families {
            check_family(family)?;
            let mut own = Vec::new();
            for variant in &family.variants {
                if entries.iter().any(|entry| entry.name == variant.name) {
                    let problem =
                        format!("`{}` is used twice: expected a model in one family only", variant.name);
                    return fault(format!("families.{}.variants", family.name), problem);
                }
                if variant.quality >= family.quality_min {
                    own.push((entries.len(), variant.quality));
                }
                let (name, model) = (variant.name.clone(), variant.model.clone());
                let batch_max = family.demand.batch_max.min(variant.batch_max);
                entries.push(Workload { name, model, batch_max, ..family.demand.clone() });
            }
            demands.push(Demand {
                name: family.name.clone(),
                wanted: family.demand.wanted(),
                rate: family.demand.rate,
                quality_mean: family.quality_mean,
                entries: own,
            });
        }
        if entries.len() > problem.workloads().len().saturating_add(VARIANTS_MAX) {
            return fault("families".to_owned(), format!("expected at most {VARIANTS_MAX} variants in all"));
        }
        // Checks that each has a profile.
        let problem = problem.with_workloads(entries.clone())?;
        let groups = groups(&problem, &spot);
        Ok(Self { problem, families, spot, entries, demands, groups })
    }

    /// The devices, profiles and interference. Its workloads are [`Question::entries`].
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The families.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// The rules for devices that may be lost.
    pub fn spot(&self) -> &SpotRules {
        &self.spot
    }

    /// Workloads and variants, each with all requests of its demand.
    pub fn entries(&self) -> &[Workload] {
        &self.entries
    }

    /// The streams of requests: workloads, then families.
    pub fn demands(&self) -> &[Demand] {
        &self.demands
    }

    /// The devices by type, cost and loss.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The same question with fewer or other devices.
    ///
    /// # Errors
    /// As [`Question::new`].
    pub fn on(&self, devices: Vec<Device>) -> Result<Self, ProblemError> {
        let problem = self.problem.on(devices)?;
        let known = |spot: &Spot| problem.devices().iter().any(|device| device.name == spot.device);
        let kept = self.spot.devices.iter().filter(|spot| known(spot)).cloned().collect();
        let spot = SpotRules { devices: kept, ..self.spot.clone() };
        let groups = groups(&problem, &spot);
        Ok(Self { problem, spot, groups, ..self.clone() })
    }

    /// The same question with another least mean quality of a family; 0 for no demand.
    #[must_use]
    pub fn with_quality_mean(mut self, family: &str, quality: f64) -> Self {
        for known in self.families.iter_mut().filter(|known| known.name == family) {
            known.quality_mean = quality;
        }
        let plain =
            self.entries.len().saturating_sub(self.families.iter().map(|family| family.variants.len()).sum());
        for demand in self.demands.iter_mut().skip(plain).filter(|demand| demand.name == family) {
            demand.quality_mean = quality;
        }
        self
    }

    /// The best quality that a family has.
    pub fn quality_max(&self, family: &str) -> f64 {
        let known = self.families.iter().filter(|known| known.name == family);
        known.flat_map(|family| &family.variants).map(|variant| variant.quality).fold(0.0, f64::max)
    }
}

fn of_workload((at, workload): (usize, &Workload)) -> Demand {
    Demand {
        name: workload.name.clone(),
        wanted: workload.wanted(),
        rate: workload.rate,
        quality_mean: 0.0,
        entries: vec![(at, 1.0)],
    }
}

fn check_family(family: &Family) -> Result<(), ProblemError> {
    let field = |key: &str| format!("families.{}.{key}", family.name);
    if family.variants.is_empty() {
        return fault(field("variants"), "expected at least one variant");
    }
    if let Some(variant) = family.variants.iter().find(|variant| !(0.0..=1.0).contains(&variant.quality)) {
        let problem = format!("`{}`: expected a quality from 0 to 1, got {}", variant.name, variant.quality);
        return fault(field("variants"), problem);
    }
    let best = family.variants.iter().map(|variant| variant.quality).fold(0.0, f64::max);
    for (key, quality) in [("quality_min", family.quality_min), ("quality_mean", family.quality_mean)] {
        if !(0.0..=best).contains(&quality) {
            return fault(field(key), format!("expected 0 to {best}, the best variant's, got {quality}"));
        }
    }
    Ok(())
}

fn check_spot(problem: &Problem, spot: &SpotRules) -> Result<(), ProblemError> {
    if !(0.0..=1.0).contains(&spot.lost_max) {
        return fault("spot_lost_max".to_owned(), format!("expected 0 to 1, got {}", spot.lost_max));
    }
    for device in &spot.devices {
        let field = |key: &str| format!("devices.{}.{key}", device.device);
        if problem.devices().iter().all(|known| known.name != device.device) {
            return fault(field("device"), "expected the name of a device");
        }
        if !(device.loss_per_hour >= 0.0 && device.loss_per_hour <= 1e6) {
            return fault(
                field("loss_per_hour"),
                format!("expected 0 to 1000000, got {}", device.loss_per_hour),
            );
        }
        if !(device.replace_s >= 0.0 && device.replace_s <= 1e6) {
            return fault(
                field("replace"),
                format!("expected at most 1000000 seconds, got {}", device.replace_s),
            );
        }
    }
    Ok(())
}

fn groups(problem: &Problem, spot: &SpotRules) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for device in problem.devices() {
        let lost = spot.lost(&device.name);
        let known = groups.iter_mut().find(|group| {
            group.device_type.name == device.device_type.name
                && group.cost.to_bits() == device.cost.to_bits()
                && group.lost.to_bits() == lost.to_bits()
        });
        match known {
            Some(group) => group.devices.push(device.name.clone()),
            None => groups.push(Group {
                device_type: Arc::clone(&device.device_type),
                cost: device.cost,
                lost,
                devices: vec![device.name.clone()],
            }),
        }
    }
    groups
}

impl SpotRules {
    /// Share of the time that a device is lost: losses per hour times the time until it is replaced.
    pub fn lost(&self, device: &DeviceId) -> f64 {
        let known = self.devices.iter().find(|spot| spot.device == *device);
        known.map_or(0.0, |spot| (spot.loss_per_hour * spot.replace_s / 3_600.0).min(1.0))
    }
}
