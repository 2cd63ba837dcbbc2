//! Engines: what runs a model. One file and one word each.
//!
//! An engine loads files into a [`Session`]; a session belongs to one lane thread and runs one batch at a
//! time, so it needs no lock. The same model on two lanes is two sessions.

use std::time::Duration;

use bytes::Bytes;
use oip::Tensor;

use crate::onnx::Graph;
use crate::{EngineFailure, Format, LoadOptions, ModelFiles, Signature};

/// Declares the engines' modules and lists them in the order in which `auto` tries them.
macro_rules! engines {
    ($($name:ident),+ $(,)?) => {
        $(pub mod $name;)+

        /// Every engine, in the order in which `auto` tries them.
        pub(crate) const ENGINES: &[&dyn Engine] = &[$(&$name::ENGINE),+];
    };
}

mod guard;
mod strings;

engines![ort, tract, synthetic];

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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The values make no sense to this model (an index out of range, a shape its graph refuses): the
    /// client's mistake.
    #[error("{0}")]
    Input(String),
    /// The engine failed.
    #[error("{0}")]
    Engine(String),
    /// What ran it is gone (a process that ended, a device that failed): nothing is known of the batch, and it can
    /// run elsewhere.
    #[error("{0}")]
    Lost(String),
}

/// A loaded model, ready to run on the thread that owns it.
pub trait Session: Send {
    /// Runs one batch and gives every output of the signature, in its order.
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError>;

    /// What the model takes and gives.
    fn signature(&self) -> &Signature;

    /// Name of the engine, for people and metrics.
    fn engine(&self) -> &'static str;

    /// Time in the engine of the last run that gave results, where the session knows better than the clock of whoever
    /// waits for it: one in another process does, which may have waited for a core there. None: that clock is right.
    fn took(&self) -> Option<Duration> {
        None
    }

    /// Whether the first batch of each size takes much longer than those after it, as where the libraries of a GPU
    /// choose their kernels then.
    fn settles_each_size(&self) -> bool {
        false
    }

    /// Lets the next run give back working memory that earlier, larger batches left behind. Costs that run some
    /// time.
    fn trim(&mut self) {}
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
}

/// What an engine gets to load.
pub(crate) struct Prepared<'a> {
    pub files: &'a ModelFiles,
    pub content: Content,
    pub signature: Signature,
}

/// Libraries found on this machine that engines need.
pub(crate) struct Libraries<'a> {
    pub ort: &'a Result<ort::OrtLibrary, ort::OrtMissing>,
}

/// What makes sessions. Implemented by one constant in each engine's module.
pub(crate) trait Engine: Sync {
    /// The word that configuration uses.
    fn name(&self) -> &'static str;

    /// The word that Triton's configuration and metadata calls use for models it runs.
    fn platform(&self) -> &'static str;

    /// Whether it can run this kind of model at all.
    fn accepts(&self, format: Format) -> bool;

    /// Whether it heeds [`LoadOptions::accelerator`]. One that does not is not asked to load for a gpulet of a GPU.
    fn runs_on_gpus(&self) -> bool {
        false
    }

    /// Whether the bytes of an ONNX file are all that it needs of it, besides the signature.
    fn takes_undecoded(&self) -> bool {
        false
    }

    /// Loads a model. The session's signature is the prepared one.
    fn load(
        &self,
        model: &Prepared<'_>,
        libraries: &Libraries<'_>,
        options: &LoadOptions,
    ) -> Result<Box<dyn Session>, EngineFailure>;
}

/// Names of all engines, in the order in which `auto` tries them.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().map(|engine| engine.name())
}

/// Triton's platform word (`onnxruntime_onnx`) for an engine's name, or `None` for an unknown name.
pub fn platform(name: &str) -> Option<&'static str> {
    ENGINES.iter().find(|engine| engine.name() == name).map(|engine| engine.platform())
}
