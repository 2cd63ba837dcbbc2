//! One controller through a trace.

use gpulet_core::scaling::{Autoscaler, ModelObservation, Observation, Standby, StandbyAfter};
use gpulet_core::time::Micros;

use super::demand::Demand;
use super::fleet::{Allocation, Fleet};
use super::queue::Queue;

/// What is the same for everybody.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Part of the requests to be answered within their objective.
    pub attainment: f64,
    /// Microseconds from a decision to its effect; one change after the other.
    pub change_us: u64,
    /// Microseconds between two observations.
    pub observe_us: u64,
    /// Microseconds at the start that do not count.
    pub warmup_us: u64,
    /// When models without requests are unloaded; none keeps all of them on their devices.
    pub standby: Option<StandbyAfter>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            attainment: 0.99,
            change_us: 2_000_000,
            observe_us: 500_000,
            warmup_us: 300_000_000,
            standby: None,
        }
    }
}

/// What a controller asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Requests a second of each model.
    pub rates: Vec<f64>,
    /// Microseconds that the slowest model loads which has to be loaded.
    pub load_us: u64,
}

/// Who decides.
pub trait Controller {
    /// What to plan for from now on; none where nothing should change.
    fn decide(&mut self, observation: &Observation<'_>) -> Option<Wanted>;
}

/// An autoscaler of the server, and how long its models load.
#[derive(Debug)]
pub(super) struct Scaled<'a> {
    pub(super) autoscaler: Autoscaler,
    pub(super) fleet: &'a Fleet,
    pub(super) standby: Vec<Standby>,
}

impl Controller for Scaled<'_> {
    fn decide(&mut self, observation: &Observation<'_>) -> Option<Wanted> {
        let decision = self.autoscaler.decide(observation);
        if !decision.is_change {
            return None;
        }
        let mut load_us = 0;
        for ((target, standby), model) in
            decision.targets.iter().zip(&mut self.standby).zip(self.fleet.models())
        {
            load_us = load_us.max(match (*standby, target.standby) {
                (Standby::Warm, Standby::Ready) => model.warm_load_us,
                (Standby::Cold, Standby::Ready) => model.cold_load_us,
                _ => 0,
            });
            *standby = target.standby;
        }
        Some(Wanted { rates: decision.targets.iter().map(|target| target.rate).collect(), load_us })
    }
}

/// What became of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests offered of each model, after the warm-up.
    pub offered: Vec<f64>,
    /// Requests of each model that were refused, or would have been late.
    pub lost: Vec<f64>,
    /// Hours of all devices, those included that were being prepared or about to go.
    pub device_hours: f64,
    /// Plans that were put in force.
    pub changes: u64,
    /// Devices at most.
    pub devices_max: u32,
    /// Devices over time, as many as were paid for, each a mean over a stretch of time of equal length.
    pub devices: Vec<f64>,
}

impl Outcome {
    /// Part of all requests that were answered within their objective.
    pub fn attainment(&self) -> f64 {
        part(self.lost.iter().sum(), self.offered.iter().sum())
    }

    /// The lowest attainment of a model.
    pub fn worst(&self) -> f64 {
        self.lost.iter().zip(&self.offered).map(|(lost, offered)| part(*lost, *offered)).fold(1.0, f64::min)
    }
}

fn part(lost: f64, offered: f64) -> f64 {
    if offered > 0.0 { 1.0 - lost / offered } else { 1.0 }
}

#[derive(Clone, Copy, Debug, Default)]
struct Since {
    arrivals: u64,
    lost: f64,
}

struct Course<'a> {
    fleet: &'a Fleet,
    change_us: u64,
    now: Allocation,
    /// What is being carried out, and when it is in force.
    coming: Option<(u64, Allocation)>,
    /// What was asked for while another change was being carried out.
    asked: Option<Wanted>,
    changes: u64,
}

