//! One cell: warmed up until its times agree, then measured.

use std::time::{Duration, Instant};

use gpulet_core::profile::Cell;
use models::engine::{Batch, RunError, Session};

use crate::spread::Spread;
use crate::timing::times;

/// Runs of a window, whose medians are compared.
const WINDOW: usize = 3;
/// Consecutive windows whose medians must agree.
const AGREEING: usize = 3;
/// Largest relative difference of medians that agree.
const APART_MAX: f64 = 0.03;
/// Longest warm-up.
const WARM_MAX: Duration = Duration::from_millis(300);
/// Time for the measured runs, and their least and greatest number.
const TIME: Duration = Duration::from_millis(250);
const RUNS: (usize, usize) = (5, 1_000);
/// With fewer runs, the slow percentiles are doubtful.
const RUNS_ENOUGH: usize = 20;

/// Measures batches of `rows` rows on `units` units.
pub(super) fn measured(
    session: &mut dyn Session,
    batch: &Batch,
    (rows, units): (u32, u32),
) -> Result<Cell, RunError> {
    let agreed = warm(session, batch)?;
    let runs = times(session, batch, RUNS, Instant::now() + TIME)?;
    let spread = Spread::of(&runs);
    let at = |hundredth| spread.as_ref().map_or(0.0, |spread| spread.percentile(hundredth));
    let doubt = match (agreed, runs.len() >= RUNS_ENOUGH) {
        (true, true) => None,
        (false, _) => Some("times did not settle during the warm-up".to_owned()),
        (true, false) => Some(format!("only {} runs", runs.len())),
    };
    Ok(Cell {
        batch: rows,
        units,
        p50_us: at(50),
        p95_us: at(95),
        p99_us: at(99),
        count: u64::try_from(runs.len()).unwrap_or(u64::MAX),
        left_out: None,
        doubt,
        predicted: None,
    })
}

/// Runs until the times settle. Returns whether they did.
fn warm(session: &mut dyn Session, batch: &Batch) -> Result<bool, RunError> {
    let until = Instant::now() + WARM_MAX;
    let mut medians: Vec<f64> = Vec::new();
    loop {
        let window = times(session, batch, (WINDOW, WINDOW), until)?;
        medians.extend(Spread::of(&window).map(|spread| spread.median()));
        let last = medians.len().checked_sub(AGREEING).and_then(|from| medians.get(from..));
        let (least, most) = last
            .unwrap_or(&[])
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(least, most), median| (least.min(*median), most.max(*median)));
        if last.is_some() && most <= least * (1.0 + APART_MAX) {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
    }
}
