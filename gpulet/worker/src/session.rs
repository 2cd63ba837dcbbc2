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
use models::{LoadOptions, ModelFiles, Signature};
use oip::Tensor;
use rustix::process::getpriority_process;

use crate::device::{Gpulet, close};
use crate::memory::{Region, share_file};
use crate::names::lasting;
use crate::neighbours::Neighbour;
use crate::patience::{Allowance, Patience};
use crate::slowness::Slowness;
use crate::wire::{
    Failure, Files, Load, Loaded, Ran, Refused, Run, Socket, TensorHead, WireError, WireFiles, WireOptions,
};

/// Each tensor of a region begins at a multiple of this: any element is aligned.
const ALIGNMENT: usize = 64;

/// How often it is looked, at most, whether a process that is late has the cores that it wants.
const WINDOW_LEAST: Duration = Duration::from_millis(10);
/// A process that has no cores, or whose device is held up by a neighbour that is made ready, is waited for so many times
/// as long as another, and then is lost too: what does not answer serves nobody.
const STARVED_LIMITS_MAX: u32 = 10;

struct RemoteSession {
    signature: Signature,
    engine: &'static str,
    settles_each_size: bool,
    socket: Socket,
    patience: Patience,
    slowness: Slowness,
    /// For inputs; none before the first run, and after the engine held on to it.
    inputs: Option<Region>,
    /// The file of `inputs`, as long as the other process does not have it.
    unsent: Option<OwnedFd>,
    /// For outputs; made by the other process.
    outputs: Option<Region>,
    trim: bool,
    /// Time in the engine of the last run that gave results.
    took: Option<Duration>,
    /// Why it can run nothing any more.
    lost: Option<String>,
    /// Dropped last: the gpulet is open as long as there are sessions.
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
        .map_err(|error| refuse(format!("its bytes cannot be given to another process: {error}")))?;
    let (mut socket, end) = Socket::pair().map_err(|error| refuse(error.to_string()))?;
    let bytes_max = gpulet.limits.tensor_bytes;
    let _preparing = gpulet.neighbour.as_ref().map(Neighbour::prepares);
    let load = Load { files: WireFiles::from(files), options: WireOptions::from(options), bytes_max };
    let mut to_gpulet = gpulet.socket.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = to_gpulet.send(&load, &[end.as_fd(), shared.as_fd()]);
    drop((to_gpulet, end, shared));
    let limit = gpulet.limits.load;
    let loaded = match asked.and_then(|()| socket.receive(Some(limit))) {
        Ok((Ok::<Loaded, Refused>(loaded), _)) => loaded,
        Ok((Err(Refused(reason)), _)) => return Err(DeviceError(reason)),
        Err(WireError::TooLarge) => return Err(refuse("its folder or its options are too long".to_owned())),
        Err(error) => return Err(refuse(gpulet.process.failed(error, limit, " to loading a model"))),
    };
    let understood = Signature::try_from(loaded.signature).and_then(|signature| {
        let engine = lasting(&loaded.engine).ok_or("too many names of engines")?;
        Ok((signature, engine))
    });
    let (signature, engine) = understood.map_err(|garbage| refuse(gpulet.process.kill(&garbage)))?;
    let patience = Patience::new(gpulet.limits, signature.max_batch > 0, options.plan_cache);
    Ok(Box::new(RemoteSession {
        signature,
        engine,
        settles_each_size: loaded.settles_each_size,
        socket,
        patience,
        slowness: Slowness::default(),
        inputs: None,
        unsent: None,
        outputs: None,
        trim: false,
        took: None,
        lost: None,
        gpulet: Arc::clone(gpulet),
    }))
}

impl Session for RemoteSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        if let Some(reason) = &self.lost {
            return Err(RunError::Lost(reason.clone()));
        }
        let inputs = self.write(batch)?;
        // Whoever gives way does so on both sides.
        let gives_way = getpriority_process(None).is_ok_and(|own| own > self.gpulet.process.priority());
        let run = Run { rows: batch.rows, inputs, gives_way, trim: self.trim };
        let files = self.unsent.as_ref().map(AsFd::as_fd);
        let neighbour = self.gpulet.neighbour.as_ref();
        let before = neighbour.map_or(Duration::ZERO, Neighbour::before);
        let allowance = self.patience.allow(batch, gives_way, before);
        if let Some((neighbour, expected)) = neighbour.zip(allowance.expected).filter(|_| allowance.usual) {
            neighbour.expects(expected);
        }
        let _preparing = neighbour.filter(|_| !allowance.usual).map(Neighbour::prepares);
        let begun = Instant::now();
        match self.socket.send(&run, files.as_slice()) {
            Ok(()) => {}
            Err(WireError::TooLarge) => {
                return Err(RunError::Input("the shapes of the inputs take too many bytes".to_owned()));
            }
            Err(error) => return Err(self.fail(error, begun, allowance)),
        }
        self.unsent = None;
        if std::mem::take(&mut self.trim) {
            self.outputs = None;
        }
        let (ran, files) = match self.wait(allowance) {
            Ok(answer) => answer,
            Err(error) => return Err(self.fail(error, begun, allowance)),
        };
        if ran.holds_inputs {
            self.inputs = None;
        }
        if let Err(error) = self.take_outputs(files) {
            return Err(self.fail(WireError::System(error), begun, allowance));
        }
        match ran.outcome {
            Ok(heads) => {
                // What gives way may have waited for a core, which says nothing of the run.
                let took = if gives_way { Duration::from_nanos(ran.took_ns) } else { begun.elapsed() };
                self.patience.ran(allowance, batch.rows, took);
                let in_engine = Duration::from_nanos(ran.took_ns);
                self.took = Some(in_engine);
                if self.gpulet.exclusive {
                    self.look_for_slowness(in_engine, allowance);
                }
                self.read(&heads).map_err(|garbage| self.fail(WireError::Garbage(garbage), begun, allowance))
            }
            Err(Failure::Input(reason)) => Err(RunError::Input(reason)),
            Err(Failure::Engine(reason)) => Err(RunError::Engine(reason)),
            Err(Failure::Lost(reason)) => Err(RunError::Lost(reason)),
        }
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
        self.patience.trimmed();
    }
}

