//! The messages.

use oip::{Datatype, Shape};
use serde::{Deserialize, Serialize};

use super::{WireDevice, WireFiles, WireOptions, WireSignature};

/// Counts up with every change of a message.
pub(crate) const PROTOCOL: u32 = 1;

/// What a worker is told first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Which messages the server knows.
    pub(crate) protocol: u32,
    /// Version of the program that asks.
    pub(crate) version: String,
    /// The device that the worker is to have, as plans call it.
    pub device: String,
    /// How to make that device: whatever was given to [`ProcessDevice::new`](crate::ProcessDevice::new).
    pub description: String,
}

/// Why something cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused(pub String);

/// The worker has its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub protocol: u32,
    pub version: String,
    pub device: WireDevice,
}

/// The worker's last word: it can run nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dying(pub String);

/// Open a gpulet. Its socket comes with the message.
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

/// Load a model. The session's socket and the model's file come with the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub files: WireFiles,
    pub options: WireOptions,
    /// Bytes that the outputs of one batch may take.
    pub bytes_max: usize,
}

/// The model is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loaded {
    pub signature: WireSignature,
    pub engine: String,
    pub settles_each_size: bool,
}

/// Run a batch. A region that takes the place of the one for inputs comes with the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub rows: u32,
    /// In the order of the signature.
    pub inputs: Vec<Option<TensorHead>>,
    /// Whether whoever asks gives way to others.
    pub gives_way: bool,
    /// Working memory is to be given back.
    pub trim: bool,
}

/// A tensor whose elements lie in a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TensorHead {
    /// Position in [`Datatype::ALL`].
    datatype: u8,
    extents: Vec<u64>,
    start: u64,
    bytes: u64,
}

/// A batch ended. A region that takes the place of the one for outputs comes with the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// Outputs in the order of the signature.
    pub outcome: Result<Vec<TensorHead>, Failure>,
    /// The engine holds on to inputs: their region must not be written again.
    pub holds_inputs: bool,
    /// Time in the engine, less the time for which a run that gives way had no core, in nanoseconds.
    pub took_ns: u64,
}

/// A batch ended badly, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// The client's mistake.
    Input(String),
    /// The engine failed.
    Engine(String),
    /// What ran it is gone.
    Lost(String),
}

impl TensorHead {
    pub fn new(datatype: Datatype, shape: &Shape, start: usize, bytes: usize) -> Self {
        let position = Datatype::ALL.iter().position(|one| *one == datatype);
        Self {
            datatype: position.and_then(|position| u8::try_from(position).ok()).unwrap_or(u8::MAX),
            extents: shape.extents().to_vec(),
            start: start as u64,
            bytes: bytes as u64,
        }
    }

    /// Type, shape, first byte and number of bytes, if they make sense together.
    pub fn read(&self) -> Result<(Datatype, Shape, usize, usize), String> {
        let datatype = datatype(self.datatype)?;
        if self.extents.len() > Shape::MAX_RANK {
            return Err(format!("a tensor of {} dimensions", self.extents.len()));
        }
        let shape = Shape::from_extents(&self.extents);
        let count = shape.element_count().ok_or_else(|| format!("a tensor of shape {shape}"))?;
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

/// The datatype at a position of [`Datatype::ALL`].
pub(super) fn datatype(position: u8) -> Result<Datatype, String> {
    Datatype::ALL.get(usize::from(position)).copied().ok_or_else(|| format!("datatype number {position}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_make_no_sense_are_refused() {
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
