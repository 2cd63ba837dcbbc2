//! A session in the worker process: runs batches on request.
//!
//! Hot path: nothing here logs per batch.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gpulet::{DeviceError, Partition};
use models::Known;
use models::engine::{Batch, RunError, Session};
use oip::Tensor;

use crate::memory::{Region, shared_file};
use crate::tensors;
use crate::wire::{Files, Load, Loaded, Ran, Refused, Run, Socket, TensorHead, WireError, bounded_error};

/// A session to be loaded.
pub(super) struct Loading {
    pub load: Load,
    pub file: OwnedFd,
    pub socket: Socket,
    pub partition: Arc<dyn Partition>,
}

impl Loading {
    /// Loads the session and reports the result to the server. None if it failed, or the server no longer waits.
    pub fn load(self) -> Option<Serving> {
        let Self { load, file, mut socket, partition } = self;
        let (name, bytes_max) = (load.files.name.clone(), load.bytes_max);
        let loaded = catch_unwind(AssertUnwindSafe(|| session(load, file, partition.as_ref())))
            .unwrap_or_else(|_| Err(format!("model `{name}`: the engine panicked while it was loaded")));
        let answer = match &loaded {
            Ok(session) => {
                let known = Known { engine: session.engine(), signature: session.signature().clone() };
                Ok(Loaded { session: known, settles_each_size: session.settles_each_size() })
            }
            Err(reason) => Err(Refused::new(reason)),
        };
        match socket.send(&answer, &[]) {
            Ok(()) => {}
            Err(WireError::TooLarge) => {
                let reason = format!("model `{name}`: names of its inputs and outputs are too long");
                socket.answer(&Err::<Loaded, _>(Refused::new(&reason)));
                return None;
            }
            Err(_) => return None,
        }
        let session = loaded.ok()?;
        Some(Serving { session, inputs: None, outputs: None, bytes_max, _partition: partition, socket })
    }
}

fn session(load: Load, file: OwnedFd, partition: &dyn Partition) -> Result<Box<dyn Session>, String> {
    let name = load.files.name.clone();
    let refuse = |reason: String| format!("model `{name}`: {reason}");
    let bytes = shared_file(file).map_err(|error| refuse(format!("cannot read its bytes: {error}")))?;
    let files = load.files.with(bytes).map_err(refuse)?;
    partition.load(&files, &load.options).map_err(|DeviceError(reason)| reason)
}

/// A session that answers run requests. Fields drop in this order: the server takes the end of the socket as
/// "everything else is freed".
pub(super) struct Serving {
    session: Box<dyn Session>,
    inputs: Option<Arc<Region>>,
    outputs: Option<Region>,
    /// Upper bound on the bytes of `outputs`.
    bytes_max: usize,
    _partition: Arc<dyn Partition>,
    socket: Socket,
}

/// A session with its first foreground batch.
pub(super) struct Foreground {
    serving: Serving,
    run: Run,
    files: Files,
}

impl Foreground {
    /// Runs batches until the socket closes.
    pub fn serve(self) {
        let Self { mut serving, mut run, mut files } = self;
        loop {
            if let Err(error) = serving.answer(&run, files) {
                return serving.end(&error);
            }
            (run, files) = match serving.socket.receive(None) {
                Ok(next) => next,
                Err(error) => return serving.end(&error),
            };
        }
    }
}

impl Serving {
    /// Runs background batches until the first foreground batch arrives.
    pub fn serve_background(mut self, hand_over: &Sender<Foreground>) {
        loop {
            let (run, files) = match self.socket.receive::<Run>(None) {
                Ok(next) => next,
                Err(error) => return self.end(&error),
            };
            if !run.background {
                if hand_over.send(Foreground { serving: self, run, files }).is_err() {
                    tracing::error!("session closed: its thread for foreground batches ended");
                }
                return;
            }
            if let Err(error) = self.answer(&run, files) {
                return self.end(&error);
            }
        }
    }

