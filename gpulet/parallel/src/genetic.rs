//! A genetic search with tournaments and elitism, which the baselines of papers share.

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;

use crate::error::{ParallelError, within};

/// The random generator; its values depend only on the seed.
pub(crate) type Generator = Xoshiro256PlusPlus;

/// How long a genetic search runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Candidates alive at the same time, from 4 to 10,000.
    pub population: usize,
    /// Rounds of selection, from 1 to 100,000.
    pub generations: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { population: 64, generations: 100 }
    }
}

impl Effort {
    pub(crate) fn check(self) -> Result<(), ParallelError> {
        within("effort.population", self.population, 4, 10_000)?;
        within("effort.generations", self.generations, 1, 100_000)
    }
}

/// Candidates of one kind, and how to vary them.
pub(crate) trait Search {
    type Candidate: Clone;

    /// A random candidate.
    fn draw(&mut self, generator: &mut Generator) -> Self::Candidate;
    /// A candidate that takes something from both.
    fn cross(
        &mut self,
        one: &Self::Candidate,
        other: &Self::Candidate,
        generator: &mut Generator,
    ) -> Self::Candidate;
    /// A small random change.
    fn mutate(&mut self, candidate: &mut Self::Candidate, generator: &mut Generator);
    /// The value to minimize. Infinite for what does not fit.
    fn cost(&mut self, candidate: &Self::Candidate) -> f64;
}

/// The best candidate found and its cost. `known` candidates are part of the first population.
pub(crate) fn search<S: Search>(
    space: &mut S,
    known: Vec<S::Candidate>,
    effort: Effort,
    seed: u64,
) -> Option<(S::Candidate, f64)> {
    let mut generator = Generator::seed_from_u64(seed);
    let mut first = known;
    first.truncate(effort.population);
    while first.len() < effort.population {
        first.push(space.draw(&mut generator));
    }
    let mut alive: Vec<(S::Candidate, f64)> = Vec::with_capacity(2 * effort.population);
    for candidate in first {
        let cost = space.cost(&candidate);
        alive.push((candidate, cost));
    }
    for _ in 0..effort.generations {
        for _ in 0..effort.population {
            let (Some(one), Some(other)) =
                (tournament(&alive, &mut generator), tournament(&alive, &mut generator))
            else {
                break;
            };
            let mut child = space.cross(one, other, &mut generator);
            space.mutate(&mut child, &mut generator);
            let cost = space.cost(&child);
            alive.push((child, cost));
        }
        alive.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        alive.truncate(effort.population);
    }
    alive.into_iter().min_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// The best of three random candidates.
fn tournament<'a, C>(alive: &'a [(C, f64)], generator: &mut Generator) -> Option<&'a C> {
    let mut best: Option<&(C, f64)> = None;
    for _ in 0..3 {
        let drawn = alive.get(generator.random_range(0..alive.len().max(1)));
        best = match (best, drawn) {
            (Some(best), Some(drawn)) if best.1 <= drawn.1 => Some(best),
            (_, drawn) => drawn,
        };
    }
    best.map(|(candidate, _)| candidate)
}
