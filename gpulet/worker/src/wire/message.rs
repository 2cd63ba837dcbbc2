//! The messages.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use bytes::Bytes;
use models::engine::RunError;
use models::{Format, Known, LoadOptions, ModelFiles, ModelName, Version};
use oip::{Datatype, Shape};
use serde::{Deserialize, Serialize};

/// Incremented with every change of a message.
pub(crate) const PROTOCOL: u32 = 4;
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

/// An error with a reason that fits into a message.
pub(crate) fn bounded_error(mut error: RunError) -> RunError {
    let (RunError::Input(reason)
    | RunError::Engine(reason)
    | RunError::DeviceFailed(reason)
    | RunError::Model { message: reason, .. }) = &mut error;
    *reason = bounded(reason);
    error
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
    pub idle_priority: bool,
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
    pub options: LoadOptions,
    /// Upper bound on the bytes of one batch's outputs.
    pub bytes_max: usize,
}

/// [`ModelFiles`] without the bytes of the main file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireFiles {
    pub name: String,
    version: u64,
    onnx: bool,
    /// A path in the encoding of the file system.
    folder: Option<Vec<u8>>,
}

impl From<&ModelFiles> for WireFiles {
    fn from(files: &ModelFiles) -> Self {
        Self {
            name: files.name.to_string(),
            version: files.version.0,
            onnx: match files.format {
                Format::Onnx => true,
                // Python models and ensembles are not loaded here: the first have processes of their own, the others no session.
                Format::Synthetic | Format::Python | Format::Ensemble => false,
            },
            folder: files.folder().map(|folder| folder.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl WireFiles {
    /// The model's files, with `bytes` as the content of the main file.
    pub fn with(self, bytes: Bytes) -> Result<ModelFiles, String> {
        let name = ModelName::new(&self.name).map_err(|error| error.to_string())?;
        let format = if self.onnx { Format::Onnx } else { Format::Synthetic };
        let files = ModelFiles::from_bytes(name, Version(self.version), format, bytes);
        Ok(match self.folder {
            Some(folder) => files.in_folder(OsString::from_vec(folder).into()),
            None => files,
        })
    }
}

/// The model is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// Engine and signature.
    pub session: Known,
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
    datatype: Datatype,
    extents: Vec<u64>,
    start: u64,
    bytes: u64,
}

/// A batch ended. A file that is passed with the message is the new region of the outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// Outputs in the order of the signature.
    pub outcome: Result<Vec<TensorHead>, RunError>,
    /// Whether the engine still reads the inputs, so that their region must not be written again.
    pub holds_inputs: bool,
    /// Time in the engine, in nanoseconds. Time that a background batch waited for a core is left out.
    pub took_ns: u64,
}

impl TensorHead {
    pub fn new(datatype: Datatype, shape: &Shape, start: usize, bytes: usize) -> Self {
        Self { datatype, extents: shape.extents().to_vec(), start: start as u64, bytes: bytes as u64 }
    }

    /// Datatype, shape, first byte and number of bytes, if they are consistent.
    pub fn read(&self) -> Result<(Datatype, Shape, usize, usize), String> {
        let datatype = self.datatype;
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
    use std::num::NonZeroUsize;

    use models::engine::ort::OrtSettings;
    use models::engine::python::PythonOptions;
    use models::{Dim, EngineChoice, Reshape, Signature, TensorSpec};

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
            TensorHead { extents: vec![u64::MAX, 2], ..head.clone() },
            TensorHead { extents: vec![1; 65], ..head },
        ] {
            assert!(wrong.read().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn models_and_options_survive_a_round_trip() {
        let name = ModelName::new("digits").unwrap();
        let files = ModelFiles::from_bytes(name, Version(3), Format::Onnx, "graph");
        let files = files.in_folder("/models/digits/3".into());
        let again = WireFiles::from(&files).with(files.bytes.clone()).unwrap();
        assert_eq!((&again.name, again.version, again.format), (&files.name, files.version, files.format));
        assert_eq!((again.hash, again.folder()), (files.hash, files.folder()));

        let specs = Datatype::ALL.map(|datatype| TensorSpec {
            name: datatype.to_string(),
            datatype,
            dims: vec![Dim::Free, Dim::Fixed(9)],
            optional: datatype == Datatype::Bool,
        });
        let signature = Signature { inputs: specs.to_vec(), outputs: specs[..2].to_vec(), max_batch: 4 };
        let options = LoadOptions {
            engine: EngineChoice::Named("tract"),
            threads: 2,
            cores: vec![1, 3],
            idle_priority: true,
            plan_cache: 5,
            share_weights: true,
            free_batch: true,
            max_batch: Some(7),
            reshapes: vec![Reshape {
                tensor: "x".to_owned(),
                client: vec![Dim::Free, Dim::Fixed(9)],
                graph: vec![Dim::Free, Dim::Fixed(3), Dim::Fixed(3)],
            }],
            ort: OrtSettings {
                intra_threads: NonZeroUsize::new(3),
                parallel: true,
                ..OrtSettings::default()
            },
            known: Some(Known { engine: "ort", signature }),
            python: PythonOptions { interpreter: Some("python3".into()), ..PythonOptions::default() },
            accelerator: None,
        };
        let encoded = postcard::to_allocvec(&options).unwrap();
        assert_eq!(postcard::from_bytes(&encoded), Ok(options));
    }

    #[test]
    fn unknown_engines_and_datatypes_are_refused() {
        let encoded = |word: &str| postcard::to_allocvec(word).unwrap();
        assert_eq!(postcard::from_bytes(&encoded("ort")), Ok(EngineChoice::Named("ort")));
        assert!(postcard::from_bytes::<EngineChoice>(&encoded("abacus")).is_err());
        let signature = Signature { inputs: Vec::new(), outputs: Vec::new(), max_batch: 0 };
        let of_auto = postcard::to_allocvec(&Known { engine: "auto", signature }).unwrap();
        assert!(postcard::from_bytes::<Known>(&of_auto).is_err(), "a session has an engine");
        assert_eq!(postcard::from_bytes(&[13]), Ok(Datatype::Bytes));
        assert!(postcard::from_bytes::<Datatype>(&[14]).is_err());
    }
}
