//! Inputs of planning: the server's devices, the serving models as workloads, and their profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpulet::{CoresDevice, DeviceInfo};
#[cfg(test)]
pub use gpulet_core::control::Targets;
use gpulet_core::control::{self, Family, FamilyVariant, InitialGpulet, Model, StageOf, VariantPolicy};
use gpulet_core::id::DeviceId;
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::problem::{Device, DeviceType};
use gpulet_core::profile::{ArenaLine, BATCH_MAX, Cell, Header, Line, Profile, Quantile, RowShape, Source};
#[cfg(test)]
use gpulet_core::{control::Planned, plan::Plan};

use super::shapes;
use crate::catalog::Loaded;
use crate::devices::{Devices, profile_of};

/// Objective that plans assume for models without one, of their own or of a pipeline.
const SLO_UNSAID: Duration = Duration::from_secs(1);
/// Assumed 95th and 99th percentile of batch times, as multiples of the shortest measured time.
const TAILS: (f64, f64) = (1.2, 1.5);

/// Profiles of a version, one per device type, or the reason why they are unknown.
pub type Known = Result<Arc<[Profile]>, String>;

/// Inputs that stay the same from plan to plan.
pub struct Terms {
    own: Arc<Devices>,
    terms: control::PlanningInputs,
    /// Profiles by model number. A reloaded version has a new number; the next evaluation removes the old one.
    known: Mutex<BTreeMap<u32, Known>>,
    /// Versions, by their load, of which it is logged that their requests have other shapes than their profiles.
    told: Mutex<BTreeSet<u64>>,
}

/// The description of a device for the planner. Gpulets that share units in time may be more than units; the lanes of
/// the old and of the new plan must both fit.
fn planned_with(info: &DeviceInfo, shares_time: bool) -> Device {
    let per_unit = if shares_time { lane_plan::LANES_PER_UNIT / 2 } else { 1 };
    let device_type = DeviceType {
        name: info.device_type.clone(),
        units: info.units,
        sizes: info.sizes.clone(),
        gpulets_max: info.units.saturating_mul(per_unit),
        base_bytes: info.base_bytes,
        gpulet_bytes: info.gpulet_bytes,
    };
    Device {
        name: info.name.as_str().into(),
        device_type: Arc::new(device_type),
        memory_bytes: info.memory_bytes,
        fault_domain: info.fault_domain.clone(),
        cost: 1.0,
    }
}

impl Terms {
    /// Creates the inputs for these devices.
    pub fn new(own: Arc<Devices>, policy: Policy, variants: VariantPolicy) -> Self {
        let start = own.movable().map(|share| InitialGpulet {
            device: share.device.clone(),
            first_unit: share.first_unit,
            units: share.units,
        });
        let terms = control::PlanningInputs {
            devices: own
                .infos()
                .map(|info| Device {
                    cost: own.cost(&info.name),
                    ..planned_with(info, policy.plans_time_windows())
                })
                .collect(),
            start: start.collect(),
            policy,
            variants,
            interference: Interference::NoInterference(NoInterference),
            quantile: Quantile::default(),
        };
        Self { own, terms, known: Mutex::default(), told: Mutex::default() }
    }

    /// The inputs that do not depend on models.
    pub fn terms(&self) -> &control::PlanningInputs {
        &self.terms
    }

