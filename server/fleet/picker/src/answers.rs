//! Answers in the messages of Envoy's external processing.

use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use crate::headers::{BATCH, DESTINATION};
use crate::nodes::Endpoint;
use crate::proto::ext_proc::body_mutation::Mutation;
use crate::proto::ext_proc::processing_response::Response;
use crate::proto::ext_proc::{
    BodyMutation, BodyResponse, CommonResponse, GrpcStatus, HeaderMutation, HeaderValue, HeaderValueOption,
    HeadersResponse, HttpBody, HttpStatus, ImmediateResponse, ProcessingResponse, StreamedBodyResponse,
};
use crate::refusal::Refusal;

/// Namespace in which gateways of the Gateway API Inference Extension look for the node, besides the header.
const NAMESPACE: &str = "envoy.lb";
/// `OVERWRITE_IF_EXISTS_OR_ADD`.
const OVERWRITE: i32 = 2;

fn header(name: &str, value: impl Into<Bytes>) -> HeaderValueOption {
    let value = HeaderValue { key: name.to_owned(), value: String::new(), raw_value: value.into() };
    HeaderValueOption { header: Some(value), append_action: OVERWRITE }
}

/// The value of the header that names a batch.
pub fn batch_value(id: u64, rows: u32) -> String {
    format!("{id}/{rows}")
}

/// The address of a node's interface.
pub fn address(node: &Endpoint, grpc: bool) -> &str {
    if grpc { &node.grpc } else { &node.http }
}

/// Sends the request to the first of these nodes. The client's own copies of the headers are replaced or removed.
pub fn send(nodes: &[Arc<Endpoint>], batch: Option<(u64, u32)>, grpc: bool) -> ProcessingResponse {
    let addresses: Vec<&str> = nodes.iter().map(|node| address(node, grpc)).collect();
    let addresses = addresses.join(",");
    let mut mutation = HeaderMutation::default();
    match nodes.is_empty() {
        true => mutation.remove_headers.push(DESTINATION.to_owned()),
        false => mutation.set_headers.push(header(DESTINATION, addresses.clone())),
    }
    match batch {
        Some((id, rows)) => mutation.set_headers.push(header(BATCH, batch_value(id, rows))),
        None => mutation.remove_headers.push(BATCH.to_owned()),
    }
    let response = CommonResponse { header_mutation: Some(mutation), body_mutation: None };
    ProcessingResponse {
        response: Some(Response::RequestHeaders(HeadersResponse { response: Some(response) })),
        dynamic_metadata: (!nodes.is_empty()).then(|| metadata(addresses)),
        override_message_timeout: None,
    }
}

fn metadata(addresses: String) -> Struct {
    let one = |name: &str, kind| Struct { fields: [(name.to_owned(), Value { kind: Some(kind) })].into() };
    one(NAMESPACE, Kind::StructValue(one(DESTINATION, Kind::StringValue(addresses))))
}

/// Refuses the request, as a server would.
pub fn refuse(refusal: &Refusal, grpc: bool) -> ProcessingResponse {
    let mut headers = vec![header("x-tessera-reason", refusal.reason)];
    if refusal.may_be_retried() {
        headers.push(header("retry-after", "1"));
    }
    let body = match grpc {
        // Envoy makes it the status message.
        true => refusal.message.clone(),
        false => {
            headers.push(header("content-type", "application/json"));
            serde_json::json!({ "error": refusal.message }).to_string()
        }
    };
    let response = ImmediateResponse {
        status: Some(HttpStatus { code: i32::from(refusal.http) }),
        headers: Some(HeaderMutation { set_headers: headers, remove_headers: Vec::new() }),
        body: body.into(),
        grpc_status: grpc.then_some(GrpcStatus { status: refusal.grpc }),
    };
    pass(Response::ImmediateResponse(response))
}

/// Asks the gateway to wait for the answer.
pub fn wait(time: Duration) -> ProcessingResponse {
    ProcessingResponse {
        // Far below what a duration of protobuf can hold.
        override_message_timeout: time.try_into().ok(),
        ..ProcessingResponse::default()
    }
}

/// Lets a message pass unchanged.
pub fn pass(response: Response) -> ProcessingResponse {
    ProcessingResponse { response: Some(response), ..ProcessingResponse::default() }
}

/// Returns a part of a body unchanged. Gateways that stream bodies through expect it back.
pub fn same_body(body: HttpBody) -> BodyResponse {
    let HttpBody { body, end_of_stream } = body;
    let mutation = Mutation::StreamedResponse(StreamedBodyResponse { body, end_of_stream });
    let body_mutation = Some(BodyMutation { mutation: Some(mutation) });
    BodyResponse { response: Some(CommonResponse { header_mutation: None, body_mutation }) }
}
