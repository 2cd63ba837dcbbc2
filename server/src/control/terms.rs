//! What a plan is made for: the server's devices, the models that serve as workloads, and profiles of both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gpulet::{CoresDevice, DeviceInfo};
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::problem::{Device, DeviceKind, Problem, Workload};
use gpulet_core::profile::{ArenaLine, BATCH_MAX, Cell, Header, Line, Profile, Quantile, Source};
use gpulet_core::scaling::{Resident, Service, evict};

use super::micros;
use crate::catalog::Loaded;
use crate::devices::{Devices, profile_of};
use crate::reason::{Reason, Refusal};

/// Models without an objective are planned for as if theirs was this.
const SLO_UNSAID: Duration = Duration::from_secs(1);
/// The 95th and 99th percentile of batch times of which only the shortest is known, over that one.
const TAILS: (f64, f64) = (1.2, 1.5);
/// Halvings in the search for the largest load that can be planned for.
const HALVINGS: u32 = 8;

/// What to plan for.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Requests a second by model, head-room included.
    pub rates: BTreeMap<String, f64>,
    /// Models that need no place.
    pub away: BTreeSet<String>,
}

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
    own: Arc<Devices>,
    devices: Vec<Device>,
    policy: Policy,
}

/// A device as a planner sees it.
fn planned_with(info: &DeviceInfo) -> Device {
    let kind = DeviceKind {
        name: info.kind.clone(),
        units: info.units,
        sizes: info.sizes.clone(),
        gpulets_max: info.units,
        base_bytes: 0,
        gpulet_bytes: 0,
    };
    Device {
        name: info.name.clone(),
        kind: Arc::new(kind),
        memory_bytes: info.memory_bytes,
        fault_domain: info.name.clone(),
        cost: 1.0,
    }
}

impl Terms {
    /// Of these devices.
    pub fn new(own: Arc<Devices>, policy: Policy) -> Self {
        let devices = own.infos().map(planned_with).collect();
        Self { own, devices, policy }
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
            let known = self.profiles(loaded)?;
            let largest = known.iter().map(|profile| profile.batches().1).min().unwrap_or(1);
            let slo = loaded.config.slo.unwrap_or(SLO_UNSAID);
            let away = targets.away.contains(&loaded.name);
            workloads.push(Workload {
                name: loaded.name.clone(),
                model: loaded.name.clone(),
                tenant: String::new(),
                not_with: Vec::new(),
                slo_us: slo.as_secs_f64() * 1e6,
                rate: if away {
                    0.0
                } else {
                    targets.rates.get(&loaded.name).copied().unwrap_or(0.0) * share
                },
                head_room: 1.0,
                replicas_min: u32::from(!away),
                batch_max: loaded.signature.max_batch.clamp(1, largest.max(1)),
            });
            profiles.extend(known);
        }
        let interference = Interference::NoInterference(NoInterference);
        let problem = Problem::new(self.devices.clone(), workloads, profiles, interference);
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

    /// A plan without models that must go where memory is too short for all: the least valuable of those that may
    /// leave and that nobody waits for, one after another. Says which they are.
    ///
    /// # Errors
    /// Why there is none even without them.
    pub fn plan_without(
        &self,
        models: &[Arc<Loaded>],
        targets: &Targets,
        asked_us: &BTreeMap<String, u64>,
        make: impl Fn(&Targets) -> Result<Planned, String>,
    ) -> Result<(Planned, BTreeSet<String>), String> {
        let (mut targets, mut gone) = (targets.clone(), BTreeSet::new());
        loop {
            let reason = match make(&targets) {
                Ok(planned) => return Ok((planned, gone)),
                Err(reason) => reason,
            };
            let residents = models.iter().map(|loaded| self.resident(loaded, &targets, asked_us));
            let residents = residents.collect::<Result<Vec<Resident>, String>>()?;
            // One at a time: how much room is wanted is known only to the planner.
            let leaves = evict(&residents, 1).ok().and_then(|places| models.get(*places.first()?));
            let Some(leaves) = leaves else { return Err(reason) };
            targets.away.insert(leaves.name.clone());
            gone.insert(leaves.name.clone());
        }
    }

    fn resident(
        &self,
        loaded: &Loaded,
        targets: &Targets,
        asked_us: &BTreeMap<String, u64>,
    ) -> Result<Resident, String> {
        let bytes = |profile: &Profile| {
            let [weights, arena] =
                [profile.weights_bytes(), profile.arena_bytes(1)].map(Option::unwrap_or_default);
            weights.saturating_add(arena)
        };
        let bytes = self.profiles(loaded)?.iter().map(bytes).max();
        let stays =
            !loaded.place.may_leave() || loaded.place.waiting() > 0 || targets.away.contains(&loaded.name);
        Ok(Resident {
            bytes: bytes.unwrap_or_default().max(1),
            rate: targets.rates.get(&loaded.name).copied().unwrap_or_default(),
            load_us: micros(loaded.load_time),
            asked_us: asked_us.get(&loaded.name).copied().unwrap_or_default(),
            is_needed: stays,
        })
    }

