//! "What if": the traffic of the server's own last hour through the simulator, as it was and with something changed.

mod traffic;

use std::collections::BTreeMap;
use std::sync::Arc;

use models::TimeSpan;
use node::Node;
use node::activity::Activity;
use node::reason::{Reason, Refusal};
use router_core::batch::{BatchOptions, Policy};
use serde::{Deserialize, Serialize};
use sim::{Report, Setup, Simulation};
use tokio::sync::Semaphore;
use workload::Workload;

pub use traffic::Traffic;

/// Bounds of a question.
const LOAD_MAX: f64 = 20.0;
const LANES_MAX: u32 = 1_024;
/// Events of one simulation. More would take longer than a person waits.
const EVENTS_MAX: u64 = 20_000_000;

/// What is to be different. What is left out stays as it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Question {
    /// Requests, as a multiple of those that came.
    load: Option<f64>,
    /// Number of lanes.
    lanes: Option<u32>,
    /// Batching policy of all models.
    policy: Option<String>,
    /// Objectives by model.
    objectives: BTreeMap<String, TimeSpan>,
}

/// The simulated hour, twice.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// Seconds of traffic that were simulated: the last ones that the server remembers, an hour at most.
    seconds: u64,
    /// Requests that came in that time.
    requests: u64,
    /// What the simulation leaves out.
    notes: Vec<String>,
    /// As the server is now.
    as_it_is: Outcome,
    /// As the question says.
    changed: Outcome,
    /// Models with requests in that time.
    models: Vec<ModelAnswer>,
}

/// How all requests of a simulation ended.
#[derive(Debug, Serialize)]
struct Outcome {
    lanes: u32,
    policy: String,
    /// Requests a second.
    rate: f64,
    /// Part of the requests that was answered in time.
    attainment: f64,
    /// Part of the time of the lanes in which they worked.
    busy: f64,
    /// Latency in milliseconds that 99 % of the answered requests keep.
    p99_ms: Option<f64>,
}

/// One model.
#[derive(Debug, Serialize)]
struct ModelAnswer {
    name: String,
    /// Part of the real requests that was answered in time.
    measured: Option<f64>,
    as_it_is: ModelOutcome,
    changed: ModelOutcome,
}

#[derive(Debug, Serialize)]
struct ModelOutcome {
    attainment: f64,
    p99_ms: Option<f64>,
    objective_ms: f64,
}

/// Runs simulations, one at a time.
#[derive(Debug)]
pub struct WhatIf {
    running: Arc<Semaphore>,
}

impl Default for WhatIf {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(1)) }
    }
}

impl WhatIf {
    /// Answers a question. The simulation runs at background priority, so that requests keep the cores.
    ///
    /// # Errors
    /// The question cannot be asked, there was no traffic, or another simulation runs.
    pub async fn ask(&self, activity: &Activity, node: &Node, question: Question) -> Result<Answer, Refusal> {
        question.check()?;
        let permit = Arc::clone(&self.running).try_acquire_owned().map_err(|_| {
            Refusal::new(Reason::QueueFull, "another what-if is being simulated: ask again when it is done")
        })?;
        let traffic = Traffic::of(activity, node)?;
        let (send, answer) = tokio::sync::oneshot::channel();
        let work = move || {
            if let Err(error) = models::enter_background() {
                tracing::warn!(%error, "a what-if competes with requests for the cores");
            }
            let answer = answer_of(&traffic, &question);
            // Before the answer, because its asker may ask again at once, and this thread waits for whatever else runs.
            drop(permit);
            // The asker may have left.
            let _ = send.send(answer);
        };
        let failed =
            |error: std::io::Error| Refusal::new(Reason::Internal, format!("cannot start a thread: {error}"));
        std::thread::Builder::new().name("what-if".to_owned()).spawn(work).map_err(failed)?;
        let lost = |_| Refusal::new(Reason::Internal, "the simulation ended early");
        answer.await.map_err(lost)?
    }
}

