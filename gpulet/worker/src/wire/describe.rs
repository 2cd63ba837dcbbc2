//! Models and signatures as messages carry them.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use bytes::Bytes;
use models::{
    Dim, EngineChoice, Format, Known, LoadOptions, ModelFiles, ModelName, Reshape, Signature, TensorSpec,
    Version,
};
use oip::Datatype;
use serde::{Deserialize, Serialize};

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
                Format::Synthetic => false,
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
            Some(folder) => files.in_folder(PathBuf::from(std::ffi::OsString::from_vec(folder))),
            None => files,
        })
    }
}

/// Dimensions of a tensor; `None` is free.
type Extents = Vec<Option<u64>>;

/// [`LoadOptions`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireOptions {
    engine: String,
    threads: usize,
    cores: Vec<usize>,
    plan_cache: usize,
    free_batch: bool,
    max_batch: Option<u32>,
    /// Tensor, dimensions for clients, dimensions in the graph.
    reshapes: Vec<(String, Extents, Extents)>,
    /// Engine and signature, where the model was loaded before.
    known: Option<(String, WireSignature)>,
}

impl From<&LoadOptions> for WireOptions {
    fn from(options: &LoadOptions) -> Self {
        // The worker knows the accelerator of its gpulets.
        let LoadOptions {
            engine,
            threads,
            cores,
            plan_cache,
            free_batch,
            max_batch,
            reshapes,
            known,
            accelerator: _,
        } = options;
        Self {
            engine: engine.as_str().to_owned(),
            threads: *threads,
            cores: cores.clone(),
            plan_cache: *plan_cache,
            free_batch: *free_batch,
            max_batch: *max_batch,
            reshapes: reshapes
                .iter()
                .map(|Reshape { tensor, client, graph }| (tensor.clone(), extents(client), extents(graph)))
                .collect(),
            known: known.as_ref().map(|known| (known.engine.to_owned(), (&known.signature).into())),
        }
    }
}

impl TryFrom<WireOptions> for LoadOptions {
    type Error = String;

    fn try_from(options: WireOptions) -> Result<Self, String> {
        let WireOptions { engine, threads, cores, plan_cache, free_batch, max_batch, reshapes, known } =
            options;
        let reshapes = reshapes.into_iter().map(|(tensor, client, graph)| Reshape {
            tensor,
            client: dims(client),
            graph: dims(graph),
        });
        let engine = choice(&engine)?;
        let known = known.map(|(engine, signature)| {
            let EngineChoice::Named(engine) = choice(&engine)? else {
                return Err(format!("expected the engine of a session, got `{engine}`"));
            };
            Ok(Known { engine, signature: signature.try_into()? })
        });
        let known = known.transpose()?;
        Ok(Self {
            engine,
            threads,
            cores,
            plan_cache,
            free_batch,
            max_batch,
            reshapes: reshapes.collect(),
            known,
            accelerator: None,
        })
    }
}

fn extents(dims: &[Dim]) -> Extents {
    let extent = |dim: &Dim| match dim {
        Dim::Fixed(extent) => Some(*extent),
        Dim::Free => None,
    };
    dims.iter().map(extent).collect()
}

fn dims(extents: Extents) -> Vec<Dim> {
    extents.into_iter().map(|extent| extent.map_or(Dim::Free, Dim::Fixed)).collect()
}

fn choice(engine: &str) -> Result<EngineChoice, String> {
    engine.parse().map_err(|error: models::UnknownEngine| error.to_string())
}

/// [`Signature`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireSignature {
    inputs: Vec<WireSpec>,
    outputs: Vec<WireSpec>,
    max_batch: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WireSpec {
    name: String,
    datatype: u8,
    dims: Vec<Option<u64>>,
    optional: bool,
}

impl From<&Signature> for WireSignature {
    fn from(signature: &Signature) -> Self {
        let Signature { inputs, outputs, max_batch } = signature;
        let specs = |specs: &[TensorSpec]| specs.iter().map(WireSpec::from).collect();
        Self { inputs: specs(inputs), outputs: specs(outputs), max_batch: *max_batch }
    }
}

impl From<&TensorSpec> for WireSpec {
    fn from(spec: &TensorSpec) -> Self {
        let TensorSpec { name, datatype, dims, optional } = spec;
        let dims = extents(dims);
        Self { name: name.clone(), datatype: number_of(*datatype), dims, optional: *optional }
    }
}

impl TryFrom<WireSignature> for Signature {
    type Error = String;

    fn try_from(signature: WireSignature) -> Result<Self, String> {
        let WireSignature { inputs, outputs, max_batch } = signature;
        let specs =
            |specs: Vec<WireSpec>| specs.into_iter().map(TensorSpec::try_from).collect::<Result<_, _>>();
        Ok(Self { inputs: specs(inputs)?, outputs: specs(outputs)?, max_batch })
    }
}

impl TryFrom<WireSpec> for TensorSpec {
    type Error = String;

    fn try_from(spec: WireSpec) -> Result<Self, String> {
        let WireSpec { name, datatype: number, dims: extents, optional } = spec;
        Ok(Self { name, datatype: datatype(number)?, dims: dims(extents), optional })
    }
}

/// A datatype as a message carries it: its position in [`Datatype::ALL`].
pub(super) fn number_of(datatype: Datatype) -> u8 {
    let position = Datatype::ALL.iter().position(|one| *one == datatype);
    position.and_then(|position| u8::try_from(position).ok()).unwrap_or(u8::MAX)
}

/// The datatype with this number.
pub(super) fn datatype(number: u8) -> Result<Datatype, String> {
    let datatype = Datatype::ALL.get(usize::from(number)).copied();
    datatype.ok_or_else(|| format!("expected the number of a datatype, got {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            plan_cache: 5,
            free_batch: true,
            max_batch: Some(7),
            reshapes: vec![Reshape {
                tensor: "x".to_owned(),
                client: vec![Dim::Free, Dim::Fixed(9)],
                graph: vec![Dim::Free, Dim::Fixed(3), Dim::Fixed(3)],
            }],
            known: Some(Known { engine: "ort", signature: signature.clone() }),
            accelerator: None,
        };
        assert_eq!(LoadOptions::try_from(WireOptions::from(&options)), Ok(options));

        assert_eq!(Signature::try_from(WireSignature::from(&signature)), Ok(signature));
    }

    #[test]
    fn unknown_engines_and_datatypes_are_refused() {
        let mut options = WireOptions::from(&LoadOptions::default());
        options.engine = "abacus".to_owned();
        assert!(LoadOptions::try_from(options).unwrap_err().starts_with("unknown engine `abacus`"));
        let spec = WireSpec { name: "x".to_owned(), datatype: 99, dims: Vec::new(), optional: false };
        let signature = WireSignature { inputs: vec![spec], outputs: Vec::new(), max_batch: 0 };
        assert_eq!(
            Signature::try_from(signature),
            Err("expected the number of a datatype, got 99".to_owned())
        );
    }
}
