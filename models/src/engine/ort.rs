//! The `ort` engine: ONNX Runtime, from a shared library found at run time.
//!
//! The library is neither linked nor downloaded: [`discover`] searches for one. Without it this engine rejects every model,
//! and the other engines still work.

mod cuda;
mod library;
mod pool;
mod search;
mod strings;
mod value;

use std::borrow::Cow;
use std::path::Path;

use ::ort::ErrorCode;
use ::ort::ep::{self, ExecutionProviderDispatch};
use ::ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ::ort::session::{RunOptions, Session as OrtInner, SessionInputValue, SessionOutputs};
use oip::Tensor;

use super::guard::one_line;
use super::{Batch, Content, Engine, Libraries, Prepared, RunError, Session};
use crate::{EngineFailure, Format, LoadOptions, Signature};
pub use cuda::{Cuda, CudaFault, CudaStream, DeviceBytes, HostBytes, SharedWeights};
pub use library::{OrtLibrary, OrtMissing, discover};
use pool::Pool;
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
    let Content::Onnx { bytes, external, .. } = &model.content else {
        return Err(failure("takes only ONNX models".to_owned()));
    };
    let library = libraries.ort.as_ref().map_err(|missing| failure(missing.to_string()))?;
    let folder = model.files.folder().filter(|_| *external);
    if let Some(cuda) = &options.accelerator {
        return cuda::load(model, &cuda::Source { bytes, folder }, library, options, cuda);
    }
    let cpu = [ep::CPU::default().with_arena_allocator(true).build()];
    let session = configure(library, &model.signature, options, cpu)
        .and_then(|builder| commit(builder, bytes, folder));
    let session = session.map_err(|error: ::ort::Error| failure(one_line(error.message())))?;
    check_names(&session, &model.signature).map_err(failure)?;
    Ok(Box::new(OrtSession {
        model: model.files.name.to_string(),
        signature: model.signature.clone(),
        session,
        trim: None,
    }))
}

/// Option with the folder of the weight files of a model that is loaded from bytes.
const EXTERNAL_DATA_FOLDER: &str = "session.model_external_initializers_file_folder_path";

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
    let threads = options.threads.max(1);
    let mut builder = OrtInner::builder(library.environment())?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .with_intra_threads(threads)?
        .with_inter_threads(1)?
        .with_parallel_execution(false)?
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        // The runtime keeps one memory plan for each combination of input shapes and never frees it. That is bounded if
        // only the batch varies; if other dimensions vary, clients could exhaust memory.
        .with_memory_pattern(signature.has_fixed_inputs())?
        .with_execution_providers(providers)?;
    if threads > 1 {
        // With fewer cores than threads, the threads are not pinned.
        let cores = options.cores.get(..threads).unwrap_or_default();
        builder = builder.with_thread_manager(Pool::new(library.nursery().clone(), cores))?;
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
    /// Set for the next run, which then releases memory.
    trim: Option<RunOptions>,
}

impl Session for OrtSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let inputs = requested(batch, &self.signature)?;
        let trim = self.trim.take();
        let values = match &trim {
            None => self.session.run(inputs),
            Some(options) => self.session.run_with_options(inputs, options),
        };
        let values = values.map_err(|error| whose_mistake(&self.model, &self.signature, &error))?;
        outputs(&self.model, values, &self.signature)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        NAME
    }

    fn trim(&mut self) {
        let options = RunOptions::new().and_then(|mut options| {
            options.set("memory.enable_memory_arena_shrinkage", "cpu:0")?;
            Ok(options)
        });
        self.trim = options.ok();
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
