//! The traffic: how much is requested of each model, and when.

use std::path::Path;
use std::time::Duration;

use gpulet_core::profile::{Profile, Quantile};
use workload::{Arrivals, Offered, Workload};

use gpulet_core::interference::Interference;

use crate::subject::Subject;

/// An objective is this multiple of the solo time.
const OBJECTIVE: f64 = 5.0;

/// Models of the gpulet paper (Choi et al., USENIX ATC 2022) by their exported names, their objectives in milliseconds,
/// and their shares of the requests in the mix where short models get most of them. From the scheduler's tables and
/// scripts that the authors released (github.com/casys-kaist/glet, commit 3c1c2aa).
const GPULET_PAPER: [(&str, u64, f64); 5] = [
    ("lenet", 5, 2.0),
    ("googlenet", 66, 2.0),
    ("resnet50", 108, 2.0),
    ("ssd_mobilenet", 202, 1.0),
    ("vgg16", 142, 1.0),
];
/// The seed of all randomness.
const SEED: u64 = 6;

/// A model's share of the traffic.
pub(super) struct Demand {
    pub(super) name: String,
    pub(super) slo: Duration,
    /// Requests per second at load 1.
    pub(super) rate: f64,
    /// Rows of its largest batch.
    pub(super) rows_max: u32,
    /// Seconds per row in such a batch on all units.
    row_s: f64,
    pub(super) profile: Profile,
}

impl Demand {
    /// Solo time of a batch; none if it was not measured.
    pub(super) fn time(&self, quantile: Quantile, rows: u32, units: u32) -> Option<Duration> {
        let us = self.profile.latency_us(quantile, rows, units).ok()?;
        Some(Duration::from_secs_f64(us.max(0.0) * 1e-6))
    }
}

/// The traffic of all models.
pub(super) struct Demands {
    pub(super) models: Vec<Demand>,
    /// Units of the profiles.
    pub(super) units: u32,
}

/// The source of objectives and proportions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// Ours: five times the solo time, and an equal part of the GPU's time for each model.
    Own,
    /// The table of the gpulet paper.
    GpuletPaper,
}

impl Table {
    /// The models of the table. An error says which are missing.
    pub(super) fn subjects(self, all: &[Subject]) -> Result<Vec<&Subject>, String> {
        match self {
            Self::Own => Ok(all.iter().collect()),
            Self::GpuletPaper => {
                let find = |name: &str| all.iter().find(|subject| subject.name() == name);
                let missing: Vec<&str> =
                    GPULET_PAPER.iter().map(|(name, ..)| *name).filter(|name| find(name).is_none()).collect();
                if !missing.is_empty() {
                    let names = missing.join(", ");
                    return Err(format!("--models: the gpulet paper's table also needs: {names}"));
                }
                Ok(GPULET_PAPER.iter().filter_map(|(name, ..)| find(name)).collect())
            }
        }
    }
}

impl Demands {
    /// Traffic of the models that have profiles of this device.
    pub(super) fn read(
        file: &Path,
        table: Table,
        subjects: &[&Subject],
        (device, units): (&str, u32),
    ) -> Result<Self, String> {
        let missing =
            |why: String| format!("--profiles {}: {why}; `gpucheck profile` measures them", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| missing(error.to_string()))?;
        let profiles = Profile::read(&text).map_err(|error| missing(error.to_string()))?;
        let own = |subject: &Subject| {
            let hash = subject.files.hash.to_string();
            // The last one, which is the latest measurement.
            let mut found = profiles.iter().rev().filter(|profile| {
                let header = profile.header();
                header.model == subject.name() && header.device == device && header.units_total == units
            });
            found.find(|profile| profile.header().model_sha256.as_deref().is_none_or(|known| known == hash))
        };
        let models = subjects.iter().map(|subject| {
            let none = || missing(format!("expected a profile of `{}` on `{device}`", subject.name()));
            demand(own(subject).ok_or_else(none)?, units, table).ok_or_else(none)
        });
        let mut models: Vec<Demand> = models.collect::<Result<_, _>>()?;
        // Rates were proportions until here.
        let busy: f64 = models.iter().map(|model| model.rate * model.row_s).sum();
        models.iter_mut().for_each(|model| model.rate /= busy.max(1e-12));
        Ok(Self { models, units })
    }

