//! Triton's generate extension: an inference request as a flat JSON object, whose members are inputs by name and parameters.
//!
//! `POST /v2/models/M[/versions/V]/generate` answers with one object; `/generate_stream` with server-sent events.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue};
use models::{Dim, TensorSpec};
use node::metrics::Transport;
use node::reason::{Reason, Refusal};
use node::tenants::RequestTenant;
use oip::metadata::ErrorBody;
use oip::{InferRequest, InferResponse};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::body;
use super::response::{self, JSON, Refused};
use super::route::OwnedTarget;
use crate::front::Front;
use crate::request_id;
use crate::service::{ModelView, RequestContext, Streamed};
use crate::tenant;
use crate::trace::Stage;

const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

pub async fn one(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    extensions: Extensions,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let tenant = tenant::of(&front, &headers, &extensions);
    let context = context(&front, &target, &headers, tenant);
    let request = read(&front, &target, &headers, sent, &context).await;
    let request = request.map_err(|refusal| front.service.logged(&context, &target.model, refusal))?;
    let mut responses = front.infer_stream(request, context).await?;
    let mut only = None;
    while let Some(Streamed { response, .. }) = responses.next().await {
        let Some(response) = response else { continue };
        if only.is_some() {
            return not_one(&front);
        }
        only = Some(response?);
    }
    match only {
        Some(response) => Ok(([(CONTENT_TYPE, JSON)], flat(&response)?).into_response()),
        None => not_one(&front),
    }
}

/// What Triton answers if a decoupled model gives no response or several. The status is Triton's too.
fn not_one(front: &Front) -> Result<Response, Refused> {
    front.metrics.refused(Transport::Http, Reason::ModelUnsupported);
    let error = "generate expects model to produce exactly 1 response, use generate stream for model that generates various \
                 number of responses";
    response::json(&ErrorBody { error: error.to_owned() })
}

/// Each response as one event. An error before the first response is an ordinary error, and a later one an event.
pub async fn stream(
    State(front): State<Arc<Front>>,
    target: OwnedTarget,
    extensions: Extensions,
    headers: HeaderMap,
    sent: axum::body::Body,
) -> Result<Response, Refused> {
    let tenant = tenant::of(&front, &headers, &extensions);
    let context = context(&front, &target, &headers, tenant);
    let request = read(&front, &target, &headers, sent, &context).await;
    let request = request.map_err(|refusal| front.service.logged(&context, &target.model, refusal))?;
    let (events, mut read) = mpsc::channel(1);
    tokio::spawn(async move {
        // When the client leaves, the reader is dropped, and dropping the responses cancels the request.
        tokio::select! {
            () = events.closed() => {}
            () = respond(&front, request, context, &events) => {}
        }
    });
    let first = match read.recv().await {
        Some(Err(refusal)) => return Err(refusal.into()),
        Some(Ok(event)) => Some(event),
        None => None,
    };
    let rest = ReceiverStream::new(read).map(|event| event.unwrap_or_else(|refusal| failed(&refusal)));
    let events = tokio_stream::iter(first).chain(rest).map(Ok::<_, Infallible>);
    Ok(([(CONTENT_TYPE, EVENTS)], axum::body::Body::from_stream(events)).into_response())
}

/// Sends the responses to one request as events.
async fn respond(
    front: &Front,
    request: InferRequest,
    context: RequestContext,
    events: &mpsc::Sender<Result<Bytes, Refusal>>,
) {
    let mut responses = match front.infer_stream(request, context).await {
        Ok(responses) => responses,
        Err(refusal) => {
            // The client may have left.
            let _ = events.send(Err(refusal)).await;
            return;
        }
    };
    while let Some(Streamed { response, .. }) = responses.next().await {
        let Some(response) = response else { continue };
        let event = response.and_then(|response| front.bodies.hold(event(&flat(&response)?)));
        if events.send(event).await.is_err() {
            return;
        }
    }
}

fn event(data: &[u8]) -> Bytes {
    [b"data: ".as_slice(), data, b"\n\n"].concat().into()
}

fn failed(refusal: &Refusal) -> Bytes {
    let body = ErrorBody { error: refusal.message.clone() };
    event(&serde_json::to_vec(&body).unwrap_or_default())
}

