//! Why a request ended as it did: its entry and the router's decisions, for clients and the access log.

use std::time::Duration;

use crate::reason::Reason;
use jiff::Timestamp;
use router_core::{Decided, Nanos};
use serde::{Deserialize, Serialize};

use super::entry::StageEntry;
use super::{Entry, Outcome, word};

/// A request as JSON. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Explanation {
    /// Id of the request.
    pub id: String,
    /// When its first byte arrived (RFC 3339).
    pub arrived: String,
    /// `http` or `grpc`; `model` if a Python model called it.
    pub transport: String,
    /// Tenant that it belongs to; `other` if it named one that has no table `[tenants.NAME]`.
    #[serde(default)]
    pub tenant: String,
    /// Id of the trace that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Model that it named.
    pub model: String,
    /// Version that took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Priority class, 1 the most urgent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// It ran only on lanes that no other request wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub best_effort: bool,
    /// Rows of its inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// From arrival to deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective_ms: Option<f64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the client was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// From arrival to the end.
    pub total_ms: f64,
    /// Time of each stage, if it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages_ms: Option<Stages>,
    /// What admission expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// The batch that ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    /// The stages that ended, if it is a request of a pipeline or an ensemble.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pipeline: Vec<PipelineStage>,
    /// What would have made it end in time.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub remedies: Vec<String>,
}

/// A stage of a pipeline. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct PipelineStage {
    /// Its name in the pipeline.
    pub stage: String,
    /// The model that ran it.
    pub model: String,
    /// Version of the model.
    pub version: u64,
    /// Rows that it took.
    pub rows: u32,
    /// Requests to the model that the rows were divided into; 0 if it had no rows.
    pub parts: u32,
    /// From the arrival of the request to its start.
    pub started_ms: f64,
    /// In the queue. This and the next two are of the first part.
    pub queue_ms: f64,
    /// From dispatch to the start of the engine.
    pub batch_wait_ms: f64,
    /// In the engine.
    pub compute_ms: f64,
    /// From the arrival of the request to its end.
    pub ended_ms: f64,
    /// Rows of the batch that ran the first part, with those of other requests. `None`: it ran in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_rows: Option<u32>,
    /// Lane that ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u32>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<&StageEntry> for PipelineStage {
    fn from(entry: &StageEntry) -> Self {
        let timing = &entry.timing;
        let ran = timing.batch_rows > 0;
        Self {
            stage: entry.name.to_string(),
            model: entry.model.to_string(),
            version: entry.version,
            rows: entry.rows,
            parts: entry.parts,
            started_ms: ms(entry.started),
            queue_ms: ms(timing.queue),
            batch_wait_ms: ms(timing.batch_wait),
            compute_ms: ms(timing.compute),
            ended_ms: ms(entry.ended),
            batch_rows: ran.then_some(timing.batch_rows),
            lane: ran.then_some(timing.lane),
            reason: entry.reason.map(|reason| reason.label().to_owned()),
        }
    }
}

/// Time of each stage in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Stages {
    /// Reading, decoding, validation.
    pub before_queue: f64,
    /// In the queue.
    pub queue: f64,
    /// From dispatch to the start of the engine.
    pub batch_wait: f64,
    /// In the engine.
    pub compute: f64,
    /// From the end of the engine to the end of the request.
    pub after: f64,
}

/// What admission expected of a request that found all lanes busy.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Admission {
    /// Rows of its queue that would run before it.
    pub rows_before: u64,
    /// Lanes that its model could use.
    pub lanes: u32,
    /// From its arrival to the earliest end.
    pub earliest_end_ms: f64,
    /// The same with one more lane.
    pub earliest_end_with_one_more_lane_ms: f64,
}

/// The batch that ran a request.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Batch {
    /// Its id in this process.
    pub id: u64,
    /// Lane that ran it.
    pub lane: u32,
    /// Why there.
    pub lane_choice: String,
    /// Why then, and with that many rows.
    pub start_reason: String,
    /// Rows in it.
    pub rows: u32,
    /// Rows of the same queue that were left waiting.
    pub rows_left: u32,
    /// Requests dropped so that the others could be answered.
    pub dropped: u32,
    /// Time that it was expected to take.
    pub expected_ms: f64,
    /// Ids of the other requests that ended with it and are still in the log.
    pub companions: Vec<String>,
}

