//! AlpaServe's example of two models on two devices (OSDI 2023, section 3.1): each on a device of its own, or both in a
//! pipeline over both devices.

use serde::Serialize;

use crate::error::{ParallelError, not_negative, positive};
use crate::simulation::{Pipeline, System, Window, stage_clocks};
use crate::traffic;

/// Two equal models and their traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Example {
    /// Seconds of a request on one device (0.396247 for bert-6.7b on a V100).
    pub latency_s: f64,
    /// By how much the pipeline is slower than one device, as a share.
    pub overhead: f64,
    /// Requests a second of each model.
    pub rates: [f64; 2],
    /// Coefficient of variation of the gaps between requests.
    pub cv: f64,
    /// Seconds of arrivals.
    pub duration_s: f64,
}

/// Mean response times of both placements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Mean seconds with each model on a device of its own.
    pub simple_s: f64,
    /// Mean seconds with both models in a pipeline of two stages.
    pub pipeline_s: f64,
}

impl Comparison {
    /// How many times faster the pipeline is.
    pub fn gain(&self) -> f64 {
        self.simple_s / self.pipeline_s
    }
}

impl Example {
    /// Simulates the same requests under both placements, without deadlines.
    pub fn compare(&self, seed: u64) -> Result<Comparison, ParallelError> {
        positive("latency_s", self.latency_s)?;
        not_negative("overhead", self.overhead)?;
        let requests = traffic::requests(&self.rates, self.cv, self.duration_s, seed)?;
        let stage = self.latency_s * (1.0 + self.overhead) / 2.0;
        let (alone, split) = (Some(vec![self.latency_s]), Some(vec![stage, stage]));
        let simple =
            vec![Pipeline { times_s: vec![alone.clone(), None] }, Pipeline { times_s: vec![None, alone] }];
        let pipeline = vec![Pipeline { times_s: vec![split.clone(), split] }];
        let objectives_s = vec![f64::INFINITY; 2];
        let mean = |groups| -> Result<f64, ParallelError> {
            let system = System::new(groups, objectives_s.clone())?;
            let outcome = stage_clocks(&system, &requests, 0.0);
            Ok(outcome.report(&requests, &objectives_s, Window::ALL).mean_s)
        };
        Ok(Comparison { simple_s: mean(simple)?, pipeline_s: mean(pipeline)? })
    }
}
