//! The whole way of a batch and of weights, with a stand-in for the stream whose device memory is the host's, on the
//! runtime's CPU provider. What only the CUDA provider can show is tested where a stream of a GPU can be had.

#![expect(unsafe_code, reason = "the stand-in copies between addresses as a driver does")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ::ort::memory::MemoryInfo;
use ::ort::session::Session as OrtInner;
use ::ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use oip::{Shape, Tensor};
use tract_onnx::pb::tensor_proto::DataType;

use super::binding::{Binding, Places, Refused};
use super::placement::{self, Place};
use super::session::Source;
use super::weights::Weights;
use super::*;
use crate::engine::Batch;
use crate::engine::ort::{OrtLibrary, configure};
use crate::loader::tests::loader;
use crate::onnx::fixture::{Builder, D, matmul};
use crate::{EngineChoice, LoadError, LoadOptions, Loader, Signature, inspect};

/// Copies of a stream that are not made yet: from, to, bytes.
type Pending = Vec<(usize, usize, usize)>;

/// Computes the bytes of an output from those of an input.
pub(super) type Computes = fn(&[u8]) -> Vec<u8>;

/// A stream whose device is the host. What it copies out arrives when it is waited for, not before.
#[derive(Default)]
pub(super) struct HostStream {
    pending: Mutex<Pending>,
    /// Bytes that its blocks hold.
    pub held: Arc<AtomicUsize>,
    /// Errors of the next copy to the device, and of the next wait.
    pub copy_fails: Mutex<Option<CudaFault>>,
    pub wait_fails: Mutex<Option<CudaFault>>,
    /// Error of allocations and copies of at least this many bytes.
    refused: Mutex<Option<(usize, CudaFault)>>,
    /// Whether copies corrupt their bytes.
    corrupts: bool,
    /// How much longer a batch takes whose inputs have another length than the last ones.
    change_takes: Duration,
    /// Address and length of the last copy to the device.
    inward: Mutex<(usize, usize)>,
    /// What a recorded run computes from the input; none: nothing can be recorded.
    computes: Option<Computes>,
    /// Whether a recorded run was enqueued, and how many were.
    launched: Arc<AtomicBool>,
    pub launches: Arc<AtomicUsize>,
}

/// A recorded run. The stream computes it when it is waited for.
struct HostGraph {
    launched: Arc<AtomicBool>,
    launches: Arc<AtomicUsize>,
}

