//! Recorded work: what was enqueued on a stream once, and can be enqueued again with one call.
//!
//! A kernel of a recording runs on the SMs of the stream that recorded it, whichever stream launches it (measured on an
//! H200). A [`Graph`] is therefore launched on its own stream only, and never outlives its gpulet.
//!
//! A recording is refused if it depends on the host: a function on the host would free memory again at each launch,
//! and a copy would read memory that its owner has freed since.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use super::error::DriverError;
use super::library::{call, fetch};
use super::primary::Primary;
use super::stream::Stream;
use super::sys::{self, CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode, Graphs, MemoryKind, NodeKind};

/// Why work cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The driver failed, for example because the work waits for the device.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A part of the work depends on the host.
    #[error("the recording contains {0}")]
    OnHost(&'static str),
}

impl CaptureError {
    /// Whether this process can never use the device again.
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::Driver(error) if error.is_sticky())
    }
}

/// Recorded work of one stream.
pub struct Graph {
    raw: CUgraphExec,
    primary: Arc<Primary>,
}

// SAFETY: the driver lets one thread at a time use it, any thread, and the type is not `Sync`.
unsafe impl Send for Graph {}

/// What the driver recorded, before it can be launched.
struct Recording<'a> {
    raw: CUgraph,
    calls: &'a Graphs,
    primary: &'a Arc<Primary>,
}

/// A stream that records.
struct Capture<'a> {
    stream: &'a Stream,
    calls: &'a Graphs,
    ended: bool,
}

impl Graph {
    /// Records what `enqueue` enqueues on the stream; nothing of it runs. Until `enqueue` returns, a call of this thread
    /// that waits for the device or allocates its memory fails, and the recording with it. Other threads are not affected.
    ///
    /// # Errors
    /// The work cannot be recorded.
    pub fn capture(stream: &Stream, enqueue: &mut dyn FnMut()) -> Result<Self, CaptureError> {
        let primary = stream.primary();
        primary.enter()?;
        let calls = primary.driver().graphs()?;
        let capture = Capture::begin(stream, calls)?;
        enqueue();
        let recording = capture.end()?;
        recording.check()?;
        let (driver, raw) = (primary.driver(), recording.raw);
        // SAFETY: the recording is alive; writes one pointer.
        let raw = unsafe { fetch!(driver, calls, cuGraphInstantiateWithFlags(null_mut(), raw, 0)) }?;
        Ok(Self { raw, primary: Arc::clone(primary) })
    }

    /// Enqueues the work on the stream that recorded it.
    ///
    /// # Errors
    /// The driver failed. If the work itself fails, waiting for the stream reports it.
    ///
    /// # Safety
    /// All memory that the recorded work uses is still allocated, and no other code uses what it writes to until
    /// [`Stream::finish`] returned. `stream` recorded this.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), DriverError> {
        self.primary.enter()?;
        let driver = self.primary.driver();
        let calls = driver.graphs()?;
        // SAFETY: both are alive; the rest is as the caller ensures.
        unsafe { call!(driver, calls, cuGraphLaunch(self.raw, stream.raw())) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let driver = self.primary.driver();
        // SAFETY: no code holds it any more, and the driver finishes launches in flight. An error here cannot be handled.
        let _ = self.primary.enter().and_then(|()| {
            let calls = driver.graphs()?;
            unsafe { call!(driver, calls, cuGraphExecDestroy(self.raw)) }
        });
    }
}

impl<'a> Capture<'a> {
    fn begin(stream: &'a Stream, calls: &'a Graphs) -> Result<Self, DriverError> {
        let (driver, mode) = (stream.primary().driver(), sys::CAPTURE_OF_THIS_THREAD);
        // SAFETY: the stream is alive while this exists.
        unsafe { call!(driver, calls, cuStreamBeginCapture_v2(stream.raw(), mode)) }?;
        Ok(Self { stream, calls, ended: false })
    }