/// The context of a request that arrives now.
fn context(
    front: &Front,
    target: &OwnedTarget,
    headers: &HeaderMap,
    tenant: RequestTenant,
) -> RequestContext {
    let (arrived, id) = (Instant::now(), request_id::of(headers));
    let trace = front.trace(&target.model, target.version.as_deref());
    if let Some(trace) = &trace {
        trace.reached(Stage::HttpRecvStart, arrived);
    }
    RequestContext {
        trace,
        span: front.span(headers),
        ..RequestContext::new(id, arrived, Transport::Http, tenant)
    }
}

/// Reads the flat object as a request of the protocol.
async fn read(
    front: &Arc<Front>,
    target: &OwnedTarget,
    headers: &HeaderMap,
    sent: axum::body::Body,
    context: &RequestContext,
) -> Result<InferRequest, Refusal> {
    let limits = front.limits.protocol;
    let (body, _held) =
        body::read(headers, sent, &front.bodies, limits.body_bytes, front.limits.body_timeout).await?;
    if let Some(trace) = &context.trace {
        trace.reached(Stage::HttpRecvEnd, Instant::now());
    }
    let version = target.version.as_deref();
    let view = front.service.model(&target.model, version)?;
    let (names, request) = request(&view, &body)?;
    let request = oip::json::decode_infer(&target.model, version, &request.into(), None, &limits);
    request.map_err(|error| in_words_of_client(Refusal::from(error), &names))
}

/// The client sent members and no list of inputs.
fn in_words_of_client(mut refusal: Refusal, names: &[String]) -> Refusal {
    for (index, name) in names.iter().enumerate() {
        refusal.message = refusal.message.replace(&format!("inputs[{index}]"), &format!("input `{name}`"));
    }
    refusal
}

/// The flat object as a request of the protocol, and the names of its inputs in order.
fn request(view: &ModelView, body: &Bytes) -> Result<(Vec<String>, Vec<u8>), Refusal> {
    let malformed =
        |error: serde_json::Error| Refusal::new(Reason::Malformed, format!("request body: {error}"));
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).map_err(malformed)?;
    let (mut names, mut inputs) = (Vec::new(), Vec::new());
    let mut parameters: BTreeMap<String, &RawValue> = BTreeMap::new();
    let mut request = BTreeMap::new();
    for (name, value) in members {
        if let Some(spec) = view.signature.inputs.iter().find(|spec| spec.name == name) {
            inputs.push(input(spec, value)?);
            names.push(name);
        } else if name == "id" {
            request.insert("id", value.to_owned());
        } else if name == "parameters" {
            let given: BTreeMap<String, &RawValue> = serde_json::from_str(value.get())
                .map_err(|error| Refusal::new(Reason::Malformed, format!("parameters: {error}")))?;
            parameters.extend(given);
        } else {
            parameters.insert(name, value);
        }
    }
    let raw =
        |text: Result<String, serde_json::Error>| text.and_then(RawValue::from_string).map_err(malformed);
    let inputs = RawValue::from_string(format!("[{}]", inputs.join(","))).map_err(malformed)?;
    request.insert("inputs", inputs);
    request.insert("parameters", raw(serde_json::to_string(&parameters))?);
    Ok((names, serde_json::to_vec(&request).map_err(malformed)?))
}

/// One input as a tensor of the protocol. Its shape follows from the number of its elements: the last free dimension takes
/// those that the fixed ones leave, and other free dimensions are 1.
fn input(spec: &TensorSpec, value: &RawValue) -> Result<String, Refusal> {
    let wrong = |what: String| Refusal::new(Reason::Malformed, format!("input `{}`: {what}", spec.name));
    let mut elements = Vec::new();
    flatten(value, &mut elements).map_err(|error| wrong(error.to_string()))?;
    if elements.iter().any(|element| element.starts_with('{') || *element == "null") {
        return Err(wrong("expected one value or a list of values".to_owned()));
    }
    let count = elements.len() as u64;
    let fixed = spec.dims.iter().try_fold(1_u64, |product, dim| match dim {
        Dim::Fixed(extent) => product.checked_mul(*extent),
        Dim::Free => Some(product),
    });
    let misfit = || {
        let dims: Vec<i64> = spec.dims.iter().map(|dim| dim.to_wire()).collect();
        wrong(format!("has {count} elements, which do not fill its shape {dims:?}"))
    };
    let fixed = fixed.filter(|fixed| *fixed > 0 && count.is_multiple_of(*fixed)).ok_or_else(misfit)?;
    let mut rest = count / fixed;
    let mut shape: Vec<u64> = Vec::with_capacity(spec.dims.len());
    for dim in spec.dims.iter().rev() {
        shape.push(match dim {
            Dim::Fixed(extent) => *extent,
            Dim::Free => std::mem::replace(&mut rest, 1),
        });
    }
    if rest != 1 {
        return Err(misfit());
    }
    shape.reverse();
    let name = serde_json::to_string(&spec.name).map_err(|error| wrong(error.to_string()))?;
    let datatype = spec.datatype;
    Ok(format!(
        r#"{{"name":{name},"datatype":"{datatype}","shape":{shape:?},"data":[{}]}}"#,
        elements.join(",")
    ))
}

