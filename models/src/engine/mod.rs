//! Engines run models. Each has one file and one name in the configuration.
//!
//! An engine loads files into a [`Session`]; a session belongs to one lane thread and runs one batch at a
//! time, so it needs no lock. The same model on two lanes is two sessions.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oip::Tensor;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::onnx::Graph;
use crate::{EngineFailure, Format, ModelFiles, Reshape, Signature};

/// Declares the engines' modules and lists them in the order in which `auto` tries them.
macro_rules! engines {
    ($($name:ident),+ $(,)?) => {
        $(pub mod $name;)+

        /// Every engine, in the order in which `auto` tries them.
        pub(crate) const ENGINES: &[Engine] = &[$($name::ENGINE),+];
    };
}

mod guard;
mod request;

pub use request::{
    Alone, Cancelled, Colocated, Member, RequestDetails, Response, ResponseSink, SinkClosed, StreamedResponse,
};

engines![ort, tract, synthetic, python];

/// Tensors of one batch in signature order: already validated against the signature by the caller, already
/// concatenated along dimension 0 for a batched model.
#[derive(Clone, Debug)]
pub struct Batch {
    /// One tensor an input of the signature; `None` for an optional input left out.
    pub inputs: Vec<Option<Tensor>>,
    /// Rows along dimension 0; 1 for a model without batch dimension.
    pub rows: u32,
}

/// Why a session could not run a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RunError {
    /// The client's mistake: values that the model refuses, such as an index out of range or a shape that its graph does
    /// not take.
    #[error("{0}")]
    Input(String),
    /// The engine failed.
    #[error("{0}")]
    Engine(String),
    /// The process or device that ran it failed. The outcome is unknown, and the batch can run elsewhere.
    #[error("{0}")]
    DeviceFailed(String),
    /// The model answered with an error of its own.
    #[error("{message}")]
    Model {
        /// The model's choice.
        code: ModelErrorCode,
        /// The model's words.
        message: String,
    },
}

/// Code of an error that a model answers with, as Triton has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelErrorCode {
    /// None of the others.
    Unknown,
    /// The model failed.
    Internal,
    /// Something that the request names does not exist.
    NotFound,
    /// The request is wrong.
    InvalidArgument,
    /// The model cannot answer now.
    Unavailable,
    /// The model does not offer what the request asks for.
    Unsupported,
    /// Something that the request creates exists.
    AlreadyExists,
    /// The request was cancelled.
    Cancelled,
}

/// Ends runs of a session early, from other threads.
pub trait Interrupt: Send + Sync {
    /// The run that is under way fails soon, and so does every later one until [`clear`](Self::clear).
    fn interrupt(&self);

    /// Later runs go on to their ends again.
    fn clear(&self);
}

/// A loaded model, ready to run on the thread that owns it.
pub trait Session: Send {
    /// Runs one batch and gives every output of the signature, in its order.
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError>;

    /// Whether the session takes the requests of a batch one by one. The caller then uses
    /// [`run_requests`](Session::run_requests) and passes on the [details](Member::details) of requests.
    fn takes_requests(&self) -> bool {
        false
    }

    /// Whether a request may get any number of responses. They go to its [sink](RequestDetails::responses), also after
    /// `run_requests` has returned.
    fn decoupled(&self) -> bool {
        false
    }

    /// Whether sample inputs may be run before the model is ready. They warm it up and measure it.
    fn takes_samples(&self) -> bool {
        true
    }

    /// Runs the requests of one batch and gives a result for each. Only for sessions that
    /// [take requests](Session::takes_requests). `colocated` are the other sessions of the same lane.
    ///
    /// # Errors
    /// The error of a batch whose requests may each run again, alone.
    fn run_requests(
        &mut self,
        _requests: &[Member],
        _colocated: &mut dyn Colocated,
    ) -> Result<Vec<Result<Response, RunError>>, RunError> {
        Err(RunError::Engine(format!("engine `{}` does not take requests one by one", self.engine())))
    }

    /// Inputs, outputs and largest batch of the model.
    fn signature(&self) -> &Signature;

    /// Name of the engine, for people and metrics.
    fn engine(&self) -> &'static str;

    /// Time in the engine of the last successful run, for sessions that know it better than the caller's clock. A session
    /// in another process may have waited for a core there. `None`: the caller's clock is right.
    fn took(&self) -> Option<Duration> {
        None
    }

    /// Whether the first batch of each size is much slower than later ones, as on GPUs, whose libraries choose kernels
    /// then.
    fn settles_each_size(&self) -> bool {
        false
    }

    /// How other threads end a run of [`run`](Session::run). `None`: a run goes on to its end.
    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        None
    }

    /// Whether a caller may call [`run`](Session::run) on its own thread instead of that of the lane: any thread will do, and
    /// no value that a client sends makes a batch take much longer than others of its size.
    fn runs_on_any_thread(&self) -> bool {
        false
    }

    /// What further sessions of the model are made from without its files. While a caller keeps it, the weights stay in memory,
    /// so that a session can be made again in milliseconds. `None`: a session needs the files.
    fn prepared(&self) -> Option<ort::PreparedModel> {
        None
    }

    /// Lets the next run release working memory of earlier, larger batches. Slows that run down.
    fn trim(&mut self) {}
}

/// Which engine is to run a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EngineChoice {
    /// The first engine that can run the model: ONNX Runtime if its library was found, else tract.
    #[default]
    Auto,
    /// Only this engine.
    Named(&'static str),
}

impl EngineChoice {
    /// As settings write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Named(name) => name,
        }
    }
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
        if let Some(name) = names().find(|name| *name == word) {
            return Ok(Self::Named(name));
        }
        let words = || std::iter::once("auto").chain(names());
        let expected = words().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let hint = units::nearest(word, &words().collect::<Vec<_>>());
        Err(UnknownEngine { word: word.chars().take(64).collect(), expected, hint })
    }
}

