//! What a plan is made for: this machine's cores as a device, the models that serve as workloads, and profiles of both.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::problem::{Device, DeviceKind, Problem, Workload};
use gpulet_core::profile::{ArenaLine, BATCH_MAX, Cell, Header, Line, Profile, Quantile, Source};
use gpulet_core::scaling::Service;

use crate::catalog::Loaded;
use crate::plan::reading::profiles;
use crate::profile::DEVICE;

/// Name of the device that all cores of the lanes are.
pub const DEVICE_NAME: &str = "cpu0";
/// Models without an objective are planned for as if theirs was this.
const SLO_UNSAID: Duration = Duration::from_secs(1);
/// The 95th and 99th percentile of batch times of which only the shortest is known, over that one.
const TAILS: (f64, f64) = (1.2, 1.5);
/// Halvings in the search for the largest load that can be planned for.
const HALVINGS: u32 = 8;

/// Requests a second to plan for by model, head-room included.
pub type Targets = BTreeMap<String, f64>;

/// A plan, and how much of what was wanted it serves.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What the plan was made for.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// Share of every target that it was made for: 1 unless the device is too small.
    pub share: f64,
}

/// What stays the same from plan to plan.
pub struct Terms {
    device: Device,
    profiles: Vec<Profile>,
    policy: Policy,
}

impl Terms {
    /// Reads the profiles; paths are relative to the folder that the server was started in.
    ///
    /// # Errors
    /// When a file cannot be read, or has profiles of a device of another size.
    pub fn new(cores: usize, memory_bytes: u64, files: &[String], policy: Policy) -> anyhow::Result<Self> {
        let units = u32::try_from(cores)?;
        let kind = Arc::new(DeviceKind {
            name: DEVICE.to_owned(),
            units,
            sizes: (1..=units).collect(),
            gpulets_max: units,
            base_bytes: 0,
            gpulet_bytes: 0,
        });
        let device = Device {
            name: DEVICE_NAME.to_owned(),
            kind,
            memory_bytes,
            fault_domain: DEVICE_NAME.to_owned(),
            cost: 1.0,
        };
        let mut profiles = profiles::named("partition.profiles", files, Path::new(""))?;
        profiles.retain(|profile| profile.device() == DEVICE);
        if let Some(other) = profiles.iter().find(|profile| profile.units_total() != units) {
            anyhow::bail!(
                "partition.profiles: profile of `{}` is of {} cores: expected {units}, as many as the lanes have; run \
                 `tessera profile` with these",
                other.model(),
                other.units_total()
            );
        }
        Ok(Self { device, profiles, policy })
    }

    /// The question, with so much of every target.
    fn problem(
        &self,
        models: &[Arc<Loaded>],
        targets: &Targets,
        current: Option<&Plan>,
        share: f64,
    ) -> Result<Problem, String> {
        let mut profiles = Vec::with_capacity(models.len());
        let mut workloads = Vec::with_capacity(models.len());
        for loaded in models {
            let profile = self.profile(loaded)?;
            let slo = loaded.config.slo.unwrap_or(SLO_UNSAID);
            workloads.push(Workload {
                name: loaded.name.clone(),
                model: loaded.name.clone(),
                tenant: String::new(),
                not_with: Vec::new(),
                slo_us: slo.as_secs_f64() * 1e6,
                rate: targets.get(&loaded.name).copied().unwrap_or(0.0) * share,
                head_room: 1.0,
                replicas_min: 1,
                batch_max: loaded.signature.max_batch.clamp(1, profile.batches().1.max(1)),
            });
            profiles.push(profile);
        }
        let interference = Interference::NoInterference(NoInterference);
        let problem = Problem::new(vec![self.device.clone()], workloads, profiles, interference);
        let problem = problem.map_err(|error| error.to_string())?;
        Ok(match current {
            Some(plan) => problem.from_current(plan.clone()),
            None => problem,
        })
    }

