//! Requests and responses as protobuf messages.
//!
//! Elements are in `raw_input_contents`, taken over without a copy, or in the typed `contents` of each input.

mod contents;
mod decode;
mod decode_response;
mod encode;
mod encode_request;
mod parameters;
#[cfg(test)]
mod tests;
mod wire;

pub use decode::decode_infer;
pub use decode_response::decode_response;
pub use encode::encode_infer;
pub use encode_request::encode_request;
pub use parameters::{from_proto, to_proto};
pub use wire::decode_message;