    /// The models as the control loop knows them. `stages` are those of pipelines that each runs, by the name of the model.
    pub fn models(&self, loaded: &[Arc<Loaded>], stages: &BTreeMap<String, Vec<StageOf>>) -> Vec<Model> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|number, _| loaded.iter().any(|version| version.id.0 == *number));
        let of = |loaded: &Arc<Loaded>| {
            let profiles = known.entry(loaded.id.0).or_insert_with(|| known_of(&self.own, loaded));
            let stages = stages.get(&loaded.name).map(Vec::as_slice).unwrap_or_default();
            model(loaded, profiles.clone(), stages)
        };
        loaded.iter().map(of).collect()
    }

    /// Bytes of each device's memory that the sessions of these versions have: by their profiles, or the size of their files.
    pub fn reserved(&self, loaded: &[Arc<Loaded>]) -> BTreeMap<DeviceId, u64> {
        let mut reserved = BTreeMap::new();
        for version in loaded {
            let known = known_of(&self.own, version).ok();
            for lane in version.lanes() {
                let Some(share) = self.own.share_of(lane.id()) else { continue };
                let device_type = self.own.infos().find(|info| share.device == info.name.as_str());
                let profile = known
                    .iter()
                    .flat_map(|known| known.iter())
                    .find(|profile| device_type.is_some_and(|info| info.device_type == profile.device()));
                let bytes = profile.map_or(version.file_bytes, |profile| {
                    let rows = version.signature.max_batch.clamp(1, profile.batches().1.max(1));
                    let [weights, arena] =
                        [profile.weights_bytes(), profile.arena_bytes(rows)].map(Option::unwrap_or_default);
                    weights.saturating_add(arena)
                });
                let sum: &mut u64 = reserved.entry(share.device).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        reserved
    }

    /// Logs once for each version that its requests have other shapes than its profiles.
    pub fn tell_other_shapes(&self, models: &[Model], loaded: &[Arc<Loaded>]) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|load| loaded.iter().any(|version| version.load == *load));
        for (model, version) in models.iter().zip(loaded) {
            if !told.contains(&version.load)
                && let Some(warning) = shapes::other(version, model)
            {
                tracing::warn!(model = %version.name, version = version.version, "{warning}");
                told.insert(version.load);
            }
        }
    }

    /// A plan for these targets.
    #[cfg(test)]
    pub fn plan(
        &self,
        models: &[Arc<Loaded>],
        targets: &Targets,
        current: Option<&Plan>,
    ) -> Result<Planned, String> {
        self.terms.plan((&self.models(models, &BTreeMap::new()), &[]), targets, current)
    }

    /// The plan that a server starts with.
    #[cfg(test)]
    pub fn initial_plan(&self, models: &[Arc<Loaded>], targets: &Targets) -> Result<Planned, String> {
        self.terms.initial_plan(&self.models(models, &BTreeMap::new()), targets)
    }
}

/// A version as the control loop knows it.
pub fn model(loaded: &Loaded, profiles: Known, stages: &[StageOf]) -> Model {
    let own = loaded.config().slo.map(|slo| slo.as_secs_f64() * 1e6);
    Model {
        name: loaded.name.clone(),
        model: loaded.name.clone(),
        slo_us: StageOf::objective_us(own, stages).unwrap_or(SLO_UNSAID.as_secs_f64() * 1e6),
        batch_max: loaded.signature.max_batch,
        profiles,
        load_us: loaded.load_time.into(),
        replicas_min: loaded.config().replicas_min.get(),
        may_leave: loaded.activation.may_deactivate(),
        is_waited_for: loaded.activation.waiting() > 0,
        has_place: loaded.activation.is_active(),
        stages: stages.to_vec(),
    }
}

/// A family as the control loop knows it; `None` for other models.
pub fn family(loaded: &Loaded) -> Option<Family> {
    let served = loaded.ensemble.as_ref()?;
    let family = served.family.as_ref()?;
    let variants = served.ensemble.steps.iter().zip(&family.variants);
    let variants = variants
        .map(|(step, (_, quality))| FamilyVariant { name: step.model.clone(), quality: quality.value });
    Some(Family {
        name: loaded.name.clone(),
        slo_us: loaded.config().slo.unwrap_or(SLO_UNSAID).as_secs_f64() * 1e6,
        quality_min: family.quality_min,
        quality_mean: family.quality_mean,
        variants: variants.collect(),
    })
}

/// Profiles of a model, one per device type. They come from the profile files; for cores without one, from measurements
/// during the load.
pub fn known_of(devices: &Devices, loaded: &Loaded) -> Known {
    let hash = loaded.hash.to_string();
    let units: BTreeMap<&str, u32> =
        devices.infos().map(|info| (info.device_type.as_str(), info.units)).collect();
    let known = units.into_iter().filter_map(|(device_type, units)| {
        let cores = device_type == CoresDevice::DEVICE_TYPE;
        match profile_of(devices.profiles(), device_type, &loaded.name, &hash) {
            Some(profile) if cores => Some(
                with_measured(profile, loaded.measured_cores, &loaded.measured)
                    .and_then(|own| held_by_each(&own)),
            ),
            Some(profile) => Some(Ok(profile.clone())),
            None => cores.then(|| held_by_each(&synthesised(loaded, units)?)),
        }
    });
    let known = known.collect::<Result<Vec<_>, _>>()?;
    if known.is_empty() {
        return Err(format!("model `{}`: no profile of it: run `tessera profile`", loaded.name));
    }
    Ok(known.into())
}