    /// A plan for these targets; where the device is too small, for the largest share of all of them that it serves.
    ///
    /// # Errors
    /// Why there is none even for next to nothing.
    pub fn plan(
        &self,
        models: &[Arc<Loaded>],
        targets: &Targets,
        current: Option<&Plan>,
    ) -> Result<Planned, String> {
        let attempt = |share: f64| {
            let problem = self.problem(models, targets, current, share)?;
            let plan = self.policy.place(&problem).map_err(|error| error.to_string())?;
            Ok::<_, String>(Planned { problem, plan, share })
        };
        if let Ok(planned) = attempt(1.0) {
            return Ok(planned);
        }
        let mut best = attempt(0.0)?;
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            match attempt(middle) {
                Ok(planned) => (low, best) = (middle, planned),
                Err(_) => high = middle,
            }
        }
        Ok(best)
    }

    /// The plan that a server starts with: every model on every lane.
    ///
    /// # Errors
    /// When there is no profile of a model.
    pub fn as_found(&self, models: &[Arc<Loaded>], lanes: &[(u32, u32)]) -> Result<Planned, String> {
        let problem = self.problem(models, &Targets::new(), None, 1.0)?;
        let slots: Vec<Slot> = problem
            .workloads()
            .iter()
            .map(|workload| {
                let profile = problem.profile(workload, &self.device.kind);
                let batch = workload.batch_max.min(profile.map_or(1, |profile| profile.batches().1)).max(1);
                Slot { workload: workload.name.clone(), batch, budget_us: workload.slo_us, rate: 0.0 }
            })
            .collect();
        let duty_us = (slots.len() > 1).then(|| slots.iter().map(|slot| slot.budget_us).sum());
        let gpulets = lanes.iter().map(|&(first_unit, units)| Gpulet {
            device: DEVICE_NAME.to_owned(),
            first_unit,
            units,
            window: None,
            duty_us,
            slots: slots.clone(),
        });
        let plan = Plan::new(if slots.is_empty() { Vec::new() } else { gpulets.collect() });
        Ok(Planned { problem, plan, share: 1.0 })
    }

    /// What a scaler must know of a model.
    ///
    /// # Errors
    /// When there is no profile of it.
    pub fn service(&self, loaded: &Loaded) -> Result<Service, String> {
        let profile = self.profile(loaded)?;
        let slo_us = loaded.config.slo.unwrap_or(SLO_UNSAID).as_secs_f64() * 1e6;
        let units = self.device.kind.units;
        let most = loaded.signature.max_batch.clamp(1, profile.batches().1.max(1));
        let rate = |batch: u32| {
            let time = profile.latency_us(Quantile::P99, batch, units).ok()?;
            (batch == 1 || 2.0 * time <= slo_us).then_some(1e6 * f64::from(batch) / time)
        };
        let replica_rate = (1..=most).filter_map(rate).reduce(f64::max).unwrap_or(1.0);
        Ok(Service {
            name: loaded.name.clone(),
            replica_rate,
            warm_load_us: 0,
            cold_load_us: 0,
            // The whole device: what `static` asks for is then an equal share for each.
            peak_rate: replica_rate,
            replicas_min: 1,
        })
    }

    /// What is known of a model: its profile from the files, else what was measured while it was loaded.
    fn profile(&self, loaded: &Loaded) -> Result<Profile, String> {
        let hash = loaded.hash.to_string();
        let mut of_files = self.profiles.iter().filter(|profile| profile.model() == loaded.name);
        let same =
            |profile: &&Profile| profile.header().model_sha256.as_ref().is_none_or(|known| *known == hash);
        if let Some(profile) = of_files.rfind(same) {
            return held_by_each(profile);
        }
        let units = self.device.kind.units;
        synthesised(
            &loaded.name,
            loaded.engine,
            units,
            loaded.measured_cores.clamp(1, units),
            &loaded.measured,
        )
    }
}

/// The same with weights counted as part of what each gpulet needs: sessions on cores share none.
fn held_by_each(profile: &Profile) -> Result<Profile, String> {
    let weights = profile.weights_bytes().unwrap_or(0);
    let has_arenas = profile.lines().iter().any(|line| matches!(line, Line::Arena(_)));
    let mut lines: Vec<Line> = profile.lines();
    for line in &mut lines {
        match line {
            Line::Profile(header) => header.weights_bytes = None,
            Line::Arena(arena) => arena.bytes = arena.bytes.saturating_add(weights),
            Line::Cell(_) | Line::Utilisation(_) | Line::Coefficients(_) => {}
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

/// A profile from the shortest times on so many cores: fewer take in proportion longer, more are of no use.
fn synthesised(
    model: &str,
    engine: &str,
    units_total: u32,
    cores: u32,
    measured: &[(u32, Duration)],
) -> Result<Profile, String> {
    let known: Vec<&(u32, Duration)> = measured.iter().filter(|(rows, _)| *rows <= BATCH_MAX).collect();
    if known.is_empty() {
        return Err(format!(
            "model `{model}`: its batch times are unknown: run `tessera profile` and name its file"
        ));
    }
    let header = Header {
        version: 1,
        model: model.to_owned(),
        model_sha256: None,
        device: DEVICE.to_owned(),
        engine: engine.to_owned(),
        source: Source::Synthesised,
        note: format!(
            "shortest of a few runs on {cores} cores as it was loaded; fewer cores in proportion, tails assumed"
        ),
        units_total,
        weights_bytes: None,
        load_us_per_row: 0.0,
    };
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
                left_out: None,
            }));
        }
    }
    only(model, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_cores_than_were_measured_take_longer_and_more_do_not_help() {
        let measured = [(1, Duration::from_millis(2)), (8, Duration::from_millis(8))];
        let profile = synthesised("m", "tract", 4, 2, &measured).unwrap();
        let p50 = |batch, units| profile.latency_us(Quantile::P50, batch, units).unwrap();
        assert_eq!((p50(1, 1), p50(1, 2), p50(1, 4)), (4_000.0, 2_000.0, 2_000.0));
        assert_eq!((p50(8, 1), p50(8, 2)), (16_000.0, 8_000.0));
        assert_eq!(profile.header().source, Source::Synthesised);
        let unknown = synthesised("m", "tract", 4, 2, &[]).unwrap_err();
        assert!(unknown.contains("model `m`: its batch times are unknown"), "{unknown}");
    }
}
