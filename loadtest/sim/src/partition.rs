//! Partitions devices into gpulets while the simulation runs. The server's own control loop decides, in virtual time.
//!
//! [`Controller`] runs unchanged. This module holds its environment: the devices and profiles of the workload
//! ([`ControlInputs`]), which lane belongs to which gpulet ([`OpenGpulets`]), when steps complete, and what is reported
//! ([`Record`]). The simulation feeds its events.

mod control_inputs;
mod open_gpulets;
mod record;
mod stages;

use std::collections::{BTreeMap, VecDeque};

use gpulet_core::control::{BatchTotals, Controller, Counts};
use gpulet_core::id::ModelId;
use gpulet_core::rollout::Event;
use gpulet_core::time::Micros;
use lane_plan::LaneClasses;
use router_core::{Nanos, Outcome};
use workload::Workload;

pub(crate) use self::control_inputs::{ControlInputs, fault};
pub(crate) use self::open_gpulets::{OpenGpulet, OpenGpulets};
pub(crate) use self::record::Record;
use crate::error::{Breach, SimError};
use crate::inflight::Request;
use crate::lanes::{Held, Lanes, Running};
use crate::setup::Setup;

/// Checks the devices, profiles and plan of a workload without running it. A workload without devices passes.
///
/// # Errors
/// [`SimError::Workload`]: the key, and what would be right.
pub fn check(workload: &Workload) -> Result<(), SimError> {
    Ok(ControlInputs::new(workload, &Setup::default()).map(drop)?)
}

/// A relaxation of the workload: devices are lanes, and every batch runs on the share that costs least. A bound on its
/// goodput bounds every plan. A workload without devices is returned unchanged.
pub(crate) fn fluid(workload: &Workload) -> Result<Workload, SimError> {
    let Some(control_inputs) = ControlInputs::new(workload, &Setup::default())? else {
        return Ok(workload.clone());
    };
    let mut fluid = workload.clone();
    fluid.partition = None;
    for (number, model) in fluid.models.iter_mut().enumerate().filter(|(_, model)| model.is_single()) {
        model.profile = Some(control_inputs.cheapest(number)?);
    }
    Ok(fluid)
}

/// Devices that are busy on average if every batch has the size and the share of a device at which a request costs
/// least, among those that meet the model's objective without contention. No plan serves the workload on fewer.
///
/// # Errors
/// [`SimError::Workload`]: the key, and what would be right; also for a workload without devices.
pub fn least_devices(workload: &Workload, from_ns: u64, to_ns: u64) -> Result<f64, SimError> {
    let Some(control_inputs) = ControlInputs::new(workload, &Setup::default())? else {
        return Err(fault("devices", "expected at least one section, like [devices.v100]").into());
    };
    let busy = workload.models.iter().enumerate().map(|(number, model)| {
        let requests = model.expected_requests(to_ns) - model.expected_requests(from_ns);
        let of = |number: u32| control_inputs.least_time_per_row(number as usize, model.slo);
        let least = match (&model.family, &model.pipeline) {
            (Some(family), _) => {
                family.allowed().map(|variant| of(variant.model)).fold(f64::INFINITY, f64::min)
            }
            // As if each stage had the whole objective.
            (None, Some(pipeline)) => {
                let stages = pipeline.stages.iter().zip(pipeline.mean_rows());
                stages.filter(|(_, rows)| *rows > 0.0).map(|(stage, rows)| rows * of(stage.model)).sum()
            }
            (None, None) => control_inputs.least_time_per_row(number, model.slo),
        };
        if requests > 0.0 { requests * least } else { 0.0 }
    });
    Ok(busy.sum::<f64>() / to_ns.saturating_sub(from_ns).max(1) as f64)
}

/// The control loop and its environment.
#[derive(Debug)]
pub(crate) struct Partitioned {
    pub controller: Controller,
    pub control_inputs: ControlInputs,
    pub classes: LaneClasses,
    pub open_gpulets: OpenGpulets,
    /// Future events by time in nanoseconds, then in the order in which they were scheduled.
    pub due: BTreeMap<(u64, u64), Event>,
    begun: u64,
    /// Events from the router that the control loop has not processed yet.
    pub said: VecDeque<Event>,
    /// The router's answer to the last switch.
    pub switched: Option<Result<(), String>>,
    /// Virtual time of the next tick of the control loop, in nanoseconds.
    pub look_at: u64,
    /// Answered and failed requests, by model.
    pub counts: Vec<Counts>,
    /// Number of batches and the sum of their nanoseconds, by lane, model and rows.
    ran: BTreeMap<(u32, u32, u32), (u64, u64)>,
    pub record: Record,
}

