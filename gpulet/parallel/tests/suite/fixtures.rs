//! Problems that several tests share.

use std::collections::BTreeMap;

use model_parallel::placement::{Cluster, Overheads, Problem, ServedModel};
use model_parallel::profile::{Layout, ModelProfile};
use model_parallel::traffic::{self, Shares};

/// A model of 100 ms and `bytes`, whose pipelines are even and cost `overhead` as a share. Layouts: 1, 2 and 4 stages.
pub fn profile(bytes: u64, overhead: f64) -> ModelProfile {
    let stages = |stages: usize| {
        let factor = if stages == 1 { 1.0 } else { 1.0 + overhead };
        (Layout { operators: 1, stages }, vec![0.1 * factor / stages as f64; stages])
    };
    ModelProfile::new("even", BTreeMap::from([stages(1), stages(2), stages(4)]), bytes).unwrap()
}

/// Models of one profile with power-law rates.
pub struct Setting {
    pub profile: ModelProfile,
    pub models: usize,
    pub devices: usize,
    pub memory_bytes: u64,
    pub rate: f64,
    pub cv: f64,
    pub slo_scale: f64,
    pub duration_s: f64,
    pub seed: u64,
}

impl Setting {
    pub fn problem(&self) -> Problem {
        let rates = traffic::rates(self.rate, self.models, Shares::PowerLaw { exponent: 0.5 }).unwrap();
        let objective_s = self.profile.single_s() * self.slo_scale;
        Problem {
            profiles: vec![self.profile.clone()],
            models: rates.iter().map(|rate| ServedModel { profile: 0, rate: *rate, objective_s }).collect(),
            cluster: Cluster {
                devices: self.devices,
                memory_bytes: self.memory_bytes,
                devices_per_machine: 8,
            },
            overheads: Overheads::PUBLISHED,
            requests: traffic::requests(&rates, self.cv, self.duration_s, self.seed).unwrap(),
        }
    }
}
