//! Corrects profiles by the batches that run while the server serves.
//!
//! Batches of a model that last longer or shorter than its profile says, for long enough ([`Drift`]), give the model a factor by which plans correct
//! the profile. It ends when the times return to the profile. Predicted cells are replaced by the mean time of batches that ran in them. Only
//! batches that ran without co-located ones count; the others show interference, which [`super::interference_learning`] learns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::{Controller, Model, ModelLoad};
use crate::drift::Drift;
use crate::id::{DeviceId, ModelId};
use crate::placement::Policy;
use crate::problem::Device;
use crate::profile::{PLANNED, Profile, Quantile};

/// Usual error of the mean time of measured batches against their profile: between two runs of `tessera profile`, and between a profile and a
/// server.
const USUAL: f64 = 0.1;
/// Standard normal quantile of 95 %: half the width of the 90 % intervals of predicted cells.
const QUANTILE: f64 = 1.644_853_6;
/// Largest factor, in either direction.
const FACTOR_MAX: f64 = 100.0;
/// Batches from which a predicted cell is replaced.
const BATCHES: u64 = 32;
/// Relative change of a replaced cell that justifies a plan.
const MATERIAL: f64 = 0.1;

/// A profile that plans correct.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileCorrection {
    /// Name of the model.
    pub model: String,
    /// Device type of the profile.
    pub device_type: String,
    /// Measured batch times divided by those of the profile; 1 if only predicted cells were replaced.
    pub factor: f64,
    /// Number of predicted cells that plans replace by measured times.
    pub replaced_cells: usize,
}

/// A model on a device type.
type OfType = (ModelId, Arc<str>);
/// What is known of cells, by units and batch.
type Cells<T> = BTreeMap<(u32, u32), T>;

/// Batches of one size on one share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SoloBatches {
    pub units: u32,
    pub rows: u32,
    pub batches: u64,
    pub time_us: f64,
}

/// The corrections of all profiles.
#[derive(Debug, Default)]
pub(super) struct ProfileCorrections {
    /// By model and device; a model's factor on a device type is the largest of its devices.
    drifts: BTreeMap<(ModelId, DeviceId), (Arc<str>, Drift)>,
    /// Batches of predicted cells that were not enough yet, and mean times of those that were; by model and device type.
    pending: BTreeMap<OfType, Cells<(u64, f64)>>,
    replaced: BTreeMap<OfType, Cells<f64>>,
    /// A correction changed since the last plan request.
    is_changed: bool,
}

/// Usual error of the logarithm of a batch time: more for a predicted cell.
pub(super) fn usual_error(profile: &Profile, rows: u32, units: u32) -> f64 {
    let times = profile
        .latency_us(Quantile::P50, rows, units)
        .and_then(|planned| Ok(planned / profile.expected_us(Quantile::P50, rows, units)?));
    times.map_or(USUAL, |ratio| f64::max(USUAL, ratio.ln() / (PLANNED * QUANTILE)))
}

impl ProfileCorrections {
    /// Takes in the mean time of solo batches on a device, divided by that of the profile.
    pub fn observe(&mut self, number: ModelId, device: &Device, ratio: f64, usual: f64) {
        let kind: Arc<str> = Arc::from(device.device_type.name.as_str());
        let known = self.factor(number, &kind);
        let drift = self.drifts.entry((number, device.name.clone()));
        // What was found on another device of the type is assumed of this one.
        let (_, drift) = drift.or_insert_with(|| (kind, Drift::at(known)));
        self.is_changed |= drift.observe(ratio.clamp(1.0 / FACTOR_MAX, FACTOR_MAX), usual);
    }

    /// Takes in solo batches of one size. They replace a predicted cell once there are enough.
    pub fn ran(&mut self, number: ModelId, profile: &Profile, ran: SoloBatches) {
        let cell = (ran.units, ran.rows);
        if !profile.predicted().any(|known| (known.units, known.batch) == cell) {
            return;
        }
        let key = (number, Arc::from(profile.device()));
        let pending = self.pending.entry(key.clone()).or_default().entry(cell).or_default();
        pending.0 = pending.0.saturating_add(ran.batches);
        pending.1 += ran.time_us;
        if pending.0 < BATCHES {
            return;
        }
        let mean_us = pending.1 / pending.0 as f64;
        *pending = (0, 0.0);
        let before = self.replaced.entry(key).or_default().insert(cell, mean_us);
        self.is_changed |= before.is_none_or(|before| (mean_us / before - 1.0).abs() > MATERIAL);
    }

