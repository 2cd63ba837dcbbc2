//! Batches measured under contention, to which models of interference are fitted. They are kept as JSON lines in a file
//! next to the profile file, so that fits can be repeated and compared.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Upper bound on lines.
const PAIRS_MAX: usize = 100_000;
/// Upper bound on units of a device and on rows of a batch.
const COUNT_MAX: u32 = 4_096;

/// A batch of a model on a share of the device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Side {
    pub(crate) model: String,
    pub(crate) rows: u32,
    pub(crate) units: u32,
}

/// A co-located kernel, and its use of shared resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelSide {
    pub(crate) name: String,
    pub(crate) units: u32,
    /// Share of the time in which it ran, in percent.
    pub(crate) duty_pct: u32,
    /// Share of the cache bandwidth while it runs, from 0 to 1.
    pub(crate) cache: f64,
    /// Share of the memory bandwidth while it runs, from 0 to 1.
    pub(crate) bandwidth: f64,
}

/// What ran continuously during the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Other {
    Batch(Side),
    Kernel(KernelSide),
}

/// A batch measured under contention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    /// The device type in profiles, and its units.
    pub(crate) device: String,
    pub(crate) units_total: u32,
    pub(crate) own: Side,
    pub(crate) other: Other,
    /// Median of its times, divided by the solo median.
    pub(crate) factor: f64,
    /// The same for the 99th percentiles.
    pub(crate) p99_factor: f64,
    /// Number of runs.
    pub(crate) runs: u64,
}

impl Other {
    /// For names of facts: `vgg16`, `stream_at_50`.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Batch(side) => side.model.clone(),
            Self::Kernel(kernel) => format!("{}_at_{}", kernel.name, kernel.duty_pct),
        }
    }
}

impl Pair {
    /// The names of both sides in alphabetical order. Both directions of a pair are related, so cross-validation leaves
    /// them out together.
    pub(crate) fn names(&self) -> (String, String) {
        let (own, other) = (self.own.model.clone(), self.other.name());
        if own <= other { (own, other) } else { (other, own) }
    }

    /// Identifies the measurement in either direction.
    pub(crate) fn row(&self) -> String {
        let own = format!("{:?}", self.own);
        let other = match &self.other {
            Other::Batch(side) => format!("{side:?}"),
            Other::Kernel(kernel) => format!("{} {}", self.other.name(), kernel.units),
        };
        if own <= other { own + &other } else { other + &own }
    }

    fn key(&self) -> String {
        format!("{} {} {:?} {}", self.device, self.units_total, self.own, self.row())
    }

    fn check(&self) -> Result<(), String> {
        let factors = [("factor", self.factor), ("p99_factor", self.p99_factor)];
        for (field, factor) in factors {
            if !(factor.is_finite() && factor > 0.0) {
                return Err(format!("`{field}`: expected a number above 0, got `{factor}`"));
            }
        }
        let (rows, units) = match &self.other {
            Other::Batch(side) => (side.rows, side.units),
            Other::Kernel(kernel) => {
                for (field, share) in [("cache", kernel.cache), ("bandwidth", kernel.bandwidth)] {
                    if !(0.0..=1.0).contains(&share) {
                        return Err(format!("`other.kernel.{field}`: expected 0 to 1, got `{share}`"));
                    }
                }
                (1, kernel.units)
            }
        };
        let counts = [
            ("units_total", self.units_total),
            ("own.rows", self.own.rows),
            ("own.units", self.own.units),
            ("other.rows", rows),
            ("other.units", units),
        ];
        let wrong = counts.into_iter().find(|(_, count)| !(1..=COUNT_MAX).contains(count));
        wrong.map_or(Ok(()), |(field, count)| {
            Err(format!("`{field}`: expected 1 to {COUNT_MAX}, got `{count}`"))
        })
    }
}

/// The file of pairs of a profile file: `profile.pairs.jsonl` for `profile.jsonl`.
pub(crate) fn file_for(profiles: &Path) -> PathBuf {
    profiles.with_extension("pairs.jsonl")
}

