//! A session on a gpulet: loading and running.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::ort::Error;
use ::ort::ep;
use ::ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ::ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ::ort::session::{RunOptions, Session as OrtInner};
use bytes::Bytes;
use oip::{Datatype, Tensor};

use super::super::{GraphLevel, NAME, OrtLibrary, check_names, configure, failure, outputs, requested};
use super::binding::{Binding, Places, Refused};
use super::recording::{self, Known};
use super::rows::{self, Rows};
use super::stream::{CudaFault, CudaStream};
use super::weights::Weights;
use super::{Cuda, fault, placement, provider, records};
use crate::engine::{Batch, Prepared, RunError, Session};
use crate::{EngineFailure, LoadOptions, Signature, sample};

/// Name of the provider that runs the model.
const PROVIDER: &str = "CUDAExecutionProvider";

/// How often a change of size is timed; the shortest counts.
const CHANGES: usize = 3;

/// Part of the runtime's message about an arena that it cannot shrink.
const NO_SUCH_ARENA: &str = "memory arena shrink list";

/// The graph that a session is made from.
pub(in super::super) struct Source<'a> {
    /// The file.
    pub bytes: &'a Bytes,
    /// Folder of its weight files, if it has any.
    pub folder: Option<&'a std::path::Path>,
}

/// Makes a session on a gpulet. Every heavy operator runs there, or it is an error.
pub(in super::super) fn load(
    model: &Prepared<'_>,
    source: &Source<'_>,
    library: &OrtLibrary,
    options: &LoadOptions,
    cuda: &Cuda,
) -> Result<Box<dyn Session>, EngineFailure> {
    let provider = provider(cuda, &options.ort)?;
    let configured = |level: GraphOptimizationLevel| -> Result<SessionBuilder, Error> {
        let providers = [provider.clone(), ep::CPU::default().with_arena_allocator(true).build()];
        let builder = configure(library, &model.signature, options, providers)?;
        let builder = builder.with_log_id(model.files.name.as_str())?;
        Ok(builder.with_optimization_level(level)?.with_config_entry(placement::RECORD, "1")?)
    };
    let device = || device_memory(cuda.stream.device());
    let level = options.ort.graph_level;
    let shared = cuda
        .weights
        .as_ref()
        // Shared weights are those of a graph with all optimizations.
        .filter(|_| level == GraphLevel::All)
        .and_then(|store| store.of(model.files, source, options, cuda, &configured, device));
    let (session, weights) = make(source, shared, (&configured, level), &model.files.name)?;
    check_names(&session, &model.signature).map_err(failure)?;
    let nodes = placement::nodes(&session).map_err(|error| failure(fault::in_short(error.message())))?;
    if let Some((operator, reason)) = placement::elsewhere(&nodes, PROVIDER) {
        return Err(EngineFailure { engine: NAME, operator: Some(operator), reason });
    }
    let binding = device()
        .and_then(|device| Places::of(&session, device))
        .and_then(|places| bind(&session, places, &model.signature));
    let binding = binding.unwrap_or_else(|error| {
        tracing::warn!(model = %model.files.name, "runs on host tensors: {}", fault::in_short(error.message()));
        None
    });
    let run =
        options_of_runs(cuda.stream.device()).map_err(|error| failure(fault::in_short(error.message())))?;
    let mut session = CudaSession {
        model: model.files.name.to_string(),
        signature: model.signature.clone(),
        binding,
        session,
        run,
        sizes: Sizes::default(),
        rows: Rows::default(),
        records: records(&options.ort),
        _weights: weights,
        stream: Arc::clone(&cuda.stream),
    };
    session.check_binding();
    session.run_all_sizes().map_err(|reason| failure(fault::in_short(&reason)))?;
    Ok(Box::new(session))
}

/// Makes a session with shared weights, or without if the runtime does not take them.
fn make(
    source: &Source<'_>,
    shared: Option<Arc<Weights>>,
    (configured, level): (&dyn Fn(GraphOptimizationLevel) -> Result<SessionBuilder, Error>, GraphLevel),
    model: &crate::ModelName,
) -> Result<(OrtInner, Option<Arc<Weights>>), EngineFailure> {
    if let Some(weights) = shared {
        // The model is optimised already. Weights that were changed again would no longer be shared.
        match configured(GraphOptimizationLevel::Disable).and_then(|builder| weights.commit(builder)) {
            Ok(session) => return Ok((session, Some(weights))),
            Err(error) => {
                let error = fault::in_short(error.message());
                tracing::warn!(%model, error, "weights are not shared: the runtime does not take them");
            }
        }
    }
    let made = configured(level.of_runtime()).and_then(|builder| source.commit(builder));
    Ok((made.map_err(|error| failure(fault::in_short(error.message())))?, None))
}