    /// Forgets models that are no longer loaded, and devices that a model has left for others of the type.
    pub fn retain(&mut self, models: &[ModelLoad], runs: impl Fn(&str, &DeviceId) -> bool) {
        let name = |number: ModelId| {
            models.iter().find(|looked| looked.seen.number == number).map(|looked| looked.model.name.as_str())
        };
        let is_active =
            |(number, device): &(ModelId, DeviceId)| name(*number).is_some_and(|name| runs(name, device));
        let active: BTreeSet<(ModelId, Arc<str>)> = self
            .drifts
            .iter()
            .filter(|(key, _)| is_active(key))
            .map(|((number, _), (kind, _))| (*number, Arc::clone(kind)))
            .collect();
        let before: Vec<f64> = self.factors().map(|(.., factor)| factor).collect();
        self.drifts.retain(|key, (kind, _)| {
            name(key.0).is_some() && (is_active(key) || !active.contains(&(key.0, Arc::clone(kind))))
        });
        self.is_changed |= !before.into_iter().eq(self.factors().map(|(.., factor)| factor));
        self.pending.retain(|(number, _), _| name(*number).is_some());
        self.replaced.retain(|(number, _), _| name(*number).is_some());
    }

    /// The factor of a model on a device type.
    pub fn factor(&self, number: ModelId, kind: &str) -> f64 {
        let own = self.drifts.iter().filter(|((known, _), (of, _))| *known == number && **of == *kind);
        own.map(|(_, (_, drift))| drift.factor()).reduce(f64::max).unwrap_or(1.0)
    }

    fn factors(&self) -> impl Iterator<Item = (ModelId, Arc<str>, f64)> {
        let mut all: BTreeMap<(ModelId, Arc<str>), f64> = BTreeMap::new();
        for ((number, _), (kind, drift)) in &self.drifts {
            let factor = all.entry((*number, Arc::clone(kind))).or_insert(0.0);
            *factor = factor.max(drift.factor());
        }
        all.into_iter().map(|((number, kind), factor)| (number, kind, factor))
    }

    /// Whether a correction changed since this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    fn of(&self, number: ModelId, kind: &str) -> (f64, Option<&Cells<f64>>) {
        let cells = self.replaced.get(&(number, Arc::from(kind)));
        (self.factor(number, kind), cells.filter(|cells| !cells.is_empty()))
    }

    /// A model with corrected profiles.
    pub fn corrected(&self, number: ModelId, model: Model) -> Model {
        let Ok(profiles) = &model.profiles else { return model };
        let is_corrected = |profile: &Profile| self.of(number, profile.device()) != (1.0, None);
        if !profiles.iter().any(is_corrected) {
            return model;
        }
        let correct = |profile: &Profile| {
            let (factor, cells) = self.of(number, profile.device());
            profile.corrected(factor, cells.unwrap_or(&BTreeMap::new()))
        };
        Model { profiles: Ok(profiles.iter().map(correct).collect()), ..model }
    }
}

impl Controller {
    /// Profiles that plans correct by measured times, of the models at the last evaluation.
    pub fn profile_corrections(&self) -> &[ProfileCorrection] {
        &self.corrected
    }

    /// Whether plans use corrected profiles. GSLICE corrects shares and batches itself.
    pub(super) fn corrects_profiles(&self) -> bool {
        !matches!(self.inputs.policy, Policy::Gslice(_))
    }

    /// The models of a load report with corrected profiles.
    pub(super) fn corrected(&mut self, models: Vec<ModelLoad>) -> Vec<Model> {
        if !self.corrects_profiles() {
            return models.into_iter().map(|looked| looked.model).collect();
        }
        let corrections = &self.learning.corrections;
        let mut all = Vec::new();
        for ModelLoad { model, seen } in &models {
            for profile in model.profiles.as_deref().unwrap_or_default() {
                let (factor, cells) = corrections.of(seen.number, profile.device());
                if factor != 1.0 || cells.is_some() {
                    all.push(ProfileCorrection {
                        model: model.name.clone(),
                        device_type: profile.device().to_owned(),
                        factor,
                        replaced_cells: cells.map_or(0, BTreeMap::len),
                    });
                }
            }
        }
        self.corrected = all;
        let corrections = &self.learning.corrections;
        models.into_iter().map(|looked| corrections.corrected(looked.seen.number, looked.model)).collect()
    }
}