/// Appends pairs to a file.
pub(crate) fn append(path: &Path, pairs: &[Pair]) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut text = String::new();
    for pair in pairs {
        text += &serde_json::to_string(pair).map_err(|error| said(&error))?;
        text.push('\n');
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| said(&error))
}

/// The pairs of a device. A later measurement of the same batches replaces an earlier one. A missing file has no pairs.
pub(crate) fn read(path: &Path, device: &str, units: u32) -> Result<Vec<Pair>, String> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| format!("{}: {error}", path.display()))?,
    };
    let mut pairs = BTreeMap::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let said = |why: String| format!("{}: line {}: {why}", path.display(), at + 1);
        if at >= PAIRS_MAX {
            return Err(said(format!("expected at most {PAIRS_MAX} lines")));
        }
        let pair: Pair = serde_json::from_str(line).map_err(|error| said(error.to_string()))?;
        pair.check().map_err(said)?;
        if pair.device == device && pair.units_total == units {
            pairs.insert(pair.key(), pair);
        }
    }
    Ok(pairs.into_values().collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn side(model: &str, rows: u32, units: u32) -> Side {
        Side { model: model.to_owned(), rows, units }
    }

    pub(crate) fn pair(own: Side, other: Other, factor: f64) -> Pair {
        let (device, p99_factor) = ("gpu".to_owned(), factor);
        Pair { device, units_total: 16, own, other, factor, p99_factor, runs: 50 }
    }

    #[test]
    fn later_lines_replace_earlier_ones_and_other_devices_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = file_for(&folder.path().join("profile.jsonl"));
        assert!(path.ends_with("profile.pairs.jsonl"));
        assert_eq!(read(&path, "gpu", 16), Ok(Vec::new()), "the file does not exist yet");
        let one = pair(side("a", 8, 4), Other::Batch(side("b", 1, 8)), 1.5);
        let back = pair(side("b", 1, 8), Other::Batch(side("a", 8, 4)), 1.1);
        let kernel =
            KernelSide { name: "stream".to_owned(), units: 8, duty_pct: 50, cache: 0.25, bandwidth: 0.5 };
        let kernel = pair(side("a", 8, 4), Other::Kernel(kernel), 1.25);
        let elsewhere = Pair { device: "other".to_owned(), ..one.clone() };
        append(&path, &[one.clone(), back.clone(), kernel.clone(), elsewhere]).unwrap();
        let again = Pair { factor: 1.75, ..one.clone() };
        append(&path, std::slice::from_ref(&again)).unwrap();
        let read = read(&path, "gpu", 16).unwrap();
        assert_eq!(read.len(), 3);
        assert!(read.contains(&again) && read.contains(&back) && read.contains(&kernel), "{read:?}");
        assert_eq!((one.row(), one.names()), (back.row(), back.names()), "both directions of one pair");
        assert_eq!(kernel.names(), ("a".to_owned(), "stream_at_50".to_owned()));
    }

    #[test]
    fn invalid_lines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.jsonl");
        let good = pair(side("a", 1, 8), Other::Batch(side("b", 1, 8)), 1.0);
        for (wrong, part) in [
            (Pair { factor: 0.0, ..good.clone() }, "line 1: `factor`: expected a number above 0, got `0`"),
            (
                Pair { own: side("a", 0, 8), ..good.clone() },
                "line 1: `own.rows`: expected 1 to 4096, got `0`",
            ),
            (Pair { units_total: 0, ..good.clone() }, "line 1: `units_total`: expected 1 to 4096, got `0`"),
        ] {
            fs::write(&path, serde_json::to_string(&wrong).unwrap()).unwrap();
            let said = read(&path, "gpu", 16).unwrap_err();
            assert!(said.ends_with(part), "{said}");
        }
        fs::write(&path, "\n{}").unwrap();
        assert!(read(&path, "gpu", 16).unwrap_err().contains("line 2: missing field"));
    }
}
