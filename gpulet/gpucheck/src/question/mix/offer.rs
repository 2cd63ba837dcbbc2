//! What is asked of each model, and when.

use std::path::Path;
use std::time::Duration;

use gpulet_core::profile::{Profile, Quantile};
use workload::{Arrivals, Offered, Workload};

use crate::subject::Subject;

/// An objective is so many times the time alone.
const OBJECTIVE: f64 = 5.0;
/// What all chance derives from.
const SEED: u64 = 6;

/// A model's share of the traffic.
pub(super) struct Demand {
    pub(super) name: String,
    pub(super) slo: Duration,
    /// Requests a second at load 1.
    pub(super) rate: f64,
    /// Rows of its largest batch.
    pub(super) rows_max: u32,
    pub(super) profile: Profile,
}

impl Demand {
    /// Time of a batch as it was measured alone; none beyond what was measured.
    pub(super) fn time(&self, quantile: Quantile, rows: u32, units: u32) -> Option<Duration> {
        let us = self.profile.latency_us(quantile, rows, units).ok()?;
        Some(Duration::from_secs_f64(us.max(0.0) * 1e-6))
    }
}

/// All of them.
pub(super) struct Demands {
    pub(super) models: Vec<Demand>,
    /// Units that the profiles speak of.
    pub(super) units: u32,
}

impl Demands {
    /// Of the models that there are profiles of on this device.
    pub(super) fn read(
        file: &Path,
        subjects: &[Subject],
        device: &str,
        units: u32,
    ) -> Result<Self, String> {
        let missing = |why: String| format!("--profiles {}: {why}; `gpucheck profile` makes them", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| missing(error.to_string()))?;
        let profiles = Profile::read(&text).map_err(|error| missing(error.to_string()))?;
        let own = |subject: &Subject| {
            let hash = subject.files.hash.to_string();
            // The last one: who measures again wants the new times.
            let mut found = profiles.iter().rev().filter(|profile| {
                let header = profile.header();
                header.model == subject.name() && header.device == device && header.units_total == units
            });
            found.find(|profile| profile.header().model_sha256.as_deref().is_none_or(|known| known == hash))
        };
        let count = subjects.len() as f64;
        let models = subjects.iter().map(|subject| {
            let none = || missing(format!("expected a profile of `{}` on `{device}`", subject.name()));
            demand(own(subject).ok_or_else(none)?, units, count).ok_or_else(none)
        });
        Ok(Self { models: models.collect::<Result<_, _>>()?, units })
    }

    /// Requests a second of all models at load 1.
    pub(super) fn rate(&self) -> f64 {
        self.models.iter().map(|demand| demand.rate).sum()
    }

    /// The requests of so long, ascending in time.
    pub(super) fn offered(&self, load: f64, length: Duration) -> Result<Vec<Offered>, String> {
        let mut text = format!("name = \"mix\"\nseed = {SEED}\nduration = \"{}us\"\n", length.as_micros().max(1));
        for demand in &self.models {
            let (name, slo, rate) = (&demand.name, demand.slo.as_micros().max(1), demand.rate * load);
            text.push_str(&format!("[models.\"{name}\"]\nslo = \"{slo}us\"\nrate = {rate:.6}\n"));
        }
        let workload = Workload::parse(&text, &mut |name| Err(format!("{name}: no such file")));
        let workload = workload.map_err(|error| error.to_string())?;
        Ok(Arrivals::new(&workload).collect())
    }
}

fn demand(profile: &Profile, units: u32, count: f64) -> Option<Demand> {
    let time = |rows| profile.latency_us(Quantile::P50, rows, units).ok();
    let slo = time(1)? * OBJECTIVE;
    let sizes = (0..=5).map(|power| 1_u32 << power).filter(|rows| *rows <= profile.batches().1);
    // Half of the objective is for waiting.
    let mut timed = sizes.filter_map(|rows| Some((rows, time(rows)?)));
    let (rows_max, us) = timed.rfind(|(rows, us)| *rows == 1 || *us <= slo / 2.0)?;
    let rate = f64::from(rows_max) / (us * 1e-6).max(1e-9) / count;
    let (name, slo) = (profile.model().to_owned(), Duration::from_secs_f64(slo * 1e-6));
    Some(Demand { name, slo, rate, rows_max, profile: profile.clone() })
}
