//! Devices that are cut into gpulets while the simulation runs: by the server's own control loop, in virtual time.
//!
//! What decides is [`Controller`], unchanged. Here is what it works on: devices and profiles as the workload gives them
//! ([`Ground`]), which lane is which gpulet ([`Homes`]), when steps are done, and what is told of it all
//! ([`Record`]). How it is driven stands with the simulation.

mod ground;
mod homes;
mod record;

use std::collections::{BTreeMap, VecDeque};

use gpulet_core::control::{BatchTotals, Controller, Counts};
use gpulet_core::id::ModelId;
use gpulet_core::rollout::Event;
use gpulet_core::time::Micros;
use lane_plan::LaneClasses;
use router_core::{Nanos, Outcome};
use workload::Workload;

pub(crate) use self::ground::{Ground, fault};
pub(crate) use self::homes::{Home, Homes};
pub(crate) use self::record::Record;
use crate::error::{Breach, SimError};
use crate::inflight::Request;
use crate::lanes::{Held, Lanes, Running};
use crate::setup::Setup;

/// Checks what a workload says of devices, profiles and plans, as far as that can be known before it is run. Nothing where
/// it cuts no devices.
///
/// # Errors
/// [`SimError::Workload`]: the key, and what would be right.
pub fn check(workload: &Workload) -> Result<(), SimError> {
    Ok(Ground::new(workload, &Setup::default()).map(drop)?)
}

/// The workload as if a batch could always be cut to the share that costs least, and devices were lanes: what bounds it
/// bounds every plan. The same where it cuts no devices.
pub(crate) fn fluid(workload: &Workload) -> Result<Workload, SimError> {
    let Some(ground) = Ground::new(workload, &Setup::default())? else { return Ok(workload.clone()) };
    let mut fluid = workload.clone();
    fluid.partition = None;
    for (number, model) in fluid.models.iter_mut().enumerate() {
        model.profile = Some(ground.cheapest(number)?);
    }
    Ok(fluid)
}

/// Devices that are busy on average if every batch has the size and the share of a device at which a request costs
/// least, among those that meet the model's objective without contention. No plan serves the workload on fewer.
///
/// # Errors
/// [`SimError::Workload`]: the key, and what would be right; also for a workload without devices.
pub fn least_devices(workload: &Workload, from_ns: u64, to_ns: u64) -> Result<f64, SimError> {
    let Some(ground) = Ground::new(workload, &Setup::default())? else {
        return Err(fault("devices", "expected at least one section, like [devices.v100]").into());
    };
    let busy = workload.models.iter().enumerate().map(|(number, model)| {
        let requests = model.expected_requests(to_ns) - model.expected_requests(from_ns);
        requests * ground.least_time_per_row(number, model.slo)
    });
    Ok(busy.sum::<f64>() / to_ns.saturating_sub(from_ns).max(1) as f64)
}

/// The control loop and its world.
#[derive(Debug)]
pub(crate) struct Partitioned {
    pub controller: Controller,
    pub ground: Ground,
    pub classes: LaneClasses,
    pub homes: Homes,
    /// What is told at what time, nanoseconds, in the order in which it was begun.
    pub due: BTreeMap<(u64, u64), Event>,
    begun: u64,
    /// What the router said just now.
    pub said: VecDeque<Event>,
    /// Answer of the router to the table that it was given just now.
    pub switched: Option<Result<(), String>>,
    /// Nanoseconds of the next look at the load.
    pub look_at: u64,
    /// By model.
    pub counts: Vec<Counts>,
    /// Batches and their nanoseconds by lane, model and rows.
    ran: BTreeMap<(u32, u32, u32), (u64, u64)>,
    pub record: Record,
}

