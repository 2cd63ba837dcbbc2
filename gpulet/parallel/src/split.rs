//! Where to split a chain of layers so that the stages suit their devices.

use serde::Serialize;

use crate::chain::Chain;
use crate::chain_program::{Choice, Objective, Program};
use crate::device::{Device, Link};
use crate::error::{ParallelError, within};

/// Devices at most.
pub const DEVICES_MAX: usize = 64;

/// A chain to split into a number of stages, each on a device of its own.
#[derive(Clone, Debug)]
pub struct Problem {
    chain: Chain,
    devices: Vec<Device>,
    link: Link,
    stages: usize,
    objective: Objective,
}

/// A stage: consecutive layers on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// First layer.
    pub from: usize,
    /// The layer after the last one.
    pub to: usize,
    /// Number of the device in the list of devices.
    pub device: usize,
    /// Time of a request, with the time to send the output, in seconds.
    pub time_s: f64,
    /// Memory of its layers, in bytes.
    pub memory_bytes: u64,
    /// Bytes that it sends to the next stage. Zero for the last one.
    pub sent_bytes: u64,
}

/// A chain split into stages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Split {
    /// Stages in the order in which a request passes them.
    pub stages: Vec<Stage>,
    /// Time of the slowest stage, in seconds. The pipeline serves at most one request in this time.
    pub bottleneck_s: f64,
    /// Time of all stages together, in seconds.
    pub latency_s: f64,
}

impl Split {
    /// The value that is minimized, in seconds.
    pub fn cost_s(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Bottleneck => self.bottleneck_s,
            Objective::Latency => self.latency_s,
        }
    }

    /// Mean stage time divided by the largest: 1 if all stages take the same time.
    pub fn balance(&self) -> f64 {
        if self.bottleneck_s == 0.0 {
            return 1.0;
        }
        self.latency_s / (self.stages.len().max(1) as f64 * self.bottleneck_s)
    }
}

impl Problem {
    /// Splits `chain` into exactly `stages` stages on that many of the devices.
    pub fn new(
        chain: Chain,
        devices: Vec<Device>,
        link: Link,
        stages: usize,
        objective: Objective,
    ) -> Result<Self, ParallelError> {
        within("devices", devices.len(), 1, DEVICES_MAX)?;
        for (place, device) in devices.iter().enumerate() {
            device.check(place)?;
        }
        link.check()?;
        within("stages", stages, 1, devices.len().min(chain.len()))?;
        Ok(Self { chain, devices, link, stages, objective })
    }

    /// The layers.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The devices.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Number of stages.
    pub fn stages(&self) -> usize {
        self.stages
    }

    /// The value that is minimized.
    pub fn objective(&self) -> Objective {
        self.objective
    }

    /// Seconds of layers `from..to` on a device, with sending their output. `None` if they do not fit its memory.
    pub fn stage_time_s(&self, from: usize, to: usize, device: &Device) -> Option<f64> {
        if self.chain.memory_bytes(from, to) > device.memory_bytes {
            return None;
        }
        let sending =
            if to < self.chain.len() { self.link.time_s(self.chain.crossing_bytes(to)) } else { 0.0 };
        Some(self.chain.latency_s(from, to) / device.speed + sending)
    }

    /// The split with stages that end before the layers `ends` (the last one excepted), on `devices`. `None` if a stage
    /// is empty or does not fit.
    pub fn evaluate(&self, ends: &[usize], devices: &[usize]) -> Option<Split> {
        let mut split = Split { stages: Vec::new(), bottleneck_s: 0.0, latency_s: 0.0 };
        let mut from = 0;
        for (to, number) in ends.iter().copied().chain([self.chain.len()]).zip(devices) {
            if to <= from {
                return None;
            }
            let time_s = self.stage_time_s(from, to, self.devices.get(*number)?)?;
            split.bottleneck_s = Objective::Bottleneck.with(split.bottleneck_s, time_s);
            split.latency_s = Objective::Latency.with(split.latency_s, time_s);
            let memory_bytes = self.chain.memory_bytes(from, to);
            let sent_bytes = self.chain.crossing_bytes(to);
            split.stages.push(Stage { from, to, device: *number, time_s, memory_bytes, sent_bytes });
            from = to;
        }
        (from == self.chain.len()).then_some(split)
    }

    /// Devices that do not differ, in the order of the list.
    fn pools(&self) -> Vec<Vec<usize>> {
        let mut pools: Vec<(&Device, Vec<usize>)> = Vec::new();
        for (number, device) in self.devices.iter().enumerate() {
            let same = |one: &Device| one.speed == device.speed && one.memory_bytes == device.memory_bytes;
            match pools.iter_mut().find(|(one, _)| same(one)) {
                Some((_, numbers)) => numbers.push(number),
                None => pools.push((device, vec![number])),
            }
        }
        pools.into_iter().map(|(_, numbers)| numbers).collect()
    }

    pub(crate) fn does_not_fit(&self) -> ParallelError {
        let needed = self.chain.memory_bytes(0, self.chain.len());
        let mut memory: Vec<u64> = self.devices.iter().map(|device| device.memory_bytes).collect();
        memory.sort_unstable_by(|one, other| other.cmp(one));
        let offered: u64 = memory.iter().take(self.stages).fold(0, |sum, one| sum.saturating_add(*one));
        ParallelError::DoesNotFit {
            what: format!("a chain of {} layers in {} stages", self.chain.len(), self.stages),
            problem: format!(
                "expected every stage to fit the memory of its device; the layers need {needed} bytes, and the {} largest \
                 devices have {offered}",
                self.stages
            ),
        }
    }
}

/// The best split: a dynamic program over split points and devices, optimal for chains.
pub fn best_split(problem: &Problem) -> Result<Split, ParallelError> {
    let pools = problem.pools();
    let counts: Vec<usize> = pools.iter().map(|pool| pool.len().min(problem.stages)).collect();
    let choices: Vec<Choice> = (0..pools.len()).map(|pool| Choice { pool, devices: 1 }).collect();
    let program = Program {
        layers: problem.chain.len(),
        pools: &counts,
        choices: &choices,
        objective: problem.objective,
    };
    let device = |pool: usize| pools.get(pool).and_then(|pool| problem.devices.get(*pool.first()?));
    let solved = program.solve(
        |used| used.iter().sum::<usize>() == problem.stages,
        |from, to, choice| problem.stage_time_s(from, to, device(choice.pool)?),
    )?;
    let segments = solved.ok_or_else(|| problem.does_not_fit())?;
    let mut left: Vec<_> = pools.iter().map(|pool| pool.iter()).collect();
    let devices: Vec<usize> =
        segments.iter().filter_map(|segment| left.get_mut(segment.choice.pool)?.next().copied()).collect();
    let ends: Vec<usize> =
        segments.iter().map(|segment| segment.to).take(segments.len().saturating_sub(1)).collect();
    problem.evaluate(&ends, &devices).ok_or_else(|| problem.does_not_fit())
}

/// The same number of layers in every stage, on the devices in the order of the list. The usual baseline.
pub fn even_split(problem: &Problem) -> Result<Split, ParallelError> {
    let (layers, stages) = (problem.chain.len(), problem.stages);
    let ends: Vec<usize> = (1..stages).map(|stage| layers * stage / stages).collect();
    let devices: Vec<usize> = (0..stages).collect();
    problem.evaluate(&ends, &devices).ok_or_else(|| problem.does_not_fit())
}