/// The values of lists in lists, in order.
fn flatten<'a>(value: &'a RawValue, elements: &mut Vec<&'a str>) -> Result<(), serde_json::Error> {
    if !value.get().starts_with('[') {
        elements.push(value.get());
        return Ok(());
    }
    let list: Vec<&'a RawValue> = serde_json::from_str(value.get())?;
    list.into_iter().try_for_each(|inner| flatten(inner, elements))
}

#[derive(Deserialize)]
struct Printed<'a> {
    #[serde(borrow)]
    outputs: Vec<PrintedOutput<'a>>,
}

#[derive(Deserialize)]
struct PrintedOutput<'a> {
    name: String,
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

/// A response as a flat object. An output of one element is that element.
fn flat(response: &InferResponse) -> Result<Vec<u8>, Refusal> {
    let internal = |error: serde_json::Error| Refusal::new(Reason::Internal, format!("response: {error}"));
    let printed = oip::json::encode_infer(response, false)?;
    let printed: Printed<'_> = serde_json::from_slice(&printed.head).map_err(internal)?;
    let mut members: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
    for PrintedOutput { name, data } in printed.outputs {
        let value = match data.as_slice() {
            [one] => (*one).to_owned(),
            list => serde_json::value::to_raw_value(list).map_err(internal)?,
        };
        members.insert(name, value);
    }
    let mut own = Map::from_iter([
        ("model_name".to_owned(), Value::from(response.model_name.as_str())),
        ("model_version".to_owned(), Value::from(response.model_version.as_str())),
    ]);
    if !response.id.is_empty() {
        own.insert("id".to_owned(), Value::from(response.id.as_str()));
    }
    for (name, value) in own {
        members.insert(name, serde_json::value::to_raw_value(&value).map_err(internal)?);
    }
    serde_json::to_vec(&members).map_err(internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::Datatype;

    fn tensor(dims: &[Dim], text: &str) -> Result<String, String> {
        let spec = TensorSpec {
            name: "x".to_owned(),
            datatype: Datatype::Fp32,
            dims: dims.to_vec(),
            optional: false,
        };
        let value = RawValue::from_string(text.to_owned()).unwrap();
        input(&spec, &value).map_err(|refusal| refusal.message)
    }

    #[test]
    fn the_last_free_dimension_takes_what_the_fixed_ones_leave() {
        use Dim::{Fixed, Free};
        let shape = |dims: &[Dim], text| {
            let tensor = tensor(dims, text)?;
            let parsed: Value = serde_json::from_str(&tensor).unwrap();
            Ok::<_, String>(
                parsed["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(shape(&[Free, Free], "[1,2,3]"), Ok(vec![1, 3]));
        assert_eq!(shape(&[Free, Fixed(2)], "[1,2,3,4]"), Ok(vec![2, 2]));
        assert_eq!(shape(&[Free], "7"), Ok(vec![1]));
        assert_eq!(shape(&[Fixed(2), Free, Free], "[1,2,3,4]"), Ok(vec![2, 1, 2]));
        assert_eq!(shape(&[], "7"), Ok(vec![]));
        for (dims, text) in [(&[Fixed(2)][..], "[1,2,3]"), (&[Fixed(2)], "[1,2,3,4]"), (&[], "[1,2]")] {
            let message = shape(dims, text).unwrap_err();
            assert!(message.contains("do not fill its shape"), "{message}");
        }
        assert_eq!(shape(&[Free, Free], "[[1,2],[3,4]]"), Ok(vec![1, 4]));
        for text in ["{}", "null", "[{}]"] {
            let message = tensor(&[Free], text).unwrap_err();
            assert!(message.ends_with("expected one value or a list of values"), "{message}");
        }
    }
}
