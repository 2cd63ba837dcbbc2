//! Requests to the API server, each bounded in time.

use std::error::Error;
use std::time::Duration;

use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::ExponentialBackoff;
use thiserror::Error;
use tokio::time::timeout;

/// Time in which the API server replies to one request.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A request that failed.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The API server refused it, or cannot be reached.
    #[error("{}", chain(&**.0))]
    Failed(#[from] Box<kube::Error>),
    /// No reply came in time.
    #[error("the API server did not reply within {0:?}")]
    TimedOut(Duration),
}

impl RequestError {
    /// Status code of the API server's refusal, if it replied.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Failed(error) => match &**error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::TimedOut(_) => None,
        }
    }
}

/// An error with its causes, each once.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// Waits for a reply, but not for ever.
///
/// # Errors
/// The request failed or took too long.
pub async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, RequestError> {
    match timeout(limit, request).await {
        Ok(reply) => reply.map_err(|error| RequestError::Failed(Box::new(error))),
        Err(_) => Err(RequestError::TimedOut(limit)),
    }
}

/// Time between attempts to watch: 0.5 s to 5 s, plus as much again at most. Random parts keep the nodes of a fleet from returning at the same moment.
#[must_use]
pub fn watch_backoff() -> impl Backoff {
    let growing = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(5))
        .without_max_times()
        .with_jitter();
    ResetTimerBackoff::new(ExponentialBackoff::from(growing), Duration::from_secs(60))
}
