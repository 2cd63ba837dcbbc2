//! Optimised graphs and their weights, shared by the sessions of a model on the CPU.
//!
//! By default, each session of the runtime optimises the graph again and has its own copy of the weights, in the layout of the file or
//! packed for its kernels. Here, one session optimises the graph and only writes the result: the graph without its weights, and
//! the weights. Sessions that serve are made from the result without optimising it again. They get the weights as tensors in one
//! read-only block ([`with_initializer`](SessionBuilder::with_initializer)), and keep packed copies in one container
//! ([`PrepackedWeights`]). The runtime still packs the weights for each session, because it looks them up by a hash of the packed
//! bytes, and then drops the copy.
//!
//! A result depends on the processor, on the level of optimisation and on the library, so it never leaves the process. The graph
//! is the one that each session would have made by itself, so results have the same bits.
//!
//! Not shared:
//! - weights below [`SHARED_BYTES_MIN`], which the runtime may need while it loads the graph;
//! - weights in other files, because the hash of the file with the graph does not identify them. The runtime maps such files;
//! - anything with an execution provider other than the CPU's, whose nodes the runtime cannot write.

mod weights;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ::ort::session::Session as OrtInner;
use ::ort::session::builder::{GraphOptimizationLevel, PrepackedWeights, SessionBuilder};
use ::ort::{Error, ep};
use bytes::Bytes;
use prost::Message;
use rustix::fs::{MemfdFlags, memfd_create};
use tract_onnx::pb;

use super::{
    EXTERNAL_DATA_FOLDER, GraphLevel, OrtLibrary, OrtSession, Prepared, Session, Termination, check_names,
    commit, configure, failure, one_line,
};
use crate::onnx::{Graph, has_steady_time};
use crate::{ContentHash, EngineFailure, LoadOptions, ModelFiles, Signature};
use weights::Weights;

/// Smaller weights stay in the graph: the runtime reads shapes, axes and scalars while it loads.
const SHARED_BYTES_MIN: usize = 1024;

/// Folder and file that the weights in the graph refer to. The runtime checks that there is such a regular file, and never reads it,
/// because it gets the weights from us. If it did read it, the load would fail, because the file has a size of 0.
const NO_WEIGHTS: (&str, &str) = ("/proc", "version");

/// Before this version of the format, every weight was an input too, but could not be given by a request.
const WEIGHTS_ARE_NO_INPUTS: i64 = 4;

/// Prepared graphs of this process, by model. Graphs that no session and no caller holds are freed.
#[derive(Default)]
pub(super) struct PreparedGraphs {
    slots: Mutex<HashMap<Key, Slot>>,
}

/// Locked while its graph is prepared, so that sessions that load at once prepare it once.
type Slot = Arc<Mutex<Weak<PreparedGraph>>>;

/// What a prepared graph depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    hash: ContentHash,
    free_batch: bool,
    level: GraphLevel,
}

impl PreparedGraphs {
    /// The prepared graph of a model, made unless there is one.
    ///
    /// # Errors
    /// Why it could not be made.
    pub fn of(
        &self,
        files: &ModelFiles,
        bytes: &[u8],
        signature: &Signature,
        options: &LoadOptions,
        configured: impl Fn() -> Result<SessionBuilder, Error>,
    ) -> Result<Arc<PreparedGraph>, String> {
        let key = Key { hash: files.hash, free_batch: options.free_batch, level: options.ort.graph_level };
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.retain(|_, slot| {
                // A slot that another thread holds is about to be filled.
                Arc::strong_count(slot) > 1 || slot.try_lock().map_or(true, |graph| graph.strong_count() > 0)
            });
            Arc::clone(slots.entry(key).or_default())
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(graph) = slot.upgrade() {
            return Ok(graph);
        }
        let graph = Arc::new(PreparedGraph::make(bytes, signature, configured)?);
        *slot = Arc::downgrade(&graph);
        Ok(graph)
    }
}

impl fmt::Debug for PreparedGraphs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("PreparedGraphs").field("slots", &slots.len()).finish()
    }
}

/// An optimised graph and its weights. Outlives every session made from it. Fields drop in this order.
pub(crate) struct PreparedGraph {
    /// The graph, without the shared weights.
    graph: Bytes,
    packed: PrepackedWeights,
    weights: Weights,
}

impl PreparedGraph {
    fn make(
        bytes: &[u8],
        signature: &Signature,
        configured: impl Fn() -> Result<SessionBuilder, Error>,
    ) -> Result<Self, String> {
        let in_memory = |name: &str| {
            memfd_create(name, MemfdFlags::CLOEXEC)
                .map(File::from)
                .map_err(|error| format!("no memory for the optimised graph: {error}"))
        };
        let (mut graph, data) = (in_memory("optimised.onnx")?, in_memory("weights")?);
        optimise(bytes, configured, &graph, &data).map_err(|error| one_line(error.message()))?;
        let mut written = Vec::new();
        graph
            .rewind()
            .and_then(|()| graph.read_to_end(&mut written))
            .map_err(|error| format!("the optimised graph cannot be read: {error}"))?;
        let mut model = pb::ModelProto::decode(written.as_slice())
            .map_err(|error| format!("the optimised graph cannot be decoded: {error}"))?;
        let body = model.graph.as_mut().ok_or("the runtime wrote no optimised graph")?;
        if model.ir_version < WEIGHTS_ARE_NO_INPUTS {
            model.ir_version = WEIGHTS_ARE_NO_INPUTS;
            body.input.retain(|input| signature.inputs.iter().any(|spec| spec.name == input.name));
        }
        let weights = Weights::taken_from(body, &data)?;
        Ok(Self { graph: model.encode_to_vec().into(), packed: PrepackedWeights::new(), weights })
    }

