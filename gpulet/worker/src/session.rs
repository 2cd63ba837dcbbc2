//! A session in another process.
//!
//! Hot path: nothing here logs per batch.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gpulet::DeviceError;
use models::engine::{Batch, RunError, Session};
use models::{Known, LoadOptions, ModelFiles, Signature};
use oip::Tensor;
use rustix::process::getpriority_process;

use crate::contention::CoLocated;
use crate::gpulet::{Gpulet, close};
use crate::memory::{Region, share_file};
use crate::run_timeout::{RunTimeout, RunTimeouts};
use crate::slowness::Slowness;
use crate::tensors::{self, WriteError};
use crate::wire::{Files, Load, Loaded, Ran, Refused, Run, Socket, TensorHead, WireError, WireFiles};

/// Shortest interval between checks whether a late process waits for cores.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// A process that waits for cores, or for the preparation of a co-located session, has this many times as long as
/// others. Then it is killed too, because it serves no requests.
const DELAYED_FACTOR_MAX: u32 = 10;

struct RemoteSession {
    signature: Signature,
    engine: &'static str,
    settles_each_size: bool,
    socket: Socket,
    timeouts: RunTimeouts,
    slowness: Slowness,
    /// Inputs. None before the first batch, and while the engine still reads the previous region.
    inputs: Option<Region>,
    /// The file of `inputs`, until it is sent to the other process.
    unsent: Option<OwnedFd>,
    /// Outputs, in a region that the other process created.
    outputs: Option<Region>,
    trim: bool,
    /// Time in the engine of the last successful batch.
    took: Option<Duration>,
    /// Why the session failed for good.
    failed: Option<String>,
    /// Dropped last: the gpulet stays open while it has sessions.
    gpulet: Arc<Gpulet>,
}

/// Loads a model in another process.
pub(crate) fn load(
    gpulet: &Arc<Gpulet>,
    files: &ModelFiles,
    options: &LoadOptions,
) -> Result<Box<dyn Session>, DeviceError> {
    let refuse = |reason: String| DeviceError(format!("model `{}`: {reason}", files.name));
    let shared = share_file(&files.bytes)
        .map_err(|error| refuse(format!("cannot share its bytes with another process: {error}")))?;
    let (mut socket, end) = Socket::pair().map_err(|error| refuse(error.to_string()))?;
    let bytes_max = gpulet.limits.tensor_bytes;
    let _preparing = gpulet.co_located.as_ref().map(CoLocated::prepare);
    let load = Load { files: WireFiles::from(files), options: options.clone(), bytes_max };
    let mut to_gpulet = gpulet.socket.lock().unwrap_or_else(PoisonError::into_inner);
    let sent = to_gpulet.send(&load, &[end.as_fd(), shared.as_fd()]);
    drop((to_gpulet, end, shared));
    let limit = gpulet.limits.load;
    let loaded = match sent.and_then(|()| socket.receive(Some(limit))) {
        Ok((Ok::<Loaded, Refused>(loaded), _)) => loaded,
        Ok((Err(Refused(reason)), _)) => return Err(DeviceError(reason)),
        Err(WireError::TooLarge) => {
            return Err(refuse("the path of its folder or its options are too long".to_owned()));
        }
        Err(error) => return Err(refuse(gpulet.process.failed(error, limit, " to loading a model"))),
    };
    let Known { engine, signature } = loaded.session;
    let timeouts = RunTimeouts::new(gpulet.limits, signature.max_batch > 0, options.plan_cache);
    Ok(Box::new(RemoteSession {
        signature,
        engine,
        settles_each_size: loaded.settles_each_size,
        socket,
        timeouts,
        slowness: Slowness::default(),
        inputs: None,
        unsent: None,
        outputs: None,
        trim: false,
        took: None,
        failed: None,
        gpulet: Arc::clone(gpulet),
    }))
}

impl Session for RemoteSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        if let Some(reason) = &self.failed {
            return Err(RunError::DeviceFailed(reason.clone()));
        }
        let inputs = self.write(batch)?;
        // A caller at background priority gets background priority in the other process too.
        let background = getpriority_process(None).is_ok_and(|own| own > self.gpulet.process.priority());
        let run = Run { rows: batch.rows, inputs, background, trim: self.trim };
        let files = self.unsent.as_ref().map(AsFd::as_fd);
        let co_located = self.gpulet.co_located.as_ref();
        let ahead = co_located.map_or(Duration::ZERO, CoLocated::ahead);
        let timeout = self.timeouts.timeout(batch, background, ahead);
        if let Some((co_located, expected)) = co_located.zip(timeout.expected).filter(|_| timeout.typical) {
            co_located.expect(expected);
        }
        let _preparing = co_located.filter(|_| !timeout.typical).map(CoLocated::prepare);
        let begun = Instant::now();
        match self.socket.send(&run, files.as_slice()) {
            Ok(()) => {}
            Err(WireError::TooLarge) => {
                return Err(RunError::Input("the shapes of the inputs take too many bytes".to_owned()));
            }
            Err(error) => return Err(self.fail(error, begun, timeout)),
        }
        self.unsent = None;
        if std::mem::take(&mut self.trim) {
            self.outputs = None;
        }
        let (ran, files) = match self.wait(timeout) {
            Ok(answer) => answer,
            Err(error) => return Err(self.fail(error, begun, timeout)),
        };
        if ran.holds_inputs {
            self.inputs = None;
        }
        if let Err(error) = self.take_outputs(files) {
            return Err(self.fail(WireError::System(error), begun, timeout));
        }
        let heads = ran.outcome?;
        let in_engine = Duration::from_nanos(ran.took_ns);
        // A background batch may have waited for a core.
        let took = if background { in_engine } else { begun.elapsed() };
        self.timeouts.ran(timeout, batch.rows, took);
        self.took = Some(in_engine);
        if self.gpulet.exclusive {
            self.check_slowness(in_engine, timeout);
        }
        self.read(&heads).map_err(|invalid| self.fail(WireError::Invalid(invalid), begun, timeout))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        self.engine
    }

    fn settles_each_size(&self) -> bool {
        self.settles_each_size
    }

    fn took(&self) -> Option<Duration> {
        self.took
    }

    fn trim(&mut self) {
        self.trim = true;
        (self.inputs, self.unsent) = (None, None);
        self.timeouts.trimmed();
    }
}

