//! Batches that were measured beside others: what a model of interference is fitted to. A file of JSON lines beside the
//! profile file, so that a fit can be made again, and others tried.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Lines that are read at most.
const PAIRS_MAX: usize = 100_000;
/// Units of a device, and rows of a batch, at most.
const COUNT_MAX: u32 = 4_096;

/// A batch of a model on a share of the device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Side {
    pub(crate) model: String,
    pub(crate) rows: u32,
    pub(crate) units: u32,
}

/// A kernel that ran beside a batch, and what it takes of the device's shared parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelSide {
    pub(crate) word: String,
    pub(crate) units: u32,
    /// Part of the time in which it ran, in percent.
    pub(crate) duty_pct: u32,
    /// Part of the cache's bandwidth while it runs, from 0 to 1.
    pub(crate) cache: f64,
    /// Part of the memory's bandwidth while it runs, from 0 to 1.
    pub(crate) bandwidth: f64,
}

/// What ran beside a batch, all the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Beside {
    Batch(Side),
    Kernel(KernelSide),
}

/// A batch that was measured beside something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    /// As profiles call the device, and its units.
    pub(crate) device: String,
    pub(crate) units_total: u32,
    pub(crate) own: Side,
    pub(crate) beside: Beside,
    /// Median of its times over the median alone.
    pub(crate) factor: f64,
    /// The same of the 99th percentiles.
    pub(crate) p99_factor: f64,
    /// Runs behind it.
    pub(crate) runs: u64,
}

impl Beside {
    /// For facts: `vgg16`, `stream_at_50`.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Batch(side) => side.model.clone(),
            Self::Kernel(kernel) => format!("{}_at_{}", kernel.word, kernel.duty_pct),
        }
    }
}

impl Pair {
    /// The names of both sides, in the order of the alphabet: what is known of one direction is half of what is to be
    /// known of the other.
    pub(crate) fn names(&self) -> (String, String) {
        let (own, beside) = (self.own.model.clone(), self.beside.name());
        if own <= beside { (own, beside) } else { (beside, own) }
    }

    /// What identifies the measurement, in whichever direction.
    pub(crate) fn row(&self) -> String {
        let own = format!("{:?}", self.own);
        let beside = match &self.beside {
            Beside::Batch(side) => format!("{side:?}"),
            Beside::Kernel(kernel) => format!("{} {}", self.beside.name(), kernel.units),
        };
        if own <= beside { own + &beside } else { beside + &own }
    }

    fn key(&self) -> String {
        format!("{} {} {:?} {}", self.device, self.units_total, self.own, self.row())
    }

    fn check(&self) -> Result<(), String> {
        let factors = [("factor", self.factor), ("p99_factor", self.p99_factor)];
        for (field, factor) in factors {
            if !(factor.is_finite() && factor > 0.0) {
                return Err(format!("{field}: expected a number above 0, got {factor}"));
            }
        }
        let (rows, units) = match &self.beside {
            Beside::Batch(side) => (side.rows, side.units),
            Beside::Kernel(kernel) => {
                for (field, share) in [("cache", kernel.cache), ("bandwidth", kernel.bandwidth)] {
                    if !(0.0..=1.0).contains(&share) {
                        return Err(format!("beside.kernel.{field}: expected 0 to 1, got {share}"));
                    }
                }
                (1, kernel.units)
            }
        };
        let counts = [
            ("units_total", self.units_total),
            ("own.rows", self.own.rows),
            ("own.units", self.own.units),
            ("beside.rows", rows),
            ("beside.units", units),
        ];
        let wrong = counts.into_iter().find(|(_, count)| !(1..=COUNT_MAX).contains(count));
        wrong.map_or(Ok(()), |(field, count)| Err(format!("{field}: expected 1 to {COUNT_MAX}, got {count}")))
    }
}

/// The file that goes with a profile file: `profile.jsonl` has `profile.pairs.jsonl`.
pub(crate) fn beside(profiles: &Path) -> PathBuf {
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

/// Pairs of a device; a later one of the same batches replaces an earlier one. A file that is not there has none.
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

    pub(crate) fn pair(own: Side, beside: Beside, factor: f64) -> Pair {
        let (device, p99_factor) = ("gpu".to_owned(), factor);
        Pair { device, units_total: 16, own, beside, factor, p99_factor, runs: 50 }
    }

    #[test]
    fn later_lines_replace_earlier_ones_and_other_devices_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("profile.jsonl"));
        assert!(path.ends_with("profile.pairs.jsonl"));
        assert_eq!(read(&path, "gpu", 16), Ok(Vec::new()), "nothing was measured yet");
        let one = pair(side("a", 8, 4), Beside::Batch(side("b", 1, 8)), 1.5);
        let back = pair(side("b", 1, 8), Beside::Batch(side("a", 8, 4)), 1.1);
        let kernel =
            KernelSide { word: "stream".to_owned(), units: 8, duty_pct: 50, cache: 0.25, bandwidth: 0.5 };
        let kernel = pair(side("a", 8, 4), Beside::Kernel(kernel), 1.25);
        let elsewhere = Pair { device: "other".to_owned(), ..one.clone() };
        append(&path, &[one.clone(), back.clone(), kernel.clone(), elsewhere]).unwrap();
        let again = Pair { factor: 1.75, ..one.clone() };
        append(&path, std::slice::from_ref(&again)).unwrap();
        let read = read(&path, "gpu", 16).unwrap();
        assert_eq!(read.len(), 3);
        assert!(read.contains(&again) && read.contains(&back) && read.contains(&kernel), "{read:?}");
        assert_eq!((one.row(), one.names()), (back.row(), back.names()), "one measurement of one pair");
        assert_eq!(kernel.names(), ("a".to_owned(), "stream_at_50".to_owned()));
    }

    #[test]
    fn lines_that_make_no_sense_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.jsonl");
        let good = pair(side("a", 1, 8), Beside::Batch(side("b", 1, 8)), 1.0);
        for (wrong, part) in [
            (Pair { factor: 0.0, ..good.clone() }, "line 1: factor: expected a number above 0, got 0"),
            (Pair { own: side("a", 0, 8), ..good.clone() }, "line 1: own.rows: expected 1 to 4096, got 0"),
            (Pair { units_total: 0, ..good.clone() }, "line 1: units_total: expected 1 to 4096, got 0"),
        ] {
            fs::write(&path, serde_json::to_string(&wrong).unwrap()).unwrap();
            let said = read(&path, "gpu", 16).unwrap_err();
            assert!(said.ends_with(part), "{said}");
        }
        fs::write(&path, "\n{}").unwrap();
        assert!(read(&path, "gpu", 16).unwrap_err().contains("line 2: missing field"));
    }
}
