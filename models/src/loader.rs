//! From the files of a model to a session that runs it.

use std::str::FromStr;

use crate::engine::ort::{Cuda, OrtLibrary, OrtMissing};
use crate::engine::synthetic::Description;
use crate::engine::{Content, ENGINES, Engine, Libraries, Prepared, Session};
use crate::onnx::{Graph, check_external_data, free_batch, may_have_external_data};
use crate::{EngineFailure, Format, LoadError, ModelFiles, Signature, batching};

/// Which engine is to run a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EngineChoice {
    /// The first engine that can: ONNX Runtime where its library was found, else tract.
    #[default]
    Auto,
    /// This one or none.
    Named(&'static str),
}

/// An engine name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown engine `{word}`: expected {expected}{}", hint.map(|h| format!(", did you mean `{h}`?")).unwrap_or_default())]
pub struct UnknownEngine {
    word: String,
    expected: String,
    hint: Option<&'static str>,
}

impl EngineChoice {
    /// The word that configuration uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Named(name) => name,
        }
    }
}

impl FromStr for EngineChoice {
    type Err = UnknownEngine;

    fn from_str(word: &str) -> Result<Self, UnknownEngine> {
        if word == "auto" {
            return Ok(Self::Auto);
        }
        if let Some(name) = crate::engine::names().find(|name| *name == word) {
            return Ok(Self::Named(name));
        }
        let words = || std::iter::once("auto").chain(crate::engine::names());
        let expected = words().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let hint = words().find(|name| strsim::damerau_levenshtein(name, word) <= 2);
        Err(UnknownEngine { word: word.chars().take(64).collect(), expected, hint })
    }
}

/// What a session of a model turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Name of its engine; no other is tried.
    pub engine: &'static str,
    /// What it takes and gives.
    pub signature: Signature,
}

/// How a model is to be loaded for one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Which engine.
    pub engine: EngineChoice,
    /// Threads that one run may use, the calling one included.
    pub threads: usize,
    /// Cores of the lane, the calling thread's first. Further threads are pinned to the others when there are
    /// at least as many cores as threads.
    pub cores: Vec<usize>,
    /// Bound on the plans that tract keeps for one session, one for each combination of input shapes.
    pub plan_cache: usize,
    /// Frees a batch dimension that the file fixes at 1, and checks that the changed graph answers two rows
    /// as it answers each.
    pub free_batch: bool,
    /// Largest batch. `None`: what the graph allows, up to [`DEFAULT_MAX_BATCH`](crate::DEFAULT_MAX_BATCH), if
    /// two rows together are answered as each alone. `Some(0)`: never batched.
    pub max_batch: Option<u32>,
    /// What an earlier session of the very same files turned out to be under these options, wherever it runs. Spares
    /// finding it out again: decoding the graph for an engine that does that itself, and checking that batches change
    /// no answers, which is most of the time that a further session takes.
    pub known: Option<Known>,
    /// The gpulet of a GPU that is to run it; `None`: the CPU. Then `threads` and `cores` are those that the thread
    /// submitting to the gpulet may use.
    pub accelerator: Option<Cuda>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            engine: EngineChoice::Auto,
            threads: 1,
            cores: Vec::new(),
            plan_cache: 16,
            free_batch: false,
            max_batch: None,
            known: None,
            accelerator: None,
        }
    }
}

impl LoadOptions {
    /// The engine that is to run it.
    fn choice(&self) -> EngineChoice {
        self.known.as_ref().map_or(self.engine, |known| EngineChoice::Named(known.engine))
    }
}

/// Makes sessions with the engines that this process has.
#[derive(Debug)]
pub struct Loader {
    /// ONNX Runtime, or why there is none.
    pub ort: Result<OrtLibrary, OrtMissing>,
}

impl Loader {
    /// A loader that uses ONNX Runtime if [`discover`](crate::engine::ort::discover) found it.
    pub fn new(ort: Result<OrtLibrary, OrtMissing>) -> Self {
        Self { ort }
    }

    /// A loader that never uses ONNX Runtime.
    pub fn without_ort() -> Self {
        Self {
            ort: Err(OrtMissing { tried: vec![("configuration".to_owned(), "is switched off".to_owned())] }),
        }
    }