/// Bytes of a session on cores that is prepared for batches of `rows`, by its profile.
pub fn session_bytes(devices: &Devices, loaded: &Loaded, rows: u32) -> u64 {
    let known = known_of(devices, loaded).ok();
    let profile =
        known.iter().flat_map(|known| known.iter()).find(|known| known.device() == CoresDevice::DEVICE_TYPE);
    profile.and_then(|profile| profile.arena_bytes(rows)).unwrap_or(0)
}

/// Replaces predicted cells by the batch times that were measured on this many cores during the load.
fn with_measured(profile: &Profile, cores: u32, measured: &[(u32, Duration)]) -> Result<Profile, String> {
    if profile.predicted().next().is_none() {
        return Ok(profile.clone());
    }
    let mut lines = profile.lines();
    for line in &mut lines {
        let Line::Cell(cell) = line else { continue };
        let time = measured.iter().find(|(rows, _)| *rows == cell.batch && cores == cell.units);
        let Some((_, time)) = time.filter(|_| cell.predicted.is_some()) else { continue };
        let p50_us = (time.as_secs_f64() * 1e6).max(1.0);
        let tail = |time_us: f64| p50_us * time_us / cell.p50_us;
        let (p95_us, p99_us) = (tail(cell.p95_us), tail(cell.p99_us));
        *cell = Cell { p50_us, p95_us, p99_us, count: 1, predicted: None, ..cell.clone() };
    }
    only(profile.model(), lines)
}

/// Counts the weights as part of the memory of each gpulet, because sessions on cores do not share weights.
fn held_by_each(profile: &Profile) -> Result<Profile, String> {
    let weights = profile.weights_bytes().unwrap_or(0);
    let has_arenas = profile.lines().iter().any(|line| matches!(line, Line::Arena(_)));
    let mut lines: Vec<Line> = profile.lines();
    for line in &mut lines {
        match line {
            Line::Profile(header) => header.weights_bytes = None,
            Line::Arena(arena) => arena.bytes = arena.bytes.saturating_add(weights),
            Line::Cell(_)
            | Line::Utilisation(_)
            | Line::Contention(_)
            | Line::Coefficients(_)
            | Line::Work(_) => {}
        }
    }
    if weights > 0 && !has_arenas {
        lines.push(Line::Arena(ArenaLine { batch: profile.batches().1.max(1), bytes: weights }));
    }
    only(profile.model(), lines)
}

fn only(model: &str, lines: Vec<Line>) -> Result<Profile, String> {
    let mut profiles = Profile::of_lines(lines).map_err(|error| format!("model `{model}`: {error}"))?;
    profiles.pop().ok_or_else(|| format!("model `{model}`: nothing measured"))
}

/// A profile from the shortest measured batch times. Fewer cores take proportionally longer, and more cores do not
/// help. A session takes at least about as much memory as its files.
fn synthesised(loaded: &Loaded, units: u32) -> Result<Profile, String> {
    let cores = loaded.measured_cores.clamp(1, units);
    let inputs = loaded.measured_shapes.clone();
    let assumed =
        if inputs.is_empty() { None } else { Some(RowShape { inputs, share: None, assumed: true }) };
    let of_files = Header {
        version: 1,
        model: loaded.name.clone(),
        model_sha256: None,
        device: CoresDevice::DEVICE_TYPE.to_owned(),
        engine: loaded.engine.to_owned(),
        source: Source::Synthesised,
        note: format!(
            "shortest of a few runs on {cores} cores as it was loaded; fewer cores in proportion, tails assumed; memory of its files"
        ),
        shapes: assumed.into_iter().collect(),
        units_total: units,
        weights_bytes: Some(loaded.file_bytes),
        load_us_per_row: 0.0,
    };
    of_measured(of_files, cores, &loaded.measured)
}

