//! JSON bodies of the REST interface, with the binary tensor extension.
//!
//! A body is decoded in two steps. serde parses the members and leaves each `data` array as text. The text is converted
//! to little-endian bytes once datatype and shape are known, without a tree of JSON values in between.

mod decode;
mod decode_response;
mod depth;
mod elements;
mod encode;
mod encode_request;
mod parameters;
mod print;
mod tensors;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub use decode::decode_infer;
pub use decode_response::decode_response;
pub use encode::{Encoded, encode_infer};
pub use encode_request::encode_request;
