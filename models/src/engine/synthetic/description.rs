//! `model.toml`: what a synthetic model looks like and how long it takes.

use std::time::Duration;

use serde::Deserialize;

use super::fan_out::FanOut;
use crate::{LoadError, ModelFiles};

/// A whole `model.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    #[serde(default)]
    pub max_batch: u32,
    pub inputs: Vec<TensorDescription>,
    pub outputs: Vec<TensorDescription>,
    #[serde(default)]
    pub time: Time,
    #[serde(default)]
    pub fail: Fail,
    /// Without a table, a row comes of each row.
    #[serde(default)]
    pub fan_out: FanOut,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TensorDescription {
    pub name: String,
    pub datatype: DatatypeWord,
    pub dims: Vec<i64>,
}

/// A datatype by its name on the wire.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct DatatypeWord(pub oip::Datatype);

impl TryFrom<String> for DatatypeWord {
    type Error = oip::UnknownDatatype;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse().map(Self)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Time {
    pub alpha_us: u64,
    pub beta_us: u64,
    /// (rows, microseconds), rows strictly rising; wins over `alpha_us` and `beta_us`.
    pub points: Vec<(u32, u64)>,
    pub mode: Mode,
    pub jitter: f64,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    Sleep,
    Spin,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Fail {
    pub every: u64,
    pub message: String,
}

impl Default for Fail {
    fn default() -> Self {
        Self { every: 0, message: "synthetic failure".to_owned() }
    }
}

/// Bound on the time of one run.
const RUN_MAX: Duration = Duration::from_secs(60);

impl Description {
    pub(crate) fn parse(files: &ModelFiles) -> Result<Self, LoadError> {
        let refuse = |reason: String| LoadError::Files {
            model: files.name.to_string(),
            reason: format!("model.toml: {reason}"),
        };
        let text = std::str::from_utf8(&files.bytes).map_err(|_| refuse("is not UTF-8".to_owned()))?;
        let description: Self = units::parse_toml(text).map_err(|fault| {
            let reason = fault.named("model.toml").to_string();
            LoadError::Files { model: files.name.to_string(), reason }
        })?;
        description.check().map_err(refuse)?;
        Ok(description)
    }

    fn check(&self) -> Result<(), String> {
        if self.outputs.is_empty() {
            return Err("outputs: expected at least one".to_owned());
        }
        for (kind, tensor) in
            self.inputs.iter().map(|t| ("input", t)).chain(self.outputs.iter().map(|t| ("output", t)))
        {
            if let Some(dim) = tensor.dims.iter().find(|&&dim| dim < -1) {
                return Err(format!("{kind} `{}`: dimension {dim}: expected -1 or more", tensor.name));
            }
            if self.max_batch > 0 && tensor.dims.first() != Some(&-1) {
                return Err(format!(
                    "{kind} `{}`: first dimension: expected -1 because max_batch is {}",
                    tensor.name, self.max_batch
                ));
            }
        }
        let signature = self.signature();
        self.fan_out.check(self.max_batch, &signature.inputs, &signature.outputs)?;
        if !(0.0..=1.0).contains(&self.time.jitter) {
            return Err(format!("time.jitter is {}: expected 0 to 1", self.time.jitter));
        }
        if !self.time.points.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("time.points: expected rows in strictly rising order".to_owned());
        }
        Ok(())
    }
}

impl Time {
    /// How long the `run`-th run takes with this many rows.
    pub(crate) fn of(&self, rows: u32, run: u64) -> Duration {
        let base_us = match self.points.as_slice() {
            [] => self.beta_us.saturating_mul(u64::from(rows)).saturating_add(self.alpha_us) as f64,
            points => interpolate(points, rows),
        };
        let share = 1.0 + self.jitter * noise(self.seed, run);
        Duration::try_from_secs_f64(base_us * share / 1e6).unwrap_or(RUN_MAX).min(RUN_MAX)
    }
}

/// Straight lines between the points; the outermost lines go on.
fn interpolate(points: &[(u32, u64)], rows: u32) -> f64 {
    let segment = points
        .windows(2)
        .find(|pair| pair.last().is_some_and(|(right, _)| rows <= *right))
        .or_else(|| points.windows(2).last());
    match (segment, points.first()) {
        (Some([(x0, y0), (x1, y1)]), _) => {
            let slope = (*y1 as f64 - *y0 as f64) / (f64::from(*x1) - f64::from(*x0));
            (*y0 as f64 + slope * (f64::from(rows) - f64::from(*x0))).max(0.0)
        }
        (_, Some((_, only))) => *only as f64,
        (_, None) => 0.0,
    }
}

/// A value in -1..1 that depends on nothing but its arguments (splitmix64).
fn noise(seed: u64, run: u64) -> f64 {
    let mut mixed = seed.wrapping_add(run.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_table() {
        let time = Time { points: vec![(1, 100), (4, 400), (8, 480)], ..Time::default() };
        let micros = |rows| time.of(rows, 1).as_micros();
        assert_eq!(
            (micros(1), micros(2), micros(4), micros(6), micros(8), micros(16)),
            (100, 200, 400, 440, 480, 640)
        );
        let line = Time { alpha_us: 50, beta_us: 10, ..Time::default() };
        assert_eq!(line.of(5, 1), Duration::from_micros(100));
    }

    #[test]
    fn jitter_is_bounded_and_repeats() {
        let time = Time { alpha_us: 1000, jitter: 0.2, seed: 3, ..Time::default() };
        let runs: Vec<_> = (0..1000).map(|run| time.of(1, run)).collect();
        assert!(runs.iter().all(|t| (800..=1200).contains(&t.as_micros())));
        assert!(runs.iter().any(|t| t.as_micros() < 850) && runs.iter().any(|t| t.as_micros() > 1150));
        assert_eq!(runs, (0..1000).map(|run| time.of(1, run)).collect::<Vec<_>>());
    }
}
