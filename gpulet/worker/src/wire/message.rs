//! The messages.

use models::engine::RunError;
use oip::{Datatype, Shape};
use serde::{Deserialize, Serialize};

use super::describe::{WireFiles, WireOptions, WireSignature, datatype, number_of};

/// Incremented with every change of a message.
pub(crate) const PROTOCOL: u32 = 2;
/// Reasons are truncated to this many characters.
const REASON_CHARS_MAX: usize = 4000;

/// The first message to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The protocol of the server.
    pub(crate) protocol: u32,
    /// The version of the server's program.
    pub(crate) version: String,
    /// The name of the worker's device in plans.
    pub device: String,
    /// How to make that device: the `description` given to [`ProcessDevice::new`](crate::ProcessDevice::new).
    pub description: String,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused(pub String);

impl Refused {
    pub fn new(reason: &str) -> Self {
        Self(bounded(reason))
    }
}

/// A reason that fits into a message.
pub(crate) fn bounded(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

/// The worker has its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub protocol: u32,
    pub version: String,
    /// Units of the device.
    pub units: u32,
}

/// The worker's last message: why it can run nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dying(pub String);

/// Open a gpulet. The gpulet's socket is passed with the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Open {
    pub lane: u32,
    pub first_unit: u32,
    pub units: u32,
}

/// The gpulet is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub cores: Vec<usize>,
}

/// Load a model. The session's socket and the model's file are passed with the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub files: WireFiles,
    pub options: WireOptions,
    /// Upper bound on the bytes of one batch's outputs.
    pub bytes_max: usize,
}

/// The model is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loaded {
    pub signature: WireSignature,
    pub engine: String,
    pub settles_each_size: bool,
}

/// Run a batch. A file that is passed with the message is the new region of the inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub rows: u32,
    /// In the order of the signature; none for an absent optional input.
    pub inputs: Vec<Option<TensorHead>>,
    /// Whether the batch runs at background priority.
    pub background: bool,
    /// Whether to free working memory first.
    pub trim: bool,
}

/// A tensor whose elements are in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TensorHead {
    datatype: u8,
    extents: Vec<u64>,
    start: u64,
    bytes: u64,
}

/// A batch ended. A file that is passed with the message is the new region of the outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// Outputs in the order of the signature.
    pub outcome: Result<Vec<TensorHead>, Failure>,
    /// Whether the engine still reads the inputs, so that their region must not be written again.
    pub holds_inputs: bool,
    /// Time in the engine, in nanoseconds. Time that a background batch waited for a core is left out.
    pub took_ns: u64,
}

/// Why a batch failed: [`RunError`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Failure {
    Input(String),
    Engine(String),
    Lost(String),
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Input(reason) => Self::Input(bounded(&reason)),
            RunError::Engine(reason) => Self::Engine(bounded(&reason)),
            RunError::Lost(reason) => Self::Lost(bounded(&reason)),
        }
    }
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Input(reason) => Self::Input(reason),
            Failure::Engine(reason) => Self::Engine(reason),
            Failure::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl TensorHead {
    pub fn new(datatype: Datatype, shape: &Shape, start: usize, bytes: usize) -> Self {
        Self {
            datatype: number_of(datatype),
            extents: shape.extents().to_vec(),
            start: start as u64,
            bytes: bytes as u64,
        }
    }

    /// Datatype, shape, first byte and number of bytes, if they are consistent.
    pub fn read(&self) -> Result<(Datatype, Shape, usize, usize), String> {
        let datatype = datatype(self.datatype)?;
        if self.extents.len() > Shape::MAX_RANK {
            return Err(format!(
                "expected at most {} dimensions, got {}",
                Shape::MAX_RANK,
                self.extents.len()
            ));
        }
        let shape = Shape::from_extents(&self.extents);
        let count = shape.element_count().ok_or_else(|| format!("shape {shape} has too many elements"))?;
        let element = datatype.size().map(|size| size as u64);
        let expected = element.map_or(Some(self.bytes), |size| count.checked_mul(size));
        if expected != Some(self.bytes) {
            return Err(format!("{} bytes for {datatype} of shape {shape}", self.bytes));
        }
        match (usize::try_from(self.start), usize::try_from(self.bytes)) {
            (Ok(start), Ok(bytes)) => Ok((datatype, shape, start, bytes)),
            _ => Err(format!("a tensor of {} bytes at {}", self.bytes, self.start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inconsistent_tensor_heads_are_refused() {
        let shape = Shape::from_extents(&[2, 3]);
        let head = TensorHead::new(Datatype::Int16, &shape, 64, 12);
        assert_eq!(head.read(), Ok((Datatype::Int16, shape.clone(), 64, 12)));
        let text = TensorHead::new(Datatype::Bytes, &shape, 0, 77);
        assert_eq!(text.read().unwrap().3, 77);
        for wrong in [
            TensorHead { bytes: 13, ..head.clone() },
            TensorHead { datatype: 14, ..head.clone() },
            TensorHead { extents: vec![u64::MAX, 2], ..head.clone() },
            TensorHead { extents: vec![1; 65], ..head },
        ] {
            assert!(wrong.read().is_err(), "{wrong:?}");
        }
    }
}
