//! Implements the generated trait. Every method is one line that calls the implementation.

use std::sync::Arc;

use identity::{Caller, Role};
use node::reason::{Reason, Refusal};
use oip::proto as pb;
use tonic::{Request, Response, Status, Streaming};

use super::proto::grpc_inference_service_server::GrpcInferenceService;
use super::{control, infer, status, stream};
use crate::audit;
use crate::front::Front;
use crate::request_id;
use crate::settings::CUDA_REFUSED;
use crate::{model_config, model_metadata};

/// The service over a front end.
pub struct Api {
    front: Arc<Front>,
}

impl Api {
    /// Answers for this front end.
    pub fn new(front: Arc<Front>) -> Self {
        Self { front }
    }

    /// Answers with what `act` makes of the message.
    fn answer<Q, A>(
        &self,
        request: &Request<Q>,
        act: impl FnOnce(&Front, &Q) -> Result<A, Refusal>,
    ) -> Result<Response<A>, Status> {
        self.reply(request, act(&self.front, request.get_ref()))
    }

    /// The same for a method whose message changes settings if it has a `change`, the path of the method.
    fn answer_change<Q, A>(
        &self,
        request: &Request<Q>,
        change: Option<&str>,
        act: impl FnOnce(&Front, &Q) -> Result<A, Refusal>,
    ) -> Result<Response<A>, Status> {
        if let Some(path) = change {
            let caller = request.extensions().get::<Caller>();
            if let Err(refusal) = self.front.gate.require(caller, Role::Operate) {
                return self.reply(request, Err(refusal));
            }
            audit::change_requested(caller, path);
        }
        self.answer(request, act)
    }

    fn reply<Q, A>(&self, request: &Request<Q>, answer: Result<A, Refusal>) -> Result<Response<A>, Status> {
        answer.map(Response::new).map_err(|refusal| {
            status::of(&self.front, &refusal, &request_id::of(request.metadata().as_ref()))
        })
    }
}

fn cuda<A>() -> Result<A, Refusal> {
    Err(Refusal::new(Reason::Unsupported, CUDA_REFUSED))
}

type Answer<A> = Result<Response<A>, Status>;

#[tonic::async_trait]
impl GrpcInferenceService for Api {
    async fn server_live(&self, request: Request<pb::ServerLiveRequest>) -> Answer<pb::ServerLiveResponse> {
        self.answer(&request, |front, _| Ok(pb::ServerLiveResponse { live: front.live() }))
    }

    async fn server_ready(
        &self,
        request: Request<pb::ServerReadyRequest>,
    ) -> Answer<pb::ServerReadyResponse> {
        let reason = self.front.not_ready();
        let mut response = self.reply(&request, Ok(pb::ServerReadyResponse { ready: reason.is_none() }))?;
        if let Some(reason) = reason {
            status::explain(response.metadata_mut(), &reason);
        }
        Ok(response)
    }

    async fn model_ready(&self, request: Request<pb::ModelReadyRequest>) -> Answer<pb::ModelReadyResponse> {
        self.answer(&request, |front, asked| {
            Ok(pb::ModelReadyResponse {
                ready: front.model_ready(&asked.name, control::named(&asked.version)),
            })
        })
    }

    async fn server_metadata(
        &self,
        request: Request<pb::ServerMetadataRequest>,
    ) -> Answer<pb::ServerMetadataResponse> {
        self.answer(&request, |front, _| Ok(model_metadata::server(front)))
    }

    async fn model_metadata(
        &self,
        request: Request<pb::ModelMetadataRequest>,
    ) -> Answer<pb::ModelMetadataResponse> {
        self.answer(&request, control::model_metadata)
    }

    async fn model_infer(&self, request: Request<pb::ModelInferRequest>) -> Answer<pb::ModelInferResponse> {
        infer::unary(&self.front, request).await
    }

