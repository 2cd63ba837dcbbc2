//! From the files of a model to a session that runs it.

use crate::engine::ort::{OrtLibrary, OrtMissing, PreparedModel};
use crate::engine::python::{self, HostSlot};
use crate::engine::synthetic::Description;
use crate::engine::{
    Content, ENGINES, Engine, EngineChoice, Known, Libraries, LoadOptions, Prepared, Session,
};
use crate::onnx::{Graph, check_external_data, free_batch, may_have_external_data};
use crate::reshape::{self, Reshaped};
use crate::{EngineFailure, Ensemble, Format, LoadError, ModelFiles, Signature, batching};

/// Makes sessions with the engines that this process has.
#[derive(Debug)]
pub struct Loader {
    /// ONNX Runtime, or why it was not found.
    pub ort: Result<OrtLibrary, OrtMissing>,
    /// What Python models call, to be set by the server.
    pub host: HostSlot,
}

impl Loader {
    /// A loader that uses ONNX Runtime if [`discover`](crate::engine::ort::discover) found it.
    pub fn new(ort: Result<OrtLibrary, OrtMissing>) -> Self {
        python::prepare();
        Self { ort, host: HostSlot::default() }
    }

    /// A loader that never uses ONNX Runtime.
    pub fn without_ort() -> Self {
        Self {
            ort: Err(OrtMissing { tried: vec![("configuration".to_owned(), "is switched off".to_owned())] }),
            host: HostSlot::default(),
        }
    }

    /// A loader for the models that run in processes of their own, so that a device in another process need not load them.
    pub fn for_own_processes(host: HostSlot) -> Self {
        python::prepare();
        Self { host, ..Self::without_ort() }
    }

    /// Loads a model. The error names the model, and what each engine that was tried said.
    pub fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, LoadError> {
        if options.reshapes.is_empty() {
            return self.load_graph(files, options);
        }
        let known = options.known.clone().map(|known| Known {
            signature: reshape::for_graph(&known.signature, &options.reshapes),
            ..known
        });
        let session =
            self.load_graph(files, &LoadOptions { known, reshapes: Vec::new(), ..options.clone() })?;
        Ok(Box::new(Reshaped::new(session, &options.reshapes, files)?))
    }

    /// Makes a further session of a model whose first session [was prepared](Session::prepared), with the engine and the signature
    /// of [`LoadOptions::known`].
    ///
    /// # Errors
    /// Names the model and what the engine said.
    pub fn load_prepared(
        &self,
        model: &PreparedModel,
        options: &LoadOptions,
    ) -> Result<Box<dyn Session>, LoadError> {
        let refuse = |failure: EngineFailure| LoadError::Engines {
            model: model.files.name.to_string(),
            version: model.files.version.0,
            failures: vec![failure],
        };
        let reason = |reason: String| refuse(EngineFailure { engine: "ort", operator: None, reason });
        let library = self.ort.as_ref().map_err(|missing| reason(missing.to_string()))?;
        let known = options.known.as_ref();
        let signature = &known
            .ok_or_else(|| reason("expected the signature of an earlier session".to_owned()))?
            .signature;
        let for_graph = reshape::for_graph(signature, &options.reshapes);
        let session = model.session(&for_graph, library, options).map_err(refuse)?;
        if options.reshapes.is_empty() {
            return Ok(session);
        }
        Ok(Box::new(Reshaped::new(session, &options.reshapes, &model.files)?))
    }

    fn load_graph(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, LoadError> {
        let prepared = prepare(files, options)?;
        let libraries = Libraries { ort: &self.ort, host: self.host.clone() };
        let mut failures: Vec<EngineFailure> = Vec::new();
        for engine in candidates(files.format, options) {
            match (engine.load)(&prepared, &libraries, options) {
                Ok(session) => {
                    // That the library is missing was said once, at start.
                    for failure in
                        failures.iter().filter(|failure| failure.engine != "ort" || self.ort.is_ok())
                    {
                        tracing::info!(model = %files.name, used = engine.name, "not used: {failure}");
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

fn candidates(format: Format, options: &LoadOptions) -> impl Iterator<Item = &'static Engine> {
    let (choice, on_gpu) = (options.choice(), options.accelerator.is_some());
    let needs_ort = options.ort.accelerators_required && !options.ort.accelerators.is_empty();
    ENGINES.iter().filter(move |engine| {
        engine.format == format
            && (!on_gpu || engine.runs_on_gpus)
            && (!needs_ort || engine.name == crate::engine::ort::NAME)
            && match choice {
                EngineChoice::Auto => true,
                EngineChoice::Named(name) => engine.name == name,
            }
    })
}

/// What a model takes and gives, without loading it. `max_batch` is the largest batch that the graph's shapes
/// allow under the default options; [`Loader::load`] may find that a batch changes answers and lower it to 0.
pub fn inspect(files: &ModelFiles, options: &LoadOptions) -> Result<Signature, LoadError> {
    if files.format == Format::Ensemble {
        return Ok(Ensemble::of(files)?.signature());
    }
    Ok(reshape::for_clients(&prepare(files, options)?.signature, &options.reshapes))
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
        Format::Ensemble => {
            let reason = "an ensemble has no session: it runs other models".to_owned();
            Err(LoadError::Files { model: files.name.to_string(), reason })
        }
        Format::Python => {
            let (config, signature) = python::inspect(files, options)?;
            Ok(Prepared { files, content: Content::Python(config), signature })
        }
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
    let mut freed = None;
    if options.free_batch {
        freed = Some(free_batch(&mut graph)?);
        bytes = graph.encode();
    }
    if let Some(known) = &options.known {
        let content = Content::Onnx { graph: Some(Box::new(graph)), bytes, external };
        return Ok(Prepared { files, content, signature: known.signature.clone() });
    }
    let (inputs, outputs) = (graph.inputs()?, freed.map_or_else(|| graph.outputs(), Ok)?);
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
    let decodes = ENGINES.iter().any(|one| one.name == engine && one.takes_undecoded);
    decodes && !options.free_batch && !may_have_external_data(&files.bytes)
}

#[cfg(test)]
pub(crate) mod tests;
