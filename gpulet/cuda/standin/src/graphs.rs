//! Recorded work. While a stream records, kernels and copies on it are kept and do not run.

use crate::codes::{CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE};
use crate::machine::{Answer, Kernel, Machine};

/// Recorded work of one kind.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    Kernel {
        kernel: Kernel,
        size: (u32, u32),
        arguments: Vec<u64>,
    },
    /// A copy between the device and the host. The driver records it; a launch would access memory of the host.
    HostCopy,
}

/// A stream that records.
#[derive(Default)]
pub(crate) struct Capture {
    work: Vec<Recorded>,
    /// Whether a call broke the recording.
    invalid: bool,
}

/// What was recorded, or what can be launched.
#[derive(Clone)]
pub(crate) struct Graph {
    pub(crate) gpu: usize,
    stream: usize,
    pub(crate) work: Vec<(usize, Recorded)>,
}

/// `CU_GRAPH_NODE_TYPE_KERNEL` and `CU_GRAPH_NODE_TYPE_MEMCPY`.
const KERNEL: u32 = 0;
const COPY: u32 = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: u32 = 1;

impl Machine {
    pub(crate) fn capture_begin(&mut self, stream: usize, mode: u32) -> Answer<()> {
        if !self.streams.contains_key(&stream) {
            return Err(self.unknown("cuStreamBeginCapture", "stream", stream));
        }
        if mode != THREAD_LOCAL {
            let rule = format!("capture with mode {mode}, which affects calls of other threads");
            return Err(self.broken(rule, INVALID_VALUE));
        }
        if self.captures.contains_key(&stream) {
            return Err(ILLEGAL_STATE);
        }
        self.captures.insert(stream, Capture::default());
        Ok(())
    }

    pub(crate) fn capture_end(&mut self, stream: usize) -> Answer<usize> {
        let Some(capture) = self.captures.remove(&stream) else { return Err(ILLEGAL_STATE) };
        if capture.invalid {
            return Err(CAPTURE_INVALIDATED);
        }
        let work = capture.work.into_iter().map(|work| (self.new_handle(), work)).collect();
        let handle = self.new_handle();
        let gpu = self.streams.get(&stream).map_or(0, |stream| stream.gpu);
        self.graphs.insert(handle, Graph { gpu, stream, work });
        Ok(handle)
    }

    /// Keeps work of a stream that records. Returns whether it does.
    pub(crate) fn keep(&mut self, stream: usize, work: Recorded) -> bool {
        let capture = self.captures.get_mut(&stream);
        capture.map(|capture| capture.work.push(work)).is_some()
    }

    /// Refuses to wait for a stream that records, and breaks the recording.
    pub(crate) fn refuse_to_wait(&mut self, stream: usize) -> Answer<()> {
        match self.captures.get_mut(&stream) {
            Some(capture) => {
                capture.invalid = true;
                Err(CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn graph(&mut self, call: &str, graph: usize) -> Answer<Graph> {
        match self.graphs.get(&graph) {
            Some(found) => Ok(found.clone()),
            None => Err(self.unknown(call, "graph", graph)),
        }
    }

    pub(crate) fn node_kind(&mut self, node: usize) -> Answer<u32> {
        let all = self.graphs.values().flat_map(|graph| &graph.work);
        match all.into_iter().find(|(handle, _)| *handle == node) {
            Some((_, Recorded::Kernel { .. })) => Ok(KERNEL),
            Some((_, Recorded::HostCopy)) => Ok(COPY),
            None => Err(self.unknown("cuGraphNodeGetType", "node", node)),
        }
    }

    pub(crate) fn graph_instantiate(&mut self, graph: usize) -> Answer<usize> {
        let graph = self.graph("cuGraphInstantiate", graph)?;
        let handle = self.new_handle();
        self.launchable.insert(handle, graph);
        Ok(handle)
    }

    pub(crate) fn graph_launch(&mut self, graph: usize, stream: usize) -> Answer<()> {
        let Some(graph) = self.launchable.get(&graph).cloned() else {
            return Err(self.unknown("cuGraphLaunch", "graph", graph));
        };
        self.copies_on("cuGraphLaunch", stream)?;
        if graph.stream != stream {
            let rule = "graph launched on another stream than the one that recorded it".to_owned();
            return Err(self.broken(rule, INVALID_HANDLE));
        }
        for (_, work) in graph.work {
            match work {
                Recorded::Kernel { kernel, size, arguments } => {
                    self.launch(kernel, size, &arguments, stream)?
                }
                Recorded::HostCopy => {
                    return Err(self.broken("recorded copy of memory of the host".to_owned(), INVALID_VALUE));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn graph_destroy(&mut self, graph: usize) -> Answer<()> {
        if self.graphs.remove(&graph).is_none() {
            return Err(self.unknown("cuGraphDestroy", "graph", graph));
        }
        self.destroyed(graph);
        Ok(())
    }

    pub(crate) fn launchable_destroy(&mut self, graph: usize) -> Answer<()> {
        if self.launchable.remove(&graph).is_none() {
            return Err(self.unknown("cuGraphExecDestroy", "graph", graph));
        }
        self.destroyed(graph);
        Ok(())
    }
}