    /// The plan that a server starts with: every model that is not away on every lane.
    ///
    /// # Errors
    /// When there is no profile of a model.
    pub fn as_found(&self, models: &[Arc<Loaded>], targets: &Targets) -> Result<Planned, String> {
        let away = targets.away.clone();
        let problem = self.problem(models, &Targets { away, ..Targets::default() }, None, 1.0)?;
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
        let gpulets = self.own.start().iter().map(|share| Gpulet {
            device: share.device.clone(),
            first_unit: share.first_unit,
            units: share.units,
            window: None,
            duty_us,
            slots: slots.clone(),
        });
        let plan = Plan::new(if slots.is_empty() { Vec::new() } else { gpulets.collect() });
        Ok(Planned { problem, plan, share: 1.0 })
    }

    /// An operator's plan, for the rates that are planned for.
    ///
    /// # Errors
    /// What it names that is not there, and what it leaves out that has to be there.
    pub fn by_hand(
        &self,
        models: &[Arc<Loaded>],
        targets: &Targets,
        plan: &Plan,
    ) -> Result<Planned, Refusal> {
        let homeless = models
            .iter()
            .find(|loaded| !loaded.place.may_leave() && plan.slots_of(&loaded.name).next().is_none());
        if let Some(loaded) = homeless {
            let reason = format!("gpulets: model `{}` has no slot: expected one at least", loaded.name);
            return Err(Refusal::new(Reason::Malformed, reason));
        }
        if let Some(gpulet) = plan.gpulets.iter().find(|gpulet| gpulet.window.is_some()) {
            let (device, unit) = (&gpulet.device, gpulet.first_unit);
            let reason = format!(
                "gpulets: `{device}` from unit {unit}: window: expected none: slots of one gpulet take turns instead"
            );
            return Err(Refusal::new(Reason::Malformed, reason));
        }
        let problem = self.problem(models, targets, None, 1.0);
        let problem = problem.map_err(|reason| Refusal::new(Reason::PlanRefused, reason))?;
        Ok(Planned { problem, plan: Plan::new(plan.gpulets.clone()), share: 1.0 })
    }

    /// What a scaler must know of a model.
    ///
    /// # Errors
    /// When there is no profile of it.
    pub fn service(&self, loaded: &Loaded) -> Result<Service, String> {
        let slo_us = loaded.config.slo.unwrap_or(SLO_UNSAID).as_secs_f64() * 1e6;
        let profiles = self.profiles(loaded)?;
        let best = |profile: &Profile| {
            let most = loaded.signature.max_batch.clamp(1, profile.batches().1.max(1));
            let rate = |batch: u32| {
                let time = profile.latency_us(Quantile::P99, batch, profile.units_total()).ok()?;
                (batch == 1 || 2.0 * time <= slo_us).then_some(1e6 * f64::from(batch) / time)
            };
            (1..=most).filter_map(rate).reduce(f64::max)
        };
        // Of several kinds the slowest: a replica may be there.
        let replica_rate = profiles.iter().filter_map(best).reduce(f64::min).unwrap_or(1.0);
        Ok(Service {
            name: loaded.name.clone(),
            replica_rate,
            warm_load_us: 0,
            cold_load_us: 0,
            // The whole device: what `static` asks for is then an equal share for each.
            peak_rate: replica_rate,
            replicas_min: u32::from(!loaded.place.may_leave()),
        })
    }

    /// What is known of a model on each kind of device: a profile from the files; for cores else what was measured while
    /// it was loaded.
    fn profiles(&self, loaded: &Loaded) -> Result<Vec<Profile>, String> {
        let hash = loaded.hash.to_string();
        let mut kinds: Vec<&DeviceKind> = self.devices.iter().map(|device| device.kind.as_ref()).collect();
        kinds.sort_by(|left, right| left.name.cmp(&right.name));
        kinds.dedup_by(|left, right| left.name == right.name);
        let known = kinds.into_iter().filter_map(|kind| {
            let cores = kind.name == CoresDevice::KIND;
            match profile_of(self.own.profiles(), &kind.name, &loaded.name, &hash) {
                Some(profile) if cores => Some(held_by_each(profile)),
                Some(profile) => Some(Ok(profile.clone())),
                None => cores.then(|| synthesised(loaded, kind.units)),
            }
        });
        let known = known.collect::<Result<Vec<_>, _>>()?;
        if known.is_empty() {
            return Err(format!("model `{}`: no profile of it: run `tessera profile`", loaded.name));
        }
        Ok(known)
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
fn synthesised(loaded: &Loaded, units: u32) -> Result<Profile, String> {
    let cores = loaded.measured_cores.clamp(1, units);
    of_measured(&loaded.name, loaded.engine, units, cores, &loaded.measured)
}

fn of_measured(
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
        device: CoresDevice::KIND.to_owned(),
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
        let profile = of_measured("m", "tract", 4, 2, &measured).unwrap();
        let p50 = |batch, units| profile.latency_us(Quantile::P50, batch, units).unwrap();
        assert_eq!((p50(1, 1), p50(1, 2), p50(1, 4)), (4_000.0, 2_000.0, 2_000.0));
        assert_eq!((p50(8, 1), p50(8, 2)), (16_000.0, 8_000.0));
        assert_eq!(profile.header().source, Source::Synthesised);
        let unknown = of_measured("m", "tract", 4, 2, &[]).unwrap_err();
        assert!(unknown.contains("model `m`: its batch times are unknown"), "{unknown}");
    }
}
