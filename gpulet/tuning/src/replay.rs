//! Searches on a table in which every configuration was measured.

use crate::measurement::{Measured, Measurement, Objective};
use crate::search::{Choice, Search};

/// How good a search was after each trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// The best capacity so far after each trial, as a share of the best of the table.
    pub reached: Vec<f64>,
    /// Steps of a walk after each trial; empty for searches whose steps are trials.
    pub steps: Vec<usize>,
    /// Whether the search ended by itself.
    pub stopped: bool,
}

impl Path {
    /// Trials until the best so far was within a share of the best of the table; `None` if it never was.
    pub fn trials_to(&self, within: f64) -> Option<usize> {
        self.reached.iter().position(|reached| *reached >= 1.0 - within).map(|at| at.saturating_add(1))
    }

    /// Steps until then; trials, for searches whose steps are trials.
    pub fn steps_to(&self, within: f64) -> Option<usize> {
        let trials = self.trials_to(within)?;
        Some(self.steps.get(trials.saturating_sub(1)).copied().unwrap_or(trials))
    }

    /// What was missing to the best of the table after a number of trials, as a share.
    pub fn regret_after(&self, trials: usize) -> f64 {
        let last = self.reached.get(trials.saturating_sub(1)).or(self.reached.last());
        1.0 - last.copied().unwrap_or(0.0)
    }
}

/// When a run on a table ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most trials.
    pub trials: usize,
    /// Trials that are always made.
    pub least: usize,
    /// After those, the run ends once it is within this share of the best of the table.
    pub within: f64,
}

/// Runs a search on a table. `None` if nothing of the table meets the objective.
pub fn replay(
    search: &mut dyn Search,
    table: &[Option<Measurement>],
    objective: Objective,
    limits: Limits,
) -> Option<Path> {
    let worth = |one: &Option<Measurement>| one.map_or(0.0, |one| objective.worth(&one));
    let best = table.iter().map(worth).fold(0.0, f64::max);
    if best <= 0.0 {
        return None;
    }
    let (mut path, mut measured, mut reached) = (Path::default(), Measured::default(), 0.0_f64);
    while path.reached.len() < limits.trials {
        if path.reached.len() >= limits.least && reached >= 1.0 - limits.within {
            break;
        }
        let Choice::Try(index) = search.next(&measured) else {
            path.stopped = true;
            break;
        };
        let result = table.get(index).copied().flatten();
        measured.add(index, result);
        reached = reached.max(worth(&result) / best);
        path.reached.push(reached);
        path.steps.extend(search.steps());
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Settings, search};
    use crate::space::{Engine, Space};

    const ALL: Limits = Limits { trials: 100, least: 100, within: 0.0 };

    #[test]
    fn a_path_says_when_the_best_was_near() {
        let space = Space::new(1, &[1, 2], &[Engine::Tract]);
        let result = |rows_per_s, p99_us| Some(Measurement { p99_us, rows_per_s });
        let table = [result(5.0, 1.0), result(9.9, 1.0), None, result(10.0, 1.0)];
        let objective = Objective { slo_us: 2.0 };
        let settings = Settings { space: &space, objective, seed: 1, others: &[] };
        let path = replay(search("grid", &settings).unwrap().as_mut(), &table, objective, ALL).unwrap();
        assert_eq!(path.reached, [0.5, 0.99, 0.99, 1.0]);
        assert_eq!(
            (path.trials_to(0.01), path.trials_to(0.005), path.steps_to(0.01)),
            (Some(2), Some(4), Some(2))
        );
        assert!(path.stopped && (path.regret_after(1) - 0.5).abs() < 1e-12 && path.regret_after(9) == 0.0);
        let short = Limits { least: 1, within: 0.01, ..ALL };
        let path = replay(search("grid", &settings).unwrap().as_mut(), &table, objective, short).unwrap();
        assert_eq!((path.reached.as_slice(), path.stopped), (&[0.5, 0.99][..], false));
        let tight = Objective { slo_us: 1.0 };
        assert_eq!(replay(search("grid", &settings).unwrap().as_mut(), &table, tight, ALL), None);
    }
}
