//! The JSON codec from outside: the protocol's own examples, hostile bodies, round trips.

mod client;
mod hostile;
mod round_trip;
mod spec;

use bytes::Bytes;

use crate::{InferRequest, Limits, json};

fn decode(body: impl Into<Bytes>, json_len: Option<usize>) -> Result<InferRequest, String> {
    json::decode_infer("m", None, &body.into(), json_len, &Limits::default())
        .map_err(|error| error.to_string())
}

/// A body of JSON and binary data, with the value of its header.
fn with_binary(json: &str, binary: &[u8]) -> (Bytes, Option<usize>) {
    ([json.as_bytes(), binary].concat().into(), Some(json.len()))
}
