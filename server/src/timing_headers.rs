//! Response headers with the timing of a request, the same over HTTP and gRPC.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::service::Timing;

const QUEUE_US: HeaderName = HeaderName::from_static("x-tessera-queue-us");
const BATCH_WAIT_US: HeaderName = HeaderName::from_static("x-tessera-batch-wait-us");
const COMPUTE_US: HeaderName = HeaderName::from_static("x-tessera-compute-us");
const BATCH_ROWS: HeaderName = HeaderName::from_static("x-tessera-batch-rows");

/// Adds the timings, in whole microseconds, and the rows of the batch.
pub fn insert(headers: &mut HeaderMap, timing: &Timing) {
    let micros = |span: Duration| HeaderValue::from(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    headers.insert(QUEUE_US, micros(timing.queue));
    headers.insert(BATCH_WAIT_US, micros(timing.batch_wait));
    headers.insert(COMPUTE_US, micros(timing.compute));
    headers.insert(BATCH_ROWS, HeaderValue::from(timing.batch_rows));
}
