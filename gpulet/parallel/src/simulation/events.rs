//! The detailed simulator: events in order of time, with the time of HTTP, dispatch and runtime.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::f64::consts::TAU;

use invariant::expected;
use rand::RngExt as _;
use rand::SeedableRng as _;

use super::{Outcome, Request, System};
use crate::genetic::Generator;

/// Mean time from a client to the controller, in seconds.
const HTTP_S: f64 = 0.0025;
/// Mean time from the controller to a group, in seconds.
const DISPATCH_S: f64 = 0.0025;
/// Mean time of the runtime before the first stage, in seconds.
const RUNTIME_S: f64 = 0.005;
/// Standard deviation of these times, in seconds.
const SPREAD_S: f64 = 0.0005;
/// What a group adds to the predicted end before it compares it with the deadline, in seconds.
const FIXED_S: f64 = 0.004;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// The controller chooses a group.
    Dispatch,
    /// The group accepts or rejects.
    Admit { group: usize },
    /// A stage may start.
    Stage { group: usize, stage: usize },
    /// The request has left the group.
    End { group: usize },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Event {
    at_s: f64,
    /// Events of the same time are in order of their creation.
    order: u64,
    request: usize,
    step: Step,
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_s.total_cmp(&other.at_s).then(self.order.cmp(&other.order))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Run<'a> {
    system: &'a System,
    requests: &'a [Request],
    outcome: Outcome,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    /// Requests that each group has and has not ended.
    queued: Vec<u64>,
    /// When the stages are idle, as groups predict it at admission.
    predicted: Vec<Vec<f64>>,
    /// When the stages are idle in fact.
    clocks: Vec<Vec<f64>>,
    generator: Generator,
}

/// Runs `requests`, which are in order of arrival. A request goes to the group with the fewest requests; the group rejects
/// it if the predicted end, with 4 ms added, is after the deadline. `seed` decides how long dispatch and runtime take.
pub fn events(system: &System, requests: &[Request], seed: u64) -> Outcome {
    let mut run = Run {
        system,
        requests,
        outcome: Outcome::new(system, requests.len()),
        events: BinaryHeap::new(),
        order: 0,
        queued: vec![0; system.groups().len()],
        predicted: system.idle_clocks(),
        clocks: system.idle_clocks(),
        generator: Generator::seed_from_u64(seed),
    };
    for (number, request) in requests.iter().enumerate() {
        let http = run.around(HTTP_S);
        run.schedule(request.at_s + http, number, Step::Dispatch);
    }
    while let Some(Reverse(event)) = run.events.pop() {
        run.handle(event);
    }
    run.outcome
}

impl Run<'_> {
    fn schedule(&mut self, at_s: f64, request: usize, step: Step) {
        self.order += 1;
        self.events.push(Reverse(Event { at_s, order: self.order, request, step }));
    }

    fn handle(&mut self, event: Event) {
        let request = self.requests.get(event.request).copied();
        let Some(request) = expected!(request, "parallel.event_of_unknown_request") else { return };
        let times = |group: usize| self.system.times_s(group, request.model);
        match event.step {
            Step::Dispatch => {
                Outcome::count(&mut self.outcome.offered, request.model);
                let queued = |group: usize| self.queued.get(group).copied().unwrap_or(0);
                let Some(group) =
                    self.system.holders(request.model).iter().copied().min_by_key(|group| queued(*group))
                else {
                    // The placement has no copy of the model: the request counts as offered only.
                    return;
                };
                Outcome::count(&mut self.outcome.dispatched, group);
                Outcome::count(&mut self.queued, group);
                let delay = self.around(DISPATCH_S);
                self.schedule(event.at_s + delay, event.request, Step::Admit { group });
            }
            Step::Admit { group } => {
                let clocks = self.predicted.get_mut(group);
                let Some(clocks) = expected!(clocks, "parallel.group_without_clocks") else { return };
                let mut now = event.at_s;
                let mut reached = Vec::with_capacity(clocks.len());
                for (clock, time) in clocks.iter().zip(times(group)) {
                    now = now.max(*clock) + time;
                    reached.push(now);
                }
                if now + FIXED_S > request.at_s + self.system.objective_s(request.model) {
                    self.leave(group);
                    return;
                }
                for (clock, reached) in clocks.iter_mut().zip(reached) {
                    *clock = reached;
                }
                let delay = self.around(RUNTIME_S);
                self.schedule(event.at_s + delay, event.request, Step::Stage { group, stage: 0 });
            }
            Step::Stage { group, stage } => {
                let time = times(group).get(stage).copied();
                let Some(time) = expected!(time, "parallel.stage_without_time") else { return };
                let last = times(group).len() == stage + 1;
                let clock = self.clocks.get_mut(group).and_then(|clocks| clocks.get_mut(stage));
                let Some(clock) = expected!(clock, "parallel.stage_without_clock") else { return };
                *clock = clock.max(event.at_s) + time;
                let end = *clock;
                let next = if last { Step::End { group } } else { Step::Stage { group, stage: stage + 1 } };
                self.schedule(end, event.request, next);
            }
            Step::End { group } => {
                self.leave(group);
                if let Some(end) = self.outcome.ends_s.get_mut(event.request) {
                    *end = Some(event.at_s);
                }
                if event.at_s - request.at_s <= self.system.objective_s(request.model) {
                    Outcome::count(&mut self.outcome.served, request.model);
                }
            }
        }
    }

    fn leave(&mut self, group: usize) {
        if let Some(queued) = self.queued.get_mut(group) {
            *queued = queued.saturating_sub(1);
        }
    }

    /// Normal around a mean (Box and Muller), never negative.
    fn around(&mut self, mean_s: f64) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.generator.random::<f64>()));
        let normal = radius * libm::cos(TAU * self.generator.random::<f64>());
        (mean_s + SPREAD_S * normal).abs()
    }
}
