//! The search for the best split points: parts of the model are timed, first far apart and then close to the split points that look best.

use std::collections::{BTreeMap, BTreeSet};

use model_split::{Candidate, Choice, choose, without_noise};
use models::engine::{Batch, Session};
use models::split::SplitModel;

use super::Subject;
use super::candidates::{Candidates, load_part};
use super::timing::shortest;

/// Parts that are timed first, evenly spread over the possible split points.
const SPREAD: usize = 24;
/// Parts that are timed between a chosen split point and the timed ones on both sides of it, in each round.
const BETWEEN: usize = 4;
/// Rounds close to the best split points.
const ROUNDS: usize = 3;
/// How much slower the slowest stage may be for fewer bytes that cross, as a share of its time. Times differ by about as much from run
/// to run.
const SLACK: f64 = 0.03;

/// Times of parts of the model, in seconds, by index of the split point at which they end.
#[derive(Debug)]
pub struct Timed {
    times: BTreeMap<usize, f64>,
    total: f64,
}

impl Timed {
    /// Number of parts that were timed.
    pub fn parts(&self) -> usize {
        self.times.len()
    }

    /// The best split points, by index of the candidates, without those that are ruled out.
    ///
    /// # Errors
    /// There are fewer than wanted.
    pub fn best(
        &self,
        candidates: &Candidates,
        speeds: &[f64],
        ruled_out: &BTreeSet<usize>,
    ) -> anyhow::Result<Vec<usize>> {
        let measured: Vec<f64> = self.times.values().copied().chain([self.total]).collect();
        let clean = without_noise(&measured);
        let total = clean.last().copied().unwrap_or(self.total);
        let timed = self.times.keys().zip(&clean).filter(|(index, _)| !ruled_out.contains(index));
        let (mut indices, mut timed_points) = (Vec::new(), Vec::new());
        for (index, time) in timed {
            let Some(point) = candidates.points.get(*index) else { continue };
            indices.push(*index);
            let bytes = candidates.bytes_of(point);
            timed_points.push(Candidate { position: point.position, time_before: *time, bytes });
        }
        let Choice { points, .. } = choose(&timed_points, total, speeds, SLACK)?;
        Ok(points.iter().filter_map(|point| indices.get(*point).copied()).collect())
    }
}

/// Times parts of the model, close to the split points with the fastest slowest stage.
///
/// # Errors
/// There are fewer possible split points than wanted, or a part does not run.
pub fn search(
    model: &SplitModel,
    subject: &Subject<'_>,
    candidates: &Candidates,
    batches: &[Batch],
    (whole, speeds): (&mut dyn Session, &[f64]),
) -> anyhow::Result<Timed> {
    let count = candidates.points.len();
    let mut timed = Timed { times: BTreeMap::new(), total: f64::INFINITY };
    let mut wanted = spread(0, count, SPREAD);
    for _ in 0..=ROUNDS {
        // In every round, because every split point depends on it: were it timed once while the machine is busy, all would be too late.
        let total = shortest(whole, batches, (subject.time, subject.clock))?;
        timed.total = timed.total.min(total.as_secs_f64());
        for index in wanted {
            let Some(point) = candidates.points.get(index) else { continue };
            let part = model.graph().stages(&[point.position])?.into_iter().next().unwrap_or_default();
            let files = model.stage(&part, subject.name)?;
            let mut session = load_part(subject.loader, &files, &subject.options, subject.engine)?;
            let inputs: Vec<Batch> =
                batches.iter().map(|batch| subject.inputs_of(batch, &part.inputs)).collect();
            let time = shortest(session.as_mut(), &inputs, (subject.time, subject.clock))?;
            timed.times.insert(index, time.as_secs_f64());
        }
        let best = timed.best(candidates, speeds, &BTreeSet::new())?;
        wanted = best.iter().flat_map(|index| around(&timed.times, *index, count)).collect();
        wanted.retain(|index| !timed.times.contains_key(index));
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            break;
        }
    }
    Ok(timed)
}

/// Split points that were not timed between one that was and the timed ones on both sides of it.
fn around(times: &BTreeMap<usize, f64>, index: usize, count: usize) -> Vec<usize> {
    let before = times.range(..index).next_back().map_or(0, |(index, _)| index.saturating_add(1));
    let after = times.range(index.saturating_add(1)..).next().map_or(count, |(index, _)| *index);
    let mut found = spread(before, index, BETWEEN);
    found.extend(spread(index.saturating_add(1), after, BETWEEN));
    found
}

/// At most `most` numbers of a range, evenly spread.
fn spread(from: usize, to: usize, most: usize) -> Vec<usize> {
    let length = to.saturating_sub(from);
    let picks = length.min(most);
    // The middles of equal parts.
    (0..picks).map(|pick| from + (2 * pick + 1) * length / (2 * picks)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly() {
        assert_eq!(spread(0, 3, 24), [0, 1, 2]);
        assert_eq!(spread(10, 20, 2), [12, 17]);
        assert!(spread(5, 5, 4).is_empty() && spread(6, 5, 4).is_empty());
    }

    #[test]
    fn later_rounds_are_close_to_a_split_point() {
        let times = BTreeMap::from([(2, 0.2), (6, 0.5), (9, 0.8)]);
        assert_eq!(around(&times, 6, 12), [3, 4, 5, 7, 8]);
        assert_eq!(around(&times, 9, 12), [7, 8, 10, 11]);
        assert_eq!(around(&times, 2, 12), [0, 1, 3, 4, 5]);
    }
}