impl CudaGraph for HostGraph {
    unsafe fn launch(&self) -> Result<(), CudaFault> {
        self.launched.store(true, Ordering::Relaxed);
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct Block(Vec<u8>, Arc<AtomicUsize>);

impl Block {
    fn boxed(length: usize, held: &Arc<AtomicUsize>) -> Box<Self> {
        held.fetch_add(length, Ordering::Relaxed);
        Box::new(Self(vec![0xa5; length], Arc::clone(held)))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

impl HostBytes for Block {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

// SAFETY: the bytes lie there until the block is dropped.
unsafe impl DeviceBytes for Block {
    fn address(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    fn length(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: nothing is under way after `wait`: it makes all copies itself.
unsafe impl CudaStream for HostStream {
    fn device(&self) -> i32 {
        0
    }

    fn address(&self) -> usize {
        0x1000
    }

    fn host_bytes(&self, length: usize) -> Result<Box<dyn HostBytes>, CudaFault> {
        self.refuse(length)?;
        Ok(Block::boxed(length, &self.held))
    }

    fn device_bytes(&self, length: usize) -> Result<Box<dyn DeviceBytes>, CudaFault> {
        Ok(Block::boxed(length, &self.held))
    }

    unsafe fn copy_in(&self, from: &[u8], to: usize) -> Result<(), CudaFault> {
        if let Some(fault) = self.copy_fails.lock().unwrap().take() {
            return Err(fault);
        }
        self.refuse(from.len())?;
        // SAFETY: as the caller vouches, and the device is the host.
        unsafe {
            from.as_ptr().copy_to_nonoverlapping(std::ptr::with_exposed_provenance_mut(to), from.len())
        };
        let (_, last) = std::mem::replace(&mut *self.inward.lock().unwrap(), (to, from.len()));
        if last != from.len() {
            std::thread::sleep(self.change_takes);
        }
        if self.corrupts {
            // SAFETY: as above.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(to).write_bytes(0, from.len()) };
        }
        Ok(())
    }

    unsafe fn copy_out(&self, from: usize, to: &mut [u8]) -> Result<(), CudaFault> {
        let copy = (from, to.as_mut_ptr().expose_provenance(), to.len());
        self.pending.lock().unwrap().push(copy);
        Ok(())
    }

    fn record(&self, enqueue: &mut dyn FnMut()) -> Result<Box<dyn CudaGraph>, CudaFault> {
        enqueue();
        match self.computes {
            Some(_) => Ok(Box::new(HostGraph {
                launched: Arc::clone(&self.launched),
                launches: Arc::clone(&self.launches),
            })),
            None => Err(CudaFault { message: "a host records nothing".to_owned(), sticky: false }),
        }
    }

    fn wait(&self) -> Result<(), CudaFault> {
        if self.launched.swap(false, Ordering::Relaxed)
            && let (Some(computes), Some((to, ..))) = (self.computes, self.pending.lock().unwrap().first())
        {
            let (from, length) = *self.inward.lock().unwrap();
            // SAFETY: the last copy to the device put these bytes there.
            let input =
                unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(from), length) };
            let output = computes(input);
            // SAFETY: the output has these bytes there until this returns.
            unsafe {
                output
                    .as_ptr()
                    .copy_to_nonoverlapping(std::ptr::with_exposed_provenance_mut(*to), output.len());
            }
        }
        for (from, to, length) in self.pending.lock().unwrap().drain(..) {
            let (from, to) =
                (std::ptr::with_exposed_provenance::<u8>(from), std::ptr::with_exposed_provenance_mut(to));
            // SAFETY: as the callers of `copy_out` vouch until this returns.
            unsafe { from.copy_to_nonoverlapping(to, length) };
        }
        self.wait_fails.lock().unwrap().take().map_or(Ok(()), Err)
    }
}

impl HostStream {
    pub(super) fn that_corrupts(corrupts: bool) -> Self {
        Self { corrupts, ..Self::default() }
    }

    /// A stream whose recorded runs compute this from the input.
    pub(super) fn that_computes(computes: Option<Computes>) -> Self {
        Self { computes, ..Self::default() }
    }

    /// A stream that records nothing, and on which a change of the size of batches takes this long.
    pub(super) fn that_plans_for(change_takes: Duration) -> Self {
        Self { change_takes, ..Self::default() }
    }

    /// From now on, allocations and copies of at least `bytes` bytes fail.
    pub(super) fn fails_from(&self, bytes: usize, message: &str, sticky: bool) {
        *self.refused.lock().unwrap() = Some((bytes, CudaFault { message: message.to_owned(), sticky }));
    }

    fn refuse(&self, bytes: usize) -> Result<(), CudaFault> {
        match &*self.refused.lock().unwrap() {
            Some((most, fault)) if bytes >= *most => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

pub(super) fn on(stream: HostStream) -> Cuda {
    let stream = Arc::new(stream);
    Cuda { stream, memory_limit: Some(1 << 30), tf32: true, prefer_nhwc: false, cudnn: true, weights: None }
}

pub(super) fn batch(rows: u32, columns: u64, first: f32) -> Batch {
    let count = rows as usize * columns as usize;
    let data: Vec<u8> = (0..count).flat_map(|index| (first + index as f32).to_le_bytes()).collect();
    let shape = Shape::from_extents(&[u64::from(rows), columns]);
    let tensor = Tensor { name: "x".into(), datatype: oip::Datatype::Fp32, shape, data: data.into() };
    Batch { inputs: vec![Some(tensor)], rows }
}

pub(super) fn signature(graph: &Builder) -> Signature {
    inspect(&graph.clone().files(), &LoadOptions::default()).unwrap()
}

fn builder(
    library: &OrtLibrary,
    graph: &Builder,
    level: GraphOptimizationLevel,
) -> ::ort::Result<SessionBuilder> {
    let cpu = [ep::CPU::default().with_arena_allocator(true).build()];
    let builder = configure(library, &signature(graph), &LoadOptions::default(), cpu)?;
    Ok(builder.with_optimization_level(level)?.with_config_entry(placement::RECORD, "1")?)
}

pub(super) fn session(library: &OrtLibrary, graph: &Builder) -> OrtInner {
    let mut builder = builder(library, graph, GraphOptimizationLevel::All).unwrap();
    builder.commit_from_memory(&graph.clone().bytes()).unwrap()
}

/// All tensors on the "device".
pub(super) fn bound(session: &OrtInner) -> Binding {
    let all = |count| vec![Place::Device; count];
    let (inputs, outputs) = (all(session.inputs().len()), all(session.outputs().len()));
    Binding::new(session, Places { inputs, outputs, device: MemoryInfo::default() }).unwrap()
}

#[test]
fn a_runtime_without_the_provider_is_one_clear_line() {
    let loader = loader();
    if loader.ort.is_err() {
        return;
    }
    if ep::CUDA::is_available().unwrap() {
        println!("skipped: the ONNX Runtime here is one for GPUs");
        return;
    }
    let options = LoadOptions { accelerator: Some(on(HostStream::default())), ..LoadOptions::default() };
    let error = loader.load(&matmul(D::S("batch")).files(), &options).err().unwrap();
    let expected = "model `made` version 1: engine `ort`: this ONNX Runtime has no CUDA provider: expected the one of \
                    onnxruntime-gpu";
    assert_eq!(error.to_string(), expected, "and no other engine runs it on the CPU instead");
}

#[test]
fn only_an_engine_for_gpus_runs_on_a_gpulet() {
    let named = |engine| LoadOptions {
        engine,
        accelerator: Some(on(HostStream::default())),
        ..LoadOptions::default()
    };
    let files = matmul(D::S("batch")).files();
    let refused = Loader::without_ort().load(&files, &named(EngineChoice::Named("tract"))).err().unwrap();
    let expected =
        "model `made` version 1: engine `tract`: does not run ONNX models on a GPU: expected `ort`";
    assert_eq!(refused.to_string(), expected);
    let LoadError::Engines { failures, .. } =
        Loader::without_ort().load(&files, &named(EngineChoice::Auto)).err().unwrap()
    else {
        panic!("expected engines")
    };
    assert_eq!(failures.iter().map(|failure| failure.engine).collect::<Vec<_>>(), ["ort"]);
}

#[test]
fn the_null_stream_is_refused() {
    struct Null;
    // SAFETY: nothing is ever enqueued on it.
    unsafe impl CudaStream for Null {
        fn device(&self) -> i32 {
            0
        }
        fn address(&self) -> usize {
            0
        }
        fn host_bytes(&self, _: usize) -> Result<Box<dyn HostBytes>, CudaFault> {
            unreachable!()
        }
        fn device_bytes(&self, _: usize) -> Result<Box<dyn DeviceBytes>, CudaFault> {
            unreachable!()
        }
        unsafe fn copy_in(&self, _: &[u8], _: usize) -> Result<(), CudaFault> {
            unreachable!()
        }
        unsafe fn copy_out(&self, _: usize, _: &mut [u8]) -> Result<(), CudaFault> {
            unreachable!()
        }
        fn record(&self, _: &mut dyn FnMut()) -> Result<Box<dyn CudaGraph>, CudaFault> {
            unreachable!()
        }
        fn wait(&self) -> Result<(), CudaFault> {
            unreachable!()
        }
    }
    let null = Cuda { stream: Arc::new(Null), ..on(HostStream::default()) };
    assert!(
        provider(&null, &OrtSettings::default())
            .err()
            .unwrap()
            .reason
            .contains("the null stream runs on every SM")
    );
}

#[test]
fn a_bound_session_answers_as_one_on_host_tensors() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::S("batch"), D::N(3)])
        .output("best", DataType::Int64, &[D::S("batch")])
        .output("sum", DataType::Float, &[D::S("batch"), D::N(3)])
        .node("ArgMax", &["x"], &["best"])
        .attribute("axis", 1)
        .attribute("keepdims", 0)
        .node("Add", &["x", "x"], &["sum"]);
    let mut plain = loader.load(&graph.clone().files(), &LoadOptions::default()).unwrap();
    let (stream, signature) = (HostStream::default(), signature(&graph));
    let mut session = session(library, &graph);
    let mut binding = bound(&session);
    let options = ::ort::session::RunOptions::new().unwrap();
    for (rows, first) in [(1, 0.0), (2, 5.0), (2, -7.0), (64, 1.0), (3, 2.5), (1, 9.0), (0, 0.0)] {
        let batch = batch(rows, 3, first);
        let bound = binding.run(&mut session, &stream, &batch, &signature, &options).ok().unwrap();
        assert_eq!(bound, plain.run(&batch).unwrap(), "{rows} rows");
    }
    assert_eq!(
        stream.held(),
        64 * 3 * 4 + 64 * 8 + 64 * 3 * 4,
        "as much pinned memory as the largest batch needs"
    );
    binding.trim();
    assert!(binding.run(&mut session, &stream, &batch(1, 3, 0.0), &signature, &options).is_ok());
    assert!(stream.held() > 1024, "trimmed for the first time, it keeps what the batches before needed");
    binding.trim();
    assert_eq!(stream.held(), 0, "the last batch needed little");
    assert!(binding.run(&mut session, &stream, &batch(4, 3, 0.0), &signature, &options).is_ok());
}

#[test]
fn a_request_that_does_not_fit_and_a_copy_that_fails_leave_the_session_usable() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    let (stream, signature) = (HostStream::default(), signature(&graph));
    let mut session = session(library, &graph);
    let mut binding = bound(&session);
    let options = ::ort::session::RunOptions::new().unwrap();
    let mut run = |batch: &Batch| binding.run(&mut session, &stream, batch, &signature, &options);
    let mut short = batch(2, 3, 0.0);
    short.inputs[0].as_mut().unwrap().data.truncate(20);
    assert!(matches!(run(&short), Err(Refused::Input(said)) if said.contains("not as long as its shape")));
    assert!(matches!(run(&Batch { inputs: vec![None], rows: 1 }), Err(Refused::Input(_))));
    assert!(matches!(run(&batch(2, 4, 0.0)), Err(Refused::Run(_))), "the graph refuses four columns");
    let broken =
        CudaFault { message: "cuMemcpyHtoDAsync: CUDA_ERROR_INVALID_VALUE (1)".to_owned(), sticky: false };
    *stream.copy_fails.lock().unwrap() = Some(broken.clone());
    assert!(matches!(run(&batch(2, 3, 0.0)), Err(Refused::Fault(said)) if said == broken));
    let lost = CudaFault {
        message: "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)".to_owned(),
        sticky: true,
    };
    *stream.wait_fails.lock().unwrap() = Some(lost.clone());
    assert!(
        matches!(run(&batch(2, 4, 0.0)), Err(Refused::Fault(said)) if said == lost),
        "the worse of two errors"
    );
    assert_eq!(run(&batch(1, 3, 1.0)).ok().unwrap()[0].data.len(), 8);
}

#[test]
fn the_runtime_says_who_runs_what() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    let session = session(library, &graph);
    let nodes = placement::nodes(&session).unwrap();
    let expected = placement::Placed {
        provider: "CPUExecutionProvider".to_owned(),
        operator: "MatMul".to_owned(),
        name: "MatMul_0".to_owned(),
    };
    assert_eq!(nodes, [expected]);
    assert_eq!(placement::elsewhere(&nodes, "CPUExecutionProvider"), None);
    let (operator, reason) = placement::elsewhere(&nodes, "CUDAExecutionProvider").unwrap();
    assert_eq!(operator, "MatMul");
    assert!(
        reason.starts_with("node `MatMul_0` (MatMul) would run on CPUExecutionProvider: expected"),
        "{reason}"
    );
    assert_eq!(placement::inputs(&session).unwrap(), [Place::Host]);
    assert_eq!(placement::outputs(&session).unwrap(), [Place::Host]);
}

#[test]
fn arithmetic_on_shapes_may_stay_on_the_cpu() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::S("m")])
        .output("y", DataType::Int64, &[D::N(2)])
        .node("Shape", &["x"], &["y"]);
    let nodes = placement::nodes(&session(library, &graph)).unwrap();
    assert_eq!(nodes.len(), 1);
    assert_eq!(placement::elsewhere(&nodes, "CUDAExecutionProvider"), None);
}

/// `y = x + w`, with a weight large enough to be shared.
fn sum(columns: i64) -> Builder {
    Builder::default()
        .input("x", DataType::Float, &[D::S("batch"), D::N(columns)])
        .output("y", DataType::Float, &[D::S("batch"), D::N(columns)])
        .floats("w", &[columns], &vec![1.0; columns as usize])
        .node("Add", &["x", "w"], &["y"])
}

fn shared(store: &SharedWeights, library: &OrtLibrary, graph: &Builder, cuda: &Cuda) -> Option<Arc<Weights>> {
    let files = graph.clone().files();
    let source = Source { bytes: &files.bytes, folder: files.folder() };
    let configured = |level| builder(library, graph, level);
    store.of(&files, &source, &LoadOptions::default(), cuda, &configured, || Ok(MemoryInfo::default()))
}

#[test]
fn sessions_of_a_model_read_the_same_weights() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let (store, graph) = (SharedWeights::new(), sum(2048));
    let stream = HostStream::default();
    let held = Arc::clone(&stream.held);
    let cuda = on(stream);
    let weights = shared(&store, library, &graph, &cuda).unwrap();
    assert!(Arc::ptr_eq(&weights, &shared(&store, library, &graph, &cuda).unwrap()), "put there once");
    assert_eq!(held.load(Ordering::Relaxed), 2048 * 4);
    let made = || weights.commit(builder(library, &graph, GraphOptimizationLevel::Disable).unwrap()).unwrap();
    let mut sessions = [made(), made()];
    let signature = signature(&graph);
    let options = ::ort::session::RunOptions::new().unwrap();
    let mut answers = || {
        sessions.each_mut().map(|session| {
            let mut binding = bound(session);
            let host = HostStream::default();
            let outputs =
                binding.run(session, &host, &batch(1, 2048, 0.0), &signature, &options).ok().unwrap();
            f32::from_le_bytes(outputs[0].data[4..8].try_into().unwrap())
        })
    };
    assert_eq!(answers(), [2.0, 2.0]);
    // SAFETY: no session runs, and the block has 2048 floats.
    unsafe { std::ptr::with_exposed_provenance_mut::<f32>(weights.address()).add(1).write(41.0) };
    assert_eq!(answers(), [42.0, 42.0], "both sessions read the block, neither has a copy");
    drop(sessions);
    drop(weights);
    assert_eq!(held.load(Ordering::Relaxed), 0, "the last session freed them");
    assert!(shared(&store, library, &graph, &cuda).is_some(), "and they can be loaded again");
}

