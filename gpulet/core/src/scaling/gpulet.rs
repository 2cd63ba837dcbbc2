//! Gpulet's online part (Choi et al., ATC 2022; constants of the released code, casys-kaist/glet): a mean rate sampled
//! each half second, and the highest of 30 s with headroom as target. Every epoch of 20 s it checks whether the plan
//! still fits. It asks for a new plan where a model's target is 5 % or 10 requests a second above the plan, or 10 %
//! below.

use super::{Ewma, MaxWindow, Reason, SAMPLE, Sampler, Scaler, ScalingOptions, Seen, Service, Recommendation};
use crate::time::Micros;

const EPOCH: Micros = Micros(20_000_000);
/// Samples of an epoch, over which the rate is averaged.
const EPOCH_SAMPLES: u32 = 40;
/// Samples in the 30 s that the target is the highest of.
const WINDOW_SAMPLES: u32 = 60;
/// Rates below this get the larger headroom; requests a second.
const SMALL: f64 = 125.0;
const HEADROOM_SMALL: f64 = 1.5;
const HEADROOM: f64 = 1.2;
const ABOVE: f64 = 1.05;
const ABOVE_BY: f64 = 10.0;
const BELOW: f64 = 0.9;

#[derive(Debug)]
struct Monitor {
    sampler: Sampler,
    mean: Ewma,
    highest: MaxWindow,
}

#[derive(Debug)]
pub(super) struct Gpulet {
    monitors: Vec<Monitor>,
    epoch_us: Option<Micros>,
}

impl Gpulet {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let monitor = |_: &Service| Monitor {
            sampler: Sampler::new(SAMPLE),
            mean: Ewma::over(EPOCH_SAMPLES),
            highest: MaxWindow::over(WINDOW_SAMPLES),
        };
        Self { monitors: services.iter().map(monitor).collect(), epoch_us: None }
    }
}

fn wanted(estimate: f64) -> f64 {
    estimate * if estimate < SMALL { HEADROOM_SMALL } else { HEADROOM }
}

impl Scaler for Gpulet {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        for (monitor, seen) in self.monitors.iter_mut().zip(seen) {
            for rate in monitor.sampler.observe(now, seen.observed.arrivals).iter() {
                monitor.highest.observe(monitor.mean.observe(rate));
            }
        }
        let epoch_us = *self.epoch_us.get_or_insert(now);
        let stay = |seen: &Seen| Recommendation { rate: seen.target, reason: Reason::Steady };
        if now.since(epoch_us) < EPOCH {
            return seen.iter().map(stay).collect();
        }
        self.epoch_us = Some(now);
        let estimates = || self.monitors.iter().map(|monitor| monitor.highest.value());
        let misfits = |(estimate, seen): (f64, &Seen)| {
            let target = wanted(estimate);
            target > seen.target * ABOVE || target > seen.target + ABOVE_BY || target < seen.target * BELOW
        };
        if !estimates().zip(seen).any(misfits) {
            return seen.iter().map(stay).collect();
        }
        let wish = |(estimate, seen): (f64, &Seen)| {
            let rate = wanted(estimate);
            let reason =
                if rate > seen.target { Reason::Above { estimate } } else { Reason::Below { estimate } };
            Recommendation { rate, reason }
        };
        estimates().zip(seen).map(wish).collect()
    }
}
