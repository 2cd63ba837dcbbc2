//! A tensor with its data.

use bytes::Bytes;

use crate::{Datatype, Shape};

/// A named tensor that owns (or shares, by reference count) its elements.
///
/// `data` is row-major and little-endian, exactly as in the binary tensor extension. `BOOL` elements are
/// one byte; every `BYTES` element is a 4-byte little-endian length followed by that many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Name in the model's signature.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// Extents, batch dimension included.
    pub shape: Shape,
    /// The elements, encoded as above.
    pub data: Bytes,
}
