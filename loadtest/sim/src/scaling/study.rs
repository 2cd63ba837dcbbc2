//! All scalers on a trace, and how far the study's devices are from those that placement asks for.

use std::sync::Arc;

use gpulet_core::check::check;
use gpulet_core::interference::Interference;
use gpulet_core::placement::Policy;
use gpulet_core::problem::{Device, DeviceKind, Problem, Workload};
use gpulet_core::scaling::{Autoscaler, SCALERS, ScalingOptions, Standby};
use gpulet_core::time::Micros;

use super::demand::Demand;
use super::fleet::Fleet;
use super::hindsight::hindsight;
use super::oracle::{Oracle, bound};
use super::run::{Outcome, Rules, Scaled, run};
use super::traces::Trace;
use super::{StudyError, render};
use crate::abreast;
use crate::page::Plot;

/// Microseconds of a tick.
pub(super) const TICK_US: u64 = 50_000;
/// Points of a line over time: of a day, means over five minutes.
const STRETCHES: usize = 288;
/// The cool-down, in times of a change, and at least.
const COOL_DOWN_CHANGES: u64 = 2;
const COOL_DOWN_LEAST_US: u64 = 10_000_000;
/// Bytes of a device in the comparison with placement: memory is not what is compared.
const DEVICE_BYTES: u64 = 1 << 40;

/// One controller in a contest.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its word; `oracle` knows the future.
    pub name: String,
    /// What became of the trace.
    pub outcome: Outcome,
}

/// All controllers on a trace under the same rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Contest {
    /// What the trace is called.
    pub name: String,
    /// What it is, for people.
    pub about: String,
    /// What is the same for everybody.
    pub rules: Rules,
    /// Length of the trace, seconds.
    pub seconds: f64,
    /// The scalers in the order of their list, and the oracle at the end.
    pub entries: Vec<Entry>,
    /// Device-hours of whoever knows the future and rents parts of devices.
    pub bound: f64,
    /// Device-hours of the best follower, chosen afterwards.
    pub hindsight: f64,
    /// Devices that the requests would fill without any head-room: means over stretches of equal length.
    pub demand: Vec<f64>,
}

impl Contest {
    /// The entry of that name.
    pub fn entry(&self, name: &str) -> Option<&Outcome> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.outcome)
    }

    /// Device-hours of that entry over the oracle's.
    pub fn over_oracle(&self, name: &str) -> Option<f64> {
        Some(self.entry(name)?.device_hours / self.entry("oracle")?.device_hours)
    }
}

fn stretched(demand: &Demand, fleet: &Fleet) -> Vec<f64> {
    let ticks = demand.ticks().div_ceil(STRETCHES).max(1);
    let seconds = demand.tick_us() as f64 / 1e6;
    let need = |window: &[u32]| {
        let time = (window.len() / demand.models()) as f64 * seconds;
        let mut sums = vec![0.0; demand.models()];
        for counts in window.chunks_exact(demand.models()) {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += f64::from(*count) / time);
        }
        fleet.need(&sums)
    };
    demand.windows(ticks).filter(|window| window.len() == ticks * demand.models()).map(need).collect()
}

/// Every scaler and the oracle on a trace, once for each of the rules, on so many threads.
///
/// # Errors
/// [`StudyError`] where the trace has not one model for each of the fleet, or is too long to be held.
pub fn contest(
    trace: &Trace,
    fleet: &Fleet,
    rules: &[Rules],
    threads: usize,
) -> Result<Vec<Contest>, StudyError> {
    if trace.workload.models.len() != fleet.models().len() {
        let problem =
            format!("expected {} like the fleet, got {}", fleet.models().len(), trace.workload.models.len());
        return Err(StudyError::Setting { field: format!("{}.models", trace.name), problem });
    }
    let demand = Demand::of(&trace.workload, TICK_US)?;
    let need = stretched(&demand, fleet);
    let mut contests = Vec::new();
    for rules in rules {
        let oracle = Oracle::new(&demand, fleet, rules);
        let peaks = oracle.peaks();
        let scalers = SCALERS.iter().map(|(name, _)| *name);
        let jobs: Vec<Option<&str>> = scalers.map(Some).chain([None]).collect();
        let hindsight = hindsight(&demand, fleet, rules);
        let outcomes = abreast(threads, &jobs, |job| {
            Ok(match job {
                Some(name) => scaled(name, &demand, fleet, rules, &peaks),
                None => Ok(run(&demand, fleet, rules, &peaks, STRETCHES, &mut oracle.clone())),
            })
        })?;
        let named = jobs
            .iter()
            .zip(outcomes)
            .map(|(job, outcome)| Ok(Entry { name: job.unwrap_or("oracle").to_owned(), outcome: outcome? }));
        contests.push(Contest {
            name: trace.name.to_owned(),
            about: trace.about.to_owned(),
            rules: *rules,
            seconds: demand.ticks() as f64 * demand.tick_us() as f64 / 1e6,
            entries: named.collect::<Result<_, StudyError>>()?,
            bound: bound(&demand, fleet, rules),
            hindsight,
            demand: need.clone(),
        });
    }
    Ok(contests)
}

