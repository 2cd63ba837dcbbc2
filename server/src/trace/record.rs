//! What is written of one request.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::settings::Target;

/// Stages that a trace has at most.
pub(super) const STAGES_MAX: usize = 12;

macro_rules! stages {
    ($($stage:ident $name:literal $about:literal;)+) => {
        /// A moment in the life of a request, under Triton's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Stage { $(#[doc = $about] $stage),+ }

        impl Stage {
            /// Triton's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$stage => $name),+ }
            }
        }
    };
}

stages! {
    HttpRecvStart "HTTP_RECV_START" "The headers of the request were read.";
    HttpRecvEnd "HTTP_RECV_END" "The body was read.";
    GrpcReadStart "GRPC_WAITREAD_START" "The headers of the call, or a message of a stream, were read.";
    GrpcReadEnd "GRPC_WAITREAD_END" "The message was decoded.";
    RequestStart "REQUEST_START" "The request reached its model.";
    QueueStart "QUEUE_START" "The router took the request.";
    ComputeStart "COMPUTE_START" "The batch was given to a lane.";
    ComputeInputEnd "COMPUTE_INPUT_END" "The engine started, with the rows of the batch gathered.";
    ComputeOutputStart "COMPUTE_OUTPUT_START" "The engine ended.";
    ComputeEnd "COMPUTE_END" "The outputs were back at the router.";
    RequestEnd "REQUEST_END" "The response, or the error, was there.";
    HttpSendStart "HTTP_SEND_START" "The response was encoded.";
    HttpSendEnd "HTTP_SEND_END" "The transport took the last byte of the response.";
    GrpcSendStart "GRPC_SEND_START" "The response was encoded.";
    GrpcSendEnd "GRPC_SEND_END" "The transport took the last byte of the response.";
}

/// Translates instants to nanoseconds of the monotonic clock, which Triton's traces contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    at: Instant,
    ns: u64,
}

impl Origin {
    /// Reads both clocks.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
        Self { at: Instant::now(), ns: seconds.saturating_mul(1_000_000_000).saturating_add(nanos) }
    }

    /// An instant in nanoseconds.
    pub fn ns(&self, at: Instant) -> u64 {
        let since = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        match at.checked_duration_since(self.at) {
            Some(after) => self.ns.saturating_add(since(after)),
            None => self.ns.saturating_sub(since(self.at.saturating_duration_since(at))),
        }
    }
}

/// What is written of one request.
#[derive(Debug)]
pub(super) struct Record {
    pub id: u64,
    pub target: Target,
    pub model: String,
    pub version: u64,
    pub request_id: String,
    pub timestamps: Vec<(Stage, u64)>,
}

impl Record {
    /// The trace as Triton writes it: one object for the request, and one with its timestamps. No brackets around them.
    pub fn json(&self) -> String {
        let mut about = json!({"id": self.id, "model_name": self.model, "model_version": self.version});
        if !self.request_id.is_empty()
            && let Some(about) = about.as_object_mut()
        {
            about.insert("request_id".to_owned(), Value::from(self.request_id.as_str()));
        }
        let timestamps: Vec<Value> =
            self.timestamps.iter().map(|(stage, ns)| json!({"name": stage.name(), "ns": ns})).collect();
        format!("{about},{}", json!({"id": self.id, "timestamps": timestamps}))
    }
}