impl RemoteSession {
    /// Ends a process that is always slow. The batch that tells so has its answer.
    fn look_for_slowness(&mut self, took: Duration, allowance: Allowance) {
        let process = &self.gpulet.process;
        let expected = allowance.expected.filter(|_| allowance.usual);
        if let Some(cause) = self.slowness.ran(Instant::now(), took, expected, || process.core_times()) {
            self.lost = Some(process.kill(&cause));
        }
    }

    /// Waits for the answer to a batch. In the second half of the time it is looked whether the other process has the
    /// cores that it wants, and what it lacks does not count; nor does time in which a neighbour is made ready.
    fn wait(&mut self, allowance: Allowance) -> Result<(Ran, Files), WireError> {
        let limit = allowance.limit;
        match self.socket.receive(Some(limit / 2)) {
            Err(WireError::Late) => {}
            answer => return answer,
        }
        let (process, begun) = (&self.gpulet.process, Instant::now());
        // What is itself made ready has its time for that.
        let neighbour = self.gpulet.neighbour.as_ref().filter(|_| allowance.usual);
        let preparations = || neighbour.map(|neighbour| (neighbour, neighbour.preparations()));
        let (mut counted, mut at, mut times) = (limit / 2, begun, process.core_times());
        let mut seen = preparations();
        loop {
            match self.socket.receive(Some(limit.saturating_sub(counted).max(WINDOW_LEAST))) {
                Err(WireError::Late) => {}
                answer => return answer,
            }
            let (now, passed) = (process.core_times(), at.elapsed());
            let held_up = seen.is_some_and(|(neighbour, then)| neighbour.prepared_since(then));
            if !held_up {
                counted += passed.saturating_sub(now.lacked(&times, passed));
            }
            seen = preparations();
            if counted >= limit || begun.elapsed() >= limit.saturating_mul(STARVED_LIMITS_MAX) {
                return Err(WireError::Late);
            }
            (at, times) = (at + passed, now);
        }
    }

    /// Puts the inputs where the other process sees them.
    fn write(&mut self, batch: &Batch) -> Result<Vec<Option<TensorHead>>, RunError> {
        let mut end = 0_usize;
        let mut starts = Vec::with_capacity(batch.inputs.len());
        for tensor in batch.inputs.iter().flatten() {
            let start = end.next_multiple_of(ALIGNMENT);
            starts.push(start);
            end = start.saturating_add(tensor.data.len());
        }
        let bytes_max = self.gpulet.limits.tensor_bytes;
        if end > bytes_max {
            return Err(RunError::Input(format!("inputs take {end} bytes: expected at most {bytes_max}")));
        }
        if self.inputs.as_ref().is_none_or(|region| region.len() < end) {
            let made = Region::create(end);
            let (region, file) = made
                .map_err(|error| RunError::Engine(format!("no memory for {end} bytes of inputs: {error}")))?;
            (self.inputs, self.unsent) = (Some(region), Some(file));
        }
        let mut starts = starts.into_iter();
        let mut heads = Vec::with_capacity(batch.inputs.len());
        for tensor in &batch.inputs {
            let Some(tensor) = tensor else {
                heads.push(None);
                continue;
            };
            let start = starts.next().unwrap_or_default();
            if let Some(region) = &mut self.inputs {
                region.write(start, &tensor.data).map_err(|error| RunError::Engine(error.to_string()))?;
            }
            heads.push(Some(TensorHead::new(tensor.datatype, &tensor.shape, start, tensor.data.len())));
        }
        Ok(heads)
    }

    fn take_outputs(&mut self, mut files: Files) -> io::Result<()> {
        if let Some(file) = files.next() {
            self.outputs = Some(Region::open(&file)?);
        }
        Ok(())
    }

    /// Takes the outputs from where the other process put them, with one copy for all.
    fn read(&self, heads: &[TensorHead]) -> Result<Vec<Tensor>, String> {
        let (outputs, expected) = (heads.len(), self.signature.outputs.len());
        if outputs != expected {
            return Err(format!("{outputs} outputs: expected {expected}"));
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

    /// The session can run nothing any more: its process ended, or must.
    fn fail(&mut self, error: WireError, begun: Instant, allowance: Allowance) -> RunError {
        let expected = allowance.expected.map_or_else(
            || " to the first batch of its shapes".to_owned(),
            |expected| {
                let millis = |time: Duration| time.as_secs_f64() * 1e3;
                let before = match allowance.before {
                    Duration::ZERO => String::new(),
                    before => format!(" after up to {:.1} ms of other gpulets' batches", millis(before)),
                };
                format!(" to a batch, expected {:.1} ms{before}", millis(expected))
            },
        );
        let reason = self.gpulet.process.failed(error, begun.elapsed(), &expected);
        self.lost = Some(reason.clone());
        RunError::Lost(reason)
    }
}

impl Drop for RemoteSession {
    fn drop(&mut self) {
        close(&mut self.socket, &self.gpulet.process, self.gpulet.limits.close, "session");
    }
}