impl Partitioned {
    /// Of a workload that cuts devices; none where it does not.
    ///
    /// # Errors
    /// What is wrong with its devices, profiles, plan or words.
    pub(crate) fn new(workload: &Workload, setup: &Setup) -> Result<Option<Self>, SimError> {
        let Some(ground) = Ground::new(workload, setup)? else { return Ok(None) };
        let options = ground.options.clone();
        let controller = Controller::new(options, ground.inputs.clone())
            .map_err(|error| fault("partition", error.to_string()))?;
        let devices = &ground.inputs.devices;
        let classes =
            LaneClasses::new(devices.iter().map(|one| (one.name.as_str(), one.device_type.name.as_str())));
        Ok(Some(Self {
            controller,
            classes,
            homes: Homes::new(devices),
            due: BTreeMap::new(),
            begun: 0,
            said: VecDeque::new(),
            switched: None,
            look_at: 0,
            counts: vec![Counts::default(); workload.models.len()],
            ran: BTreeMap::new(),
            record: Record::new(workload, &ground),
            ground,
        }))
    }

    /// Tells the controller of something at a time, nanoseconds.
    pub(crate) fn later(&mut self, at: u64, event: Event) {
        self.begun += 1;
        self.due.insert((at, self.begun), event);
    }

    /// Nanoseconds of a batch on a lane beside what runs just now: the median, times what its neighbours make of it.
    pub(crate) fn time_beside(&self, lane: u32, held: Held, lanes: &Lanes) -> Result<u64, Breach> {
        let alone = self.time(lane, held)?;
        let slowdown = self.slowdown(lane, held, lanes).unwrap_or(1.0);
        Ok((alone as f64 * slowdown) as u64)
    }

    fn slowdown(&self, lane: u32, held: Held, lanes: &Lanes) -> Option<f64> {
        let own = self.homes.get(lane)?;
        let interference = self.ground.interference.get(&own.device)?;
        let runner = |home: &Home, held: Held| {
            self.ground.runner(held.model as usize, &home.kind, home.units, held.rows)
        };
        let beside = self.homes.on(&own.device).filter(|(other, _)| *other != lane);
        let others = beside.filter_map(|(other, home)| runner(home, lanes.running(other)?));
        Some(lane_plan::slowdown(interference, &runner(own, held)?, others))
    }

    /// Median nanoseconds of a batch on a lane.
    fn time(&self, lane: u32, held: Held) -> Result<u64, Breach> {
        let home = self.homes.get(lane);
        let time =
            home.and_then(|home| self.ground.time(held.model as usize, &home.kind, home.units, held.rows));
        time.ok_or_else(|| {
            let place =
                home.map_or_else(String::new, |home| format!(" of {} units of `{}`", home.units, home.kind));
            let detail = format!(
                "nobody knows how long {} rows of model {} take on lane {lane}{place}",
                held.rows, held.model
            );
            Breach { id: "R5", detail }
        })
    }

    /// A batch ended.
    pub(crate) fn ended(&mut self, lane: u32, running: &Running) {
        self.homes.ends(lane);
        let sum = self.ran.entry((lane, running.held.model, running.held.rows)).or_default();
        sum.0 += 1;
        sum.1 += running.end - running.start;
    }

    /// A lane is another gpulet from now on, or none.
    pub(crate) fn forget(&mut self, lane: u32) {
        self.ran.retain(|(known, ..), _| *known != lane);
    }

    /// All batches of gpulets that there are.
    pub(crate) fn ran(&self) -> Vec<BatchTotals> {
        let ran = self.ran.iter().filter_map(|(&(lane, number, rows), &(batches, time))| {
            let gpulet = self.homes.get(lane)?.gpulet;
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

    /// A request ended.
    pub(crate) fn count(&mut self, now: u64, request: &Request, outcome: Outcome) {
        let Some(counts) = self.counts.get_mut(request.model as usize) else { return };
        if outcome == Outcome::Done {
            counts.rows += u64::from(request.rows);
            counts.answered += 1;
            counts.late += u64::from(request.deadline.is_some_and(|deadline| deadline < Nanos(now)));
        } else {
            counts.failed += 1;
        }
    }

    /// When a step is done or the controller's own time is up, nanoseconds, not before `now`.
    pub(crate) fn next_step(&self, now: u64) -> Option<u64> {
        let due = self.due.keys().next().map(|(at, _)| *at);
        let wake = self.controller.next_wake().map(|wake| wake.0.saturating_mul(1_000));
        due.into_iter().chain(wake).min().map(|at| at.max(now))
    }
}
