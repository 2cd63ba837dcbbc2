//! Lists of training jobs: the published ones, and draws from them.

use std::f64::consts::TAU;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

/// Peak and persistent memory of googlenet_25 and of resnet152_75, in MB: the peaks of `workloads.csv` and the persistent
/// memory that the paper gives (section 2.2). Others lie on the line between them, which is our assumption.
const KNOWN_MB: [(f64, f64); 2] = [(756.1, 110.9), (12_725.7, 822.2)];
/// Mean time of a job alone in the paper's trace, in seconds: 170.6 min of completion less 167.6 min of queueing.
pub const MEAN_SECONDS: f64 = 180.0;

/// A training job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Model, batch size and length, such as `resnet50_25_5min`.
    pub name: String,
    /// When it arrives, in seconds.
    pub arrives: f64,
    /// Time that it takes alone, in seconds, above 0.
    pub seconds: f64,
    /// Iterations, at least 1.
    pub iterations: u64,
    /// Memory that it holds until its end, in MB.
    pub persistent_mb: f64,
    /// Memory that it holds while an iteration of it runs, in MB.
    pub ephemeral_mb: f64,
}

impl Job {
    /// Time of an iteration alone, in seconds.
    #[must_use]
    pub fn iteration_seconds(&self) -> f64 {
        self.seconds / self.iterations.max(1) as f64
    }
}

/// Reads the list `workload,seconds,peak_memory_mb,iterations` (`SymbioticLab/Salus`, commit 7b7f5e0, `tests/workloads.csv`).
///
/// # Errors
/// The line and what was expected there.
pub fn jobs(text: &str) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (number, row) in csv::ReaderBuilder::new().from_reader(text.as_bytes()).records().enumerate() {
        let at = |what: &str| format!("line {}: {what}", number + 2);
        let row = row.map_err(|error| at(&error.to_string()))?;
        let field = |index: usize, what: &str| {
            let text = row.get(index).unwrap_or_default().trim();
            let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
            value.ok_or_else(|| at(&format!("expected {what}, got `{text}`")))
        };
        let peak_mb = field(2, "a memory in MB")?;
        let persistent_mb = persistent_mb(peak_mb);
        jobs.push(Job {
            name: row.get(0).unwrap_or_default().to_owned(),
            arrives: 0.0,
            seconds: field(1, "a time in seconds")?,
            iterations: field(3, "a number of iterations")? as u64,
            persistent_mb,
            ephemeral_mb: peak_mb - persistent_mb,
        });
    }
    if jobs.is_empty() { Err("expected at least one job".to_owned()) } else { Ok(jobs) }
}

fn persistent_mb(peak_mb: f64) -> f64 {
    let [(low, at_low), (high, at_high)] = KNOWN_MB;
    (at_low + (peak_mb - low) * (at_high - at_low) / (high - low)).clamp(0.0, peak_mb)
}

/// Draws the jobs of a run: the list in a random order, or, with a coefficient of variation, `count` jobs of it whose times are
/// log-normal with mean [`MEAN_SECONDS`]. They arrive evenly spread over a time in seconds; 0 means together.
#[must_use]
pub fn draw(list: &[Job], count: usize, cv: Option<f64>, spread_seconds: f64, seed: u64) -> Vec<Job> {
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut left: Vec<&Job> = Vec::new();
    let mut drawn = Vec::new();
    while drawn.len() < count && !list.is_empty() {
        if left.is_empty() {
            left = list.iter().collect();
        }
        let mut job = left.swap_remove(generator.random_range(0..left.len())).clone();
        if let Some(cv) = cv {
            let iteration = job.iteration_seconds();
            let seconds = log_normal(&mut generator, cv) * MEAN_SECONDS;
            job.iterations = ((seconds / iteration).round() as u64).max(1);
            job.seconds = job.iterations as f64 * iteration;
        }
        job.arrives = spread_seconds * drawn.len() as f64 / count as f64;
        drawn.push(job);
    }
    drawn
}

/// Log-normal with mean 1 and a coefficient of variation.
fn log_normal(generator: &mut Xoshiro256PlusPlus, cv: f64) -> f64 {
    let variance = libm::log(1.0 + cv * cv);
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - generator.random::<f64>()));
    let normal = radius * libm::cos(TAU * generator.random::<f64>());
    libm::exp(libm::sqrt(variance) * normal - variance / 2.0)
}
