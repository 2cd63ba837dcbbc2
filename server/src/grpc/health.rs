//! The standard gRPC health service, which evaluates readiness on every call, so it is never stale.

use std::sync::Arc;
use std::time::Duration;

use node::reason::{Reason, Refusal};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health as HealthApi;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::status;
use crate::front::Front;
use crate::request_id;

/// How soon a watcher sees a change.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// The service that this process offers, besides the process itself (`""`).
const SERVICE: &str = "inference.GRPCInferenceService";

/// Health of the server, of its service, and of models by name.
pub struct Health {
    front: Arc<Front>,
}

impl Health {
    /// Health of a front end.
    pub fn new(front: Arc<Front>) -> Self {
        Self { front }
    }
}

/// `None`: no such service or model.
fn serving(front: &Front, service: &str) -> Option<ServingStatus> {
    let ready = match service {
        "" | SERVICE => front.ready(),
        model => front.model_ready(model, None) || front.service.model(model, None).ok().map(|_| false)?,
    };
    Some(if ready { ServingStatus::Serving } else { ServingStatus::NotServing })
}

fn message(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl HealthApi for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let (metadata, _, message_sent) = request.into_parts();
        let service = message_sent.service;
        let answer = serving(&self.front, &service).map(|status| {
            let mut response = Response::new(message(status));
            if matches!(service.as_str(), "" | SERVICE)
                && let Some(reason) = self.front.not_ready()
            {
                status::explain(response.metadata_mut(), &reason);
            }
            response
        });
        answer.ok_or_else(|| {
            let shown: String = service.chars().take(64).collect();
            let refusal = Refusal::new(
                Reason::UnknownModel,
                format!("unknown service `{shown}`: expected an empty name, `{SERVICE}` or a model's name"),
            );
            status::of(&self.front, &refusal, &request_id::of(metadata.as_ref()))
        })
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let front = Arc::clone(&self.front);
        let (changes, read) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut shown = None;
            let mut ticks = tokio::time::interval(WATCH_INTERVAL);
            loop {
                // The specification wants an unknown service watched as such, for it may appear.
                let now = serving(&front, &service).unwrap_or(ServingStatus::ServiceUnknown);
                if shown != Some(now) {
                    shown = Some(now);
                    if changes.send(Ok(message(now))).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    () = changes.closed() => return,
                    _ = ticks.tick() => {}
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(read)))
    }
}
