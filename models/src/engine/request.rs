//! Requests as a session gets them that takes the requests of a batch one by one, and its responses.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oip::{Parameters, Tensor};

use super::RunError;

/// One request of a batch.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// One tensor per input of the model's signature.
    pub inputs: Vec<Option<Tensor>>,
    /// Rows along dimension 0; 1 if the model has no batch dimension.
    pub rows: u32,
    /// What the request says besides its tensors. None where the session does not
    /// [take requests](super::Session::takes_requests), and for sample inputs.
    pub details: Option<Arc<RequestDetails>>,
}

impl Member {
    /// A request that is nothing but tensors.
    pub fn of(inputs: Vec<Option<Tensor>>, rows: u32) -> Self {
        Self { inputs, rows, details: None }
    }
}

/// What a request says besides its tensors.
#[derive(Debug, Default)]
pub struct RequestDetails {
    /// The client's id; empty if it gave none.
    pub id: String,
    /// Request parameters.
    pub parameters: Parameters,
    /// Names of the requested outputs. `None`: all.
    pub outputs: Option<Vec<String>>,
    /// The request's own timeout in microseconds; 0: none.
    pub timeout_us: u64,
    /// Set when the client stops waiting.
    pub cancelled: Cancelled,
    /// Where the responses of a [decoupled](super::Session::decoupled) model go. None: the request wants one response,
    /// which `run_requests` returns.
    pub responses: Option<Arc<dyn ResponseSink>>,
}

/// Whether a client has stopped waiting. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    /// Sets the flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One response to a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// Outputs. From a session that takes requests, any of the signature's, in any order.
    pub outputs: Vec<Tensor>,
    /// Response parameters.
    pub parameters: Parameters,
}

impl From<Vec<Tensor>> for Response {
    fn from(outputs: Vec<Tensor>) -> Self {
        Self { outputs, parameters: Parameters::new() }
    }
}

/// One of the responses of a decoupled model to a request.
pub struct StreamedResponse {
    /// The response, or the error in its place. `None`: only the end is told.
    pub response: Option<Result<Response, RunError>>,
    /// Whether it is the last one.
    pub last: bool,
    /// Dropped when the client has taken the response, so that the model may send a further one.
    pub credit: Option<Box<dyn Send + Sync>>,
}

impl fmt::Debug for StreamedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedResponse")
            .field("response", &self.response)
            .field("last", &self.last)
            .finish()
    }
}

/// Receives the responses to one request. Its capacity is bounded, and no call blocks.
pub trait ResponseSink: Send + Sync + fmt::Debug {
    /// Hands over the next response. Those after the last one are dropped.
    ///
    /// # Errors
    /// If no further response is taken: more wait than the sink holds, or the client has left.
    fn send(&self, response: StreamedResponse) -> Result<(), SinkClosed>;
}

/// The sink takes no further responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client has left, or too many responses wait for it")]
pub struct SinkClosed;

/// The other sessions of a lane, as a session reaches them that calls other models. The lane is busy with the caller, so
/// such a call cannot wait for the lane.
pub trait Colocated {
    /// Runs a request on the lane's session of a model, by the number that the lane knows it by. `None`: the lane has no
    /// session of it, or the session is running.
    fn run(&mut self, model: u32, member: &Member) -> Option<Result<Response, RunError>>;
}

/// No other sessions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Colocated for Alone {
    fn run(&mut self, _: u32, _: &Member) -> Option<Result<Response, RunError>> {
        None
    }
}