    /// Loads a model. The error names the model, and what each engine that was tried said.
    pub fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, LoadError> {
        let prepared = prepare(files, options)?;
        let libraries = Libraries { ort: &self.ort };
        let mut failures: Vec<EngineFailure> = Vec::new();
        for engine in candidates(files.format, options) {
            match engine.load(&prepared, &libraries, options) {
                Ok(session) => {
                    // That the library is missing was said once, at start.
                    for failure in
                        failures.iter().filter(|failure| failure.engine != "ort" || self.ort.is_ok())
                    {
                        tracing::info!(model = %files.name, used = engine.name(), "not used: {failure}");
                    }
                    return match &options.known {
                        Some(_) => Ok(session),
                        None => batching::verify(files, session, options),
                    };
                }
                Err(failure) => failures.push(failure),
            }
        }
        if let (EngineChoice::Named(name), true) = (options.choice(), failures.is_empty()) {
            failures.push(EngineFailure {
                engine: name,
                operator: None,
                reason: match options.accelerator {
                    Some(_) => {
                        format!("does not run {} models on a GPU: expected `ort`", files.format.as_str())
                    }
                    None => format!("does not run {} models", files.format.as_str()),
                },
            });
        }
        Err(LoadError::Engines { model: files.name.to_string(), version: files.version.0, failures })
    }
}

fn candidates(format: Format, options: &LoadOptions) -> impl Iterator<Item = &'static dyn Engine> {
    let (choice, on_gpu) = (options.choice(), options.accelerator.is_some());
    ENGINES.iter().copied().filter(move |engine| {
        engine.accepts(format)
            && (!on_gpu || engine.runs_on_gpus())
            && match choice {
                EngineChoice::Auto => true,
                EngineChoice::Named(name) => engine.name() == name,
            }
    })
}

/// What a model takes and gives, without loading it. `max_batch` is the largest batch that the graph's shapes
/// allow under the default options; [`Loader::load`] may find that a batch changes answers and lower it to 0.
pub fn inspect(files: &ModelFiles, options: &LoadOptions) -> Result<Signature, LoadError> {
    Ok(prepare(files, options)?.signature)
}

fn prepare<'a>(files: &'a ModelFiles, options: &LoadOptions) -> Result<Prepared<'a>, LoadError> {
    match files.format {
        Format::Synthetic => {
            let description = Description::parse(files)?;
            let mut signature = description.signature();
            if let Some(wanted) = options.max_batch {
                batching::check_request(files, wanted, signature.max_batch)?;
                signature.max_batch = wanted;
            }
            Ok(Prepared { files, content: Content::Synthetic(description), signature })
        }
        Format::Onnx => prepare_onnx(files, options),
    }
}

fn prepare_onnx<'a>(files: &'a ModelFiles, options: &LoadOptions) -> Result<Prepared<'a>, LoadError> {
    if let Some(known) = &options.known
        && file_suffices(files, options, known.engine)
    {
        let content = Content::Onnx { graph: None, bytes: files.bytes.clone(), external: false };
        return Ok(Prepared { files, content, signature: known.signature.clone() });
    }
    let mut graph = Graph::decode(files)?;
    let external = check_external_data(files, &graph.proto)?;
    let mut bytes = files.bytes.clone();
    let mut outputs = graph.outputs()?;
    if options.free_batch {
        outputs = free_batch(&mut graph)?;
        bytes = graph.encode();
    }
    if let Some(known) = &options.known {
        let content = Content::Onnx { graph: Some(Box::new(graph)), bytes, external };
        return Ok(Prepared { files, content, signature: known.signature.clone() });
    }
    let inputs = graph.inputs()?;
    let max_batch = batching::max_batch(&graph.model, &inputs, &outputs, options)?;
    let signature = Signature {
        inputs: inputs.iter().map(crate::onnx::GraphTensor::spec).collect(),
        outputs: outputs.iter().map(crate::onnx::GraphTensor::spec).collect(),
        max_batch,
    };
    let content = Content::Onnx { graph: Some(Box::new(graph)), bytes, external };
    Ok(Prepared { files, content, signature })
}

/// Whether an engine that knows the model's signature needs nothing but the file as it is.
fn file_suffices(files: &ModelFiles, options: &LoadOptions, engine: &str) -> bool {
    let decodes = ENGINES.iter().any(|one| one.name() == engine && one.takes_undecoded());
    decodes && !options.free_batch && !may_have_external_data(&files.bytes)
}

#[cfg(test)]
pub(crate) mod tests;