impl RemoteSession {
    /// Kills a process that is always slow. The batch that showed it still has its result.
    fn check_slowness(&mut self, took: Duration, timeout: RunTimeout) {
        let process = &self.gpulet.process;
        let expected = timeout.expected.filter(|_| timeout.typical);
        if let Some(cause) = self.slowness.ran(Instant::now(), took, expected, || process.core_times()) {
            self.failed = Some(process.kill(&cause));
        }
    }

    /// Waits for the result of a batch. In the second half of the limit, time does not count for which the other process
    /// waited for cores, or in which a co-located session was prepared.
    fn wait(&mut self, timeout: RunTimeout) -> Result<(Ran, Files), WireError> {
        let limit = timeout.limit;
        match self.socket.receive(Some(limit / 2)) {
            Err(WireError::Late) => {}
            answer => return answer,
        }
        let (process, begun) = (&self.gpulet.process, Instant::now());
        // The limit of an untypical batch already includes such delays.
        let co_located = self.gpulet.co_located.as_ref().filter(|_| timeout.typical);
        let preparations = || co_located.map(|co_located| (co_located, co_located.preparations()));
        let (mut counted, mut at, mut times) = (limit / 2, begun, process.core_times());
        let mut seen = preparations();
        loop {
            match self.socket.receive(Some(limit.saturating_sub(counted).max(CHECK_INTERVAL_MIN))) {
                Err(WireError::Late) => {}
                answer => return answer,
            }
            let (now, passed) = (process.core_times(), at.elapsed());
            let delayed = seen.is_some_and(|(co_located, then)| co_located.prepared_since(then));
            if !delayed {
                counted += passed.saturating_sub(now.starved(&times, passed));
            }
            seen = preparations();
            if counted >= limit || begun.elapsed() >= limit.saturating_mul(DELAYED_FACTOR_MAX) {
                return Err(WireError::Late);
            }
            (at, times) = (at + passed, now);
        }
    }

    /// Writes the inputs to their region.
    fn write(&mut self, batch: &Batch) -> Result<Vec<Option<TensorHead>>, RunError> {
        let tensors = batch.inputs.iter().map(Option::as_ref);
        let written = tensors::write("inputs", tensors, &mut self.inputs, self.gpulet.limits.tensor_bytes);
        let (heads, file) = written.map_err(|error| match error {
            WriteError::TooLarge { .. } => RunError::Input(error.to_string()),
            WriteError::Memory { .. } | WriteError::OutOfBounds(_) => RunError::Engine(error.to_string()),
        })?;
        if file.is_some() {
            self.unsent = file;
        }
        Ok(heads)
    }

    fn take_outputs(&mut self, mut files: Files) -> io::Result<()> {
        if let Some(file) = files.next() {
            self.outputs = Some(Region::open(&file)?);
        }
        Ok(())
    }

    /// Copies all outputs out of their region at once.
    fn read(&self, heads: &[TensorHead]) -> Result<Vec<Tensor>, String> {
        let (outputs, expected) = (heads.len(), self.signature.outputs.len());
        if outputs != expected {
            return Err(format!("expected {expected} outputs, got {outputs}"));
        }
        let heads = heads.iter().map(TensorHead::read).collect::<Result<Vec<_>, _>>()?;
        let end = heads.iter().map(|(_, _, start, bytes)| start.saturating_add(*bytes)).max().unwrap_or(0);
        let all = match &self.outputs {
            Some(region) => region.read(0, end).map_err(|error| error.to_string())?,
            None if end == 0 => Bytes::new(),
            None => return Err("outputs without a region".to_owned()),
        };
        let tensor = |((datatype, shape, start, bytes), spec): (_, &models::TensorSpec)| Tensor {
            name: spec.name.clone(),
            datatype,
            shape,
            data: all.slice(start..start + bytes),
        };
        Ok(heads.into_iter().zip(&self.signature.outputs).map(tensor).collect())
    }

    /// Fails the session for good: its process has ended, or is killed now.
    fn fail(&mut self, error: WireError, begun: Instant, timeout: RunTimeout) -> RunError {
        let expected = timeout.expected.map_or_else(
            || " to the first batch of its shapes".to_owned(),
            |expected| {
                let millis = |time: Duration| time.as_secs_f64() * 1e3;
                let ahead = match timeout.ahead {
                    Duration::ZERO => String::new(),
                    ahead => format!(" after up to {:.1} ms of other gpulets' batches", millis(ahead)),
                };
                format!(" to a batch, expected {:.1} ms{ahead}", millis(expected))
            },
        );
        let reason = self.gpulet.process.failed(error, begun.elapsed(), &expected);
        self.failed = Some(reason.clone());
        RunError::DeviceFailed(reason)
    }
}

impl Drop for RemoteSession {
    fn drop(&mut self) {
        close(&mut self.socket, &self.gpulet.process, self.gpulet.limits.close, "session");
    }
}
