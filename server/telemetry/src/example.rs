//! Requests for tests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::context::TraceContext;
use crate::ids::IdSource;
use crate::request::{Batch, BatchId, Outcome, PipelineStage, Request, Stages, Transport};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When the requests arrive.
pub(crate) fn arrival() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

/// A request that was answered after 20 ms, in batch 7.
pub(crate) fn request(ids: &IdSource) -> Request {
    Request {
        context: TraceContext::new(ids),
        parent: None,
        id: "r-1".into(),
        model: "resnet".into(),
        version: Some(3),
        tenant: "default".into(),
        class: 1,
        rows: 2,
        transport: Transport::Http,
        outcome: Outcome::InTime,
        reason: None,
        message: Box::default(),
        arrived: arrival(),
        stages: Stages {
            before_queue: millis(1),
            queued: millis(5),
            batch_wait: millis(2),
            executed: millis(10),
            total: millis(20),
        },
        objective: Some(millis(50)),
        batch: Some(Batch {
            id: BatchId(7),
            lane: 4,
            rows: 8,
            started: arrival() + millis(8),
            ended: arrival() + millis(18),
        }),
        pipeline: Vec::new(),
    }
}

/// A request of a pipeline with two stages, of which the second failed.
pub(crate) fn pipeline(ids: &IdSource) -> Request {
    let stage = |name: &str, started: u64, ended: u64| PipelineStage {
        name: name.into(),
        model: name.into(),
        version: 1,
        rows: 2,
        started: millis(started),
        queued: millis(1),
        executed: millis(ended - started - 1),
        ended: millis(ended),
        batch: Some(BatchId(started)),
        reason: None,
    };
    let failed = PipelineStage { reason: Some("engine_failed"), ..stage("rec", 8, 18) };
    Request {
        outcome: Outcome::Failed,
        reason: Some("engine_failed"),
        batch: None,
        pipeline: vec![stage("det", 1, 8), failed],
        ..request(ids)
    }
}

/// A request that was refused after 1 ms.
pub(crate) fn refused(ids: &IdSource) -> Request {
    Request {
        outcome: Outcome::Refused,
        reason: Some("queue_full"),
        message: "the queue is full".into(),
        stages: Stages { total: millis(1), ..Stages::default() },
        batch: None,
        ..request(ids)
    }
}