    fn end(self, error: &WireError) {
        if !matches!(error, WireError::Ended) {
            tracing::error!(%error, "session closed");
        }
        let Self { session, inputs, outputs, _partition, socket, bytes_max: _ } = self;
        drop((session, inputs, outputs, _partition));
        models::release_unused_memory();
        drop(socket);
    }

    fn answer(&mut self, run: &Run, mut files: Files) -> Result<(), WireError> {
        if run.trim {
            (self.inputs, self.outputs) = (None, None);
            self.session.trim();
        }
        if let Some(file) = files.next() {
            self.inputs = Some(Arc::new(Region::open(&file)?));
        }
        let batch = self.batch(run).map_err(WireError::Invalid)?;
        let watch = Stopwatch::start(run.background);
        let session = &mut self.session;
        let outcome = catch_unwind(AssertUnwindSafe(|| session.run(&batch)))
            .unwrap_or_else(|_| Err(RunError::Engine("the engine panicked".to_owned())));
        let took = watch.elapsed();
        drop(batch);
        let written = outcome.and_then(|outputs| self.write(&outputs));
        let (outcome, file) = match written {
            Ok((heads, file)) => (Ok(heads), file),
            Err(error) => (Err(bounded_error(error)), None),
        };
        // The engine still reads the region, so the server must use another one. It stays mapped until the engine
        // drops it.
        let holds_inputs = self.inputs.as_ref().is_some_and(|region| Arc::strong_count(region) > 1);
        if holds_inputs {
            self.inputs = None;
        }
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let ran = Ran { outcome, holds_inputs, took_ns };
        match self.socket.send(&ran, file.as_ref().map(AsFd::as_fd).as_slice()) {
            Err(WireError::TooLarge) => {
                let reason = "the shapes of the outputs take too many bytes".to_owned();
                let ran = Ran { outcome: Err(RunError::Engine(reason)), ..ran };
                // The region was not sent.
                self.outputs = None;
                self.socket.send(&ran, &[])
            }
            sent => sent,
        }
    }

    /// The batch of a request; its tensors borrow from the region without a copy.
    fn batch(&self, run: &Run) -> Result<Batch, String> {
        let specs = &self.session.signature().inputs;
        if run.inputs.len() != specs.len() {
            return Err(format!("expected {} inputs, got {}", specs.len(), run.inputs.len()));
        }
        let tensor = |(head, spec): (&Option<TensorHead>, &models::TensorSpec)| {
            let Some(head) = head else { return Ok(None) };
            let (datatype, shape, start, bytes) = head.read()?;
            let region = self.inputs.as_ref().ok_or("inputs without a region")?;
            let data = region.borrow(start, bytes).map_err(|error| error.to_string())?;
            Ok(Some(Tensor { name: spec.name.clone(), datatype, shape, data }))
        };
        let inputs = run.inputs.iter().zip(specs).map(tensor).collect::<Result<_, String>>()?;
        Ok(Batch { inputs, rows: run.rows })
    }

    /// Writes the outputs to the region; a file that comes back belongs to a new region.
    fn write(&mut self, outputs: &[Tensor]) -> Result<(Vec<TensorHead>, Option<OwnedFd>), RunError> {
        let expected = self.session.signature().outputs.len();
        if outputs.len() != expected {
            let reason = format!("expected {expected} outputs, the engine returned {}", outputs.len());
            return Err(RunError::Engine(reason));
        }
        let (heads, file) =
            tensors::write("outputs", outputs.iter().map(Some), &mut self.outputs, self.bytes_max)
                .map_err(|error| RunError::Engine(error.to_string()))?;
        Ok((heads.into_iter().flatten().collect(), file))
    }
}

/// Measures a run. On a thread at background priority, time spent waiting for a core is left out.
struct Stopwatch {
    started: Instant,
    waited: Option<Duration>,
}

impl Stopwatch {
    fn start(background: bool) -> Self {
        Self { waited: background.then(waited), started: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        let passed = self.started.elapsed();
        let waited = self.waited.map_or(Duration::ZERO, |before| waited().saturating_sub(before));
        passed.saturating_sub(waited)
    }
}

/// How long the calling thread has waited for a core since it started; zero where the kernel does not report it.
fn waited() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = counts.split(' ').nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
