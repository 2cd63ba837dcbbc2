//! AutoDeep (INFOCOM 2020): Bayesian optimisation outside, reinforcement learning inside.
//!
//! The abstract says that the cloud instance is chosen by Bayesian optimisation and the placement of operators by deep reinforcement learning, for the
//! cheapest deployment within a latency. That the inner search stops early when far from the objective is from memory; all constants are ours.
//! Here the outer choice is that of engine, lanes and threads, and the inner one that of level, spinning and batch, by Q-learning instead of a deep network.

use super::bo::most_promising;
use super::q_learning::QLearning;
use super::{Choice, Reason, Search, Settings};
use crate::generator::Generator;
use crate::measurement::{Measured, Objective};
use crate::space::{Engine, Space};

/// Outer choices at random before the first model.
const FIRST: usize = 2;
/// Trials of an inner search, and after how many it stops if it is far from the best.
const INNER: usize = 10;
const EARLY: usize = 4;
/// Far: below this part of the best capacity so far.
const FAR: f64 = 0.7;
/// Knobs of the inner search: level, spinning and batch.
const KNOBS_INSIDE: [usize; 3] = [3, 4, 5];

/// Engine, lanes and threads.
type Group = (Engine, u32, u32);

/// The search.
pub(super) struct AutoDeep {
    space: Space,
    objective: Objective,
    seed: u64,
    generator: Generator,
    groups: Vec<Group>,
    inner: Option<Inner>,
    chosen: usize,
}

struct Inner {
    group: Group,
    walk: QLearning,
    /// Trials of the group when the walk began.
    before: usize,
}

impl AutoDeep {
    pub fn new(settings: &Settings<'_>) -> Self {
        let mut groups: Vec<Group> =
            settings.space.setups().iter().map(|setup| (setup.engine, setup.lanes, setup.threads)).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut generator = Generator::new(settings.seed);
        generator.shuffle(&mut groups);
        Self {
            space: settings.space.clone(),
            objective: settings.objective,
            seed: settings.seed,
            generator,
            groups,
            inner: None,
            chosen: 0,
        }
    }

    fn group_of(&self, index: usize) -> Option<Group> {
        self.space.get(index).map(|of| (of.setup.engine, of.setup.lanes, of.setup.threads))
    }

    fn members(&self, group: Group) -> Vec<usize> {
        (0..self.space.len()).filter(|index| self.group_of(*index) == Some(group)).collect()
    }

    /// Best capacity and number of trials of a group.
    fn found(&self, group: Group, measured: &Measured) -> (f64, usize) {
        let of = measured.in_order().filter(|(index, _)| self.group_of(*index) == Some(group));
        of.fold((0.0, 0), |(best, count), (_, result)| {
            (result.map_or(0.0, |one| self.objective.worth(&one)).max(best), count + 1)
        })
    }

    /// The group that the outer search wants next, of those with configurations that were not tried.
    fn outer(&mut self, measured: &Measured) -> Option<Group> {
        let place = |group: &Group| {
            let log = |count: u32| f64::from(count.max(1)).log2() / 2.0;
            [f64::from(u8::from(group.0 == Engine::Tract)), log(group.1), log(group.2)]
        };
        let (mut known, mut open) = (Vec::new(), Vec::new());
        for (at, group) in self.groups.iter().enumerate() {
            let (best, count) = self.found(*group, measured);
            if count > 0 {
                known.push((place(group), best));
            }
            if count < self.members(*group).len() {
                open.push((at, place(group)));
            }
        }
        if self.chosen < FIRST {
            self.chosen = self.chosen.saturating_add(1);
            let untouched = self.groups.iter().find(|group| self.found(**group, measured).1 == 0);
            if let Some(group) = untouched {
                return Some(*group);
            }
        }
        let next = most_promising(&known, open.iter().copied()).or(open.first().map(|(at, _)| *at))?;
        self.groups.get(next).copied()
    }

    /// Whether the inner search goes on.
    fn goes_on(&self, inner: &Inner, measured: &Measured) -> bool {
        let (best, count) = self.found(inner.group, measured);
        let trials = count.saturating_sub(inner.before);
        let overall = measured.best(self.objective).map_or(0.0, |(_, capacity)| capacity);
        trials < INNER && (trials < EARLY || best >= FAR * overall)
    }
}

impl Search for AutoDeep {
    fn next(&mut self, measured: &Measured) -> Choice {
        if measured.len() >= self.space.len() {
            return Choice::Stop(Reason::Exhausted);
        }
        loop {
            let mut inner = match self.inner.take() {
                Some(inner) if self.goes_on(&inner, measured) => inner,
                _ => {
                    let Some(group) = self.outer(measured) else { return Choice::Stop(Reason::Exhausted) };
                    let open: Vec<usize> =
                        self.members(group).into_iter().filter(|index| !measured.contains(*index)).collect();
                    let Some(from) = self.generator.pick(&open) else {
                        return Choice::Stop(Reason::Exhausted);
                    };
                    let settings = Settings {
                        space: &self.space,
                        objective: self.objective,
                        seed: self.seed,
                        others: &[],
                    };
                    let walk = QLearning::within(&settings, self.generator.clone(), &KNOBS_INSIDE, from);
                    Inner { group, walk, before: self.found(group, measured).1 }
                }
            };
            if let Choice::Try(index) = inner.walk.next(measured)
                && self.group_of(index) == Some(inner.group)
            {
                self.inner = Some(inner);
                return Choice::Try(index);
            }
            // Everything around was tried: the outer search chooses again.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Measurement;
    use crate::space::BATCHES;

    #[test]
    fn an_inner_search_far_from_the_best_ends_early() {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        let settings = Settings { space: &space, objective: Objective { slo_us: 1e9 }, seed: 5, others: &[] };
        let mut search = AutoDeep::new(&settings);
        let mut measured = Measured::default();
        let mut groups: Vec<(Group, usize)> = Vec::new();
        for _ in 0..60 {
            let Choice::Try(index) = search.next(&measured) else { panic!("stopped") };
            let group = search.group_of(index).unwrap();
            match groups.last_mut() {
                Some((last, count)) if *last == group => *count += 1,
                _ => groups.push((group, 1)),
            }
            // Two lanes are ten times as good.
            let rows_per_s = if group.1 == 2 { 100.0 } else { 10.0 };
            measured.add(index, Some(Measurement { p99_us: 1.0, rows_per_s }));
        }
        assert!(groups.iter().all(|(_, count)| *count <= 3 * INNER), "{groups:?}");
        let first_good = groups.iter().position(|(group, _)| group.1 == 2).unwrap();
        let poor_later = groups.iter().skip(first_good + 1).filter(|(group, _)| group.1 != 2);
        assert!(poor_later.clone().all(|(_, count)| *count <= EARLY), "{groups:?}");
    }
}
