//! The choice of split points: a dynamic program over possible split points and stages.

use crate::BalanceError;

/// Largest number of possible split points to choose from.
pub const CANDIDATES_MAX: usize = 4096;

/// A possible split point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Position of the split point. Those of candidates rise.
    pub position: usize,
    /// Time of all nodes before it, in any unit, on a device of speed 1.
    pub time_before: f64,
    /// Bytes that cross it for one row.
    pub bytes: u64,
}

/// The best split points.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Indices of candidates, rising.
    pub points: Vec<usize>,
    /// Time of the slowest stage on its device.
    pub slowest: f64,
    /// Bytes that cross all split points for one row.
    pub bytes: u64,
}

/// Times of ever longer prefixes of one graph, without what must be noise: a prefix cannot take longer than one that contains it,
/// and other work on the machine only makes times longer.
pub fn without_noise(times: &[f64]) -> Vec<f64> {
    let mut least = f64::INFINITY;
    let mut clean: Vec<f64> = times
        .iter()
        .rev()
        .map(|time| {
            least = least.min(*time);
            least
        })
        .collect();
    clean.reverse();
    clean
}

/// Chooses one split point fewer than there are `speeds`, one for each stage. `total` is the time of the whole graph on a device of speed 1.
///
/// The slowest stage is as fast as possible. Among all choices whose slowest stage takes at most `slack` longer than that, as a share
/// of it, the fewest bytes cross.
///
/// # Errors
/// Too few or too many candidates, or numbers that make no sense.
pub fn choose(
    candidates: &[Candidate],
    total: f64,
    speeds: &[f64],
    slack: f64,
) -> Result<Choice, BalanceError> {
    check(candidates, total, speeds, slack)?;
    let program = Program { candidates, total, speeds };
    let best = program
        .solve(f64::INFINITY, |so_far, stage, _| so_far.max(stage))
        .ok_or(BalanceError::TooFewPoints { stages: speeds.len(), candidates: candidates.len() })?;
    let limit = program.slowest(&best) * (1.0 + slack);
    // Bytes are far below 2^53, so sums of floats are exact.
    let points = program.solve(limit, |so_far, _, bytes| so_far + bytes).unwrap_or(best);
    let bytes = points.iter().filter_map(|point| candidates.get(*point)).map(|point| point.bytes);
    Ok(Choice { slowest: program.slowest(&points), bytes: bytes.fold(0, u64::saturating_add), points })
}

struct Program<'a> {
    candidates: &'a [Candidate],
    total: f64,
    speeds: &'a [f64],
}

impl Program<'_> {
    /// Time before a boundary: 0 is the start, then the candidates, then the end.
    fn before(&self, boundary: usize) -> f64 {
        match boundary.checked_sub(1) {
            None => 0.0,
            Some(index) => {
                self.candidates.get(index).map_or(self.total, |point| point.time_before.min(self.total))
            }
        }
    }

    fn bytes(&self, boundary: usize) -> f64 {
        let point = boundary.checked_sub(1).and_then(|index| self.candidates.get(index));
        point.map_or(0.0, |point| point.bytes as f64)
    }

    fn slowest(&self, points: &[usize]) -> f64 {
        let ends = points
            .iter()
            .map(|point| point.saturating_add(1))
            .chain([self.candidates.len().saturating_add(1)]);
        let mut from = 0;
        let times = ends.zip(self.speeds).map(|(to, speed)| {
            let time = (self.before(to) - self.before(from)).max(0.0) / speed;
            from = to;
            time
        });
        times.fold(0.0, f64::max)
    }

    /// The split points with the least cost, whose stages all take at most `limit`. `cost` adds a stage: from the cost of the stages before it,
    /// its time and the bytes that it gives.
    fn solve(&self, limit: f64, cost: impl Fn(f64, f64, f64) -> f64) -> Option<Vec<usize>> {
        let end = self.candidates.len().saturating_add(1);
        // Least cost of the stages so far by the boundary at which they end, and for each stage where it began.
        let mut costs = vec![f64::INFINITY; end.saturating_add(1)];
        *costs.first_mut()? = 0.0;
        let mut begins: Vec<Vec<usize>> = Vec::with_capacity(self.speeds.len());
        for speed in self.speeds {
            let mut next = vec![f64::INFINITY; costs.len()];
            let mut begin = vec![0; costs.len()];
            for ((to, least), start) in next.iter_mut().enumerate().zip(&mut begin) {
                for (from, so_far) in costs.iter().enumerate().take(to).filter(|(_, cost)| cost.is_finite()) {
                    let time = (self.before(to) - self.before(from)).max(0.0) / speed;
                    let sum = cost(*so_far, time, self.bytes(to));
                    if time <= limit && sum < *least {
                        (*least, *start) = (sum, from);
                    }
                }
            }
            begins.push(begin);
            costs = next;
        }
        costs.get(end).filter(|cost| cost.is_finite())?;
        let mut points = Vec::new();
        let mut boundary = end;
        for begin in begins.iter().skip(1).rev() {
            boundary = begin.get(boundary).copied()?;
            points.push(boundary.checked_sub(1)?);
        }
        points.reverse();
        Some(points)
    }
}

fn check(candidates: &[Candidate], total: f64, speeds: &[f64], slack: f64) -> Result<(), BalanceError> {
    if speeds.is_empty() || candidates.len() < speeds.len().saturating_sub(1) {
        return Err(BalanceError::TooFewPoints { stages: speeds.len().max(1), candidates: candidates.len() });
    }
    if candidates.len() > CANDIDATES_MAX {
        return Err(BalanceError::TooManyCandidates { count: candidates.len(), max: CANDIDATES_MAX });
    }
    let number = |what, expected, got: f64, is_right: bool| match got.is_finite() && is_right {
        true => Ok(()),
        false => Err(BalanceError::Number { what, expected, got }),
    };
    number("time of the whole", "of 0 and more", total, total >= 0.0)?;
    number("slack", "of 0 and more", slack, slack >= 0.0)?;
    for speed in speeds {
        number("speed", "above 0", *speed, *speed > 0.0)?;
    }
    for point in candidates {
        number("time before a split point", "of 0 and more", point.time_before, point.time_before >= 0.0)?;
    }
    let pairs = candidates.iter().zip(candidates.iter().skip(1));
    match pairs.into_iter().find(|(one, next)| next.position <= one.position) {
        Some((_, next)) => Err(BalanceError::Order(next.position)),
        None => Ok(()),
    }
}
