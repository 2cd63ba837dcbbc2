//! The server's API as this client uses it: metadata, inference, statistics.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, TE};
use http::{HeaderName, Method, Request, Uri};
use oip::metadata::{ModelMetadata, ModelShapes, ServerMetadata};
use oip::proto;
use oip::{InferRequest, InferResponse, Limits};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use prost::Message;

use crate::connection::{Connections, Failure, Reply, Watch, Wire};
use crate::model_config::Config;
use crate::outcome::Outcome;
use crate::statistics::Statistics;
use crate::target::{Endpoint, Protocol, Tensors};

/// Header with the length of the JSON part of a body that also has binary tensors.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
const SERVICE: &str = "/inference.GRPCInferenceService";
/// Length of the prefix of a gRPC message: a flag for compression, and the length of the message.
const PREFIX: usize = 5;

/// Characters that are escaped in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Upper bounds on what a server sends.
pub(crate) fn limits() -> Limits {
    Limits { body_bytes: 256 << 20, tensor_bytes: 256 << 20, ..Limits::default() }
}

/// Requests and answers of one protocol.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    authority: String,
    scheme: &'static str,
    protocol: Protocol,
    tensors: Tensors,
    timeout: Duration,
    /// Sent with every request.
    authorization: Option<HeaderValue>,
}

/// Ignores all notifications.
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    fn held(&self) {}
    fn sent(&self) {}
}

impl Api {
    /// `timeout` is how long to wait for answers other than inference.
    pub fn new(
        endpoint: &Endpoint,
        tensors: Tensors,
        timeout: Duration,
        authorization: Option<HeaderValue>,
    ) -> Self {
        Self {
            authority: endpoint.authority.clone(),
            scheme: if endpoint.tls { "https" } else { "http" },
            protocol: endpoint.protocol,
            tensors,
            timeout,
            authorization,
        }
    }

    /// Whether requests need an extension of the REST interface.
    pub fn sends_binary_extension(&self) -> bool {
        self.protocol != Protocol::Grpc && self.tensors == Tensors::Binary
    }

    /// An inference request as it is sent.
    pub fn infer(&self, request: &InferRequest) -> Result<Wire, String> {
        let model = encoded(&request.model_name);
        match self.protocol {
            Protocol::Grpc => self.call("ModelInfer", &oip::grpc::encode_request(request)),
            Protocol::Http | Protocol::Http2 => {
                let binary = self.tensors == Tensors::Binary;
                let made = oip::json::encode_request(request, binary).map_err(|error| error.to_string())?;
                let mut body = BytesMut::with_capacity(made.body_len());
                body.extend_from_slice(&made.head);
                made.tail.iter().for_each(|part| body.extend_from_slice(part));
                let mut wire =
                    self.rest(Method::POST, &format!("/v2/models/{model}/infer"), body.freeze())?;
                let kind = match made.json_len {
                    None => "application/json",
                    Some(length) => {
                        wire.parts.headers.insert(JSON_LENGTH, HeaderValue::from(length));
                        "application/octet-stream"
                    }
                };
                wire.parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                Ok(wire)
            }
        }
    }

    /// The outcome of a request, and the response if there is one.
    pub fn answer(&self, reply: &Reply) -> Result<InferResponse, Outcome> {
        match self.protocol {
            Protocol::Grpc => {
                if let Some(outcome) = Outcome::of_grpc(reply) {
                    return Err(outcome);
                }
                let message = message(&reply.body).map_err(Outcome::wrong)?;
                oip::grpc::decode_response(message, &limits())
                    .map_err(|error| Outcome::wrong(error.to_string()))
            }
            Protocol::Http | Protocol::Http2 => {
                if let Some(outcome) = Outcome::of_http(reply) {
                    return Err(outcome);
                }
                let length = json_length(reply).map_err(Outcome::wrong)?;
                oip::json::decode_response(&reply.body, length, &limits())
                    .map_err(|error| Outcome::wrong(error.to_string()))
            }
        }
    }

    /// The JSON part of an answer with binary tensors behind it, and the length of what is behind it: answers
    /// whose JSON and length are those of a right one differ from it in values only.
    pub fn head(&self, reply: &Reply) -> Option<(Bytes, usize)> {
        if self.protocol == Protocol::Grpc || reply.status != http::StatusCode::OK {
            return None;
        }
        let length = json_length(reply).ok().flatten()?;
        let tail = reply.body.len().checked_sub(length)?;
        Some((reply.body.slice(..length), tail))
    }

    /// The server's metadata.
    pub async fn server(&self, connections: &Connections) -> Result<ServerMetadata, String> {
        match self.protocol {
            Protocol::Grpc => {
                let asked = self.call("ServerMetadata", &proto::ServerMetadataRequest::default())?;
                let told: proto::ServerMetadataResponse = self.called(connections, &asked).await?;
                Ok(ServerMetadata::from(told))
            }
            Protocol::Http | Protocol::Http2 => self.get(connections, "/v2").await,
        }
    }

    /// The metadata of a model.
    pub async fn model(&self, connections: &Connections, model: &str) -> Result<ModelMetadata, String> {
        match self.protocol {
            Protocol::Grpc => {
                let request = proto::ModelMetadataRequest { name: model.to_owned(), ..Default::default() };
                let told: proto::ModelMetadataResponse =
                    self.called(connections, &self.call("ModelMetadata", &request)?).await?;
                Ok(ModelMetadata::from(told))
            }
            Protocol::Http | Protocol::Http2 => {
                self.get(connections, &format!("/v2/models/{}", encoded(model))).await
            }
        }
    }

