//! What is asked, and the right answer to it, in the words of each protocol.

use bytes::{BufMut as _, Bytes, BytesMut};
use loadtest::Protocol;
use oip::metadata::{ModelMetadata, ServerMetadata, TensorMetadata};
use oip::{InferRequest, InferResponse, Limits, OutputParameters, Tensor, TensorData, proto};
use prost::Message;

use super::{Act, Shared, What};

/// An answer as it is written.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
    /// HTTP/2 only.
    pub trailers: Vec<(&'static str, String)>,
}

impl Answer {
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, body: body.into(), trailers: Vec::new() }
    }

    fn grpc(message: &impl Message) -> Self {
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(message.encoded_len() as u32);
        message.encode(&mut body).unwrap();
        Self {
            status: 200,
            headers: vec![("content-type", "application/grpc".to_owned())],
            body: body.freeze(),
            trailers: vec![("grpc-status", "0".to_owned())],
        }
    }

    /// Trailers without an answer, as gRPC servers refuse.
    pub fn grpc_status(code: u8, message: &str) -> Self {
        let headers = vec![
            ("content-type", "application/grpc".to_owned()),
            ("grpc-status", code.to_string()),
            ("grpc-message", message.to_owned()),
        ];
        Self { status: 200, headers, body: Bytes::new(), trailers: Vec::new() }
    }
}

/// A request, taken apart.
pub struct Asked {
    pub path: String,
    pub json_length: Option<usize>,
    pub body: Bytes,
}

/// What to do, and the answer to do it with.
pub fn decide(shared: &Shared, asked: &Asked) -> (Act, Answer) {
    let rest = shared.protocol != Protocol::Grpc;
    let (act, mut answer) = if rest { decide_rest(shared, asked) } else { decide_grpc(shared, asked) };
    if let Act::Raw(change) = act {
        change(&mut answer);
    }
    (act, answer)
}

fn decide_rest(shared: &Shared, asked: &Asked) -> (Act, Answer) {
    let parts: Vec<&str> = asked.path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["v2"] => {
            let act = shared.act(What::Server, String::new(), 0);
            (act, Answer::json(200, serde_json::to_vec(&server()).unwrap()))
        }
        ["v2", "models", model, "infer"] => {
            let limits = Limits::default();
            let request = oip::json::decode_infer(model, None, &asked.body, asked.json_length, &limits);
            let request = request.unwrap();
            let (act, response) = inferred(shared, &request);
            let written = oip::json::encode_infer(&response, request.binary_output).unwrap();
            let mut body = BytesMut::from(&written.head[..]);
            written.tail.iter().for_each(|part| body.extend_from_slice(part));
            let mut answer = Answer::json(200, body);
            if let Some(length) = written.json_len {
                answer.headers.push(("inference-header-content-length", length.to_string()));
            }
            (act, answer)
        }
        ["v2", "models", model, "stats"] => {
            let act = shared.act(What::Statistics, (*model).to_owned(), 0);
            (act, Answer::json(404, r#"{"error":"not here"}"#))
        }
        ["v2", "models", model] => {
            let act = shared.act(What::Model, (*model).to_owned(), 0);
            let answer = Answer::json(200, serde_json::to_vec(&metadata(model)).unwrap());
            (act, answer)
        }
        _ => (Act::Right, Answer::json(404, r#"{"error":"no such path"}"#)),
    }
}

fn decide_grpc(shared: &Shared, asked: &Asked) -> (Act, Answer) {
    let message = asked.body.slice(5..);
    match asked.path.rsplit('/').next() {
        Some("ServerMetadata") => {
            let told = server();
            let (name, version) = (told.name, told.version);
            let told = proto::ServerMetadataResponse { name, version, ..Default::default() };
            (shared.act(What::Server, String::new(), 0), Answer::grpc(&told))
        }
        Some("ModelMetadata") => {
            let name = proto::ModelMetadataRequest::decode(message).unwrap().name;
            let act = shared.act(What::Model, name.clone(), 0);
            let answer = Answer::grpc(&described(metadata(&name)));
            (act, answer)
        }
        Some("ModelInfer") => {
            let message = proto::ModelInferRequest::decode(message).unwrap();
            let request = oip::grpc::decode_infer(message, &Limits::default()).unwrap();
            let (act, response) = inferred(shared, &request);
            let answer = Answer::grpc(&oip::grpc::encode_infer(response));
            (act, answer)
        }
        _ => (shared.act(What::Statistics, String::new(), 0), Answer::grpc_status(12, "not here")),
    }
}

fn inferred(shared: &Shared, request: &InferRequest) -> (Act, InferResponse) {
    let rows = request.inputs[0].shape.extents()[0];
    let act = shared.act(What::Infer, request.model_name.clone(), rows as u32);
    let outputs = request.inputs.iter().map(|input| {
        let TensorData::Inline(data) = &input.data else { panic!("no test sends shared memory") };
        let (datatype, shape, data) = (input.datatype, input.shape.clone(), data.clone());
        (Tensor { name: "y".to_owned(), datatype, shape, data }, OutputParameters::default())
    });
    let mut response = InferResponse {
        model_name: request.model_name.clone(),
        model_version: "1".to_owned(),
        id: String::new(),
        parameters: Vec::new(),
        outputs: outputs.collect(),
    };
    if let Act::Response(change) = act {
        change(&mut response);
    }
    (act, response)
}

fn server() -> ServerMetadata {
    ServerMetadata { name: "on-order".to_owned(), version: "1".to_owned(), extensions: Vec::new() }
}

fn metadata(name: &str) -> ModelMetadata {
    let tensor = |name: &str| TensorMetadata {
        name: name.to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![-1, 4],
    };
    ModelMetadata {
        name: name.to_owned(),
        versions: vec!["1".to_owned()],
        platform: "test".to_owned(),
        inputs: vec![tensor("x")],
        outputs: vec![tensor("y")],
    }
}

fn described(metadata: ModelMetadata) -> proto::ModelMetadataResponse {
    let tensors = |tensors: Vec<TensorMetadata>| {
        let told = tensors.into_iter().map(|tensor| proto::model_metadata_response::TensorMetadata {
            name: tensor.name,
            datatype: tensor.datatype,
            shape: tensor.shape,
        });
        told.collect()
    };
    proto::ModelMetadataResponse {
        name: metadata.name,
        versions: metadata.versions,
        platform: metadata.platform,
        inputs: tensors(metadata.inputs),
        outputs: tensors(metadata.outputs),
    }
}