fn of_measured(header: Header, cores: u32, measured: &[(u32, Duration)]) -> Result<Profile, String> {
    let model = header.model.clone();
    let known: Vec<&(u32, Duration)> = measured.iter().filter(|(rows, _)| *rows <= BATCH_MAX).collect();
    if known.is_empty() {
        return Err(format!(
            "model `{model}`: its batch times are unknown: run `tessera profile` and name its file"
        ));
    }
    let units_total = header.units_total;
    let mut lines = vec![Line::Profile(header)];
    for units in [1, cores, units_total] {
        for (rows, time) in &known {
            let p50_us = time.as_secs_f64() * 1e6 * f64::from(cores) / f64::from(units.min(cores));
            let p50_us = p50_us.max(1.0);
            let (p95_us, p99_us) = (TAILS.0 * p50_us, TAILS.1 * p50_us);
            lines.push(Line::Cell(Cell {
                batch: *rows,
                units,
                p50_us,
                p95_us,
                p99_us,
                count: 1,
                doubt: None,
                predicted: None,
                left_out: None,
            }));
        }
    }
    only(&model, lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulet_core::profile::Interval;

    #[test]
    fn predicted_cells_are_replaced_by_what_the_load_measured() {
        let cell = |batch, units, p50_us: f64, predicted: Option<Interval>| {
            let (p95_us, p99_us, count) = (1.1 * p50_us, 1.2 * p50_us, u64::from(predicted.is_none()));
            Line::Cell(Cell {
                batch,
                units,
                p50_us,
                p95_us,
                p99_us,
                count,
                left_out: None,
                doubt: None,
                predicted,
            })
        };
        let doubt = |p50_us: f64| Some(Interval { low_us: 0.5 * p50_us, high_us: 2.0 * p50_us });
        let lines = [
            Line::Profile(header(4)),
            cell(1, 2, 1_000.0, None),
            cell(4, 2, 3_000.0, doubt(3_000.0)),
            cell(8, 2, 6_000.0, doubt(6_000.0)),
            cell(4, 4, 1_000.0, doubt(1_000.0)),
        ];
        let profile = only("m", lines.to_vec()).unwrap();
        let measured = [(1, Duration::from_micros(700)), (4, Duration::from_micros(2_500))];
        let now = with_measured(&profile, 2, &measured).unwrap();
        let p99 = |batch, units| now.latency_us(Quantile::P99, batch, units).unwrap().round();
        assert_eq!((p99(1, 2), p99(4, 2), p99(8, 2)), (1_200.0, 3_000.0, (7_200.0 * 2_f64.sqrt()).round()));
        let open: Vec<_> = now.predicted().map(|cell| (cell.batch, cell.units)).collect();
        assert_eq!(open, [(8, 2), (4, 4)]);
    }

    fn header(units_total: u32) -> Header {
        Header {
            version: 1,
            model: "m".to_owned(),
            model_sha256: None,
            device: CoresDevice::DEVICE_TYPE.to_owned(),
            engine: "tract".to_owned(),
            source: Source::Synthesised,
            note: String::new(),
            shapes: Vec::new(),
            units_total,
            weights_bytes: Some(1_000),
            load_us_per_row: 0.0,
        }
    }

    #[test]
    fn fewer_cores_than_were_measured_take_longer_and_more_do_not_help() {
        let measured = [(1, Duration::from_millis(2)), (8, Duration::from_millis(8))];
        let header = header(4);
        let profile = held_by_each(&of_measured(header.clone(), 2, &measured).unwrap()).unwrap();
        let p50 = |batch, units| profile.latency_us(Quantile::P50, batch, units).unwrap();
        assert_eq!((p50(1, 1), p50(1, 2), p50(1, 4)), (4_000.0, 2_000.0, 2_000.0));
        assert_eq!((p50(8, 1), p50(8, 2)), (16_000.0, 8_000.0));
        assert_eq!([1, 8].map(|batch| profile.arena_bytes(batch)), [Some(1_000); 2]);
        let unknown = of_measured(header, 2, &[]).unwrap_err();
        assert!(unknown.contains("model `m`: its batch times are unknown"), "{unknown}");
    }
}
