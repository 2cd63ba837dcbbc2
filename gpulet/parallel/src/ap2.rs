//! The genetic baseline `ap2`: split points and devices of a pipeline on unequal devices, found by evolution.
//!
//! Named after AP2 (JSAC 2023), a genetic search for pipelines on heterogeneous devices. Its text could not be found, so the
//! candidates and operators here are ours. It says how far a genetic search stays from the optimum, not what AP2 achieves.

use rand::RngExt as _;
use rand::seq::SliceRandom as _;

use crate::error::ParallelError;
use crate::genetic::{Effort, Generator, Search, search};
use crate::split::{Problem, Split};

/// Split points in ascending order, and all devices in an order of which the first ones run the stages.
#[derive(Clone, Debug)]
struct Candidate {
    ends: Vec<usize>,
    devices: Vec<usize>,
}

struct Space<'a> {
    problem: &'a Problem,
}

impl Space<'_> {
    /// Sorts split points and replaces repeated ones, so that no stage is empty.
    fn repair(&self, ends: &mut Vec<usize>, generator: &mut Generator) {
        let layers = self.problem.chain().len();
        ends.sort_unstable();
        ends.dedup();
        while ends.len() + 1 < self.problem.stages() {
            let end = generator.random_range(1..layers.max(2));
            if let Err(place) = ends.binary_search(&end) {
                ends.insert(place, end);
            }
        }
    }
}

impl Search for Space<'_> {
    type Candidate = Candidate;

    fn draw(&mut self, generator: &mut Generator) -> Candidate {
        let mut ends = Vec::new();
        self.repair(&mut ends, generator);
        let mut devices: Vec<usize> = (0..self.problem.devices().len()).collect();
        devices.shuffle(generator);
        Candidate { ends, devices }
    }

    fn cross(&mut self, one: &Candidate, other: &Candidate, generator: &mut Generator) -> Candidate {
        let pairs = one.ends.iter().zip(&other.ends);
        let mut ends: Vec<usize> =
            pairs.map(|(one, other)| if generator.random::<bool>() { *one } else { *other }).collect();
        self.repair(&mut ends, generator);
        let kept = generator.random_range(0..=one.devices.len());
        let mut devices: Vec<usize> = one.devices.iter().take(kept).copied().collect();
        for device in &other.devices {
            if !devices.contains(device) {
                devices.push(*device);
            }
        }
        Candidate { ends, devices }
    }

    fn mutate(&mut self, candidate: &mut Candidate, generator: &mut Generator) {
        if generator.random::<f64>() < 0.5 && !candidate.ends.is_empty() {
            let place = generator.random_range(0..candidate.ends.len());
            let layers = self.problem.chain().len();
            let reach = (layers / 8).max(1);
            let shift = generator.random_range(0..=2 * reach);
            if let Some(end) = candidate.ends.get_mut(place) {
                *end = (*end + shift).saturating_sub(reach).clamp(1, layers - 1);
            }
            self.repair(&mut candidate.ends, generator);
        }
        if generator.random::<f64>() < 0.5 {
            let count = candidate.devices.len();
            candidate.devices.swap(generator.random_range(0..count), generator.random_range(0..count));
        }
    }

    fn cost(&mut self, candidate: &Candidate) -> f64 {
        let devices: Vec<usize> = candidate.devices.iter().take(self.problem.stages()).copied().collect();
        let found = self.problem.evaluate(&candidate.ends, &devices);
        found.map_or(f64::INFINITY, |split| split.cost_s(self.problem.objective()))
    }
}

/// The best split that the genetic search finds. The same seed gives the same split.
pub fn genetic_split(problem: &Problem, effort: Effort, seed: u64) -> Result<Split, ParallelError> {
    effort.check()?;
    let found = search(&mut Space { problem }, Vec::new(), effort, seed);
    let split = found.and_then(|(candidate, _)| {
        let devices: Vec<usize> = candidate.devices.iter().take(problem.stages()).copied().collect();
        problem.evaluate(&candidate.ends, &devices)
    });
    split.ok_or_else(|| ParallelError::DoesNotFit {
        what: "every split that the genetic search tried".to_owned(),
        problem: "expected more memory on the devices, or more effort".to_owned(),
    })
}
