//! The generated client against the whole gRPC stack, without a socket.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Frame;
use oip::proto as pb;
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use crate::fleet::proto::WatchRequest;
use crate::fleet::proto::node_signals_client::NodeSignalsClient;
use crate::front::{Front, FrontLimits};
use crate::testing;

/// A channel into the service.
macro_rules! channel {
    ($front:expr) => {{
        let service = super::service(Arc::clone(&$front)).unwrap();
        tower::service_fn(move |request: http::Request<Body>| {
            let service = service.clone();
            async move { Ok::<_, std::convert::Infallible>(service.answer(request).await) }
        })
    }};
}

macro_rules! client {
    ($front:expr) => {
        GrpcInferenceServiceClient::new(channel!($front))
    };
}

fn sample(id: &str, model: &str) -> pb::ModelInferRequest {
    let request: serde_json::Value = serde_json::from_str(node::bundled::SAMPLE).unwrap();
    let pixels = request["inputs"][0]["data"].as_array().unwrap();
    let raw: Vec<u8> =
        pixels.iter().flat_map(|pixel| (pixel.as_f64().unwrap() as f32).to_le_bytes()).collect();
    pb::ModelInferRequest {
        model_name: model.to_owned(),
        id: id.to_owned(),
        inputs: vec![pb::model_infer_request::InferInputTensor {
            name: "image".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, 64],
            ..Default::default()
        }],
        raw_input_contents: vec![raw.into()],
        ..Default::default()
    }
}

#[tokio::test(flavor = "current_thread")]
async fn refusals_carry_code_reason_and_id() {
    let front = testing::serving_front().await;
    let mut client = client!(front);
    let mut request = Request::new(sample("1", "nope"));
    request.metadata_mut().insert("x-request-id", "abc".parse().unwrap());
    let status = client.model_infer(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status:?}");
    assert_eq!(status.metadata().get("x-tessera-reason").unwrap(), "unknown_model");
    assert_eq!(status.metadata().get("x-request-id").unwrap(), "abc");

    let mut unknown_and_wrong = sample("1", "nope");
    unknown_and_wrong.inputs[0].datatype = "FP33".to_owned();
    assert_eq!(client.model_infer(unknown_and_wrong).await.unwrap_err().code(), Code::NotFound);

    let mut short = sample("1", "digits");
    short.raw_input_contents = vec![Bytes::from_static(&[0; 8])];
    let status = client.model_infer(short).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");

    front.begin_drain();
    let status = client.model_infer(sample("1", "digits")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.metadata().get("retry-after").unwrap(), "1");
}

