//! Two co-located models: the one that is profiled on a share, and the previous one on its half.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use models::engine::{Batch, Session};
use serde_json::json;

use crate::bench::{Bench, Open, Stop};
use crate::pairs::{Other, Pair, Side};
use crate::report::Fact;
use crate::spread::Spread;
use crate::subject::Subject;
use crate::timing::{CoLocated, times, under_contention};

/// Rows of the profiled model and of the previous one.
const ROWS: [(u32, u32); 4] = [(1, 1), (8, 8), (8, 1), (1, 8)];
/// Least and greatest number of measured batches, and the time for them.
const RUNS: (usize, usize) = (10, 500);
const TIME: Duration = Duration::from_millis(120);

/// A model that was profiled, and stays on half of the GPU.
pub(super) struct Previous<'a> {
    pub(super) subject: &'a Subject,
    pub(super) open: Open,
    pub(super) units: u32,
    /// Whether it is on the second half.
    pub(super) mirrored: bool,
    /// Its solo times there.
    pub(super) alone: Alone,
}

/// Median and 99th percentile of solo batches in microseconds, by rows.
pub(super) type Alone = BTreeMap<u32, (f64, f64)>;

/// Measures a session on a share together with the previous model, both at once.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    (subject, session, units, alone): (&Subject, &mut dyn Session, u32, &Alone),
    previous: &mut Previous<'_>,
    units_total: u32,
) -> Result<Vec<Pair>, Stop> {
    let mut pairs = Vec::new();
    for (own_rows, other_rows) in ROWS {
        let (Some(own_alone), Some(other_alone)) = (alone.get(&own_rows), previous.alone.get(&other_rows))
        else {
            continue;
        };
        let own: Batch = subject.batch(session, own_rows)?;
        let other = previous.subject.batch(previous.open.session.as_mut(), other_rows)?;
        let mut co_located = CoLocated { session: previous.open.session.as_mut(), batch: other, duty: 100 };
        let run = || times(session, &own, RUNS, Instant::now() + TIME);
        let (measured, other_runs) = under_contention(&mut co_located, run)?;
        let own = Side { model: subject.name().to_owned(), rows: own_rows, units };
        let other =
            Side { model: previous.subject.name().to_owned(), rows: other_rows, units: previous.units };
        let of = |own: &Side, other: &Side, times: &[Duration], alone: (f64, f64)| {
            let spread = Spread::of(times)?;
            Some(Pair {
                device: bench.device_type(units_total),
                units_total,
                own: own.clone(),
                other: Other::Batch(other.clone()),
                factor: spread.median() / alone.0.max(1e-9),
                p99_factor: spread.p99() / alone.1.max(1e-9),
                runs: u64::try_from(spread.count()).unwrap_or(u64::MAX),
            })
        };
        let both =
            [of(&own, &other, &measured, *own_alone), of(&other, &own, &other_runs.times, *other_alone)];
        pairs.extend(both.into_iter().flatten());
    }
    report_worst(bench, &pairs, (subject.name(), previous.subject.name(), units));
    Ok(pairs)
}

/// Reports the largest slowdown of either model.
fn report_worst(bench: &mut Bench<'_>, pairs: &[Pair], (own, other, units): (&str, &str, u32)) {
    let worst = pairs.iter().map(|pair| pair.factor).max_by(f64::total_cmp);
    let rows = pairs.iter().map(|pair| {
        let other_rows = match &pair.other {
            Other::Batch(side) => side.rows,
            Other::Kernel(_) => 0,
        };
        json!({
            "own": pair.own.model, "rows": pair.own.rows, "units": pair.own.units, "other_rows": other_rows,
            "over_alone": pair.factor, "p99_over_solo": pair.p99_factor, "runs": pair.runs,
        })
    });
    let fact = Fact::new(format!("profile.{own}_on_{units}_with_{other}"), "8");
    let fact = fact.detail(rows.collect::<Vec<_>>());
    bench.report.add(&match worst {
        Some(worst) => fact.value(worst),
        None => fact,
    });
}
