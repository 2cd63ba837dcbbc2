//! True execution times of batches.

use std::collections::VecDeque;

use rand::RngExt as _;

use crate::draws::{exponential, normal};
use crate::lanes::{Noise, Stalls};
use crate::overhead::Spans;
use crate::profile::Profile;
use crate::seeds::{Generator, Purpose, generator};
use crate::workload::Workload;
use units::Fault as WorkloadError;

/// True execution times of batches: the profiled time, multiplied by a bias, a factor per model and noise per batch,
/// plus the server's overhead and stalls.
///
/// The draws of a lane depend on the seed, its number and how many batches it ran, so lanes do not affect one another.
#[derive(Debug)]
pub struct ExecutionNoise {
    models: Vec<Truth>,
    lanes: Vec<Lane>,
    jitter: Option<Jitter>,
    stalls: Option<Stalls>,
    overhead: Spans,
}

#[derive(Debug)]
struct Truth {
    /// `None` if the time of a batch depends on its lane; the caller then passes the time.
    profile: Option<Profile>,
    factor: f64,
    /// Speeds of the device types of a fleet.
    speeds: Vec<f64>,
}

/// A lognormal factor of mean 1: exp(sigma z - sigma^2 / 2).
#[derive(Clone, Copy, Debug)]
struct Jitter {
    sigma: f64,
}

#[derive(Debug)]
struct Lane {
    times: Generator,
    stalls: Generator,
    overhead: Generator,
    /// Starts of the stalls drawn so far that have not passed.
    pending: VecDeque<u64>,
    /// When the last stall drawn ends.
    drawn_until: u64,
    /// Number of its device type in the fleet.
    device_type: usize,
}

impl ExecutionNoise {
    /// Creates the noise of the models and lanes of a workload.
    ///
    /// # Errors
    /// If the workload does not say how long batches of a model take.
    pub fn new(workload: &Workload) -> Result<Self, WorkloadError> {
        Self::on(workload, workload.lanes.count)
    }

    /// Like [`ExecutionNoise::new`], on `lanes` lanes.
    ///
    /// # Errors
    /// As [`ExecutionNoise::new`]. A workload with devices need not say how long batches take.
    pub fn on(workload: &Workload, lanes: u32) -> Result<Self, WorkloadError> {
        let Noise { cv, bias, spread, stalls } = workload.lanes.noise;
        let seed = workload.seed;
        let models = workload.models.iter().map(|model| {
            let point: f64 = generator(seed, Purpose::Spread, &model.name).random();
            let factor = bias * (1.0 + spread * (2.0 * point - 1.0));
            let profile = match workload.partition {
                Some(_) => None,
                None if !model.is_single() => None,
                None => Some(model.profiled()?.clone()),
            };
            let types = workload.fleet.iter().flat_map(|fleet| &fleet.types);
            let speeds = types.map(|one| one.speed_of(&model.name)).collect();
            Ok(Truth { profile, factor, speeds })
        });
        let models = models.collect::<Result<_, WorkloadError>>()?;
        let lanes = (0..lanes).map(|lane| Lane {
            times: generator(seed, Purpose::Times, &lane.to_string()),
            stalls: generator(seed, Purpose::Stalls, &lane.to_string()),
            overhead: generator(seed, Purpose::Overhead, &lane.to_string()),
            pending: VecDeque::new(),
            drawn_until: 0,
            device_type: workload.device_type_of(lane),
        });
        let jitter = (cv > 0.0).then(|| Jitter { sigma: libm::sqrt(libm::log(1.0 + cv * cv)) });
        let overhead = workload.lanes.overhead.clone();
        Ok(Self { models, lanes: lanes.collect(), jitter, stalls, overhead })
    }

    /// Factor between a model's profile and its true mean time, without stalls; 1 for an unknown model.
    pub fn factor(&self, model: u32) -> f64 {
        self.truth(model).map_or(1.0, |truth| truth.factor)
    }

    /// Nanoseconds that a batch of `rows` rows takes when it starts at `now` on a lane; at least 1 for a batch
    /// that has rows. Batches of a lane must come in order of `now`. A lane that the workload does not have works
    /// exactly as profiled; a model that it does not have takes no time.
    pub fn time(&mut self, lane: u32, model: u32, batch: u32, now: u64) -> u64 {
        let truth = self.truth(model);
        let profiled =
            truth.and_then(|truth| truth.profile.as_ref()).map_or(0, |profile| profile.time(batch));
        let device_type = self.lanes.get(lane as usize).map_or(0, |lane| lane.device_type);
        let speed = truth.and_then(|truth| truth.speeds.get(device_type)).copied().unwrap_or(1.0);
        let profiled = if speed == 1.0 { profiled } else { libm::round(profiled as f64 / speed) as u64 };
        self.true_time(lane, model, profiled, now)
    }

    /// Like [`ExecutionNoise::time`], for a batch that takes `profiled` nanoseconds by its profile.
    pub fn true_time(&mut self, lane: u32, model: u32, profiled: u64, now: u64) -> u64 {
        let Some(factor) = self.truth(model).map(|truth| truth.factor) else { return 0 };
        let lane = usize::try_from(lane).ok().and_then(|lane| self.lanes.get_mut(lane));
        let Some(lane) = lane.filter(|_| profiled > 0) else { return profiled };
        let jitter = self.jitter.map_or(1.0, |jitter| jitter.draw(&mut lane.times));
        let work = if factor == 1.0 && self.jitter.is_none() {
            profiled
        } else {
            (libm::round(profiled as f64 * factor * jitter) as u64).max(1)
        };
        let work = work.saturating_add(self.overhead.draw(&mut lane.overhead));
        match self.stalls {
            Some(stalls) => lane.held_up(stalls, work, now),
            None => work,
        }
    }

    fn truth(&self, model: u32) -> Option<&Truth> {
        self.models.get(usize::try_from(model).ok()?)
    }
}

impl Jitter {
    fn draw(self, generator: &mut Generator) -> f64 {
        libm::exp(self.sigma * normal(generator) - self.sigma * self.sigma / 2.0)
    }
}

impl Lane {
    /// Time that the work takes with the stalls that fall into it.
    ///
    /// Stalls do not depend on whether the lane works, and stay drawn until they have passed: a batch that ends
    /// early leaves later stalls to the next batch.
    fn held_up(&mut self, stalls: Stalls, work: u64, now: u64) -> u64 {
        self.pending.retain(|start| start.saturating_add(stalls.time) > now);
        let mut finish = now.saturating_add(work);
        let mut met = 0;
        loop {
            let start = match self.pending.get(met) {
                Some(start) => *start,
                None => self.draw_stall(stalls, now),
            };
            if start >= finish {
                return finish - now;
            }
            // One that is on already holds up the batch for what is left of it.
            finish = finish.saturating_add(start.saturating_add(stalls.time) - start.max(now));
            met += 1;
        }
    }

    /// Draws the next stall that ends after `now`.
    fn draw_stall(&mut self, stalls: Stalls, now: u64) -> u64 {
        loop {
            let gap = exponential(&mut self.stalls) * stalls.every as f64;
            let start = self.drawn_until.saturating_add(gap as u64);
            self.drawn_until = start.saturating_add(stalls.time);
            if self.drawn_until > now || self.drawn_until == u64::MAX {
                self.pending.push_back(start);
                return start;
            }
        }
    }
}
