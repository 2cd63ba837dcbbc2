//! `tessera.fleet.v1.NodeSignals`: what a new request would meet on this node, for endpoint pickers and other nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::status;
use crate::fleet::Watching;
use crate::fleet::proto::node_signals_server::NodeSignals;
use crate::fleet::proto::{Signals, WatchRequest};
use crate::front::Front;
use crate::request_id;

/// The signals of a front end.
pub struct SignalsApi {
    front: Arc<Front>,
}

impl SignalsApi {
    /// Answers for this front end.
    pub fn new(front: Arc<Front>) -> Self {
        Self { front }
    }
}

/// What the client reads.
pub struct Messages(Watching);

impl Stream for Messages {
    type Item = Result<Signals, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_recv(context).map(|next| next.map(Ok))
    }
}

#[tonic::async_trait]
impl NodeSignals for SignalsApi {
    type WatchStream = Messages;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Messages>, Status> {
        let asked = request.get_ref();
        match self.front.signals.watch(&asked.node, asked.interval_ms) {
            Ok(watching) => Ok(Response::new(Messages(watching))),
            Err(refusal) => {
                Err(status::of(&self.front, &refusal, &request_id::of(request.metadata().as_ref())))
            }
        }
    }
}