impl Serialize for EngineChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EngineChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Name of an engine. An alias, because serde would borrow a field of type `&str` from the message.
type EngineName = &'static str;

/// Engine and signature of a loaded session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Name of its engine; no other is tried.
    #[serde(deserialize_with = "engine_name")]
    pub engine: EngineName,
    /// Its inputs, outputs and largest batch.
    pub signature: Signature,
}

fn engine_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EngineName, D::Error> {
    match EngineChoice::deserialize(deserializer)? {
        EngineChoice::Named(name) => Ok(name),
        EngineChoice::Auto => Err(D::Error::custom("expected the engine of a session, got `auto`")),
    }
}

/// How to load a model for one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOptions {
    /// The engine, or how to choose it.
    pub engine: EngineChoice,
    /// Threads that one run may use, the calling one included.
    pub threads: usize,
    /// Cores of the lane, the calling thread's first. Further threads are pinned to the others when there are
    /// at least as many cores as threads.
    pub cores: Vec<usize>,
    /// Whether threads and processes of the session run at idle priority. The calling thread has it already.
    pub idle_priority: bool,
    /// Bound on the plans that tract keeps for one session, one for each combination of input shapes.
    pub plan_cache: usize,
    /// Frees a batch dimension that the file fixes at 1, and checks that the changed graph gives two rows the same
    /// answers together as separately.
    pub free_batch: bool,
    /// Largest batch. `None`: what the graph allows, up to [`DEFAULT_MAX_BATCH`](crate::DEFAULT_MAX_BATCH), if
    /// two rows get the same answers together as separately. `Some(0)`: never batched.
    pub max_batch: Option<u32>,
    /// Tensors whose shape for clients differs from their shape in the graph.
    pub reshapes: Vec<Reshape>,
    /// Session settings for ONNX Runtime. Other engines ignore them, but do not load a model that needs an accelerator.
    pub ort: ort::OrtSettings,
    /// Whether sessions of the model in this process share its weights and its optimised graph, where they can. The weights then
    /// stay in memory as the file has them, next to the copies that kernels packed.
    pub share_weights: bool,
    /// Engine and signature of an earlier session of the same files with these options, on any lane. The loader then
    /// skips the slowest steps: it does not decode the graph for an engine that does so itself, and it does not check
    /// that batching leaves the answers unchanged.
    pub known: Option<Known>,
    /// How to run Python models.
    pub python: python::PythonOptions,
    /// The gpulet of a GPU that runs the model; `None`: the CPU runs it. On a gpulet, `threads` and `cores` are those of
    /// the thread that submits batches. Not serialised, because a stream belongs to one process.
    #[serde(skip)]
    pub accelerator: Option<ort::Cuda>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            engine: EngineChoice::Auto,
            threads: 1,
            cores: Vec::new(),
            idle_priority: false,
            plan_cache: 16,
            free_batch: false,
            max_batch: None,
            reshapes: Vec::new(),
            ort: ort::OrtSettings::default(),
            share_weights: false,
            known: None,
            python: python::PythonOptions::default(),
            accelerator: None,
        }
    }
}

impl LoadOptions {
    /// The engine to load the model with.
    pub(crate) fn choice(&self) -> EngineChoice {
        self.known.as_ref().map_or(self.engine, |known| EngineChoice::Named(known.engine))
    }
}

/// A model's content, decoded and ready for an engine.
pub(crate) enum Content {
    /// An ONNX graph, as messages and as the bytes of the file (rewritten together if at all).
    Onnx {
        /// None only for engines that [take undecoded files](Engine::takes_undecoded).
        graph: Option<Box<Graph>>,
        bytes: Bytes,
        /// Whether weights lie in other files of the version's folder.
        external: bool,
    },
    /// A synthetic model.
    Synthetic(synthetic::Description),
    /// A Python model: its configuration.
    Python(serde_json::Value),
}

/// A model as an engine receives it.
pub(crate) struct Prepared<'a> {
    pub files: &'a ModelFiles,
    pub content: Content,
    pub signature: Signature,
}

/// Libraries found on this machine that engines need.
pub(crate) struct Libraries<'a> {
    pub ort: &'a Result<ort::OrtLibrary, ort::OrtMissing>,
    /// What Python models call.
    pub host: python::HostSlot,
}

/// What makes sessions: one constant in each engine's module.
pub(crate) struct Engine {
    /// The word that configuration uses.
    pub name: &'static str,
    /// The word that Triton's configuration and metadata calls use for models it runs.
    pub platform: &'static str,
    /// The format of the models that it runs.
    pub format: Format,
    /// Whether it uses [`LoadOptions::accelerator`]. Other engines load no models for gpulets of a GPU.
    pub runs_on_gpus: bool,
    /// Whether the bytes of an ONNX file are all that it needs of it, besides the signature.
    pub takes_undecoded: bool,
    /// Loads a model. The session's signature is the prepared one.
    pub load: Load,
}

/// Loads a model.
pub(crate) type Load =
    fn(&Prepared<'_>, &Libraries<'_>, &LoadOptions) -> Result<Box<dyn Session>, EngineFailure>;

/// Names of all engines, in the order in which `auto` tries them.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().map(|engine| engine.name)
}

/// Triton's platform word (`onnxruntime_onnx`) for an engine's name, or `None` for an unknown name.
pub fn platform(name: &str) -> Option<&'static str> {
    let known = ENGINES.iter().find(|engine| engine.name == name).map(|engine| engine.platform);
    known.or_else(|| (name == "ensemble").then_some("ensemble"))
}
