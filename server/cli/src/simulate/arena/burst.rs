//! Recovery from a burst: after one second of overload, some policies never return to full goodput at a rate that
//! they sustained before.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use sim::report::Bucket;
use sim::{Setup, SimError};
use toml::{Table, Value};
use workload::Workload;

use crate::simulate::reading::{self, WorkloadFile};
use crate::simulate::runs::Bar;

/// Rate before and after the burst, as a fraction of a capacity.
pub const LOAD: f64 = 0.9;
/// The burst, in seconds and multiples of the rate.
pub const AT: f64 = 15.0;
/// Duration of the burst in seconds.
pub const LASTS: f64 = 1.0;
/// Rate of the burst as a multiple of the rate.
pub const FACTOR: f64 = 3.0;
/// Duration of the run in seconds.
const DURATION: f64 = 40.0;
/// Warm-up in seconds; not counted.
const WARMUP: f64 = 5.0;
/// Window of attainment in seconds.
const WINDOW: f64 = 1.0;
/// Attainment that counts as recovered.
const NORMAL: f64 = 0.99;

/// How a policy recovers from a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recovery {
    /// Seconds from the end of the burst until attainment stays at 99 % or more.
    After(f64),
    /// No recovery until the end of the run, 24 s later.
    Never,
    /// Attainment was below 99 % even before the burst.
    Overloaded,
    /// Not tested: its capacity is 0.
    Untried,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(seconds) => write!(f, "{seconds:.1} s"),
            Self::Never => f.write_str("**never**"),
            Self::Overloaded => f.write_str("overloaded before"),
            Self::Untried => f.write_str("-"),
        }
    }
}

/// The workload with a burst of all its models; `None` if its arrivals are not Poisson.
pub fn workload(file: &WorkloadFile, path: &Path) -> anyhow::Result<Option<Workload>> {
    if file.workload.models.iter().any(|model| model.process() != "poisson") {
        return Ok(None);
    }
    let mut document: Table =
        file.text.parse().with_context(|| format!("cannot read `{}`", path.display()))?;
    let seconds = |time: f64| Value::String(format!("{time}s"));
    document.remove("requests");
    document.insert("duration".to_owned(), seconds(DURATION));
    document.insert("warmup".to_owned(), seconds(WARMUP));
    let flash = Table::from_iter([
        ("process".to_owned(), Value::String("flash".to_owned())),
        ("at".to_owned(), seconds(AT)),
        ("lasts".to_owned(), seconds(LASTS)),
        ("factor".to_owned(), Value::Float(FACTOR)),
    ]);
    for (_, model) in document.get_mut("models").and_then(Value::as_table_mut).into_iter().flatten() {
        if let Some(model) = model.as_table_mut() {
            model.insert("arrivals".to_owned(), Value::Table(flash.clone()));
        }
    }
    Ok(Some(reading::parse(&toml::to_string(&document)?, path)?))
}

/// Runs the burst on top of 90 % of a rate.
pub fn recovery(burst: &Workload, setup: &Setup, capacity: f64, bar: &Bar) -> Result<Recovery, SimError> {
    let steady: f64 = burst.models.iter().map(workload::Model::mean_rate).sum();
    if capacity <= 0.0 || steady <= 0.0 {
        bar.skip(1);
        return Ok(Recovery::Untried);
    }
    let report = bar.run(&burst.scaled(LOAD * capacity / steady)?, setup)?;
    Ok(recovery_of(&report.series))
}

fn recovery_of(series: &[Bucket]) -> Recovery {
    let normal = |from: f64, to: f64| {
        // Buckets start at sums of rounded numbers.
        let within = series.iter().filter(|bucket| bucket.t >= from - 1e-6 && bucket.t < to - 1e-6);
        let (good, offered) =
            within.fold((0, 0), |(good, offered), bucket| (good + bucket.good, offered + bucket.offered));
        good as f64 >= NORMAL * offered as f64
    };
    if !normal(WARMUP, AT) {
        return Recovery::Overloaded;
    }
    let end = AT + LASTS;
    let starts =
        series.iter().map(|bucket| bucket.t).filter(|t| (end - 1e-6..=DURATION - WINDOW).contains(t));
    let mut back = starts.filter(|&t| normal(t, t + WINDOW) && normal(t, DURATION));
    back.next().map_or(Recovery::Never, |t| Recovery::After(t - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket of 0.2 s for each; `good` says how many of 1,000 at a time.
    fn series(good: impl Fn(f64) -> u64) -> Vec<Bucket> {
        let bucket = |number: u32| {
            let t = f64::from(number) * 0.2;
            Bucket {
                t,
                offered: 1_000,
                good: good(t),
                refused: 0,
                mean_batch: 4.0,
                busy_lanes: 1.0,
                p99_ms: None,
            }
        };
        (0..200).map(bucket).collect()
    }

    #[test]
    fn a_recovery_is_the_first_second_that_is_normal_and_stays_so() {
        assert_eq!(recovery_of(&series(|_| 1_000)), Recovery::After(0.0));
        let Recovery::After(seconds) =
            recovery_of(&series(|t| if (15.0..17.39).contains(&t) { 300 } else { 1_000 }))
        else {
            panic!("expected a recovery")
        };
        assert!((seconds - 1.4).abs() < 1e-6, "{seconds}");
        assert_eq!(recovery_of(&series(|t| if t >= 15.0 { 300 } else { 1_000 })), Recovery::Never);
        // A good moment between bad ones does not count as recovery.
        let relapse = |t: f64| if t >= 15.0 && !(20.0..22.0).contains(&t) { 300 } else { 1_000 };
        assert_eq!(recovery_of(&series(relapse)), Recovery::Never);
        assert_eq!(recovery_of(&series(|_| 900)), Recovery::Overloaded);
    }
}