impl Partitioned {
    /// Creates the control loop of a workload. Returns `None` if the workload has no devices.
    ///
    /// # Errors
    /// If its devices, profiles, plan or options are invalid.
    pub(crate) fn new(workload: &Workload, setup: &Setup) -> Result<Option<Self>, SimError> {
        let Some(control_inputs) = ControlInputs::new(workload, setup)? else { return Ok(None) };
        let options = control_inputs.options.clone();
        let controller = Controller::new(options, control_inputs.inputs.clone())
            .map_err(|error| fault("partition", error.to_string()))?;
        let devices = &control_inputs.inputs.devices;
        let classes =
            LaneClasses::new(devices.iter().map(|one| (one.name.as_str(), one.device_type.name.as_str())));
        let classes = classes.on_any_units(devices.iter().map(|one| one.name.as_str()));
        let any_units = control_inputs.inputs.policy.plans_time_windows();
        Ok(Some(Self {
            controller,
            classes,
            open_gpulets: OpenGpulets::new(devices, any_units),
            due: BTreeMap::new(),
            begun: 0,
            said: VecDeque::new(),
            switched: None,
            look_at: 0,
            counts: vec![Counts::default(); workload.models.len()],
            ran: BTreeMap::new(),
            record: Record::new(workload, &control_inputs),
            control_inputs,
        }))
    }

    /// Schedules an event of the controller at `at` nanoseconds.
    pub(crate) fn later(&mut self, at: u64, event: Event) {
        self.begun += 1;
        self.due.insert((at, self.begun), event);
    }

    /// Nanoseconds that a batch takes on a lane: its median solo time, times the slowdown by co-located batches.
    pub(crate) fn co_located_time(&self, lane: u32, held: Held, lanes: &Lanes) -> Result<u64, Breach> {
        let solo = self.time(lane, held)?;
        let slowdown = self.slowdown(lane, held, lanes).unwrap_or(1.0);
        Ok((solo as f64 * slowdown) as u64)
    }

    /// None on devices whose workload describes no interference.
    fn slowdown(&self, lane: u32, held: Held, lanes: &Lanes) -> Option<f64> {
        let own = self.open_gpulets.get(lane)?;
        let interference = self.control_inputs.interference.get(&own.device)?;
        let runner = |entry: &OpenGpulet, held: Held| {
            self.control_inputs.runner(held.model as usize, &entry.kind, entry.units, held.rows)
        };
        let co_located = self.open_gpulets.on(&own.device).filter(|(other, _)| *other != lane);
        let others = co_located.filter_map(|(other, entry)| {
            let running = invariant::expected!(lanes.running(other), "sim.busy_units_without_batch");
            runner(entry, running?)
        });
        Some(lane_plan::slowdown(interference, &runner(own, held)?, others))
    }

    /// Median nanoseconds of a batch on a lane.
    fn time(&self, lane: u32, held: Held) -> Result<u64, Breach> {
        let entry = self.open_gpulets.get(lane);
        let time = entry.and_then(|entry| {
            self.control_inputs.time(held.model as usize, &entry.kind, entry.units, held.rows)
        });
        time.ok_or_else(|| {
            let place = entry
                .map_or_else(String::new, |entry| format!(" of {} units of `{}`", entry.units, entry.kind));
            let detail = format!(
                "no profile gives the time of {} rows of model {} on lane {lane}{place}",
                held.rows, held.model
            );
            Breach { id: "R5", detail }
        })
    }

    /// Counts a batch that ended.
    pub(crate) fn ended(&mut self, lane: u32, running: &Running) {
        self.open_gpulets.ends(lane);
        let sum = self.ran.entry((lane, running.held.model, running.held.rows)).or_default();
        sum.0 += 1;
        sum.1 += running.end - running.start;
    }

    /// Drops the batches of a lane whose gpulet was closed.
    pub(crate) fn forget(&mut self, lane: u32) {
        self.ran.retain(|(known, ..), _| *known != lane);
    }

    /// Totals of the batches of all open gpulets.
    pub(crate) fn ran(&self) -> Vec<BatchTotals> {
        let ran = self.ran.iter().filter_map(|(&(lane, number, rows), &(batches, time))| {
            let entry = invariant::expected!(self.open_gpulets.get(lane), "sim.batches_of_closed_gpulet");
            let gpulet = entry?.gpulet;
            Some(BatchTotals {
                gpulet,
                number: ModelId(number),
                rows,
                batches,
                time_us: Micros(time / 1_000),
            })
        });
        ran.collect()
    }

    /// Counts a request that ended, of the model of this number.
    pub(crate) fn count(&mut self, now: u64, number: u32, request: &Request, outcome: Outcome) {
        let Some(counts) = self.counts.get_mut(number as usize) else {
            return invariant::violated!("sim.request_of_unknown_model");
        };
        if outcome == Outcome::Done {
            counts.rows += u64::from(request.rows);
            counts.answered += 1;
            counts.late += u64::from(request.deadline.is_some_and(|deadline| deadline < Nanos(now)));
        } else {
            counts.failed += 1;
        }
    }

    /// When the next step completes or the controller's timer expires, in nanoseconds and not before `now`.
    pub(crate) fn next_step(&self, now: u64) -> Option<u64> {
        let due = self.due.keys().next().map(|(at, _)| *at);
        let wake = self.controller.next_wake().map(|wake| wake.0.saturating_mul(1_000));
        due.into_iter().chain(wake).min().map(|at| at.max(now))
    }
}