    type ModelStreamInferStream = stream::Answers;

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<pb::ModelInferRequest>>,
    ) -> Answer<Self::ModelStreamInferStream> {
        Ok(stream::bidirectional(&self.front, request))
    }

    async fn model_config(
        &self,
        request: Request<pb::ModelConfigRequest>,
    ) -> Answer<pb::ModelConfigResponse> {
        self.answer(&request, |front, asked| {
            let view = front.service.model(&asked.name, control::named(&asked.version))?;
            Ok(pb::ModelConfigResponse { config: Some(model_config::model_config(&view)) })
        })
    }

    async fn model_statistics(
        &self,
        request: Request<pb::ModelStatisticsRequest>,
    ) -> Answer<pb::ModelStatisticsResponse> {
        self.answer(&request, |front, asked| {
            let (name, version) = (control::named(&asked.name), control::named(&asked.version));
            Ok(pb::ModelStatisticsResponse { model_stats: front.service.statistics(name, version)? })
        })
    }

    async fn repository_index(
        &self,
        request: Request<pb::RepositoryIndexRequest>,
    ) -> Answer<pb::RepositoryIndexResponse> {
        self.answer(&request, control::index)
    }

    async fn repository_model_load(
        &self,
        request: Request<pb::RepositoryModelLoadRequest>,
    ) -> Answer<pb::RepositoryModelLoadResponse> {
        let answer = control::load(&self.front, request.get_ref()).await;
        self.reply(&request, answer)
    }

    async fn repository_model_unload(
        &self,
        request: Request<pb::RepositoryModelUnloadRequest>,
    ) -> Answer<pb::RepositoryModelUnloadResponse> {
        let answer = control::unload(&self.front, request.get_ref()).await;
        self.reply(&request, answer)
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<pb::SystemSharedMemoryStatusRequest>,
    ) -> Answer<pb::SystemSharedMemoryStatusResponse> {
        self.answer(&request, control::shared_memory_status)
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<pb::SystemSharedMemoryRegisterRequest>,
    ) -> Answer<pb::SystemSharedMemoryRegisterResponse> {
        self.answer(&request, |front, asked| {
            front.shared_memory()?.register(&asked.name, &asked.key, asked.offset, asked.byte_size)?;
            Ok(pb::SystemSharedMemoryRegisterResponse {})
        })
    }

    async fn system_shared_memory_unregister(
        &self,
        request: Request<pb::SystemSharedMemoryUnregisterRequest>,
    ) -> Answer<pb::SystemSharedMemoryUnregisterResponse> {
        self.answer(&request, |front, asked| {
            front.shared_memory()?.unregister(control::named(&asked.name));
            Ok(pb::SystemSharedMemoryUnregisterResponse {})
        })
    }

    async fn cuda_shared_memory_status(
        &self,
        request: Request<pb::CudaSharedMemoryStatusRequest>,
    ) -> Answer<pb::CudaSharedMemoryStatusResponse> {
        self.answer(&request, |_, asked| match control::named(&asked.name) {
            None => Ok(pb::CudaSharedMemoryStatusResponse::default()),
            Some(_) => cuda(),
        })
    }

    async fn cuda_shared_memory_register(
        &self,
        request: Request<pb::CudaSharedMemoryRegisterRequest>,
    ) -> Answer<pb::CudaSharedMemoryRegisterResponse> {
        self.answer(&request, |_, _| cuda())
    }

    async fn cuda_shared_memory_unregister(
        &self,
        request: Request<pb::CudaSharedMemoryUnregisterRequest>,
    ) -> Answer<pb::CudaSharedMemoryUnregisterResponse> {
        // No region is ever registered, so the requested state already holds.
        self.answer(&request, |_, _| Ok(pb::CudaSharedMemoryUnregisterResponse {}))
    }

    async fn trace_setting(
        &self,
        request: Request<pb::TraceSettingRequest>,
    ) -> Answer<pb::TraceSettingResponse> {
        let changes = !request.get_ref().settings.is_empty();
        let change = changes.then_some("/inference.GRPCInferenceService/TraceSetting");
        self.answer_change(&request, change, control::trace_settings)
    }

    async fn log_settings(
        &self,
        request: Request<pb::LogSettingsRequest>,
    ) -> Answer<pb::LogSettingsResponse> {
        let changes = !request.get_ref().settings.is_empty();
        let change = changes.then_some("/inference.GRPCInferenceService/LogSettings");
        self.answer_change(&request, change, |_, asked| control::log_settings(asked))
    }
}
