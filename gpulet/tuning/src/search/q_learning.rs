//! Q-learning, and RRL (Qin et al., SC 2019): Q-learning in which one measurement updates a region of configurations.
//!
//! The abstract says that configurations near each other behave alike, so one measurement updates a region of the table, and that this converges more
//! than 8 times faster than reinforcement learning before. The update rule is from memory: the state is a configuration, an action is a step in one knob, the
//! reward is what the step improves, and every state within a radius is updated towards the same target with a weight that falls with the distance.

use std::collections::BTreeMap;

use super::{Choice, Reason, Search, Settings};
use crate::generator::Generator;
use crate::measurement::{Measured, Objective};
use crate::space::{KNOBS, Space};

/// Learning rate, discount, and the part of steps that are random.
const RATE: f64 = 0.5;
const DISCOUNT: f64 = 0.8;
const EXPLORE: f64 = 0.2;
/// Steps in all knobs together within which RRL updates.
const RADIUS: usize = 2;
/// Steps over configurations that were tried, after which the walk goes on from one that was not.
const KNOWN_MAX: usize = 100;
/// Number of actions: up and down in each knob.
const ACTIONS: usize = 2 * KNOBS;

/// Values of actions in states.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    values: BTreeMap<usize, [f64; ACTIONS]>,
}

impl Table {
    fn of(&self, state: usize) -> [f64; ACTIONS] {
        self.values.get(&state).copied().unwrap_or_default()
    }

    /// Moves the value of an action towards a target, by a part of the difference.
    fn update(&mut self, state: usize, action: usize, target: f64, part: f64) {
        if let Some(value) = self.values.entry(state).or_default().get_mut(action) {
            *value += part * (target - *value);
        }
    }

    /// What is gained by a step: the reward and the discounted value of the best action after it.
    fn target(&self, reward: f64, to: usize) -> f64 {
        let best = self.of(to).into_iter().fold(f64::NEG_INFINITY, f64::max);
        reward + DISCOUNT * best
    }
}

/// A walk over configurations that learns from its steps.
pub(super) struct QLearning {
    space: Space,
    objective: Objective,
    generator: Generator,
    table: Table,
    /// Place of each state on the knobs.
    places: Vec<[usize; KNOBS]>,
    /// 0: only the state itself is updated.
    radius: usize,
    /// Actions that the walk may take.
    actions: Vec<usize>,
    state: Option<usize>,
    /// The step that is under way: action and state after it.
    step: Option<(usize, usize)>,
    steps: usize,
    /// Best capacity so far.
    best: Option<f64>,
    regions: BTreeMap<usize, Vec<(usize, f64)>>,
}

impl QLearning {
    /// Plain Q-learning.
    pub fn plain(settings: &Settings<'_>) -> Self {
        let generator = Generator::new(settings.seed);
        Self {
            space: settings.space.clone(),
            objective: settings.objective,
            generator,
            table: Table::default(),
            places: (0..settings.space.len()).map(|index| settings.space.place(index)).collect(),
            radius: 0,
            actions: (0..ACTIONS).collect(),
            state: None,
            step: None,
            steps: 0,
            best: None,
            regions: BTreeMap::new(),
        }
    }

    /// With regions.
    pub fn with_regions(settings: &Settings<'_>) -> Self {
        Self { radius: RADIUS, ..Self::plain(settings) }
    }

    /// A walk from a configuration in some knobs only.
    pub fn within(settings: &Settings<'_>, generator: Generator, knobs: &[usize], from: usize) -> Self {
        let actions = (0..ACTIONS).filter(|action| knobs.contains(&(action / 2))).collect();
        Self { generator, actions, state: Some(from), ..Self::plain(settings) }
    }

    /// What a configuration is worth, between -1 and about 1: its capacity as a share of the best, or by how much it misses the objective.
    fn value(&self, index: usize, measured: &Measured) -> f64 {
        let Some(one) = measured.get(index) else { return -1.0 };
        match (self.objective.capacity(&one), self.best) {
            (Some(capacity), Some(best)) => capacity / best,
            _ => (self.objective.slo_us / (2.0 * one.p99_us)).min(1.0) - 1.0,
        }
    }

    /// States within the radius, with their weights.
    fn region(&mut self, state: usize) -> Vec<(usize, f64)> {
        if self.radius == 0 {
            return vec![(state, 1.0)];
        }
        if let Some(known) = self.regions.get(&state) {
            return known.clone();
        }
        let place = self.places.get(state).copied().unwrap_or_default();
        let states = self.places.iter().enumerate().filter_map(|(other, of)| {
            let distance: usize = place.iter().zip(of).map(|(one, other)| one.abs_diff(*other)).sum();
            let weight = 1.0 - distance as f64 / self.radius.saturating_add(1) as f64;
            (weight > 0.0).then_some((other, weight))
        });
        let states: Vec<(usize, f64)> = states.collect();
        self.regions.insert(state, states.clone());
        states
    }

