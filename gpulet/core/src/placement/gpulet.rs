//! gpulet (Choi et al., USENIX ATC 2022): at most two gpulets per device, sized at the knee of throughput over share.
//!
//! A model gets saturated gpulets at its knee while its rate allows, and the smallest sufficient gpulet for the
//! residue. Each takes the free share that fits best: a rest of exactly its size, a part of an unused device, or a
//! larger rest. What does not fit is readjusted: it takes what shares there are, and residues of one model are merged.
//! What is still left joins the cycle of a gpulet in use. The policy suits few models of medium load.
//!
//! The paper, the authors' program (glet, commit 3c1c2aa), and this policy differ:
//!
//! | | paper | `released` | default |
//! |---|---|---|---|
//! | order of the models | highest rate first | lowest rate times objective first | both, and highest rate times objective first; the first that succeeds |
//! | batch 1 too slow | not used | used | not used |
//! | lateness of residues | none | 5 % | none |
//! | unserved | none | 15 requests/s of any model, or 15 % of a rate lost by interference | none |
//! | a rate falls next to a new gpulet | checked by prediction | counted as above | other division of the device, else placed again |
//! | devices | one more after each failure | all that are given | the fewest that suffice |
//! | sizes | solo times | solo times | solo times, and solo times plus 10 % |
//!
//! The default serves at least what the program serves soundly in most cases, so that comparisons are fair. Plans of
//! `released` may break objectives. The program multiplies times by 1.1; profiles include that factor here, or not.

mod elastic;
mod estimate;
mod rules;

use super::Placement;
use super::demand::{Part, Unplaced, parts};
use super::site::Floor;
use self::elastic::Elastic;
use self::rules::Rules;
use crate::plan::Plan;
use crate::problem::Problem;

/// Largest number of gpulets on a device.
const LANES_MAX: usize = 2;
/// Largest number of models in a gpulet.
const SLOTS_MAX: usize = 3;
/// Requests per second that a model without load is planned with.
const LIGHTEST: f64 = 1e-9;
/// Factors on solo times with which the sound variant estimates what a model needs.
const MARGINS: [f64; 2] = [1.0, 1.1];
/// Largest number of times that each part is placed again after it lost some of its rate.
const PLACED_MAX: usize = 8;

/// The published algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpulet {
    /// Decides as the authors' program does, on all devices that it is given. Its plans may break objectives.
    pub released: bool,
}

/// The model that is placed first.
#[derive(Clone, Copy, Debug)]
enum First {
    Lightest,
    Fastest,
    Heaviest,
}

impl Placement for Gpulet {
    const NAME: &'static str = "gpulet";
    const ABOUT: &'static str = "at most two gpulets per device, of the size beyond which throughput grows little (gpulet)";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        let floor = if self.released {
            partitioned(Floor::new(problem), Rules { released: true, margin: 1.0 }, First::Lightest)
        } else {
            filled(problem)
        };
        floor.map(|floor| floor.plan())
    }
}

/// Returns the devices as the sound variant fills them.
pub(super) fn filled(problem: &Problem) -> Result<Floor<'_>, Unplaced> {
    on_fewest(problem, |floor| {
        let mut failed = None;
        for margin in MARGINS {
            for first in [First::Lightest, First::Fastest, First::Heaviest] {
                match partitioned(floor.clone(), Rules { released: false, margin }, first) {
                    Ok(floor) => return Ok(floor),
                    Err(unplaced) => failed = failed.or(Some(unplaced)),
                }
            }
        }
        Err(failed.unwrap_or_else(Unplaced::unknown))
    })
}

/// Fills as few of the first devices as suffice, by bisection. The algorithm itself spreads models over the devices
/// that it is given, and its authors' controller adds one when it fails.
fn on_fewest<'a>(
    problem: &'a Problem,
    fill: impl Fn(Floor<'a>) -> Result<Floor<'a>, Unplaced>,
) -> Result<Floor<'a>, Unplaced> {
    let floor = Floor::new(problem);
    let mut best = fill(floor.clone())?;
    let (mut few, mut enough) = (0_usize, best.sites.len());
    while enough > few.saturating_add(1) {
        let count = few.midpoint(enough);
        match fill(floor.clone().of_first(count)) {
            Ok(found) => (best, enough) = (found.of_all(), count),
            Err(_) => few = count,
        }
    }
    Ok(best)
}

fn partitioned<'a>(floor: Floor<'a>, rules: Rules, first: First) -> Result<Floor<'a>, Unplaced> {
    let mut ordered: Vec<(usize, Part<'_>)> = parts(floor.problem).into_iter().enumerate().collect();
    let key = |part: &Part<'_>| match first {
        First::Lightest => part.rate * part.workload.slo_us,
        First::Fastest => -part.rate,
        First::Heaviest => -part.rate * part.workload.slo_us,
    };
    ordered.sort_by(|left, right| key(&left.1).total_cmp(&key(&right.1)).then(right.0.cmp(&left.0)));
    let most = ordered.len().saturating_mul(PLACED_MAX);
    let mut elastic = Elastic::new(floor, rules);
    let mut queue: Vec<Part<'_>> = ordered.into_iter().map(|(_, part)| part).collect();
    let mut at = 0_usize;
    while let Some(part) = queue.get(at).copied() {
        if at > most {
            return Err(Unplaced::of(part.workload));
        }
        let lost = elastic.add(part)?;
        queue.extend(lost.into_iter().filter(|part| !elastic.is_content(part)));
        at = at.saturating_add(1);
    }
    let mut floor = elastic.floor;
    finish(&mut floor);
    Ok(floor)
}

/// A single slot needs no cycle. Rates that exceed what the slot serves are corrected; only those of the released
/// program do.
fn finish(floor: &mut Floor<'_>) {
    let problem = floor.problem;
    for site in &mut floor.sites {
        let Some(times) = site.times_us(problem) else { continue };
        for (lane, times) in site.lanes.iter_mut().zip(times) {
            if let ([piece], [time]) = (&mut lane.pieces[..], &times[..]) {
                lane.duty_us = None;
                let busy = time - piece.fit.profile.load_us(piece.batch);
                piece.part.rate = piece.part.rate.min(1e6 * f64::from(piece.batch) / busy);
            }
            let idle = lane.pieces.iter_mut().filter(|piece| piece.part.rate <= LIGHTEST);
            idle.for_each(|piece| piece.part.rate = 0.0);
        }
    }
}
