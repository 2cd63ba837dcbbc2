//! JSON bodies of the REST interface, with the binary tensor extension.
//!
//! The body is read in two steps: serde takes the members apart and leaves every `data` array as text; the text
//! is turned into little-endian bytes once datatype and shape are known. There is no tree of JSON values in
//! between.

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
mod wire;

pub use decode::decode_infer;
pub use decode_response::decode_response;
pub use encode::{Encoded, encode_infer};
pub use encode_request::encode_request;