    /// What the configuration of a model says about shapes. Not every server has this extension.
    pub async fn config(&self, connections: &Connections, model: &str) -> Result<Config, String> {
        match self.protocol {
            Protocol::Grpc => {
                let request = proto::ModelConfigRequest { name: model.to_owned(), ..Default::default() };
                let told: proto::ModelConfigResponse =
                    self.called(connections, &self.call("ModelConfig", &request)?).await?;
                Ok(Config::from(told.config.unwrap_or_default()))
            }
            Protocol::Http | Protocol::Http2 => {
                self.get(connections, &format!("/v2/models/{}/config", encoded(model))).await
            }
        }
    }

    /// The shapes of a model's requests so far. Only our own server has them, and only over REST.
    pub async fn shapes(&self, connections: &Connections, model: &str) -> Result<ModelShapes, String> {
        if self.protocol == Protocol::Grpc {
            return Ok(ModelShapes::default());
        }
        self.get(connections, &format!("/v2/models/{}/shapes", encoded(model))).await
    }

    /// The statistics of a model so far. Not every server has this extension.
    pub async fn statistics(&self, connections: &Connections, model: &str) -> Result<Statistics, String> {
        match self.protocol {
            Protocol::Grpc => {
                let request = proto::ModelStatisticsRequest { name: model.to_owned(), ..Default::default() };
                let told: proto::ModelStatisticsResponse =
                    self.called(connections, &self.call("ModelStatistics", &request)?).await?;
                Ok(Statistics::from_grpc(&told))
            }
            Protocol::Http | Protocol::Http2 => {
                let path = format!("/v2/models/{}/stats", encoded(model));
                Ok(Statistics::from_rest(&self.get(connections, &path).await?))
            }
        }
    }

    async fn get<T: serde::de::DeserializeOwned>(
        &self,
        connections: &Connections,
        path: &str,
    ) -> Result<T, String> {
        let reply = self.told(connections, &self.rest(Method::GET, path, Bytes::new())?).await?;
        if let Some(outcome) = Outcome::of_http(&reply) {
            return Err(outcome.to_string());
        }
        serde_json::from_slice(&reply.body)
            .map_err(|error| format!("{path}: expected the Open Inference Protocol: {error}"))
    }

    async fn told(&self, connections: &Connections, wire: &Wire) -> Result<Reply, String> {
        let exchange = tokio::time::timeout(self.timeout, connections.exchange(wire, &Unwatched)).await;
        exchange.unwrap_or(Err(Failure::TimedOut)).map_err(|failure| failure.to_string())
    }

    async fn called<M: Message + Default>(
        &self,
        connections: &Connections,
        wire: &Wire,
    ) -> Result<M, String> {
        let reply = self.told(connections, wire).await?;
        match Outcome::of_grpc(&reply) {
            Some(outcome) => Err(outcome.to_string()),
            None => message(&reply.body),
        }
    }

    fn rest(&self, method: Method, path: &str, body: Bytes) -> Result<Wire, String> {
        let uri = match self.protocol {
            Protocol::Http => path.parse::<Uri>(),
            Protocol::Http2 | Protocol::Grpc => format!("{}://{}{path}", self.scheme, self.authority).parse(),
        };
        let uri = uri.map_err(|error| format!("{path}: {error}"))?;
        let mut request = Request::builder().method(method).uri(uri).header(ACCEPT, "*/*");
        if self.protocol == Protocol::Http {
            request = request.header(HOST, &self.authority);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let request = request.body(()).map_err(|error| error.to_string())?;
        Ok(Wire { parts: request.into_parts().0, body })
    }

    fn call(&self, method: &str, message: &impl Message) -> Result<Wire, String> {
        let mut wire = self.rest(Method::POST, &format!("{SERVICE}/{method}"), Bytes::new())?;
        wire.parts.headers.remove(ACCEPT);
        wire.parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        wire.parts.headers.insert(TE, HeaderValue::from_static("trailers"));
        let length = message.encoded_len();
        let mut body = BytesMut::with_capacity(length + PREFIX);
        body.put_u8(0);
        body.put_u32(u32::try_from(length).map_err(|_| "a message of 4 GiB or more".to_owned())?);
        message.encode(&mut body).map_err(|error| error.to_string())?;
        wire.body = body.freeze();
        Ok(wire)
    }
}

fn json_length(reply: &Reply) -> Result<Option<usize>, String> {
    let Some(length) = reply.headers.get(JSON_LENGTH) else { return Ok(None) };
    let length = length.to_str().ok().and_then(|length| length.parse().ok());
    length.map(Some).ok_or_else(|| format!("header {JSON_LENGTH}: expected a whole number"))
}

fn message<M: Message + Default>(body: &Bytes) -> Result<M, String> {
    let (prefix, _) = body.split_at_checked(PREFIX).ok_or("an answer without a message")?;
    if prefix.first() != Some(&0) {
        return Err("expected an uncompressed message, got a compressed one".to_owned());
    }
    M::decode(body.slice(PREFIX..)).map_err(|error| format!("cannot read a message: {error}"))
}

/// A name as a segment of a path.
fn encoded(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, SEGMENT)
}