    /// The profiles, one per model.
    pub(super) fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.models.iter().map(|demand| &demand.profile)
    }

    /// Requests per second of all models at load 1.
    pub(super) fn rate(&self) -> f64 {
        self.models.iter().map(|demand| demand.rate).sum()
    }

    /// The requests within `length`, sorted by time.
    pub(super) fn offered(&self, load: f64, length: Duration) -> Result<Vec<Offered>, String> {
        let mut text =
            format!("name = \"mix\"\nseed = {SEED}\nduration = \"{}us\"\n", length.as_micros().max(1));
        for demand in &self.models {
            let (name, slo, rate) = (&demand.name, demand.slo.as_micros().max(1), demand.rate * load);
            text.push_str(&format!("[models.\"{name}\"]\nslo = \"{slo}us\"\nrate = {rate:.6}\n"));
        }
        let workload = Workload::parse(&text, &mut |name| Err(format!("{name}: no such file")));
        let workload = workload.map_err(|error| error.to_string())?;
        Ok(Arrivals::new(&workload).collect())
    }
}

/// Models, traffic, and the model of interference.
pub(super) struct Mix<'a> {
    pub(super) subjects: Vec<&'a Subject>,
    pub(super) demands: Demands,
    pub(super) interference: Interference,
    /// Upper bound on trials per arm.
    pub(super) trials: u32,
}

fn demand(profile: &Profile, units: u32, table: Table) -> Option<Demand> {
    let time = |rows| profile.latency_us(Quantile::P50, rows, units).ok();
    let listed = GPULET_PAPER.iter().find(|(name, ..)| *name == profile.model());
    let slo = match table {
        Table::Own => time(1)? * OBJECTIVE,
        Table::GpuletPaper => listed.map(|(_, slo_ms, _)| *slo_ms as f64 * 1e3)?,
    };
    let sizes = (0..=5).map(|power| 1_u32 << power).filter(|rows| *rows <= profile.batches().1);
    // Half of the objective is for queueing.
    let mut timed = sizes.filter_map(|rows| Some((rows, time(rows)?)));
    let (rows_max, us) = timed.rfind(|(rows, us)| *rows == 1 || *us <= slo / 2.0)?;
    let row_s = (us * 1e-6).max(1e-9) / f64::from(rows_max);
    let rate = match table {
        // An equal part of the time each.
        Table::Own => 1.0 / row_s,
        Table::GpuletPaper => listed.map(|(.., part)| *part)?,
    };
    let (name, slo) = (profile.model().to_owned(), Duration::from_secs_f64(slo * 1e-6));
    Some(Demand { name, slo, rate, rows_max, row_s, profile: profile.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile in which a row takes `row_ms` on all units and on one.
    fn profile(model: &str, row_ms: f64) -> Profile {
        let mut text = format!(
            "{{\"profile\":{{\"version\":1,\"model\":\"{model}\",\"device\":\"gpu\",\"engine\":\"e\",\
             \"source\":\"typed_in\",\"units_total\":4}}}}\n"
        );
        for (rows, units) in [(1, 1), (1, 4), (32, 1), (32, 4)] {
            let us = row_ms * 1e3 * f64::from(rows);
            text += &format!(
                "{{\"cell\":{{\"batch\":{rows},\"units\":{units},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\
                 \"count\":9}}}}\n"
            );
        }
        Profile::read(&text).unwrap().remove(0)
    }

    #[test]
    fn the_papers_objectives_and_proportions_are_used() {
        let of = |name: &str, row_ms| demand(&profile(name, row_ms), 4, Table::GpuletPaper);
        let lenet = of("lenet", 0.1).unwrap();
        assert_eq!((lenet.slo, lenet.rows_max, lenet.rate), (Duration::from_millis(5), 16, 2.0));
        let vgg = of("vgg16", 4.0).unwrap();
        assert_eq!((vgg.slo, vgg.rows_max, vgg.rate), (Duration::from_millis(142), 16, 1.0));
        assert!(of("densenet161", 1.0).is_none(), "it is not in the table");
    }

    #[test]
    fn our_objectives_are_five_times_the_solo_time() {
        let own = demand(&profile("net", 2.0), 4, Table::Own).unwrap();
        assert_eq!((own.slo, own.rows_max, own.rate), (Duration::from_millis(10), 2, 500.0));
    }
}