    /// Learns from a step whose outcome is known, and takes it.
    fn learn(&mut self, from: usize, action: usize, to: usize, measured: &Measured) {
        let reward = self.value(to, measured) - self.value(from, measured);
        let target = self.table.target(reward, to);
        for (state, weight) in self.region(from) {
            self.table.update(state, action, target, RATE * weight);
        }
        self.steps = self.steps.saturating_add(1);
        self.state = Some(to);
    }

    /// An action that leads somewhere: mostly the one with the highest value.
    fn action(&mut self, state: usize) -> Option<(usize, usize)> {
        let possible: Vec<(usize, usize)> = self
            .actions
            .iter()
            .filter_map(|action| Some((*action, self.space.step(state, action / 2, action % 2 == 1)?)))
            .collect();
        if self.generator.unit() < EXPLORE {
            return self.generator.pick(&possible);
        }
        let values = self.table.of(state);
        let value = |action: usize| values.get(action).copied().unwrap_or(0.0);
        let best = possible.iter().map(|(action, _)| value(*action)).fold(f64::NEG_INFINITY, f64::max);
        let equal: Vec<(usize, usize)> =
            possible.into_iter().filter(|(action, _)| value(*action) >= best).collect();
        self.generator.pick(&equal)
    }

    fn open(&mut self, measured: &Measured) -> Option<usize> {
        let open: Vec<usize> = (0..self.space.len()).filter(|index| !measured.contains(*index)).collect();
        self.generator.pick(&open)
    }
}

impl Search for QLearning {
    fn next(&mut self, measured: &Measured) -> Choice {
        self.best = measured.best(self.objective).map(|(_, capacity)| capacity);
        for _ in 0..KNOWN_MAX {
            if let Some((action, to)) = self.step.take() {
                if !measured.contains(to) {
                    self.step = Some((action, to));
                    return Choice::Try(to);
                }
                if let Some(from) = self.state {
                    self.learn(from, action, to, measured);
                }
            }
            let Some(state) = self.state else { break };
            if !measured.contains(state) {
                return Choice::Try(state);
            }
            self.step = self.action(state);
            if self.step.is_none() {
                break;
            }
        }
        // At the beginning, and where all around was tried.
        let Some(open) = self.open(measured) else { return Choice::Stop(Reason::Exhausted) };
        (self.state, self.step) = (Some(open), None);
        Choice::Try(open)
    }

    fn steps(&self) -> Option<usize> {
        Some(self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Measurement;
    use crate::space::{BATCHES, Engine};

    fn settings(space: &Space) -> Settings<'_> {
        Settings { space, objective: Objective { slo_us: 20.0 }, seed: 1, others: &[] }
    }

    fn result(p99_us: f64, rows_per_s: f64) -> Option<Measurement> {
        Some(Measurement { p99_us, rows_per_s })
    }

    #[test]
    fn a_step_moves_the_value_of_its_action_towards_reward_and_what_follows() {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        let mut search = QLearning::plain(&settings(&space));
        let mut measured = Measured::default();
        measured.add(4, result(5.0, 50.0));
        measured.add(5, result(6.0, 100.0));
        // Capacity 100 instead of 50, of at most 100: half of the best.
        search.table.update(5, 3, 0.4, 1.0);
        search.best = Some(100.0);
        search.learn(4, 11, 5, &measured);
        let wanted = RATE * (0.5 + DISCOUNT * 0.4);
        assert!((search.table.of(4)[11] - wanted).abs() < 1e-12, "{:?}", search.table);
        assert_eq!((search.state, search.steps()), (Some(5), Some(1)));
        assert_eq!(search.table.values.len(), 2, "no other state is touched");
    }

    #[test]
    fn a_region_is_updated_with_weights_that_fall_with_the_distance() {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        let mut search = QLearning::with_regions(&settings(&space));
        let mut measured = Measured::default();
        measured.add(4, result(5.0, 50.0));
        measured.add(5, result(6.0, 100.0));
        search.best = Some(100.0);
        search.learn(4, 11, 5, &measured);
        let value = |state: usize| search.table.of(state)[11];
        assert!((value(4) - RATE * 0.5).abs() < 1e-12);
        assert!((value(3) - RATE * 0.5 * 2.0 / 3.0).abs() < 1e-12, "one step away");
        assert!((value(6) - RATE * 0.5 / 3.0).abs() < 1e-12, "two steps away");
        assert_eq!(value(7), 0.0);
    }

    #[test]
    fn what_misses_the_objective_is_worth_less_the_more_it_misses() {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        let search = QLearning::plain(&settings(&space));
        let mut measured = Measured::default();
        measured.add(0, result(20.0, 50.0));
        measured.add(1, result(40.0, 50.0));
        measured.add(2, None);
        assert_eq!([0, 1, 2].map(|index| search.value(index, &measured)), [-0.5, -0.75, -1.0]);
    }
}
