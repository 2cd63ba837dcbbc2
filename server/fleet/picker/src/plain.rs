//! The service for gateways without external processing: `tessera.fleet.v1.Picker`.

use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::actor::{Handle, Held};
use crate::answers::{address, batch_value};
use crate::asked::{self, AnswerStream};
use crate::chooser::Answer;
use crate::demand::Counter;
use crate::pick_request::read;
use crate::proto::fleet::picker_server::Picker;
use crate::proto::fleet::{
    Asks, DemandRequest, DemandResponse, DoneRequest, DoneResponse, Endpoint, PickRequest, PickResponse,
};
use crate::refusal::Refusal;

/// The service.
#[derive(Clone, Debug)]
pub struct Plain {
    /// The task that chooses.
    pub picker: Handle,
    /// What gateways ask for.
    pub demand: Counter,
    /// Number of this picker.
    pub number: u32,
    /// Ends streams of other pickers.
    pub stop: CancellationToken,
}

#[tonic::async_trait]
impl Picker for Plain {
    type AskStream = AnswerStream;

    async fn ask(&self, request: Request<Streaming<Asks>>) -> Result<Response<AnswerStream>, Status> {
        let answers = asked::serve(self.number, self.picker.clone(), request.into_inner(), self.stop.clone());
        Ok(Response::new(answers.await?))
    }

    async fn pick(&self, request: Request<PickRequest>) -> Result<Response<PickResponse>, Status> {
        let request = request.into_inner();
        let asked = read(&request)?;
        self.demand.arrived(asked.model.as_deref(), asked.rows);
        let (answer, held) = self.picker.pick(asked).await;
        match answer {
            Answer::Send { nodes, choice, .. } => {
                let endpoint = |node: &std::sync::Arc<crate::nodes::Endpoint>| Endpoint {
                    node: node.name.clone(),
                    address: address(node, request.grpc).to_owned(),
                };
                let batch = choice.batch().map(|(id, rows)| batch_value(id, rows)).unwrap_or_default();
                let ticket = held.map_or(0, Held::keep);
                Ok(Response::new(PickResponse {
                    endpoints: nodes.iter().map(endpoint).collect(),
                    batch,
                    ticket,
                }))
            }
            Answer::Refuse(reason) => {
                let refusal = Refusal::of(reason, &request.model);
                let code = Code::from_i32(i32::try_from(refusal.grpc).unwrap_or_default());
                let mut status = Status::new(code, refusal.message);
                let reason = tonic::metadata::MetadataValue::from_static(refusal.reason);
                status.metadata_mut().insert("x-tessera-reason", reason);
                Err(status)
            }
        }
    }

    async fn done(&self, request: Request<DoneRequest>) -> Result<Response<DoneResponse>, Status> {
        self.picker.done(request.into_inner().ticket);
        Ok(Response::new(DoneResponse {}))
    }

    async fn demand(&self, _: Request<DemandRequest>) -> Result<Response<DemandResponse>, Status> {
        Ok(Response::new(DemandResponse { models: self.demand.models() }))
    }
}
