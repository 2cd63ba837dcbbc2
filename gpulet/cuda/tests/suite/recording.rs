//! Work that a gpulet's stream records, and that is enqueued again with one call.

#![expect(unsafe_code, reason = "kernels are launched by address; each use says why it is sound")]

use std::sync::Arc;

use cuda_standin::{Control, Kind, Shape, with_driver};
use gpulet_cuda::driver::{
    CaptureError, DeviceBuffer, Driver, Event, Graph, GreenContext, Kernel, Module, PinnedBuffer, Primary,
    Split, Stream,
};
use gpulet_cuda::probe;

const PTX: &std::ffi::CStr = c".version 7.0\n.target sm_75\n.entry record_sms(\n.entry work(\n";
const BLOCKS: u32 = 4;

/// A gpulet of four units, the kernel that reports its SMs, and space for that.
struct Bench {
    out: DeviceBuffer,
    kernel: Kernel,
    stream: Stream,
    primary: Arc<Primary>,
}

impl Bench {
    fn new() -> Self {
        assert_eq!(probe().unwrap().len(), 1);
        let primary = Primary::retain(Driver::load().unwrap(), 0).unwrap();
        let split = Split::once(&primary, (9, 0), false).unwrap();
        let range = split.grid().range(2, 4).unwrap();
        let context = GreenContext::create(split.describe(range).unwrap()).unwrap();
        let stream = Stream::on_green(&context, 0).unwrap();
        let kernel = Module::load(&primary, PTX).unwrap().kernel(c"record_sms").unwrap();
        let out = DeviceBuffer::allocate(&primary, 4 * usize::try_from(BLOCKS).unwrap()).unwrap();
        Self { out, kernel, stream, primary }
    }

    fn launch(&self) {
        // SAFETY: an address and a number, as the kernel takes them; the buffer has a word for each block.
        unsafe { self.stream.launch(&self.kernel, BLOCKS, 1, &[self.out.address(), 0]) }.unwrap();
    }

    fn record(&self) -> Result<Graph, CaptureError> {
        Graph::capture(&self.stream, &mut || self.launch())
    }

    fn run(&self, graph: &Graph) {
        // SAFETY: the buffer exists, and nothing else uses it.
        unsafe { graph.launch(&self.stream) }.unwrap();
        self.stream.finish().unwrap();
    }

    /// What the kernel wrote.
    fn written(&mut self) -> Vec<u32> {
        let mut pinned = PinnedBuffer::allocate(&self.primary, self.out.len()).unwrap();
        let done = Event::create(&self.primary).unwrap();
        self.stream.copy_out(&self.out, &mut pinned, &done).unwrap();
        pinned.bytes().chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn erase(&mut self) {
        let pinned = PinnedBuffer::allocate(&self.primary, self.out.len()).unwrap();
        let done = Event::create(&self.primary).unwrap();
        self.stream.copy_in(&pinned, &mut self.out, &done).unwrap();
    }
}

#[test]
fn recorded_work_runs_when_it_is_launched_on_the_sms_of_its_stream() {
    let test = "recording::recorded_work_runs_when_it_is_launched_on_the_sms_of_its_stream";
    with_driver(test, Shape::default(), |control| {
        let mut bench = Bench::new();
        let graph = bench.record().unwrap();
        assert_eq!(bench.written(), [0; 4], "nothing ran while it was recorded");
        for _ in 0..2 {
            bench.run(&graph);
            assert_eq!(bench.written(), [16, 17, 18, 19], "SMs of the third unit on");
            bench.erase();
        }
        drop(graph);
        assert_eq!(control.alive(Kind::Recorded), 0);
    });
}

#[test]
fn work_that_depends_on_the_host_is_refused() {
    with_driver("recording::work_that_depends_on_the_host_is_refused", Shape::default(), |control| {
        let bench = Bench::new();
        let bytes = PinnedBuffer::allocate(&bench.primary, 16).unwrap();
        let copies = Graph::capture(&bench.stream, &mut || {
            // SAFETY: both sides have 16 bytes, and the copy never runs.
            unsafe { bench.stream.queue_copy_in(bytes.bytes(), bench.out.address()) }.unwrap();
        });
        assert_eq!(copies.err().unwrap(), CaptureError::OnHost("a copy from or to memory of the host"));
        let waits = Graph::capture(&bench.stream, &mut || assert!(bench.stream.finish().is_err()));
        let said = waits.err().unwrap().to_string();
        assert_eq!(said, "cuStreamEndCapture: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)");
        assert_eq!(control.alive(Kind::Recorded), 0);
        bench.run(&bench.record().unwrap());
    });
}

#[test]
fn any_call_may_fail_and_the_stream_still_serves() {
    with_driver("recording::any_call_may_fail_and_the_stream_still_serves", Shape::default(), |control| {
        let bench = Bench::new();
        let serves = |control: &Control| {
            bench.run(&bench.record().unwrap());
            assert_eq!(control.alive(Kind::Recorded), 0, "nothing is left behind");
        };
        for call in [
            "cuStreamBeginCapture_v2",
            "cuGraphGetNodes",
            "cuGraphNodeGetType",
            "cuGraphInstantiateWithFlags",
        ] {
            control.fail(call, 1, 2);
            let error = bench.record().err().unwrap();
            assert!(error.to_string().starts_with(call) && !error.is_sticky(), "{error}");
            serves(control);
        }
        control.fail("cuGraphLaunch", 1, 700);
        let graph = bench.record().unwrap();
        // SAFETY: as in `run`; the call fails.
        assert!(unsafe { graph.launch(&bench.stream) }.unwrap_err().is_sticky());
        control.heal();
    });
}

#[test]
fn a_panic_while_work_is_recorded_leaves_the_stream_usable() {
    let test = "recording::a_panic_while_work_is_recorded_leaves_the_stream_usable";
    with_driver(test, Shape::default(), |control| {
        let bench = Bench::new();
        let panics = std::panic::AssertUnwindSafe(|| {
            Graph::capture(&bench.stream, &mut || panic!("while it is recorded")).map(drop)
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(control.alive(Kind::Recorded), 0);
        bench.run(&bench.record().unwrap());
    });
}
