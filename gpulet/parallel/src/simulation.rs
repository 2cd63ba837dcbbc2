//! AlpaServe's queueing model in virtual time (OSDI 2023, and the authors' simulator).
//!
//! A group of devices is a pipeline. A request passes its stages one after the other and occupies a stage from the moment
//! when both it and the stage are ready. Requests are served in the order of arrival, without batches. A request whose
//! predicted end is after its deadline is rejected at once.
//!
//! [`stage_clocks`] is the fast simulator with which placements are searched, [`events`] the detailed one with the time of
//! dispatch and of the runtime.

mod events;
mod report;

pub use events::events;
pub use report::{Report, Window};

use crate::error::ParallelError;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Arrival, in seconds from the start.
    pub at_s: f64,
    /// Number of its model.
    pub model: usize,
}

/// A group of devices that runs a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Seconds that a request of each model takes in each stage, by number of the model. `None`: the group does not hold it.
    pub times_s: Vec<Option<Vec<f64>>>,
}

/// Groups and the objectives of the models that they serve.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    groups: Vec<Pipeline>,
    objectives_s: Vec<f64>,
    /// Groups that hold each model.
    holders: Vec<Vec<usize>>,
    /// Stages of each group.
    stages: Vec<usize>,
}

impl System {
    /// Groups with their objectives: seconds from arrival to the end, by number of the model. Infinite: no deadline.
    pub fn new(groups: Vec<Pipeline>, objectives_s: Vec<f64>) -> Result<Self, ParallelError> {
        for (model, objective) in objectives_s.iter().enumerate() {
            if objective.is_nan() || *objective <= 0.0 {
                let field = format!("objectives_s.{model}");
                return Err(ParallelError::invalid(field, "a number above 0", objective));
            }
        }
        let mut holders = vec![Vec::new(); objectives_s.len()];
        let mut stages = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let field = |model: usize| format!("groups.{number}.times_s.{model}");
            let mut most = 0;
            for (model, times) in group.times_s.iter().enumerate() {
                let Some(times) = times else { continue };
                if times.is_empty() || times.iter().any(|time| !time.is_finite() || *time < 0.0) {
                    return Err(ParallelError::invalid(
                        field(model),
                        "seconds of at least one stage",
                        format!("{times:?}"),
                    ));
                }
                let Some(holder) = holders.get_mut(model) else {
                    let expected = format!("a model below {}", objectives_s.len());
                    return Err(ParallelError::invalid(field(model), expected, model));
                };
                holder.push(number);
                most = most.max(times.len());
            }
            stages.push(most);
        }
        Ok(Self { groups, objectives_s, holders, stages })
    }

    /// Number of models.
    pub fn models(&self) -> usize {
        self.objectives_s.len()
    }

    /// The groups.
    pub fn groups(&self) -> &[Pipeline] {
        &self.groups
    }

    fn times_s(&self, group: usize, model: usize) -> &[f64] {
        let times = self.groups.get(group).and_then(|group| group.times_s.get(model));
        times.and_then(Option::as_deref).unwrap_or_default()
    }

    fn objective_s(&self, model: usize) -> f64 {
        self.objectives_s.get(model).copied().unwrap_or(0.0)
    }

    fn holders(&self, model: usize) -> &[usize] {
        self.holders.get(model).map_or(&[], Vec::as_slice)
    }

    /// When each stage of each group has nothing to do; zero at the start.
    fn idle_clocks(&self) -> Vec<Vec<f64>> {
        self.stages.iter().map(|stages| vec![0.0; *stages]).collect()
    }
}

/// What became of the requests of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Seconds from the start to the end of each request. `None`: rejected.
    pub ends_s: Vec<Option<f64>>,
    /// Requests sent to each group, with those that it rejected.
    pub dispatched: Vec<u64>,
    /// Requests of each model.
    pub offered: Vec<u64>,
    /// Requests of each model that ended within the objective.
    pub served: Vec<u64>,
}

impl Outcome {
    fn new(system: &System, requests: usize) -> Self {
        let (groups, models) = (system.groups.len(), system.models());
        let (offered, served) = (vec![0; models], vec![0; models]);
        Self { ends_s: vec![None; requests], dispatched: vec![0; groups], offered, served }
    }

    fn count(counts: &mut [u64], place: usize) {
        if let Some(count) = counts.get_mut(place) {
            *count += 1;
        }
    }
}

/// Runs `requests`, which are in order of arrival. A request goes to the group whose last stage is idle first;
/// `fixed_s` seconds, the same for every request, are added to its end (0.011 in the authors' simulator).
pub fn stage_clocks(system: &System, requests: &[Request], fixed_s: f64) -> Outcome {
    let mut outcome = Outcome::new(system, requests.len());
    let mut clocks = system.idle_clocks();
    let mut reached = Vec::new();
    for (request, end) in requests.iter().zip(0..) {
        Outcome::count(&mut outcome.offered, request.model);
        let free = |group: usize| clocks.get(group).and_then(|clocks| clocks.last()).copied().unwrap_or(0.0);
        let earliest = system
            .holders(request.model)
            .iter()
            .copied()
            .min_by(|one, other| free(*one).total_cmp(&free(*other)));
        let Some(group) = earliest else { continue };
        Outcome::count(&mut outcome.dispatched, group);
        let Some(clocks) = clocks.get_mut(group) else { continue };
        reached.clear();
        let mut now = request.at_s;
        for (clock, time) in clocks.iter().zip(system.times_s(group, request.model)) {
            now = now.max(*clock) + time;
            reached.push(now);
        }
        now += fixed_s;
        if now - request.at_s <= system.objective_s(request.model) {
            for (clock, reached) in clocks.iter_mut().zip(&reached) {
                *clock = *reached;
            }
            if let Some(end) = outcome.ends_s.get_mut::<usize>(end) {
                *end = Some(now);
            }
            Outcome::count(&mut outcome.served, request.model);
        }
    }
    outcome
}
