//! The models under test: a folder per model, as the export script writes them.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use models::engine::{Batch, Session};
use models::{Format, ModelFiles, ModelName, SampleInputs, Version};
use oip::{Datatype, Shape, Tensor};
use serde::Deserialize;

use crate::bench::{Bench, Stop};

/// Upper bound on the bytes of synthetic inputs.
const INPUT_BYTES_MAX: usize = 256 << 20;
/// Upper bound on models.
const SUBJECTS_MAX: usize = 64;

/// A tensor of the reference, whose elements are in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    name: String,
    datatype: String,
    shape: Vec<u64>,
    file: String,
}

/// `reference.json`: inputs, and the outputs of the framework that exported the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    rows: u32,
    tolerance: f64,
    inputs: Vec<Stored>,
    outputs: Vec<Stored>,
}

/// Inputs and the expected outputs.
pub(crate) struct Known {
    pub(crate) batch: Batch,
    pub(crate) outputs: Vec<Tensor>,
    /// Upper bound on the norm of the difference divided by the norm of the output.
    pub(crate) tolerance: f64,
}

/// A model under test.
pub(crate) struct Subject {
    pub(crate) files: ModelFiles,
    /// Expected outputs, if there is a reference.
    pub(crate) known: Option<Known>,
    samples: OnceLock<Option<SampleInputs>>,
}

impl Subject {
    pub(crate) fn name(&self) -> &str {
        self.files.name.as_str()
    }

    /// A batch of `rows` rows that the model accepts.
    pub(crate) fn batch(&self, session: &mut dyn Session, rows: u32) -> Result<Batch, Stop> {
        let samples = self.samples.get_or_init(|| SampleInputs::of(session));
        let batches = samples.as_ref().and_then(|samples| samples.batches(rows, 1, INPUT_BYTES_MAX));
        let batch = batches.and_then(|batches| batches.into_iter().next());
        batch.ok_or_else(|| {
            Stop::Other(format!("model `{}`: no synthetic input of {rows} rows runs", self.name()))
        })
    }

    fn read(folder: &Path) -> Result<Self, String> {
        let said = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = ModelName::new(name).map_err(|error| said(folder, &error))?;
        let file = folder.join("model.onnx");
        let bytes = fs::read(&file).map_err(|error| said(&file, &error))?;
        let files =
            ModelFiles::from_bytes(name, Version(1), Format::Onnx, bytes).in_folder(folder.to_owned());
        let reference = folder.join("reference.json");
        let known = match reference.exists() {
            true => Some(known(folder, &reference).map_err(|error| said(&reference, &error))?),
            false => None,
        };
        Ok(Self { files, known, samples: OnceLock::new() })
    }
}

fn known(folder: &Path, file: &Path) -> Result<Known, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let reference: Reference = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let inputs = reference.inputs.iter().map(|stored| tensor(folder, stored).map(Some));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let outputs =
        reference.outputs.iter().map(|stored| tensor(folder, stored)).collect::<Result<Vec<_>, _>>()?;
    Ok(Known { batch: Batch { inputs, rows: reference.rows }, outputs, tolerance: reference.tolerance })
}

fn tensor(folder: &Path, stored: &Stored) -> Result<Tensor, String> {
    let field = |problem: String| format!("`{}`: {problem}", stored.name);
    let datatype: Datatype =
        stored.datatype.parse().map_err(|error: oip::UnknownDatatype| field(error.to_string()))?;
    let shape = Shape::from_extents(&stored.shape);
    let data =
        fs::read(folder.join(&stored.file)).map_err(|error| field(format!("{}: {error}", stored.file)))?;
    let size = datatype.size().and_then(|size| u64::try_from(size).ok());
    let wanted = shape.element_count().zip(size).and_then(|(count, size)| count.checked_mul(size));
    if wanted != u64::try_from(data.len()).ok() {
        return Err(field(format!(
            "{}: expected {} bytes, got {}",
            stored.file,
            wanted.unwrap_or(0),
            data.len()
        )));
    }
    Ok(Tensor { name: stored.name.clone(), datatype, shape, data: data.into() })
}

/// The models in a folder, sorted by name.
fn read_all(folder: &Path) -> Result<Vec<Subject>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("--models {}: {error}", folder.display()))?;
    let mut folders: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.join("model.onnx").exists())
        .collect();
    folders.sort();
    folders.truncate(SUBJECTS_MAX);
    if folders.is_empty() {
        return Err(format!("--models {}: expected folders with a `model.onnx`, got none", folder.display()));
    }
    folders.iter().map(|path| Subject::read(path)).collect()
}

/// The models, if they can run on green contexts here. Reports what is missing otherwise.
pub(crate) fn ready(bench: &mut Bench<'_>, fact: &str, section: &str) -> Option<Vec<Subject>> {
    if !bench.has_green(fact, section) {
        return None;
    }
    ready_on_any_backend(bench, fact, section)
}

/// The models, if they can run here on any backend. Reports what is missing otherwise.
pub(crate) fn ready_on_any_backend(bench: &mut Bench<'_>, fact: &str, section: &str) -> Option<Vec<Subject>> {
    let engine = bench.engine.as_ref().map(drop).map_err(Clone::clone);
    match engine.and_then(|()| read_all(&bench.models)) {
        Ok(subjects) => Some(subjects),
        Err(missing) => {
            bench.report.skip(fact, section, missing);
            None
        }
    }
}
