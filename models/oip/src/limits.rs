//! Bounds on what a client may send.

/// Bounds that the codecs enforce before they allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a whole request body, after decompression.
    pub body_bytes: usize,
    /// Bytes of all inline inputs of a request together, after decoding. JSON numbers may grow when decoded, so
    /// this is a bound of its own.
    pub tensor_bytes: usize,
    /// Inputs of a request, and outputs of a request. Never more than [`Limits::TENSORS_MAX`].
    pub tensors: usize,
    /// Entries of one `parameters` object. Never more than [`Limits::PARAMETERS_MAX`].
    pub parameters: usize,
    /// Nested JSON arrays and objects, those in ignored members included.
    pub json_depth: usize,
    /// Bytes of a tensor name, parameter name, region name or request id.
    pub name_bytes: usize,
}

impl Limits {
    /// Ceiling of [`Limits::tensors`]: what the parser keeps in memory before the configured bound is checked.
    pub const TENSORS_MAX: usize = 1024;
    /// Ceiling of [`Limits::parameters`], for the same reason.
    pub const PARAMETERS_MAX: usize = 256;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 20,
            tensor_bytes: 64 << 20,
            tensors: 256,
            parameters: 64,
            json_depth: 64,
            name_bytes: 1024,
        }
    }
}
