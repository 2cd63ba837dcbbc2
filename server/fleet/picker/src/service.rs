//! The picker as a service: listens, chooses and stops.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fleet_core::pick::SettingsError;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

pub use crate::chooser::Options;
pub use crate::follow::Key;
pub use crate::measures::HOLD_SECONDS;

use crate::actor;
use crate::chooser::Chooser;
use crate::demand::Counter;
use crate::ext_proc::Processor;
use crate::follow;
use crate::nodes::Members;
use crate::peers::{self, Peers};
use crate::plain::Plain;
use crate::proto::ext_proc::external_processor_server::ExternalProcessorServer;
use crate::proto::fleet::picker_server::PickerServer;

/// Time between two messages of a node.
const INTERVAL: Duration = Duration::from_millis(100);
/// Streams of one connection at most. Each request of a gateway is a stream.
const STREAMS_MAX: u32 = 16_384;
/// Streams that a gateway may reset before they are looked at: clients that leave at once.
const RESETS_MAX: usize = 1_024;
/// A silent connection is probed after this time.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// Largest message, which is the headers of a request.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Time that requests may wait after the signal to stop. Then they go to any node.
const HOLD_AFTER_STOP: Duration = Duration::from_secs(2);
/// Time for gateways to take the last answers.
const CLOSE_AFTER: Duration = Duration::from_secs(3);

/// Why a picker does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A setting is out of range.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// The system refuses a timer.
    #[error("timer: {0}")]
    Timer(#[from] io::Error),
    /// Connections cannot be served.
    #[error("connections cannot be served: {0}")]
    Serve(#[from] tonic::transport::Error),
    /// The task that chooses ended.
    #[error("the task that chooses ended")]
    Ended,
}

/// Runs a picker until it is told to stop. `is_ready` says whether gateways should use it.
///
/// # Errors
/// It cannot start or go on.
pub async fn run(
    listener: TcpListener,
    options: Options,
    (mut members, peers): (watch::Receiver<Members>, watch::Receiver<Peers>),
    key: Key,
    is_ready: Arc<AtomicBool>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let number = options.picker.number;
    let (picker, mut task) = actor::start(Chooser::new(options)?)?;
    let following = [
        tokio::spawn(follow::run(members.clone(), picker.clone(), key, INTERVAL)),
        tokio::spawn(peers::run(number, peers, picker.clone())),
    ]
    .map(AbortOnDrop);
    let demand = Counter::start();
    let processor = Processor { picker: picker.clone(), demand: demand.clone(), stop: stop.clone() };
    let processor = ExternalProcessorServer::new(processor).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let plain = Plain { picker: picker.clone(), demand, number, stop: stop.clone() };
    let plain = PickerServer::new(plain).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
        .http2_keepalive_interval(Some(PROBE_AFTER))
        .add_service(processor)
        .add_service(plain)
        .serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
    let readiness = {
        let (stop, is_ready) = (stop.clone(), Arc::clone(&is_ready));
        async move {
            if members.wait_for(|members| members.is_known).await.is_ok() {
                is_ready.store(true, Ordering::Release);
            }
            stop.cancelled().await;
            is_ready.store(false, Ordering::Release);
            tokio::time::sleep(HOLD_AFTER_STOP).await;
            picker.release();
            tokio::time::sleep(CLOSE_AFTER).await;
        }
    };
    tokio::select! {
        served = serving => served?,
        () = readiness => tracing::warn!("some gateways did not take their last answers"),
        ended = &mut task => {
            let error = ended.map_err(|_| ServeError::Ended).and_then(|ended| Ok(ended?));
            return error.and(Err(ServeError::Ended));
        }
    }
    drop(following);
    Ok(())
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
