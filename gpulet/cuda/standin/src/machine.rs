//! The driver's state and rules: which calls are counted, made to fail, or out of order.

use std::collections::{BTreeMap, BTreeSet};

use crate::codes::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, NO_DEVICE, NOT_INITIALIZED, STICKY};
use crate::graphs::{Capture, Graph};
use crate::shape::Shape;

/// The result of a call, or the driver's code.
pub(crate) type Answer<T> = Result<T, u32>;

/// Calls that may come before `cuInit`.
const BEFORE_INIT: &[&str] = &["cuInit", "cuDriverGetVersion", "cuGetErrorName"];

struct Fault {
    call: String,
    left: u64,
    code: u32,
}

/// A GPU.
#[derive(Default)]
pub(crate) struct Gpu {
    /// Handle of the primary context, while it is retained.
    pub primary: Option<usize>,
    pub retained: u32,
    /// Number of the split call that created resources; 0 before the first.
    pub split: u32,
    pub used_bytes: u64,
}

pub(crate) struct Descriptor {
    pub gpu: usize,
    pub sms: BTreeSet<u32>,
}

pub(crate) struct Green {
    pub gpu: usize,
    pub sms: BTreeSet<u32>,
}

pub(crate) struct Stream {
    pub gpu: usize,
    /// The green context of the stream; none for the primary context.
    pub green: Option<usize>,
    /// Smaller is more urgent.
    pub priority: i32,
    /// Whether a test keeps work in flight on it.
    pub busy: bool,
}

pub(crate) struct Event {
    pub gpu: usize,
    /// The stream whose work it waits for.
    pub after: Option<usize>,
}

/// Bytes on the GPU, or pinned bytes.
pub(crate) struct Buffer {
    pub gpu: usize,
    pub bytes: u64,
    /// Its content; none for large buffers, which are only counted.
    pub held: Option<Box<[u8]>>,
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Each block writes the number of its SM.
    RecordSms,
    /// Each block starts a generator at its number and writes the value after some steps.
    Work,
    /// Copies words of 16 bytes.
    CopyWords,
    /// Writes to an address.
    Poke,
}

/// The whole state.
#[derive(Default)]
pub(crate) struct Machine {
    pub shape: Shape,
    initialised: bool,
    sticky: Option<u32>,
    faults: Vec<Fault>,
    calls: BTreeMap<String, u64>,
    violations: Vec<String>,
    handles: usize,
    pub splits: u32,
    /// Initialisations of the management library minus shutdowns.
    pub management: u32,
    pub gpus: Vec<Gpu>,
    pub descriptors: BTreeMap<usize, Descriptor>,
    pub greens: BTreeMap<usize, Green>,
    pub streams: BTreeMap<usize, Stream>,
    pub events: BTreeMap<usize, Event>,
    pub buffers: BTreeMap<usize, Buffer>,
    pub pinned: BTreeMap<usize, Buffer>,
    /// Texts of the loaded modules.
    pub modules: BTreeMap<usize, String>,
    pub kernels: BTreeMap<usize, (usize, Kernel)>,
    /// Streams that record.
    pub captures: BTreeMap<usize, Capture>,
    /// What was recorded.
    pub graphs: BTreeMap<usize, Graph>,
    /// What can be launched.
    pub launchable: BTreeMap<usize, Graph>,
    /// The management library's samples: GPU and number of the sample; none for an empty sample.
    pub samples: BTreeMap<usize, Option<(usize, u64)>>,
    /// Handles that were destroyed.
    destroyed: BTreeSet<usize>,
}

impl Machine {
    pub(crate) fn new(shape: Shape) -> Self {
        let gpus = (0..shape.devices).map(|_| Gpu::default()).collect();
        Self { shape, gpus, ..Self::default() }
    }

    /// Counts a call. An error if the call was made to fail.
    fn note(&mut self, call: &str) -> Answer<()> {
        *self.calls.entry(call.to_owned()).or_default() += 1;
        let fired = self.faults.iter_mut().position(|fault| {
            let matches = fault.call == call;
            fault.left = fault.left.saturating_sub(u64::from(matches));
            matches && fault.left == 0
        });
        match fired {
            Some(fired) => Err(self.faults.remove(fired).code),
            None => Ok(()),
        }
    }

    /// Starts a call of the management library. An error without a code: the library was not initialised.
    pub(crate) fn enter_management(&mut self, call: &str) -> Result<(), Option<u32>> {
        self.note(call).map_err(Some)?;
        if self.management == 0 && call != "nvmlInit_v2" {
            self.broken(format!("{call} before nvmlInit"), 0);
            return Err(None);
        }
        Ok(())
    }

    /// Starts a call: counts it. An error if the call was made to fail or is not allowed now.
    pub(crate) fn enter(&mut self, call: &str) -> Answer<()> {
        if let Err(code) = self.note(call) {
            if STICKY.contains(&code) {
                self.sticky = Some(code);
            }
            return Err(code);
        }
        if call == "cuGetErrorName" {
            return Ok(());
        }
        if let Some(code) = self.sticky {
            return Err(code);
        }
        if !self.initialised && !BEFORE_INIT.contains(&call) {
            return Err(self.broken(format!("{call} before cuInit"), NOT_INITIALIZED));
        }
        Ok(())
    }

    /// Records a violation and returns its code.
    pub(crate) fn broken(&mut self, rule: String, code: u32) -> u32 {
        self.violations.push(rule);
        code
    }