impl Course<'_> {
    fn arrive(&mut self, now_us: u64) {
        if let Some((_, allocation)) = self.coming.take_if(|(at_us, _)| *at_us <= now_us) {
            self.now = allocation;
        }
    }

    fn start(&mut self, now_us: u64) {
        if self.coming.is_some() {
            return;
        }
        let Some(wanted) = self.asked.take() else { return };
        let planned = self.fleet.allocate(&wanted.rates);
        // A plan that serves what is asked for and costs no more than another would stays.
        if self.now.covers(&wanted.rates) && self.now.devices <= planned.devices {
            return;
        }
        let at_us = now_us.saturating_add(self.change_us.max(wanted.load_us));
        self.coming = Some((at_us, planned));
        self.changes += 1;
    }

    fn paid(&self) -> u32 {
        self.coming.as_ref().map_or(0, |(_, coming)| coming.devices).max(self.now.devices)
    }

    /// Whoever were told of today's capacity only would ask again for what is on its way.
    fn capacity(&self, model: usize) -> f64 {
        let of = |allocation: &Allocation| allocation.capacity.get(model).copied().unwrap_or(0.0);
        self.coming.as_ref().map_or_else(|| of(&self.now), |(_, coming)| of(coming))
    }
}

/// Runs a controller through a trace. It starts with the capacity given by `first`, requests a second.
pub fn run(
    demand: &Demand,
    fleet: &Fleet,
    rules: &Rules,
    first: &[f64],
    stretches: usize,
    controller: &mut dyn Controller,
) -> Outcome {
    let (tick_us, models) = (demand.tick_us(), demand.models());
    let seconds = tick_us as f64 / 1e6;
    let now = fleet.allocate(first);
    let mut course = Course { fleet, change_us: rules.change_us, now, coming: None, asked: None, changes: 0 };
    let mut queues = vec![Queue::default(); models];
    let mut since = vec![Since::default(); models];
    let mut outcome = Outcome { offered: vec![0.0; models], lost: vec![0.0; models], ..Outcome::default() };
    let ticks_each = demand.ticks().div_ceil(stretches.max(1)).max(1);
    let (mut paid, mut stretch) = (0_u64, 0_u64);
    for (tick, counts) in demand.iter().enumerate() {
        let now_us = tick as u64 * tick_us;
        course.arrive(now_us);
        if now_us.is_multiple_of(rules.observe_us) {
            let observed: Vec<ModelObservation> = since
                .iter()
                .zip(&queues)
                .enumerate()
                .map(|(model, (since, queue))| observation(since, queue, course.capacity(model)))
                .collect();
            since.fill(Since::default());
            if let Some(wanted) = controller.decide(&Observation { now: Micros(now_us), models: &observed }) {
                course.asked = Some(wanted);
            }
        }
        course.start(now_us);
        let counts_from = now_us >= rules.warmup_us;
        for (model, count) in counts.iter().enumerate() {
            let arrivals = f64::from(*count);
            let capacity = course.now.capacity.get(model).copied().unwrap_or(0.0);
            let wait = fleet.cuts().get(model).map_or(0.0, |cut| cut.wait);
            let lost =
                queues.get_mut(model).map_or(0.0, |queue| queue.pass(seconds, arrivals, capacity, wait));
            if let Some(since) = since.get_mut(model) {
                since.arrivals += u64::from(*count);
                since.lost += lost;
            }
            if counts_from {
                outcome.offered.get_mut(model).into_iter().for_each(|sum| *sum += arrivals);
                outcome.lost.get_mut(model).into_iter().for_each(|sum| *sum += lost);
            }
        }
        let devices = course.paid();
        stretch += u64::from(devices);
        if counts_from {
            paid += u64::from(devices);
            outcome.devices_max = outcome.devices_max.max(devices);
        } else {
            course.changes = 0;
        }
        if (tick + 1).is_multiple_of(ticks_each) {
            outcome.devices.push(stretch as f64 / ticks_each as f64);
            stretch = 0;
        }
    }
    outcome.device_hours = paid as f64 * seconds / 3_600.0;
    outcome.changes = course.changes;
    outcome
}

fn observation(since: &Since, queue: &Queue, capacity: f64) -> ModelObservation {
    let arrivals = since.arrivals as f64;
    // Requests that waited already may be lost to a smaller capacity: never more than arrived, for the scaler.
    let attainment = (since.arrivals > 0).then(|| (1.0 - since.lost / arrivals).max(0.0));
    let (queued, refused) = (queue.waiting() as u64, since.lost as u64);
    ModelObservation { arrivals: since.arrivals, queued, refused, attainment, capacity }
}