impl Explanation {
    /// `companions` are ids of requests that ended with the same batch.
    pub fn new(
        entry: &Entry,
        tenant: &str,
        decisions: Option<&router_core::Explanation>,
        companions: Vec<String>,
    ) -> Self {
        let ran = entry.timing.batch_rows > 0;
        let forecast = decisions.and_then(|decisions| match decisions.end.decided {
            Decided::End { forecast, arrived, .. } if forecast.end > Nanos::ZERO => {
                let one_more = forecast.wait.0 / (u64::from(forecast.lanes) + 1);
                Some(Admission {
                    rows_before: forecast.rows_before,
                    lanes: forecast.lanes,
                    earliest_end_ms: nanos_ms(forecast.end.since(arrived)),
                    earliest_end_with_one_more_lane_ms: nanos_ms(
                        forecast.end.before(Nanos(one_more)).since(arrived),
                    ),
                })
            }
            _ => None,
        });
        let started = decisions.and_then(|decisions| decisions.start);
        let batch = started.and_then(|record| match record.decided {
            Decided::Dispatch { batch, lane, chosen, rows, left, shed, reason, expected, .. } => {
                Some(Batch {
                    id: batch.0,
                    lane: lane.0,
                    lane_choice: serde_word(&chosen),
                    start_reason: serde_word(&reason),
                    rows,
                    rows_left: left,
                    dropped: shed,
                    expected_ms: nanos_ms(expected),
                    companions,
                })
            }
            Decided::Preempt { .. } | Decided::End { .. } => None,
        });
        let timing = &entry.timing;
        let stages = ran.then(|| Stages {
            before_queue: ms(entry.before_queue),
            queue: ms(timing.queue),
            batch_wait: ms(timing.batch_wait),
            compute: ms(timing.compute),
            after: ms(entry
                .total
                .saturating_sub(entry.before_queue + timing.queue + timing.batch_wait + timing.compute)),
        });
        Self {
            id: entry.id.to_string(),
            arrived: Timestamp::try_from(entry.arrived).unwrap_or_default().to_string(),
            transport: word(entry.transport).to_owned(),
            tenant: tenant.to_owned(),
            trace_id: entry.span.as_ref().map(|span| span.context.trace_id.to_string()),
            model: entry.model.to_string(),
            version: entry.version,
            class: (entry.class > 0).then_some(entry.class),
            best_effort: entry.best_effort,
            rows: (entry.rows > 0).then_some(entry.rows),
            objective_ms: entry.objective.map(ms),
            outcome: entry.outcome,
            reason: entry.reason.map(|reason| reason.label().to_owned()),
            message: (!entry.message.is_empty()).then(|| entry.message.to_string()),
            total_ms: ms(entry.total),
            remedies: remedies(entry, forecast.as_ref()),
            stages_ms: stages,
            admission: forecast,
            batch,
            pipeline: entry.pipeline.iter().map(PipelineStage::from).collect(),
        }
    }

    /// The entry alone, as the access log has it.
    pub fn of_entry(entry: &Entry, tenant: &str) -> Self {
        Self::new(entry, tenant, None, Vec::new())
    }
}

/// What would have made the request end in time.
fn remedies(entry: &Entry, admission: Option<&Admission>) -> Vec<String> {
    let model = &entry.model;
    match (entry.outcome, entry.reason, admission, entry.objective) {
        (Outcome::Late, ..) => {
            vec![format!("an objective of at least {} would have been met", shown(ms(entry.total)))]
        }
        (Outcome::Refused, Some(Reason::DeadlineUnmeetable), Some(admission), Some(objective)) => {
            let (now, more) = (admission.earliest_end_ms, admission.earliest_end_with_one_more_lane_ms);
            let longer = (now > ms(objective))
                .then(|| format!("with an objective of {} or more it would have been admitted", shown(now)));
            let lane = if more <= ms(objective) {
                "with one more lane it would have been admitted".to_owned()
            } else {
                format!(
                    "one more lane would not have been enough: its earliest end would have been {}",
                    shown(more)
                )
            };
            longer.into_iter().chain([lane]).collect()
        }
        (Outcome::Refused, Some(Reason::QueueFull), ..) => {
            vec![format!(
                "a larger `models.{model}.queue_limit`, if its objective leaves time for more to wait"
            )]
        }
        _ => Vec::new(),
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn nanos_ms(time: Nanos) -> f64 {
    ms(Duration::from(time))
}

fn shown(ms: f64) -> String {
    format!("{ms:.1} ms")
}

/// The word that serde gives an enum without fields.
fn serde_word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
