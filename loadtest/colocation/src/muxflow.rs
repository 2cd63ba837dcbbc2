//! MuxFlow (arXiv 2303.13803): offline jobs are matched to GPUs with online models by predicted speed.

mod predictor;

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

use crate::arrivals::Arrivals;
use crate::figures::Figures;
use crate::interference::Interference;
use crate::kernel::Program;
use crate::matching;
use crate::simulation::{Job, LAUNCH_NS, POLL_NS, Scenario, V100_SMS, simulate};

pub use predictor::speed;

/// A GPU that serves an online model.
#[derive(Clone, Debug)]
pub struct OnlineGpu {
    /// Kernels of a request.
    pub program: Program,
    /// Requests a second, with independent arrivals.
    pub rate: f64,
}

/// GPUs with online models, and offline jobs that look for a place. One job at most joins a GPU.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The GPUs.
    pub gpus: Vec<OnlineGpu>,
    /// An iteration of each offline job.
    pub jobs: Vec<Program>,
    /// Time to simulate for each GPU, in nanoseconds.
    pub duration_ns: u64,
    /// Seed of the arrivals and of random placement.
    pub seed: u64,
    /// How kernels slow each other down.
    pub interference: Interference,
}

/// Shares of time for which drawn online models keep their GPU busy: a quarter on average, as in the clusters of the paper before.
const BUSY: std::ops::Range<f64> = 0.05..0.45;

/// Draws online models and their rates from `online`, and offline jobs from `offline`; none if a list is empty.
#[must_use]
pub fn draw(
    online: &[Program],
    offline: &[Program],
    gpus: usize,
    jobs: usize,
    seed: u64,
) -> (Vec<OnlineGpu>, Vec<Program>) {
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut one = |list: &[Program]| match list.len() {
        0 => None,
        length => list
            .get(generator.random_range(0..length))
            .cloned()
            .map(|program| (program, generator.random_range(BUSY))),
    };
    let gpu = |(program, busy): (Program, f64)| OnlineGpu {
        rate: busy * 1e9 / program.device_ns() as f64,
        program,
    };
    let gpus = (0..gpus).filter_map(|_| one(online).map(gpu)).collect();
    (gpus, (0..jobs).filter_map(|_| one(offline).map(|(program, _)| program)).collect())
}

/// Ways to place offline jobs: the word, and what it selects.
pub const PLACEMENTS: &[(&str, &str)] = &[
    ("muxflow", "the matching with the greatest sum of predicted speeds"),
    ("in-order", "the first job on the first GPU, and so on"),
    ("random", "a random job on each GPU"),
    ("oracle", "the matching with the greatest sum of simulated speeds, which no predictor can exceed"),
];

/// A GPU with its job, before and after.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The online model.
    pub online: String,
    /// The offline job; none if the GPU got none.
    pub job: Option<String>,
    /// Speed of the job relative to a GPU of its own, as predicted; 0 without a job.
    pub predicted_speed: f64,
    /// Speed of the job relative to a GPU of its own, as simulated; 0 without a job.
    pub speed: f64,
    /// The GPU with the online model alone.
    pub before: Figures,
    /// The GPU with both.
    pub after: Figures,
}

/// What a placement gives.
#[derive(Clone, Debug, Serialize)]
pub struct Placed {
    /// The word of the placement.
    pub placement: String,
    /// Every GPU.
    pub pairs: Vec<Pair>,
}

impl Placed {
    /// Mean of a figure over the GPUs.
    pub fn mean(&self, figure: impl Fn(&Pair) -> f64) -> f64 {
        self.pairs.iter().map(figure).sum::<f64>() / self.pairs.len().max(1) as f64
    }

    /// The largest p99 of an online model relative to the one it has alone.
    #[must_use]
    pub fn p99_ratio_max(&self) -> f64 {
        self.pairs.iter().map(|pair| pair.after.p99_ms / pair.before.p99_ms).fold(0.0, f64::max)
    }
}

