//! The `ort` engine: ONNX Runtime, from a shared library found at run time.
//!
//! The library is neither linked nor downloaded: [`discover`] searches for one. Without it this engine rejects every model,
//! and the other engines still work.

mod cuda;
mod inference;
mod library;
mod options;
mod pool;
mod prepared;
mod search;
mod strings;
mod value;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use ::ort::ErrorCode;
use ::ort::ep::ExecutionProviderDispatch;
use ::ort::session::builder::SessionBuilder;
use ::ort::session::{RunOptions, Session as OrtInner, SessionInputValue, SessionOutputs};
use oip::Tensor;

use super::guard::one_line;
use super::{Batch, Content, Engine, Interrupt, Libraries, Prepared, RunError, Session};
use crate::onnx::has_steady_time;
use crate::{EngineFailure, Format, LoadOptions, Signature};
pub use cuda::{Cuda, CudaFault, CudaGraph, CudaStream, DeviceBytes, HostBytes, SharedWeights};
pub(crate) use inference::{Inference, infer_types};
pub use library::{OrtLibrary, OrtMissing, discover};
pub use options::{Accelerator, GraphLevel, OrtSettings, Provider};
use pool::Pool;
pub use prepared::PreparedModel;
pub use search::Environment;

/// Name of this engine.
pub const NAME: &str = "ort";

/// The engine.
pub(crate) const ENGINE: Engine = Engine {
    name: NAME,
    platform: "onnxruntime_onnx",
    format: Format::Onnx,
    runs_on_gpus: true,
    takes_undecoded: true,
    load,
};

fn load(
    model: &Prepared<'_>,
    libraries: &Libraries<'_>,
    options: &LoadOptions,
) -> Result<Box<dyn Session>, EngineFailure> {
    let Content::Onnx { graph, bytes, external } = &model.content else {
        return Err(failure("takes only ONNX models".to_owned()));
    };
    let library = libraries.ort.as_ref().map_err(|missing| failure(missing.to_string()))?;
    let folder = model.files.folder().filter(|_| *external);
    if let Some(cuda) = &options.accelerator {
        return cuda::load(model, &cuda::Source { bytes, folder }, library, options, cuda);
    }
    let (name, settings) = (model.files.name.as_str(), &options.ort);
    for limit in settings.without_effect(options.threads, model.signature.has_fixed_inputs()) {
        tracing::info!(model = name, "{limit}");
    }
    let providers = settings.cpu_providers(name, settings.threads(options.threads)).map_err(failure)?;
    if options.share_weights && settings.accelerators.is_empty() {
        match prepared::load(model, bytes, graph.as_deref(), folder, library, options) {
            Ok(session) => return Ok(session),
            Err(reason) => tracing::warn!(model = name, reason, "weights are not shared"),
        }
    }
    let (threads_of_providers, nursery) = (settings.has_threads_of_providers(), library.nursery());
    let make = {
        let (library, signature, options) = (library.clone(), model.signature.clone(), options.clone());
        let (bytes, folder) = (bytes.clone(), folder.map(Path::to_owned));
        let label = name.to_owned();
        move || {
            let builder = configure(&library, &signature, &options, providers)?.with_log_id(&label)?;
            commit(builder, &bytes, folder.as_deref())
        }
    };
    let session = if threads_of_providers {
        // Threads that a provider starts inherit the cores and the priority of the thread that makes the session.
        pool::as_on_lane(nursery, options, make).map_err(failure)?
    } else {
        make()
    };
    let error = |error: ::ort::Error| failure(format!("{}{}", one_line(error.message()), settings.hint()));
    let session = session.map_err(error)?;
    check_names(&session, &model.signature).map_err(failure)?;
    let run = Arc::new(Termination(settings.run_options().map_err(error)?));
    Ok(Box::new(OrtSession {
        model: name.to_owned(),
        signature: model.signature.clone(),
        session,
        run,
        has_arena: settings.has_arena(),
        steady: has_steady_time(model.files, bytes, graph.as_deref(), &model.signature),
        trim: None,
        prepared: None,
    }))
}

/// Option with the folder of the weight files of a model that is loaded from bytes.
const EXTERNAL_DATA_FOLDER: &str = "session.model_external_initializers_file_folder_path";

/// Option that allocates weights outside of the arena.
const INITIALIZERS_OUTSIDE_ARENA: &str = "session.use_device_allocator_for_initializers";

fn commit(
    mut builder: SessionBuilder,
    bytes: &[u8],
    folder: Option<&Path>,
) -> Result<OrtInner, ::ort::Error> {
    match folder {
        Some(folder) => builder
            .with_config_entry(EXTERNAL_DATA_FOLDER, folder.to_string_lossy())?
            .commit_from_memory(bytes),
        None => builder.commit_from_memory(bytes),
    }
}

fn configure(
    library: &OrtLibrary,
    signature: &Signature,
    options: &LoadOptions,
    providers: impl AsRef<[ExecutionProviderDispatch]>,
) -> Result<SessionBuilder, ::ort::Error> {
    let settings = &options.ort;
    let (threads, operators) = (settings.threads(options.threads), settings.operators(options.threads));
    let mut builder = OrtInner::builder(library.environment())?
        .with_optimization_level(settings.graph_level.of_runtime())?
        .with_intra_threads(threads)?
        .with_inter_threads(operators)?
        .with_parallel_execution(operators > 1)?
        .with_intra_op_spinning(settings.spinning)?
        .with_inter_op_spinning(settings.spinning)?
        // The runtime keeps one memory plan for each combination of input shapes and never frees it. That is bounded if
        // only the batch varies; if other dimensions vary, clients could exhaust memory.
        .with_memory_pattern(settings.memory_pattern.unwrap_or(true) && signature.has_fixed_inputs())?
        .with_execution_providers(providers)?;
    if settings.initializers_outside_arena {
        builder = builder.with_config_entry(INITIALIZERS_OUTSIDE_ARENA, "1")?;
    }
    if threads > 1 || operators > 1 {
        // With fewer cores than threads, the threads are not pinned.
        let cores = options.cores.get(..threads.max(operators)).unwrap_or_default();
        builder = builder.with_thread_manager(Pool::new(
            library.nursery().clone(),
            cores,
            options.idle_priority,
        ))?;
    }
    Ok(builder)
}