impl Question {
    fn check(&self) -> Result<(), Refusal> {
        let wrong = |message: String| Err(Refusal::new(Reason::Malformed, message));
        if let Some(load) = self.load.filter(|load| !(*load > 0.0 && *load <= LOAD_MAX)) {
            return wrong(format!("load: expected more than 0 and at most {LOAD_MAX}, got {load}"));
        }
        if let Some(lanes) = self.lanes.filter(|lanes| !(1..=LANES_MAX).contains(lanes)) {
            return wrong(format!("lanes: expected 1 to {LANES_MAX}, got {lanes}"));
        }
        let known: Vec<&str> = Policy::ALL.iter().map(|(name, _)| *name).collect();
        match &self.policy {
            Some(policy) if !known.contains(&policy.as_str()) => {
                wrong(format!("policy: expected one of {}, got `{policy}`", known.join(", ")))
            }
            _ => Ok(()),
        }
    }
}

fn answer_of(traffic: &Traffic, question: &Question) -> Result<Answer, Refusal> {
    let unknown = question.objectives.keys().find(|name| !traffic.has(name));
    if let Some(name) = unknown {
        let message = format!("objectives.{name}: expected a model with requests in the last hour");
        return Err(Refusal::new(Reason::Malformed, message));
    }
    let run = |load: f64, lanes: u32, policy: &str, objectives: &BTreeMap<String, TimeSpan>| {
        let workload = traffic.workload(lanes, objectives).map_err(|fault| {
            let of = |name: &&String| fault.field == format!("models.{name}.slo");
            match objectives.keys().find(of) {
                Some(name) => {
                    Refusal::new(Reason::Malformed, format!("objectives.{name}: {}", fault.problem))
                }
                None => malformed(fault),
            }
        })?;
        let workload = if load == 1.0 { workload } else { workload.scaled(load).map_err(malformed)? };
        simulate(&workload, policy, &traffic.batching)
    };
    let policy = question.policy.as_deref().unwrap_or(&traffic.policy);
    let lanes = question.lanes.unwrap_or(traffic.lanes);
    let before = run(1.0, traffic.lanes, &traffic.policy, &BTreeMap::new())?;
    let after = run(question.load.unwrap_or(1.0), lanes, policy, &question.objectives)?;
    let mut notes = traffic.notes.clone();
    for (report, what) in [(&before, "as it is"), (&after, "changed")] {
        if let Some(stopped) = report.stopped {
            notes.push(format!("{what}: stopped after {:.0} s, at the bound on events", stopped.at_s));
        }
    }
    let models = before.models.iter().zip(&after.models).map(|(before, after)| ModelAnswer {
        name: before.name.clone(),
        measured: traffic.measured(&before.name),
        as_it_is: outcome_of_model(before),
        changed: outcome_of_model(after),
    });
    Ok(Answer {
        seconds: traffic.seconds,
        requests: traffic.requests,
        notes,
        models: models.collect(),
        as_it_is: outcome(&before),
        changed: outcome(&after),
    })
}

fn malformed(fault: units::Fault) -> Refusal {
    Refusal::new(Reason::Malformed, format!("what-if: {fault}"))
}

fn simulate(workload: &Workload, policy: &str, batching: &BatchOptions) -> Result<Report, Refusal> {
    let failed = |reason: String| Refusal::new(Reason::Internal, format!("what-if: {reason}"));
    let setup = Setup::named(policy, batching).map_err(|error| failed(error.to_string()))?;
    let setup = Setup { max_events: EVENTS_MAX, margin: node::MARGIN, ..setup };
    let simulation = Simulation::new(workload, &setup).map_err(|error| failed(error.to_string()))?;
    simulation.run(&mut |_| {}).map_err(|error| failed(error.to_string()))
}

fn outcome(report: &Report) -> Outcome {
    Outcome {
        lanes: report.lanes,
        policy: report.policy.clone(),
        rate: report.offered_rate,
        attainment: report.attainment,
        busy: report.lane_busy,
        p99_ms: report.latency_ms.map(|latency| latency.p99),
    }
}

fn outcome_of_model(model: &sim::report::ModelFigures) -> ModelOutcome {
    ModelOutcome { attainment: model.attainment, p99_ms: model.p99_ms, objective_ms: model.slo_ms }
}