    pub(crate) fn init(&mut self, flags: u32) -> Answer<()> {
        if flags != 0 {
            return Err(self.broken(format!("cuInit with flags {flags}"), crate::codes::INVALID_VALUE));
        }
        if self.gpus.is_empty() {
            return Err(NO_DEVICE);
        }
        self.initialised = true;
        Ok(())
    }

    /// Makes the `nth` next use of a call fail with `code`; 1 is the next one.
    pub(crate) fn fail(&mut self, call: &str, nth: u64, code: u32) {
        self.faults.push(Fault { call: call.to_owned(), left: nth.max(1), code });
    }

    /// Fails every call from now on, as after a fault on the device.
    pub(crate) fn poison(&mut self, code: u32) {
        self.sticky = Some(code);
    }

    /// Cancels failures that have not happened yet, and clears a sticky error.
    pub(crate) fn heal(&mut self) {
        self.faults.clear();
        self.sticky = None;
    }

    pub(crate) fn count(&self, call: &str) -> u64 {
        self.calls.get(call).copied().unwrap_or(0)
    }

    pub(crate) fn violations(&self) -> String {
        self.violations.join("\n")
    }

    pub(crate) fn new_handle(&mut self) -> usize {
        self.handles += 1;
        0x7a00_0000_0000 + self.handles * 16
    }

    /// Remembers a handle that must not be used again.
    pub(crate) fn destroyed(&mut self, handle: usize) {
        self.destroyed.insert(handle);
    }

    /// Records the use of an invalid handle and returns its code.
    pub(crate) fn unknown(&mut self, call: &str, what: &str, handle: usize) -> u32 {
        let how = if self.destroyed.contains(&handle) { "that was destroyed" } else { "that never existed" };
        self.broken(format!("{call} with a {what} {how}"), INVALID_HANDLE)
    }

    pub(crate) fn gpu(&mut self, device: i32) -> Answer<usize> {
        let index = usize::try_from(device).unwrap_or(usize::MAX);
        if index < self.gpus.len() { Ok(index) } else { Err(INVALID_DEVICE) }
    }

    /// The GPU whose primary context is current; `current` is the calling thread's context.
    pub(crate) fn current_gpu(&mut self, call: &str, current: usize) -> Answer<usize> {
        let gpu = self.gpus.iter().position(|gpu| gpu.primary == Some(current));
        gpu.ok_or_else(|| self.broken(format!("{call} without a current context"), INVALID_CONTEXT))
    }

    pub(crate) fn retain(&mut self, device: i32) -> Answer<usize> {
        let index = self.gpu(device)?;
        let fresh = self.new_handle();
        let bytes = self.shape.context_bytes;
        let gpu = self.gpus.get_mut(index).ok_or(INVALID_DEVICE)?;
        gpu.retained += 1;
        if let Some(primary) = gpu.primary {
            return Ok(primary);
        }
        gpu.primary = Some(fresh);
        gpu.used_bytes += bytes;
        Ok(fresh)
    }

    pub(crate) fn release(&mut self, device: i32) -> Answer<()> {
        let index = self.gpu(device)?;
        let left_over = [
            ("green contexts", self.greens.values().filter(|green| green.gpu == index).count()),
            ("streams", self.streams.values().filter(|stream| stream.gpu == index).count()),
            ("events", self.events.values().filter(|event| event.gpu == index).count()),
            ("recorded runs", self.launchable.values().filter(|graph| graph.gpu == index).count()),
            ("buffers", self.buffers.values().filter(|buffer| buffer.gpu == index).count()),
        ];
        let bytes = self.shape.context_bytes;
        let gpu = self.gpus.get_mut(index).ok_or(INVALID_DEVICE)?;
        let Some(primary) = gpu.primary.filter(|_| gpu.retained > 0) else {
            return Err(
                self.broken("primary context released more often than retained".to_owned(), INVALID_CONTEXT)
            );
        };
        gpu.retained -= 1;
        if gpu.retained > 0 {
            return Ok(());
        }
        gpu.primary = None;
        gpu.split = 0;
        gpu.used_bytes = gpu.used_bytes.saturating_sub(bytes);
        self.destroyed(primary);
        for (what, count) in left_over {
            if count > 0 {
                self.broken(format!("primary context released before {count} {what}"), INVALID_CONTEXT);
            }
        }
        Ok(())
    }

    pub(crate) fn set_current(&mut self, context: usize) -> Answer<()> {
        let known = context == 0 || self.gpus.iter().any(|gpu| gpu.primary == Some(context));
        if known { Ok(()) } else { Err(self.unknown("cuCtxSetCurrent", "context", context)) }
    }

    /// How many objects of a kind exist; kinds have the numbers of [`Kind`](crate::Kind).
    pub(crate) fn alive(&self, kind: u32) -> usize {
        match kind {
            0 => self.gpus.iter().filter(|gpu| gpu.primary.is_some()).count(),
            1 => self.greens.len(),
            2 => self.streams.len(),
            3 => self.events.len(),
            4 => self.buffers.len(),
            5 => self.pinned.len(),
            7 => self.modules.len(),
            6 => usize::try_from(self.management).unwrap_or(usize::MAX),
            8 => self.samples.len(),
            9 => self.graphs.len() + self.launchable.len(),
            _ => 0,
        }
    }
}