/// The runtime must see the inputs and outputs that the file declares, in the same order.
fn check_names(session: &OrtInner, signature: &Signature) -> Result<(), String> {
    let matches = |seen: &[::ort::value::Outlet], specs: &[crate::TensorSpec]| {
        seen.iter().map(::ort::value::Outlet::name).eq(specs.iter().map(|spec| spec.name.as_str()))
    };
    if matches(session.inputs(), &signature.inputs) && matches(session.outputs(), &signature.outputs) {
        return Ok(());
    }
    Err("sees other inputs or outputs than the file declares".to_owned())
}

/// A batch as inputs of the runtime.
fn requested<'a>(
    batch: &'a Batch,
    signature: &'a Signature,
) -> Result<Vec<(Cow<'a, str>, SessionInputValue<'a>)>, RunError> {
    let inputs = batch.inputs.iter().zip(&signature.inputs).map(|(tensor, spec)| {
        let tensor =
            tensor.as_ref().ok_or_else(|| RunError::Input(format!("input `{}`: is missing", spec.name)))?;
        let value = value::to_ort(tensor)
            .map_err(|reason| RunError::Input(format!("input `{}`: {reason}", spec.name)))?;
        Ok((Cow::Borrowed(spec.name.as_str()), value))
    });
    inputs.collect()
}

/// The outputs of a run, with the names and datatypes of the signature.
fn outputs(model: &str, values: SessionOutputs<'_>, signature: &Signature) -> Result<Vec<Tensor>, RunError> {
    let outputs = values.into_iter().zip(&signature.outputs);
    let outputs =
        outputs.map(|((_, value), spec)| value::from_ort(value, spec)).collect::<Result<_, String>>();
    outputs.map_err(|reason| RunError::Engine(format!("model `{model}`: {reason}")))
}

struct OrtSession {
    model: String,
    signature: Signature,
    session: OrtInner,
    /// Options of every run. Other threads end a run through them.
    run: Arc<Termination>,
    /// The runtime refuses to shrink an arena that does not exist.
    has_arena: bool,
    /// Whether every batch of a size takes about as long.
    steady: bool,
    /// Set for the next run, which then releases memory.
    trim: Option<RunOptions>,
    /// What it was made from. Dropped after the session, which uses its weights.
    prepared: Option<PreparedModel>,
}

impl Session for OrtSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let inputs = requested(batch, &self.signature)?;
        let trim = self.trim.take();
        let values = self.session.run_with_options(inputs, trim.as_ref().unwrap_or(&self.run.0));
        let values = values.map_err(|error| whose_mistake(&self.model, &self.signature, &error))?;
        outputs(&self.model, values, &self.signature)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        NAME
    }

    fn runs_on_any_thread(&self) -> bool {
        self.steady
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(Arc::clone(&self.run) as Arc<dyn Interrupt>)
    }

    fn prepared(&self) -> Option<PreparedModel> {
        self.prepared.clone()
    }

    fn trim(&mut self) {
        self.trim = options::shrinking().ok().filter(|_| self.has_arena);
    }
}

/// The runtime looks at the flag between the nodes of a graph, so a run ends once its current node has.
struct Termination(RunOptions);

impl Interrupt for Termination {
    fn interrupt(&self) {
        if let Err(error) = self.0.terminate() {
            tracing::error!(%error, "cannot end a run of ONNX Runtime");
        }
    }

    fn clear(&self) {
        if let Err(error) = self.0.unterminate() {
            tracing::error!(%error, "cannot let runs of ONNX Runtime go on");
        }
    }
}

/// The error of a failed run: the client's or the engine's. The runtime returns `InvalidArgument` for shapes and indices that
/// it checks itself. A node that fails on extents or whole numbers from the client fails because of them, unless memory
/// ran out.
fn whose_mistake(model: &str, signature: &Signature, error: &::ort::Error) -> RunError {
    let message = format!("model `{model}`: engine `{NAME}`: {}", one_line(error.message()));
    let out_of_memory = error.message().contains("allocate memory") || error.message().contains("bad_alloc");
    let in_a_node = error.message().contains("running") && error.message().contains("node");
    if error.code() == ErrorCode::InvalidArgument
        || (in_a_node && signature.depends_on_values() && !out_of_memory)
    {
        RunError::Input(message)
    } else {
        RunError::Engine(message)
    }
}

fn failure(reason: String) -> EngineFailure {
    let operator = quoted_operator(&reason);
    EngineFailure { engine: NAME, operator, reason }
}

/// The operator that a message of the runtime names, as in `for Frobnicate(19) node with name 'f'`, `No Op
/// registered for Frobnicate with domain_version of 19` or `Op (Frobnicate)`.
fn quoted_operator(message: &str) -> Option<String> {
    let after = ["No Op registered for ", "implementation for ", "Op ("]
        .iter()
        .find_map(|lead| message.split_once(lead).map(|(_, rest)| rest))?;
    let word: String =
        after.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')).collect();
    (!word.is_empty()).then_some(word)
}
