//! A session of this process: runs batches when it is told to.
//!
//! Hot path: nothing here logs per batch.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gpulet::{DeviceError, Partition};
use models::LoadOptions;
use models::engine::{Batch, RunError, Session};
use oip::Tensor;

use super::{bounded, refused};
use crate::memory::{Region, shared_file};
use crate::wire::{
    Failure, Files, Load, Loaded, Ran, Refused, Run, Socket, TensorHead, WireError, WireSignature,
};

/// Each tensor of a region begins at a multiple of this: any element is aligned.
const ALIGNMENT: usize = 64;

/// A session that is to be loaded.
pub(super) struct Loading {
    pub load: Load,
    pub file: OwnedFd,
    pub socket: Socket,
    pub partition: Arc<dyn Partition>,
}

impl Loading {
    /// Loads it and says how that went. None: there is no session.
    pub fn load(self) -> Option<Serving> {
        let Self { load, file, mut socket, partition } = self;
        let (name, bytes_max) = (load.files.name.clone(), load.bytes_max);
        let loaded = catch_unwind(AssertUnwindSafe(|| session(load, file, partition.as_ref())));
        let panicked = || Err(format!("model `{name}`: the engine panicked while it was loaded"));
        let loaded = loaded.unwrap_or_else(|_| panicked());
        let answer = match &loaded {
            Ok(session) => {
                let signature = WireSignature::from(session.signature());
                let settles_each_size = session.settles_each_size();
                Ok(Loaded { signature, engine: session.engine().to_owned(), settles_each_size })
            }
            Err(reason) => Err(refused(reason)),
        };
        match socket.send(&answer, &[]) {
            Ok(()) => {}
            Err(WireError::TooLarge) => {
                let reason =
                    refused(&format!("model `{name}`: names of its inputs and outputs are too long"));
                let _gone = socket.send(&Err::<Loaded, Refused>(reason), &[]);
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
    let bytes = shared_file(file).map_err(|error| refuse(format!("its bytes cannot be read: {error}")))?;
    let files = load.files.with(bytes).map_err(refuse)?;
    let options = LoadOptions::try_from(load.options).map_err(refuse)?;
    partition.load(&files, &options).map_err(|DeviceError(reason)| reason)
}

/// A session that answers. Fields are dropped in this order: the end of the socket says that the rest is gone.
pub(super) struct Serving {
    session: Box<dyn Session>,
    inputs: Option<Arc<Region>>,
    outputs: Option<Region>,
    /// Bytes that `outputs` may have.
    bytes_max: usize,
    _partition: Arc<dyn Partition>,
    socket: Socket,
}

/// A session with a batch that it was told to run.
pub(super) struct Served {
    serving: Serving,
    run: Run,
    files: Files,
}

impl Served {
    /// Runs batches until the conversation ends.
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
    /// Runs batches that give way, until one comes that does not.
    pub fn serve_what_gives_way(mut self, hand_over: &Sender<Served>) {
        loop {
            let (run, files) = match self.socket.receive::<Run>(None) {
                Ok(next) => next,
                Err(error) => return self.end(&error),
            };
            if !run.gives_way {
                drop(hand_over.send(Served { serving: self, run, files }));
                return;
            }
            if let Err(error) = self.answer(&run, files) {
                return self.end(&error);
            }
        }
    }

    fn end(self, error: &WireError) {
        if !matches!(error, WireError::Ended) {
            tracing::error!(%error, "a session is closed");
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
        let batch = self.batch(run).map_err(WireError::Garbage)?;
        let watch = Stopwatch::start(run.gives_way);
        let session = &mut self.session;
        let outcome = catch_unwind(AssertUnwindSafe(|| session.run(&batch)))
            .unwrap_or_else(|_| Err(RunError::Engine("the engine panicked".to_owned())));
        let took = watch.elapsed();
        drop(batch);
        let mut made = None;
        let outcome = outcome.and_then(|outputs| self.write(&outputs, &mut made));
        // What the engine still has is not to be written again; it stays mapped as long as the engine has it.
        let holds_inputs = self.inputs.as_ref().is_some_and(|region| Arc::strong_count(region) > 1);
        if holds_inputs {
            self.inputs = None;
        }
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let ran = Ran { outcome: outcome.map_err(failure), holds_inputs, took_ns };
        let file = made.as_ref().map(AsFd::as_fd);
        match self.socket.send(&ran, file.as_slice()) {
            Err(WireError::TooLarge) => {
                let reason = "the shapes of the outputs take too many bytes".to_owned();
                let ran = Ran { outcome: Err(Failure::Engine(reason)), ..ran };
                // The region did not go over.
                self.outputs = None;
                self.socket.send(&ran, &[])
            }
            sent => sent,
        }
    }

    /// The batch as it lies in the region, without a copy.
    fn batch(&self, run: &Run) -> Result<Batch, String> {
        let specs = &self.session.signature().inputs;
        if run.inputs.len() != specs.len() {
            return Err(format!("{} inputs: expected {}", run.inputs.len(), specs.len()));
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

    /// Puts the outputs where the other process sees them; `made` gets the file of a new region.
    fn write(&mut self, outputs: &[Tensor], made: &mut Option<OwnedFd>) -> Result<Vec<TensorHead>, RunError> {
        let expected = self.session.signature().outputs.len();
        if outputs.len() != expected {
            let reason = format!("the engine gave {} outputs: expected {expected}", outputs.len());
            return Err(RunError::Engine(reason));
        }
        let mut end = 0_usize;
        let heads: Vec<_> = outputs
            .iter()
            .map(|tensor| {
                let start = end.next_multiple_of(ALIGNMENT);
                end = start.saturating_add(tensor.data.len());
                (start, TensorHead::new(tensor.datatype, &tensor.shape, start, tensor.data.len()))
            })
            .collect();
        if end > self.bytes_max {
            let reason = format!("outputs take {end} bytes: expected at most {}", self.bytes_max);
            return Err(RunError::Engine(reason));
        }
        if self.outputs.as_ref().is_none_or(|region| region.len() < end) {
            let (region, file) = Region::create(end).map_err(|error| {
                RunError::Engine(format!("no memory for {end} bytes of outputs: {error}"))
            })?;
            (self.outputs, *made) = (Some(region), Some(file));
        }
        for (tensor, (start, _)) in outputs.iter().zip(&heads) {
            if let Some(region) = &mut self.outputs {
                region.write(*start, &tensor.data).map_err(|error| RunError::Engine(error.to_string()))?;
            }
        }
        Ok(heads.into_iter().map(|(_, head)| head).collect())
    }
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::Input(reason) => Failure::Input(bounded(&reason)),
        RunError::Engine(reason) => Failure::Engine(bounded(&reason)),
        RunError::Lost(reason) => Failure::Lost(bounded(&reason)),
    }
}

/// Time that passed, on a thread that gives way less the time for which it waited for a core.
struct Stopwatch {
    started: Instant,
    waited: Option<Duration>,
}

impl Stopwatch {
    fn start(gives_way: bool) -> Self {
        Self { waited: gives_way.then(waited), started: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        let passed = self.started.elapsed();
        let waited = self.waited.map_or(Duration::ZERO, |before| waited().saturating_sub(before));
        passed.saturating_sub(waited)
    }
}

/// Time that the calling thread has waited for a core in its life; zero where the kernel does not say.
fn waited() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = counts.split(' ').nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