#[test]
fn weights_that_cannot_be_shared_are_left_to_each_session() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let (store, cuda) = (SharedWeights::new(), on(HostStream::default()));
    assert!(shared(&store, library, &sum(8), &cuda).is_none(), "too small");
    let folder = tempfile::tempdir().unwrap();
    let (external, bytes) = sum(2048).external("w", "w.bin");
    std::fs::write(folder.path().join("w.bin"), bytes).unwrap();
    let files = external.clone().files().in_folder(folder.path().to_owned());
    let source = Source { bytes: &files.bytes, folder: files.folder() };
    let configured = |_| -> Result<SessionBuilder, ::ort::Error> { panic!("is not tried") };
    let options = LoadOptions::default();
    assert!(store.of(&files, &source, &options, &cuda, &configured, || Ok(MemoryInfo::default())).is_none());
}

#[test]
fn equal_options_are_the_same_stream_used_alike() {
    let cuda = on(HostStream::default());
    assert_eq!(cuda, cuda.clone());
    assert_ne!(cuda, Cuda { tf32: false, ..cuda.clone() });
    assert_ne!(cuda, Cuda { cudnn: false, ..cuda.clone() });
    assert_ne!(cuda, Cuda { weights: Some(SharedWeights::new()), ..cuda.clone() });
    assert!(format!("{cuda:?}").contains("stream: 0x1000"));
}
