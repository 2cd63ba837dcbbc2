//! What devices are worth to models, without planning them.
//!
//! Planning takes milliseconds to seconds, and a study plans hundreds of thousands of times. So a device is cut here
//! as each model would have it: the share and batch with the most requests a second for each unit, of those that keep
//! the objective twice over (a request that just misses a batch waits for it and for its own), with every batch taken
//! to last [`INTERFERENCE`] times as long as alone. Shares of all models are added up, cuts do not fit into devices
//! without waste, and what a plan leaves over goes to all in proportion, as the default placement does. How far this
//! is from the default placement is measured ([`super::Agreement`]) and told with every study.

use gpulet_core::problem::Workload;
use gpulet_core::profile::{Profile, Quantile};
use gpulet_core::scaling::Service;
use gpulet_core::time::Micros;

use super::StudyError;

/// Time of a batch beside others over its time alone: the safety factor of gpulet, and the median of 1,214 latencies
/// measured in pairs on a V100 is 1.09.
pub const INTERFERENCE: f64 = 1.1;
/// Rates that differ by less, relatively, are the same.
const SAME: f64 = 1e-9;

/// One model of a fleet.
#[derive(Clone, Debug)]
pub struct FleetModel {
    /// The objective, the batches allowed and the replicas; its rate does not count.
    pub workload: Workload,
    /// Times of its batches, on the fleet's kind of device.
    pub profile: Profile,
    /// Microseconds to load it from host memory.
    pub warm_load_us: u64,
    /// Microseconds to load it from nothing.
    pub cold_load_us: u64,
}

/// A model's best cut of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// Requests a second of a gpulet cut like this, and of a whole device cut into such.
    pub(super) rate: f64,
    pub(super) per_device: f64,
    /// Seconds that a request may wait before its batch starts.
    pub(super) wait: f64,
}

/// Devices of one kind, as many as are asked for, and the models on them.
#[derive(Clone, Debug)]
pub struct Fleet {
    models: Vec<FleetModel>,
    cuts: Vec<Cut>,
    packing: f64,
}

/// Who gets how much.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Devices.
    pub devices: u32,
    /// Requests a second that each model's share serves.
    pub capacity: Vec<f64>,
}

impl Allocation {
    /// Whether every model has the capacity that is asked for.
    pub fn covers(&self, rates: &[f64]) -> bool {
        self.capacity.iter().zip(rates).all(|(capacity, rate)| *rate <= capacity * (1.0 + SAME))
    }
}

fn best_cut(model: &FleetModel) -> Option<Cut> {
    let profile = &model.profile;
    let (least, most) = profile.shares();
    let batches = 1..=model.workload.batch_max.min(profile.batches().1);
    let mut best: Option<Cut> = None;
    for units in least..=most {
        for batch in batches.clone() {
            let Ok(alone_us) = profile.latency_us(Quantile::P99, batch, units) else { continue };
            let time_us = INTERFERENCE * alone_us;
            if 2.0 * time_us > model.workload.slo_us {
                continue;
            }
            let rate = 1e6 * f64::from(batch) / (time_us - profile.load_us(batch)).max(1.0);
            let per_device = rate * f64::from(profile.units_total()) / f64::from(units);
            if best.is_none_or(|best| per_device > best.per_device) {
                best = Some(Cut { rate, per_device, wait: (model.workload.slo_us - time_us) / 1e6 });
            }
        }
    }
    best
}

impl Fleet {
    /// The models on as many devices as they need, of which cuts fill the part `packing` (above 0, at most 1).
    ///
    /// # Errors
    /// [`StudyError::Setting`] for a model that cannot keep its objective on any share.
    pub fn new(models: Vec<FleetModel>, packing: f64) -> Result<Self, StudyError> {
        let fault = |field: String, problem: String| StudyError::Setting { field, problem };
        if !(packing > 0.0 && packing <= 1.0) {
            let problem = format!("expected above 0 and at most 1, got {packing}");
            return Err(fault("packing".to_owned(), problem));
        }
        let cut = |model: &FleetModel| {
            best_cut(model).ok_or_else(|| {
                let problem = "expected an objective that some share keeps twice over";
                fault(format!("models.{}", model.workload.name), problem.to_owned())
            })
        };
        let cuts = models.iter().map(cut).collect::<Result<_, _>>()?;
        Ok(Self { models, cuts, packing })
    }

    /// The models.
    pub fn models(&self) -> &[FleetModel] {
        &self.models
    }

    pub(super) fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// What scalers are told of the models; `peaks` are the highest rates that will come.
    pub fn services(&self, peaks: &[f64]) -> Vec<Service> {
        let service = |((model, cut), peak): ((&FleetModel, &Cut), &f64)| Service {
            name: model.workload.name.clone(),
            replica_rate: cut.rate,
            replica_share: cut.rate / cut.per_device,
            warm_load_us: Micros(model.warm_load_us),
            cold_load_us: Micros(model.cold_load_us),
            peak_rate: *peak,
            replicas_min: model.workload.replicas_min,
        };
        self.models.iter().zip(&self.cuts).zip(peaks).map(service).collect()
    }

    /// Part of a device that cuts fill.
    pub fn packing(&self) -> f64 {
        self.packing
    }

    /// Devices that the rates fill, not rounded.
    pub fn need(&self, rates: &[f64]) -> f64 {
        let shares = self.cuts.iter().zip(rates).map(|(cut, rate)| rate / cut.per_device);
        shares.sum::<f64>() / self.packing
    }

    /// The fewest devices for the rates, and all that they have, shared out in proportion.
    pub fn allocate(&self, rates: &[f64]) -> Allocation {
        let need = self.need(rates);
        let devices = (need * (1.0 - SAME)).ceil();
        let stretch = if need > 0.0 { (devices / need).max(1.0) } else { 0.0 };
        let capacity = rates.iter().map(|rate| rate * stretch).collect();
        Allocation { devices: devices as u32, capacity }
    }
}