    /// Makes a session, with a builder that optimises nothing. The session must be dropped before the graph.
    pub fn commit(&self, builder: SessionBuilder) -> Result<OrtInner, Error> {
        let mut builder = builder
            .with_config_entry(EXTERNAL_DATA_FOLDER, NO_WEIGHTS.0)?
            .with_prepacked_weights(&self.packed)?;
        for (name, tensor) in self.weights.tensors() {
            builder = builder.with_initializer(name, Arc::clone(tensor))?;
        }
        builder.commit_from_memory(&self.graph)
    }

    /// Bytes of the shared weights and of the graph.
    pub fn bytes(&self) -> u64 {
        (self.weights.bytes() as u64).saturating_add(self.graph.len() as u64)
    }
}

impl fmt::Debug for PreparedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedGraph").field("bytes", &self.bytes()).finish()
    }
}

/// A model whose optimised graph and weights are in memory. Sessions on the CPU are made from it in milliseconds, without the files
/// of the model.
#[derive(Clone, Debug)]
pub struct PreparedModel {
    /// The version, without its content.
    pub(crate) files: ModelFiles,
    graph: Arc<PreparedGraph>,
    /// Whether every batch of a size takes about as long.
    steady: bool,
}

impl PreparedModel {
    /// Bytes that it takes: shared weights and the graph. Copies of weights that kernels packed are not part of them.
    pub fn bytes(&self) -> u64 {
        self.graph.bytes()
    }

    /// Makes a session that takes and gives what `signature` says.
    ///
    /// # Errors
    /// What the runtime refuses.
    pub(crate) fn session(
        &self,
        signature: &Signature,
        library: &OrtLibrary,
        options: &LoadOptions,
    ) -> Result<Box<dyn Session>, EngineFailure> {
        let (name, settings) = (self.files.name.as_str(), &options.ort);
        let said = |error: Error| failure(one_line(error.message()));
        let session = configured(library, signature, options, name)
            // Weights that were rewritten again would no longer be shared.
            .and_then(|builder| Ok(builder.with_optimization_level(GraphOptimizationLevel::Disable)?))
            .and_then(|builder| self.graph.commit(builder))
            .map_err(said)?;
        check_names(&session, signature).map_err(failure)?;
        Ok(Box::new(OrtSession {
            model: name.to_owned(),
            signature: signature.clone(),
            session,
            run: Arc::new(Termination(settings.run_options().map_err(said)?)),
            has_arena: settings.has_arena(),
            steady: self.steady,
            trim: None,
            prepared: Some(self.clone()),
        }))
    }
}

/// Loads a session that shares its weights with the others of its model.
///
/// # Errors
/// Why it cannot.
pub(super) fn load(
    model: &Prepared<'_>,
    bytes: &Bytes,
    graph: Option<&Graph>,
    folder: Option<&Path>,
    library: &OrtLibrary,
    options: &LoadOptions,
) -> Result<Box<dyn Session>, String> {
    if folder.is_some() {
        return Err("they lie in other files".to_owned());
    }
    let (files, signature) = (model.files, &model.signature);
    let configured = || configured(library, signature, options, files.name.as_str());
    let prepared = PreparedModel {
        files: files.without_content(),
        graph: library.prepared().of(files, bytes, signature, options, configured)?,
        steady: has_steady_time(files, bytes, graph, signature),
    };
    prepared.session(signature, library, options).map_err(|failure| failure.reason)
}

/// A builder of sessions on the CPU alone.
fn configured(
    library: &OrtLibrary,
    signature: &Signature,
    options: &LoadOptions,
    name: &str,
) -> Result<SessionBuilder, Error> {
    let cpu = ep::CPU::default().with_arena_allocator(options.ort.has_arena()).build();
    Ok(configure(library, signature, options, [cpu])?.with_log_id(name)?)
}

/// Writes the graph as the runtime optimises it, and its weights to a file of their own.
fn optimise(
    bytes: &[u8],
    configured: impl Fn() -> Result<SessionBuilder, Error>,
    graph: &File,
    weights: &File,
) -> Result<(), Error> {
    // The runtime looks for the file with the weights next to the one with the graph.
    let builder = configured()?
        .with_optimized_model_path(format!("/proc/self/fd/{}", graph.as_raw_fd()))?
        .with_config_entry(
            "session.optimized_model_external_initializers_file_name",
            weights.as_raw_fd().to_string(),
        )?
        .with_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes",
            SHARED_BYTES_MIN.to_string(),
        )?
        // This session runs nothing.
        .with_prepacking(false)?;
    commit(builder, bytes, None).map(drop)
}
