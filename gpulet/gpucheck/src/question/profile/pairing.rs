//! Models beside each other: the one that is profiled on a share, and the one before it on the half that it left.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use models::engine::{Batch, Session};
use serde_json::json;

use crate::answer::Fact;
use crate::bench::{Bench, Open, Stop};
use crate::pace::{Neighbour, beside, times};
use crate::pairs::{Beside, Pair, Side};
use crate::spread::Spread;
use crate::subject::Subject;

/// Rows of the one that is profiled and of the one before it.
const ROWS: [(u32, u32); 4] = [(1, 1), (8, 8), (8, 1), (1, 8)];
/// Batches that count, at least and at most, and the time for them.
const RUNS: (usize, usize) = (10, 500);
const TIME: Duration = Duration::from_millis(120);

/// A model that was profiled, and stays on half of the GPU.
pub(super) struct Kept<'a> {
    pub(super) subject: &'a Subject,
    pub(super) open: Open,
    pub(super) units: u32,
    /// Whether that is the second half.
    pub(super) mirrored: bool,
    /// Microseconds of a batch there alone, median and 99th percentile by rows.
    pub(super) alone: Alone,
}

/// Median and 99th percentile of batches alone, microseconds, by rows.
pub(super) type Alone = BTreeMap<u32, (f64, f64)>;

/// Measures a session on a share beside the one that was kept, both at once.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    (subject, session, units, alone): (&Subject, &mut dyn Session, u32, &Alone),
    kept: &mut Kept<'_>,
    units_total: u32,
) -> Result<Vec<Pair>, Stop> {
    let mut pairs = Vec::new();
    for (own_rows, other_rows) in ROWS {
        let (Some(own_alone), Some(other_alone)) = (alone.get(&own_rows), kept.alone.get(&other_rows)) else {
            continue;
        };
        let own: Batch = subject.batch(session, own_rows)?;
        let other = kept.subject.batch(kept.open.session.as_mut(), other_rows)?;
        let mut neighbour = Neighbour { session: kept.open.session.as_mut(), batch: other, duty: 100 };
        let run = || times(session, &own, RUNS, Instant::now() + TIME);
        let (measured, meanwhile) = beside(&mut neighbour, run)?;
        let own = Side { model: subject.name().to_owned(), rows: own_rows, units };
        let other = Side { model: kept.subject.name().to_owned(), rows: other_rows, units: kept.units };
        let of = |own: &Side, other: &Side, times: &[Duration], alone: (f64, f64)| {
            let spread = Spread::of(times)?;
            Some(Pair {
                device: bench.found.name.clone(),
                units_total,
                own: own.clone(),
                beside: Beside::Batch(other.clone()),
                factor: spread.median() / alone.0.max(1e-9),
                p99_factor: spread.p99() / alone.1.max(1e-9),
                runs: u64::try_from(spread.count()).unwrap_or(u64::MAX),
            })
        };
        let both =
            [of(&own, &other, &measured, *own_alone), of(&other, &own, &meanwhile.times, *other_alone)];
        pairs.extend(both.into_iter().flatten());
    }
    say(bench, &pairs, (subject.name(), kept.subject.name(), units));
    Ok(pairs)
}

/// The most that either does to the other.
fn say(bench: &mut Bench<'_>, pairs: &[Pair], (own, other, units): (&str, &str, u32)) {
    let worst = pairs.iter().map(|pair| pair.factor).max_by(f64::total_cmp);
    let rows = pairs.iter().map(|pair| {
        let other_rows = match &pair.beside {
            Beside::Batch(side) => side.rows,
            Beside::Kernel(_) => 0,
        };
        json!({
            "own": pair.own.model, "rows": pair.own.rows, "units": pair.own.units, "beside_rows": other_rows,
            "over_alone": pair.factor, "p99_over_alone": pair.p99_factor, "runs": pair.runs,
        })
    });
    let fact = Fact::new(format!("profile.{own}_on_{units}_beside_{other}"), "8");
    let fact = fact.detail(rows.collect::<Vec<_>>());
    bench.answers.say(&match worst {
        Some(worst) => fact.value(worst),
        None => fact,
    });
}