#[tokio::test(flavor = "current_thread")]
async fn errors_of_the_protocol_layer_come_from_the_table_too() {
    let front = testing::front().await;
    let mut large = sample("1", "digits");
    large.raw_input_contents = vec![Bytes::from(vec![0; (1 << 20) + 1])];
    let status = client!(front).model_infer(large).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.metadata().get("x-tessera-reason").unwrap(), "body_too_large");

    for (path, body, code, reason) in [
        // A message of 4 bytes that is not protobuf, and a truncated one.
        (
            "/inference.GRPCInferenceService/ModelInfer",
            &[0, 0, 0, 0, 4, 255, 255, 255, 255][..],
            "3",
            "malformed",
        ),
        ("/inference.GRPCInferenceService/ModelInfer", &[0, 0, 0, 0, 9, 1], "3", "malformed"),
        ("/inference.GRPCInferenceService/Nope", &[], "12", "unsupported"),
        ("/nope.Nope/Nope", &[], "12", "unknown_path"),
    ] {
        let request = http::Request::builder()
            .method("POST")
            .uri(path)
            .header("content-type", "application/grpc")
            .body(http_body_util::Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let response = super::service(Arc::clone(&front)).unwrap().answer(request).await;
        assert_eq!(response.headers()["grpc-status"], code, "{path} {body:?}");
        assert_eq!(response.headers()["x-tessera-reason"], reason, "{path} {body:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_message_that_does_not_arrive_times_out() {
    let limits = FrontLimits { body_timeout: std::time::Duration::from_millis(10), ..testing::limits() };
    let front = testing::front_with(limits, &[]).await;
    let begun = tokio_stream::iter([Ok(Frame::data(Bytes::from_static(&[0, 0, 0, 0, 9, 1])))]);
    let never = tokio_stream::pending::<Result<Frame<Bytes>, std::convert::Infallible>>();
    let request = http::Request::builder()
        .method("POST")
        .uri("/inference.GRPCInferenceService/ModelInfer")
        .header("content-type", "application/grpc")
        .body(http_body_util::StreamBody::new(begun.chain(never)))
        .unwrap();
    let response = super::service(Arc::clone(&front)).unwrap().answer(request).await;
    assert_eq!(response.headers()["grpc-status"], "4");
    assert_eq!(response.headers()["x-tessera-reason"], "slow_body");
}

#[tokio::test(flavor = "current_thread")]
async fn every_call_about_the_server_answers() {
    let front = testing::front().await;
    let mut client = client!(front);
    assert!(client.server_live(pb::ServerLiveRequest {}).await.unwrap().into_inner().live);
    let metadata = client.server_metadata(pb::ServerMetadataRequest {}).await.unwrap().into_inner();
    assert_eq!(metadata.name, "tessera");
    let unknown = pb::ModelReadyRequest { name: "nope".to_owned(), version: String::new() };
    assert!(!client.model_ready(unknown).await.unwrap().into_inner().ready);
    let status =
        client.model_config(pb::ModelConfigRequest { name: "nope".to_owned(), version: String::new() }).await;
    assert_eq!(status.unwrap_err().code(), Code::NotFound);
    let named = pb::RepositoryIndexRequest { repository_name: "r".to_owned(), ready: false };
    assert_eq!(client.repository_index(named).await.unwrap_err().code(), Code::Unimplemented);
    client.repository_index(pb::RepositoryIndexRequest::default()).await.unwrap();
    client.model_statistics(pb::ModelStatisticsRequest::default()).await.unwrap();
    client.system_shared_memory_status(pb::SystemSharedMemoryStatusRequest::default()).await.unwrap();
    client.system_shared_memory_unregister(pb::SystemSharedMemoryUnregisterRequest::default()).await.unwrap();
    client.cuda_shared_memory_status(pb::CudaSharedMemoryStatusRequest::default()).await.unwrap();
    client.cuda_shared_memory_unregister(pb::CudaSharedMemoryUnregisterRequest::default()).await.unwrap();
    let cuda = client.cuda_shared_memory_register(pb::CudaSharedMemoryRegisterRequest::default()).await;
    assert_eq!(cuda.unwrap_err().code(), Code::Unimplemented);
    let traces = client.trace_setting(pb::TraceSettingRequest::default()).await.unwrap().into_inner();
    assert_eq!(traces.settings["trace_level"].value, ["OFF"]);
    assert_eq!(
        client.log_settings(pb::LogSettingsRequest::default()).await.unwrap().into_inner().settings.len(),
        6
    );
}

#[tokio::test(flavor = "current_thread")]
async fn health_follows_readiness_and_can_be_watched() {
    let front = testing::front().await;
    let mut client = HealthClient::new(channel!(front));
    let ask = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let expected =
        |front: &Front| if front.ready() { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", "inference.GRPCInferenceService"] {
        let answer = client.check(ask(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), expected(&front), "{service}");
    }
    assert_eq!(client.check(ask("nope")).await.unwrap_err().code(), Code::NotFound);
    front.begin_drain();
    let answer = client.check(ask("")).await.unwrap();
    assert_eq!(answer.metadata().get("x-tessera-not-ready").unwrap(), "the server is draining");
    let asked = client!(front).server_ready(pb::ServerReadyRequest {}).await.unwrap();
    assert_eq!(asked.metadata().get("x-tessera-not-ready").unwrap(), "the server is draining");
    assert!(!asked.into_inner().ready);
    let mut watched = client.watch(ask("")).await.unwrap().into_inner();
    assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}

#[tokio::test(flavor = "current_thread")]
async fn the_bundled_model_answers_plain_and_packed() {
    let front = testing::serving_front().await;
    let answer = client!(front).model_infer(sample("7", "digits")).await.unwrap().into_inner();
    assert_eq!((answer.id.as_str(), answer.model_version.as_str()), ("7", "1"));
    assert_eq!(answer.raw_output_contents.iter().map(Bytes::len).sum::<usize>(), 10 * 4 + 8);
    for coding in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
        let mut packing = client!(front).send_compressed(coding).accept_compressed(coding);
        let packed = packing.model_infer(sample("7", "digits")).await.unwrap();
        assert_eq!(packed.metadata().get("grpc-encoding").unwrap(), coding.to_string().as_str());
        assert_eq!(packed.into_inner().raw_output_contents, answer.raw_output_contents);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_stream_answers_each_request_and_survives_errors() {
    let front = testing::serving_front().await;
    let requests = (0..20).map(|id| sample(&id.to_string(), if id % 5 == 4 { "nope" } else { "digits" }));
    let answers =
        client!(front).model_stream_infer(tokio_stream::iter(requests.collect::<Vec<_>>())).await.unwrap();
    let mut answers: Vec<_> = answers.into_inner().map(Result::unwrap).collect().await;
    answers.sort_by_key(|answer| answer.infer_response.as_ref().unwrap().id.parse::<u32>().unwrap());
    assert_eq!(answers.len(), 20);
    for (id, answer) in answers.iter().enumerate() {
        let response = answer.infer_response.as_ref().unwrap();
        assert_eq!(response.id, id.to_string());
        if id % 5 == 4 {
            assert!(answer.error_message.contains("nope") && response.outputs.is_empty());
        } else {
            assert_eq!(answer.error_message, "");
            let last = response.parameters["triton_final_response"].parameter_choice.clone();
            assert_eq!(last, Some(pb::infer_parameter::ParameterChoice::BoolParam(true)));
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn signals_tell_of_models_and_at_once_of_a_drain() {
    let front = testing::serving_front().await;
    let mut client = NodeSignalsClient::new(channel!(front));
    let asked = |interval_ms| WatchRequest { node: "a".to_owned(), interval_ms };
    let status = client.watch(asked(99)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "interval_ms: expected 100 to 10000, got 99");

    let mut messages = client.watch(asked(10_000)).await.unwrap().into_inner();
    let first = messages.message().await.unwrap().unwrap();
    assert!(first.complete && !first.draining && first.sequence == 1 && first.node == "a", "{first:?}");
    let [digits] = first.models.as_slice() else { panic!("{first:?}") };
    assert_eq!((digits.model.as_str(), digits.ready, digits.lanes), ("digits", true, 1));
    assert!(digits.max_batch > 0, "{digits:?}");

    front.signals.set_epoch(7);
    let planned = messages.message().await.unwrap().unwrap();
    assert_eq!((planned.epoch, planned.draining, planned.sequence), (7, false, 2));
    front.begin_to_leave();
    let leaving = messages.message().await.unwrap().unwrap();
    assert!(leaving.draining && !leaving.complete && leaving.removed.is_empty());
    front.begin_drain();
    assert_eq!(messages.message().await.unwrap(), None, "a stream does not keep the server from stopping");
}

#[tokio::test(flavor = "current_thread")]
async fn signals_follow_models_that_are_unloaded_and_loaded() {
    let front = testing::serving_front().await;
    let mut client = NodeSignalsClient::new(channel!(front));
    let mut messages = client.watch(WatchRequest::default()).await.unwrap().into_inner();
    assert!(messages.message().await.unwrap().unwrap().models[0].ready);
    front.service.node.catalog().unload("digits").await.unwrap();
    let mut removal = messages.message().await.unwrap().unwrap();
    while removal.removed.is_empty() {
        assert!(removal.models.iter().all(|model| model.model == "digits"), "{removal:?}");
        removal = messages.message().await.unwrap().unwrap();
    }
    assert_eq!(removal.removed, ["digits"]);
}