    fn end(mut self) -> Result<Recording<'a>, DriverError> {
        self.ended = true;
        let raw = self.take()?;
        Ok(Recording { raw, calls: self.calls, primary: self.stream.primary() })
    }

    fn take(&self) -> Result<CUgraph, DriverError> {
        let driver = self.stream.primary().driver();
        let mut graph = null_mut();
        // SAFETY: the stream records; writes one pointer.
        let ended =
            unsafe { call!(driver, self.calls, cuStreamEndCapture(self.stream.raw(), &raw mut graph)) };
        ended.map(|()| graph)
    }
}

impl Drop for Capture<'_> {
    /// A stream that records forever could not be used again.
    fn drop(&mut self) {
        if !self.ended
            && let Ok(raw) = self.take()
        {
            drop(Recording { raw, calls: self.calls, primary: self.stream.primary() });
        }
    }
}

impl Recording<'_> {
    /// Refuses work that depends on the host.
    fn check(&self) -> Result<(), CaptureError> {
        for node in self.nodes()? {
            match self.kind_of(node)? {
                NodeKind::OnDevice => {}
                NodeKind::Copy if self.copies_on_device(node)? => {}
                NodeKind::Copy => return Err(CaptureError::OnHost("a copy from or to memory of the host")),
                NodeKind::OnHost => return Err(CaptureError::OnHost("a function on the host")),
                NodeKind::Other => return Err(CaptureError::OnHost("work of a kind that is not checked")),
            }
        }
        Ok(())
    }

    fn nodes(&self) -> Result<Vec<CUgraphNode>, DriverError> {
        let (driver, raw) = (self.primary.driver(), self.raw);
        let mut count = 0_usize;
        // SAFETY: the recording is alive; without a target it writes the number of nodes only.
        unsafe { call!(driver, self.calls, cuGraphGetNodes(raw, null_mut(), &raw mut count)) }?;
        let mut nodes = vec![null_mut(); count];
        // SAFETY: there is space for that many.
        unsafe { call!(driver, self.calls, cuGraphGetNodes(raw, nodes.as_mut_ptr(), &raw mut count)) }?;
        nodes.truncate(count);
        Ok(nodes)
    }

    fn kind_of(&self, node: CUgraphNode) -> Result<NodeKind, DriverError> {
        let mut kind = u32::MAX;
        // SAFETY: the node belongs to the recording; the type has the size of a number, and is read as one.
        unsafe {
            call!(self.primary.driver(), self.calls, cuGraphNodeGetType(node, (&raw mut kind).cast()))
        }?;
        Ok(NodeKind::of(kind))
    }

    fn copies_on_device(&self, node: CUgraphNode) -> Result<bool, DriverError> {
        let mut copy = MaybeUninit::zeroed();
        // SAFETY: the node is a copy of the recording; writes one structure.
        unsafe {
            call!(self.primary.driver(), self.calls, cuGraphMemcpyNodeGetParams(node, copy.as_mut_ptr()))
        }?;
        for (kind, address) in sys::sides_of(&copy) {
            let on_device = match kind {
                MemoryKind::Device => true,
                MemoryKind::Unified => self.is_on_device(address)?,
                MemoryKind::Other => false,
            };
            if !on_device {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_on_device(&self, address: CUdeviceptr) -> Result<bool, DriverError> {
        let mut kind = 0_u32;
        let (place, attribute) = ((&raw mut kind).cast(), sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
        // SAFETY: writes one number.
        unsafe {
            call!(self.primary.driver(), self.calls, cuPointerGetAttribute(place, attribute, address))
        }?;
        Ok(MemoryKind::of(kind) == MemoryKind::Device)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // SAFETY: no code holds it any more; what was instantiated from it is independent. An error here cannot be handled.
        let _ = unsafe { call!(self.primary.driver(), self.calls, cuGraphDestroy(self.raw)) };
    }
}