impl Source<'_> {
    /// Makes a session of the file as it is.
    pub fn commit(&self, builder: SessionBuilder) -> Result<OrtInner, Error> {
        super::super::commit(builder, self.bytes, self.folder)
    }
}

fn device_memory(device: i32) -> Result<MemoryInfo<'static>, Error> {
    MemoryInfo::new(AllocationDevice::CUDA, device, AllocatorType::Device, MemoryType::Default)
}

/// Strings cannot be on a device, and the runtime allocates new host tensors for them at each run.
fn bind(session: &OrtInner, places: Places, signature: &Signature) -> Result<Option<Binding>, Error> {
    if signature.tensors().any(|(_, spec)| spec.datatype == Datatype::Bytes) {
        return Ok(None);
    }
    Binding::new(session, places).map(Some)
}

/// Options of the runs of a session.
struct Runs {
    /// The provider does not wait at the end of the run.
    without_wait: RunOptions,
    /// The arenas give back what they do not hold. The provider waits: what it frees may still be read.
    shrinking: Option<RunOptions>,
}

fn options_of_runs(device: i32) -> Result<Runs, Error> {
    let mut without_wait = RunOptions::new()?;
    without_wait.disable_device_sync()?;
    let mut shrinking = RunOptions::new()?;
    // The device first: after another one, the runtime does not say that it has no arena for it.
    shrinking.set("memory.enable_memory_arena_shrinkage", format!("gpu:{device};cpu:0"))?;
    Ok(Runs { without_wait, shrinking: Some(shrinking) })
}

/// Bytes of inputs, as a measure of the memory that batches need.
#[derive(Default)]
struct Sizes {
    /// Largest batch since the arena was shrunk.
    largest: usize,
    /// Largest batch since the last call of `trim`.
    recent: usize,
    /// Whether the next run shrinks the arena.
    shrink: bool,
}

impl Sizes {
    fn ran(&mut self, bytes: usize) {
        self.recent = self.recent.max(bytes);
        self.largest = self.largest.max(bytes);
    }

    /// Releases memory only if no recent batch needed half of it, because allocating it again waits for the whole device.
    /// The first batches therefore find the memory that warm-up allocated.
    fn trim(&mut self) {
        if self.largest / 2 > self.recent {
            self.shrink = true;
            self.largest = self.recent;
        }
        self.recent = 0;
    }
}

/// Sample rows that a model accepts.
struct Accepted {
    one: Batch,
    /// Another row of the same shapes.
    other: Option<Batch>,
    /// The answer to the first.
    outputs: Vec<Tensor>,
}

/// Sizes whose runs could not be recorded, in order, and why the first could not.
#[derive(Default)]
struct Plain {
    sizes: BTreeSet<u32>,
    reason: Option<String>,
}

impl Plain {
    fn add(&mut self, size: u32, reason: String) {
        self.sizes.insert(size);
        self.reason.get_or_insert(reason);
    }
}

/// Fields drop in this order.
struct CudaSession {
    model: String,
    signature: Signature,
    /// `None`: runs on host tensors.
    binding: Option<Binding>,
    session: OrtInner,
    run: Runs,
    sizes: Sizes,
    rows: Rows,
    /// Whether runs may be recorded.
    records: bool,
    _weights: Option<Arc<Weights>>,
    stream: Arc<dyn CudaStream>,
}

impl Drop for CudaSession {
    fn drop(&mut self) {
        // A run that panicked may have left work in flight. After an error the device has failed, and nothing runs.
        let _ = self.stream.wait();
    }
}

impl Session for CudaSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let rows = self.rows.fitting(batch.rows);
        if rows != batch.rows
            && let Some(filled) = rows::filled(batch, rows)
        {
            return self.run_as_is(&filled).map(|outputs| rows::truncated(outputs, rows, batch.rows));
        }
        self.run_as_is(batch)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        NAME
    }

    fn settles_each_size(&self) -> bool {
        true
    }

    fn trim(&mut self) {
        // Recorded runs use memory of the arena.
        if self.binding.as_ref().is_none_or(|binding| binding.recorded.is_empty()) {
            self.sizes.trim();
        }
        if let Some(binding) = &mut self.binding {
            binding.trim();
        }
    }
}