fn scaled(
    name: &str,
    demand: &Demand,
    fleet: &Fleet,
    rules: &Rules,
    peaks: &[f64],
) -> Result<Outcome, StudyError> {
    let options = ScalingOptions {
        attainment: rules.attainment,
        change_us: Micros(rules.change_us),
        cool_down_us: Micros(COOL_DOWN_LEAST_US.max(COOL_DOWN_CHANGES * rules.change_us)),
        standby: rules.standby,
    };
    let autoscaler = Autoscaler::new(name, &fleet.services(peaks), options, peaks)?;
    let standby = vec![Standby::Ready; fleet.models().len()];
    let mut controller = Scaled { autoscaler, fleet, standby };
    Ok(run(demand, fleet, rules, peaks, STRETCHES, &mut controller))
}

/// Devices of the study beside those of the default placement, for the same rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// Which mix of models.
    pub mix: &'static str,
    /// Devices that the study counts.
    pub counted: u32,
    /// Devices that the default placement needs, by a plan that the judge finds sound; none if it found none.
    pub placed: Option<usize>,
}

/// Asks the default placement about rates that fill so many devices by the study's count: all models with the same
/// rate, and all models with the same share of the devices.
///
/// # Errors
/// [`StudyError::Problem`] where fleet, kind of device and interference do not fit each other.
pub fn agreement(
    fleet: &Fleet,
    kind: &Arc<DeviceKind>,
    interference: &Interference,
    filled: &[f64],
) -> Result<Vec<Agreement>, StudyError> {
    let mut agreements = Vec::new();
    let shares: Vec<f64> = fleet.cuts().iter().map(|cut| cut.per_device).collect();
    for (mix, rates) in [("same rate", vec![1.0; shares.len()]), ("same share", shares)] {
        for devices in filled {
            let scale = devices / fleet.need(&rates);
            let rates: Vec<f64> = rates.iter().map(|rate| rate * scale).collect();
            let placed = placed(fleet, kind, interference, &rates, *devices)?;
            agreements.push(Agreement { mix, counted: fleet.allocate(&rates).devices, placed });
        }
    }
    Ok(agreements)
}

fn placed(
    fleet: &Fleet,
    kind: &Arc<DeviceKind>,
    interference: &Interference,
    rates: &[f64],
    devices: f64,
) -> Result<Option<usize>, StudyError> {
    let device = |number: usize| Device {
        name: format!("device{number:03}"),
        kind: Arc::clone(kind),
        memory_bytes: DEVICE_BYTES,
        fault_domain: format!("device{number:03}"),
        cost: 1.0,
    };
    // Twice as many as counted, so that it is placement that says how many.
    let devices = (0..2 * devices.ceil() as usize).map(device).collect();
    let workloads = fleet.models().iter().zip(rates);
    let workloads = workloads.map(|(model, rate)| Workload { rate: *rate, ..model.workload.clone() });
    let mut profiles = Vec::new();
    for model in fleet.models() {
        if !profiles.contains(&model.profile) {
            profiles.push(model.profile.clone());
        }
    }
    let problem = Problem::new(devices, workloads.collect(), profiles, interference.clone())?;
    let judged = Policy::default().place(&problem).ok().map(|plan| check(&problem, &plan));
    Ok(judged.filter(|judged| judged.is_sound()).map(|judged| judged.devices_used))
}

/// A whole study.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Study {
    /// Traces in order, for each all rules in order.
    pub contests: Vec<Contest>,
    /// Devices of the study beside those of placement.
    pub agreements: Vec<Agreement>,
}

impl Study {
    /// The page in Markdown, whose plots lie in `folder`. The same study gives the same bytes.
    pub fn markdown(&self, folder: &str, command: &str) -> String {
        render::markdown(self, folder, command)
    }

    /// Plots with the names of their files, in the order of the contests.
    pub fn plots(&self) -> Vec<(String, Plot)> {
        self.contests.iter().map(|contest| (render::file(contest), render::plot(contest))).collect()
    }
}