impl Cluster {
    /// Places the jobs and simulates every GPU.
    ///
    /// # Errors
    /// The words that would be right.
    pub fn place(&self, placement: &str) -> Result<Placed, String> {
        let jobs = self.jobs_by_gpu(placement)?;
        let pairs: Result<_, String> =
            self.gpus.iter().zip(jobs).map(|(gpu, job)| self.pair(gpu, job)).collect();
        Ok(Placed { placement: placement.to_owned(), pairs: pairs? })
    }

    /// The job of each GPU.
    ///
    /// # Errors
    /// The words that would be right.
    pub fn jobs_by_gpu(&self, placement: &str) -> Result<Vec<Option<usize>>, String> {
        let count = self.jobs.len();
        let in_order = |order: &[usize]| (0..self.gpus.len()).map(|gpu| order.get(gpu).copied()).collect();
        let mut order: Vec<usize> = (0..count).collect();
        match placement {
            "in-order" => Ok(in_order(&order)),
            "random" => {
                order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(self.seed));
                Ok(in_order(&order))
            }
            "muxflow" => Ok(matching::greatest(&self.weights(&|gpu, job| Ok(self.predicted(gpu, job)))?)),
            "oracle" => Ok(matching::greatest(&self.weights(&|gpu, job| Ok(self.simulated(gpu, job)?.0))?)),
            other => {
                let words: Vec<&str> = PLACEMENTS.iter().map(|(word, _)| *word).collect();
                Err(format!("expected one of {}, all, got `{other}`", words.join(", ")))
            }
        }
    }

    fn weights(
        &self,
        weight: &dyn Fn(&OnlineGpu, &Program) -> Result<f64, String>,
    ) -> Result<Vec<Vec<f64>>, String> {
        self.gpus.iter().map(|gpu| self.jobs.iter().map(|job| weight(gpu, job)).collect()).collect()
    }

    fn pair(&self, gpu: &OnlineGpu, job: Option<usize>) -> Result<Pair, String> {
        let before = simulate(&self.scenario(gpu, None), "alone")?;
        let job = job.and_then(|job| self.jobs.get(job));
        let (speed, after) = match job {
            Some(job) => self.simulated(gpu, job)?,
            None => (0.0, before.clone()),
        };
        Ok(Pair {
            online: gpu.program.name.clone(),
            job: job.map(|job| job.name.clone()),
            predicted_speed: job.map_or(0.0, |job| self.predicted(gpu, job)),
            speed,
            before,
            after,
        })
    }

    fn predicted(&self, gpu: &OnlineGpu, job: &Program) -> f64 {
        speed(&gpu.program, gpu.rate, job, self.interference)
    }

    /// Speed of a job next to an online model relative to a GPU of its own, and the figures of the GPU.
    fn simulated(&self, gpu: &OnlineGpu, job: &Program) -> Result<(f64, Figures), String> {
        let scenario = self.scenario(gpu, Some(job));
        let figures = simulate(&scenario, "muxflow")?;
        let alone = 1e9 / Scenario { online: offline(job), ..scenario }.alone_ns() as f64;
        Ok((figures.best_effort_per_second.first().copied().unwrap_or_default() / alone, figures))
    }

    fn scenario(&self, gpu: &OnlineGpu, job: Option<&Program>) -> Scenario {
        Scenario {
            online: Job { program: gpu.program.clone(), arrivals: Arrivals::Poisson { rate: gpu.rate } },
            best_effort: job.map(offline).into_iter().collect(),
            duration_ns: self.duration_ns,
            // The SM share of the first interval is not adapted yet.
            warm_up_ns: (self.duration_ns / 10).max(1_000_000_000).min(self.duration_ns / 2),
            seed: self.seed,
            sms: V100_SMS,
            interference: self.interference,
            launch_ns: LAUNCH_NS,
            poll_ns: POLL_NS,
        }
    }
}

fn offline(job: &Program) -> Job {
    Job { program: job.clone(), arrivals: Arrivals::BackToBack }
}