impl CudaSession {
    fn run_as_is(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        self.sizes.ran(batch.inputs.iter().flatten().map(|tensor| tensor.data.len()).sum());
        if !std::mem::take(&mut self.sizes.shrink) || self.run.shrinking.is_none() {
            return self.run_once(batch, false);
        }
        match self.run_once(batch, true) {
            Err(RunError::Engine(said) | RunError::Input(said)) if said.contains(NO_SUCH_ARENA) => {
                tracing::warn!(model = %self.model, "memory of the device is not given back: {said}");
                self.run.shrinking = None;
                self.run_once(batch, false)
            }
            result => result,
        }
    }

    /// Two sample rows of the same shapes, if the model accepts the first, and the answer to that one.
    ///
    /// # Errors
    /// The device or its libraries rejected the row. They would reject every client's row too.
    fn accepted_rows(&mut self) -> Result<Option<Accepted>, String> {
        let extents = if self.signature.has_fixed_inputs() { &[1][..] } else { &sample::EXTENTS };
        let mut refused = None;
        for &extent in extents {
            let Some(row) = sample::row(&self.signature, extent, 0) else { continue };
            match self.run_once(&row, false) {
                Ok(outputs) => {
                    let other = sample::row(&self.signature, extent, 1);
                    return Ok(Some(Accepted { one: row, other, outputs }));
                }
                Err(RunError::DeviceFailed(reason)) => return Err(reason),
                Err(
                    RunError::Input(reason)
                    | RunError::Engine(reason)
                    | RunError::Model { message: reason, .. },
                ) => {
                    refused = refused.or_else(|| fault::of(&reason).map(|_| reason));
                }
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Runs every size once, and records it, so that no request waits for the slow first batch of its size. Time and memory
    /// may not suffice for all sizes: the largest that ran becomes the largest batch of the session.
    fn run_all_sizes(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        let Some(Accepted { one, other, outputs }) = self.accepted_rows()? else {
            tracing::info!(model = %self.model, "no sample input runs: the first batch of each size will be slow");
            return Ok(());
        };
        let bytes: usize = one.inputs.iter().flatten().chain(&outputs).map(|tensor| tensor.data.len()).sum();
        let most = self.signature.max_batch.max(1);
        let mut why = "its time is over".to_owned();
        let mut plain = Plain::default();
        for size in rows::sizes(most) {
            if begun.elapsed() > rows::WARM_UP_MAX {
                break;
            }
            let fits = usize::try_from(size).is_ok_and(|size| bytes.saturating_mul(size) <= rows::BYTES_MAX);
            let Some(batch) = rows::filled(&one, size).filter(|_| fits) else {
                "more rows take too many bytes".clone_into(&mut why);
                continue;
            };
            match self.run_once(&batch, false) {
                Ok(answer) => {
                    self.rows.ran(size);
                    let other = other.as_ref().and_then(|other| rows::filled(other, size));
                    if let Err(reason) = self.record(&batch, other.as_ref(), answer) {
                        plain.add(size, reason);
                    }
                }
                Err(RunError::DeviceFailed(reason)) => return Err(reason),
                Err(
                    RunError::Input(reason)
                    | RunError::Engine(reason)
                    | RunError::Model { message: reason, .. },
                ) => {
                    why = reason;
                    break;
                }
            }
        }
        let largest = self.rows.largest().max(1);
        if largest < most {
            tracing::warn!(model = %self.model, wanted = most, why, "batches have at most {largest} rows");
            self.signature.max_batch = largest;
        }
        self.run_plain_sizes(&plain, &one)
    }

    /// Records batches of the size of `first`, which ran last.
    ///
    /// # Errors
    /// Why they stay plain.
    fn record(&mut self, first: &Batch, other: Option<&Batch>, answer: Vec<Tensor>) -> Result<(), String> {
        if !self.records {
            return Err("`enable_cuda_graph` is 0".to_owned());
        }
        let other = other.ok_or("it has no second sample input")?;
        let second = self.run_once(other, false).map_err(|error| error.to_string())?;
        let binding = self.binding.as_mut().ok_or("it runs on host tensors")?;
        let known = Known { batches: [first, other], answers: [answer, second] };
        let run = (&mut self.session, &self.run.without_wait);
        recording::record(binding, run, self.stream.as_ref(), &self.signature, &known)
    }

    /// Says that runs of some sizes could not be recorded. If a change between two of these sizes takes longer than a batch of
    /// the largest, every batch is padded to the largest.
    fn run_plain_sizes(&mut self, plain: &Plain, one: &Batch) -> Result<(), String> {
        let Some(reason) = &plain.reason else { return Ok(()) };
        tracing::info!(model = %self.model, reason, sizes = ?plain.sizes, "batches enqueue their kernels one by one");
        let (Some(small), Some(large)) = (plain.sizes.first(), plain.sizes.last()) else { return Ok(()) };
        let Some((small, large)) = rows::filled(one, *small).zip(rows::filled(one, *large)) else {
            return Ok(());
        };
        if small.rows == large.rows {
            return Ok(());
        }
        let (mut change, mut batch) = (Duration::MAX, Duration::MAX);
        for _ in 0..CHANGES {
            let [_, largest, first, again] =
                [&large, &large, &small, &small].map(|batch| self.time_of(batch));
            batch = batch.min(largest?);
            change = change.min(first?.saturating_sub(again?));
        }
        if change > batch {
            let (change_us, batch_us) = (change.as_micros(), batch.as_micros());
            let rows = large.rows;
            tracing::warn!(model = %self.model, change_us, batch_us, "every batch is padded to {rows} rows: the runtime \
                needs longer for a change of the number of rows than for such a batch");
            self.rows = Rows::only(rows);
        }
        Ok(())
    }

    fn time_of(&mut self, batch: &Batch) -> Result<Duration, String> {
        let begun = Instant::now();
        match self.run_once(batch, false) {
            Ok(_) => Ok(begun.elapsed()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn run_once(&mut self, batch: &Batch, shrink: bool) -> Result<Vec<Tensor>, RunError> {
        let options = self.run.shrinking.as_ref().filter(|_| shrink).unwrap_or(&self.run.without_wait);
        let Some(binding) = &mut self.binding else { return self.run_on_host(batch, shrink) };
        let stream = self.stream.as_ref();
        match binding.run(&mut self.session, stream, batch, &self.signature, options) {
            Ok(outputs) => Ok(outputs),
            Err(Refused::Input(reason)) => Err(RunError::Input(format!("model `{}`: {reason}", self.model))),
            Err(Refused::Run(error)) => Err(fault::run_error(&self.model, &self.signature, &error)),
            Err(Refused::Fault(said)) => Err(of_stream(&self.model, &said)),
            Err(Refused::Binding(error)) => {
                let said = fault::in_short(error.message());
                tracing::warn!(model = %self.model, "runs on host tensors from now on: {said}");
                self.binding = None;
                self.run_on_host(batch, shrink)
            }
        }
    }

    /// Drops the binding if it fails, or gives other answers than the plain path. The runtime only reports where it expects
    /// an input. An input that is bound elsewhere is copied when it is bound, before it has its values. The check
    /// therefore runs two batches of the same shapes and compares the answers to the second.
    fn check_binding(&mut self) {
        let Some(binding) = self.binding.take() else { return };
        let plain = sample::first_that_runs(self).and_then(|(extent, _)| {
            let [first, other] = [0, 1].map(|row| sample::row(&self.signature, extent, row));
            let (first, other) = first.zip(other)?;
            let answer = self.run_on_host(&other, false).ok()?;
            Some((first, other, answer))
        });
        self.binding = Some(binding);
        let Some((first, other, plain)) = plain else { return };
        let reason = match self.run_once(&first, false).and_then(|_| self.run_once(&other, false)) {
            Ok(bound) if recording::agree(&bound, &plain) => return,
            Ok(_) => "it gives other answers".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(model = %self.model, reason, "runs on host tensors: bound to the device it does not work");
        self.binding = None;
    }

    /// The plain path: host tensors, which the runtime copies.
    fn run_on_host(&mut self, batch: &Batch, shrink: bool) -> Result<Vec<Tensor>, RunError> {
        let inputs = requested(batch, &self.signature)?;
        let outcome = match self.run.shrinking.as_ref().filter(|_| shrink) {
            Some(options) => self.session.run_with_options(inputs, options),
            None => self.session.run(inputs),
        };
        let values = outcome.map_err(|error| fault::run_error(&self.model, &self.signature, &error))?;
        let mut tensors = outputs(&self.model, values, &self.signature)?;
        // An output keeps the session's memory, which must not outlive the gpulet.
        for tensor in &mut tensors {
            tensor.data = Bytes::copy_from_slice(&tensor.data);
        }
        Ok(tensors)
    }
}

/// The error of a run whose copies or stream failed.
fn of_stream(model: &str, said: &CudaFault) -> RunError {
    let message = format!("model `{model}`: engine `{NAME}`: {said}");
    if said.sticky { RunError::DeviceFailed(message) } else { RunError::Engine(message) }
}

#[cfg(test)]
mod tests;
