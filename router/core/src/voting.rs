//! Votes: several models classify the same row, and the class with the largest sum of weights is the answer.
//!
//! The weight of a model's vote for a class is the model's measured accuracy for this class, and the models that vote follow the
//! accuracy: Cocktail (Gunasekaran et al., NSDI 2022), as released. At first all models vote whose latency is within the objective. At
//! the end of each interval, the model that agreed least with the decisions leaves if accuracy exceeds the target by 2 points and more
//! than `ceil(0.51 n)` of `n` models vote for the decision; the best model that does not vote joins if accuracy is below the target.
//!
//! Weights are millionths and sums whole numbers, so the order of the models never changes a result.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::Nanos;

/// A model leaves only if accuracy exceeds the target by this, in millionths.
const MARGIN: u32 = 20_000;
/// A model leaves only if more than this share of the models, in hundredths and rounded up to whole models, vote for the decision.
const MAJORITY: u64 = 51;

/// How often a model is right, in millionths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voter {
    /// Of all rows.
    pub quality: u32,
    /// Of the rows of a class. Votes for classes that are not in it weigh as much as the quality.
    pub classes: BTreeMap<i64, u32>,
}

impl Voter {
    /// Weight of its vote for a class.
    pub fn weight(&self, class: i64) -> u32 {
        self.classes.get(&class).copied().unwrap_or(self.quality)
    }
}

/// The class that a vote decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The class.
    pub class: i64,
    /// Weight of the votes for it.
    pub weight: u64,
    /// Weight of all votes.
    pub total: u64,
}

impl Decision {
    /// Share of the weight that voted for the class, from 0 to 1; 0 if all weights are 0.
    pub fn share(&self) -> f32 {
        if self.total == 0 { 0.0 } else { (self.weight as f64 / self.total as f64) as f32 }
    }
}

/// Decides on the class of a row. `votes`: each voter with its class. `None`: there are no votes.
///
/// Of classes with equal weight, it takes the one that the voter of the best quality voted for; of equally good voters, the smaller class.
pub fn decide<'a>(votes: impl Iterator<Item = (&'a Voter, i64)>) -> Option<Decision> {
    // Class, weight of its votes, best quality among its voters.
    let mut sums: SmallVec<[(i64, u64, u32); 8]> = SmallVec::new();
    let mut total = 0;
    for (voter, class) in votes {
        let weight = u64::from(voter.weight(class));
        total += weight;
        match sums.iter_mut().find(|(known, ..)| *known == class) {
            Some((_, sum, best)) => (*sum, *best) = (*sum + weight, voter.quality.max(*best)),
            None => sums.push((class, weight, voter.quality)),
        }
    }
    let (class, weight, _) =
        sums.into_iter().max_by_key(|(class, sum, best)| (*sum, *best, Reverse(*class)))?;
    Some(Decision { class, weight, total })
}

/// A model that may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Measured quality, in millionths.
    pub quality: u32,
    /// Time that it takes for a request.
    pub latency: Nanos,
}

/// What the end of an interval changed: places in the list of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This model votes no more.
    Left(usize),
    /// This model votes too.
    Joined(usize),
    /// The models stay.
    Kept,
}

/// Which models vote: Cocktail's dynamic selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    candidates: Vec<Candidate>,
    objective: Nanos,
    target: u32,
    /// Models that vote, and for how many decisions of the interval each voted.
    members: Vec<(usize, u64)>,
    rows: u64,
    right: u64,
}

impl Selection {
    /// All candidates within the objective vote at first. `target`: accuracy of the decisions, in millionths.
    pub fn new(candidates: Vec<Candidate>, objective: Nanos, target: u32) -> Self {
        let within = candidates.iter().enumerate().filter(|(_, one)| one.latency <= objective);
        let members = within.map(|(place, _)| (place, 0)).collect();
        Self { candidates, objective, target, members, rows: 0, right: 0 }
    }

    /// Places of the models that vote, in ascending order.
    pub fn members(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|(place, _)| *place)
    }

    /// Counts a row. `votes`: the classes of the members, in their order. `label`: the right class.
    pub fn observe(&mut self, votes: &[i64], decision: Decision, label: i64) {
        self.rows += 1;
        self.right += u64::from(decision.class == label);
        for ((_, agreed), vote) in self.members.iter_mut().zip(votes) {
            *agreed += u64::from(*vote == decision.class);
        }
    }

    /// Ends an interval. An interval without rows changes nothing.
    pub fn end_interval(&mut self) -> Change {
        let (rows, right) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.right));
        let agreed: u64 = self.members.iter().map(|(_, agreed)| agreed).sum();
        let change = match rows {
            0 => Change::Kept,
            rows => self.change(rows, right, agreed),
        };
        match change {
            Change::Left(place) => self.members.retain(|(member, _)| *member != place),
            Change::Joined(place) => {
                self.members.push((place, 0));
                self.members.sort_unstable();
            }
            Change::Kept => {}
        }
        self.members.iter_mut().for_each(|(_, agreed)| *agreed = 0);
        change
    }

    fn change(&self, rows: u64, right: u64, agreed: u64) -> Change {
        let reaches = |accuracy: u32| right * 1_000_000 >= u64::from(accuracy) * rows;
        let quality = |place: usize| self.candidates.get(place).map_or(0, |one| one.quality);
        let majority = (MAJORITY * self.members.len() as u64).div_ceil(100);
        if reaches(self.target.saturating_add(MARGIN)) && agreed > majority * rows {
            let least =
                self.members.iter().min_by_key(|(place, agreed)| (*agreed, quality(*place), Reverse(*place)));
            return least.map_or(Change::Kept, |(place, _)| Change::Left(*place));
        }
        if reaches(self.target) {
            return Change::Kept;
        }
        let votes = |place: usize| self.members.iter().any(|(member, _)| *member == place);
        let others = self.candidates.iter().enumerate();
        let others = others.filter(|(place, one)| !votes(*place) && one.latency <= self.objective);
        let best = others.max_by_key(|(place, one)| (one.quality, Reverse(one.latency), Reverse(*place)));
        best.map_or(Change::Kept, |(place, _)| Change::Joined(place))
    }
}
