//! Sessions that run one of our kernels in place of a model: work of known amount, place and result.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gpulet::DeviceError;
use gpulet_cuda::driver::{DeviceBuffer, DriverError, Event, PinnedBuffer, Primary, Stream};
use gpulet_cuda::{Need, SessionMaker, StreamRef};
use models::engine::{Batch, RunError, Session};
use models::{Dim, Format, LoadOptions, ModelFiles, ModelName, Signature, TensorSpec, Version};
use oip::{Datatype, Shape, Tensor};

use crate::kernels::Kernels;

/// Bytes of each of the two buffers of [`Work::Stream`]: more than the last-level cache of any GPU.
pub const STREAM_BYTES: usize = 256 << 20;
/// Bytes of each of the two buffers of [`Work::Cache`]: both fit into the last-level cache of a large GPU (40 MiB on
/// Ampere, 50 MiB on Hopper).
const CACHE_BYTES: usize = 8 << 20;

/// What a session does, as often as the batch's amount says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reports the SMs that it runs on, and holds all threads of each for `amount` microseconds, four times.
    Trace,
    /// Computes `amount` steps of a generator, whose result can be checked.
    Compute,
    /// Copies [`STREAM_BYTES`] `amount` times.
    Stream,
    /// Copies a buffer that stays in the last-level cache `amount` times.
    Cache,
    /// Writes to an unmapped address, whatever the amount.
    Fault,
}

impl Work {
    const ALL: [Self; 5] = [Self::Trace, Self::Compute, Self::Stream, Self::Cache, Self::Fault];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Compute => "compute",
            Self::Stream => "stream",
            Self::Cache => "cache",
            Self::Fault => "fault",
        }
    }

    /// The kernel as a model.
    ///
    /// # Errors
    /// Never: all names are valid.
    pub fn files(self) -> Result<ModelFiles, DeviceError> {
        let name = ModelName::new(self.name()).map_err(|error| DeviceError(error.to_string()))?;
        Ok(ModelFiles::from_bytes(name, Version(1), Format::Synthetic, self.name().as_bytes().to_vec()))
    }
}

/// A batch with this amount of work.
pub fn amount(amount: u32) -> Batch {
    let data = amount.to_le_bytes().to_vec().into();
    let shape = Shape::from_extents(&[1]);
    let tensor = Tensor { name: "amount".to_owned(), datatype: Datatype::Uint32, shape, data };
    Batch { inputs: vec![Some(tensor)], rows: 1 }
}

/// The words of a session's output.
pub fn words(outputs: &[Tensor]) -> Vec<u32> {
    let bytes = outputs.first().map_or(&[][..], |output| &output.data);
    bytes.chunks_exact(4).filter_map(|word| word.try_into().ok()).map(u32::from_le_bytes).collect()
}

/// The result of [`Work::Compute`] for a block's number after `rounds` steps; steps are combined by doubling.
pub fn computed(block: u32, mut rounds: u32) -> u32 {
    let (mut factor, mut summand, mut value) = (1_664_525_u32, 1_013_904_223_u32, block);
    while rounds > 0 {
        if rounds & 1 == 1 {
            value = value.wrapping_mul(factor).wrapping_add(summand);
        }
        summand = summand.wrapping_mul(factor.wrapping_add(1));
        factor = factor.wrapping_mul(factor);
        rounds >>= 1;
    }
    value
}

/// Whether the output of [`Work::Compute`] is correct.
pub fn is_computed(answer: &[u32], rounds: u32) -> bool {
    let mut blocks = (0_u32..).zip(answer);
    !answer.is_empty() && blocks.all(|(block, word)| *word == computed(block, rounds))
}

/// Makes sessions of kernels. The kernels stay loaded while a session uses them.
#[derive(Default)]
pub struct KernelMaker {
    loaded: Mutex<Weak<Kernels>>,
}

impl KernelMaker {
    fn kernels(&self, primary: &Arc<Primary>) -> Result<Arc<Kernels>, DriverError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = loaded.upgrade() {
            return Ok(kernels);
        }
        let kernels = Arc::new(Kernels::load(primary)?);
        *loaded = Arc::downgrade(&kernels);
        Ok(kernels)
    }

    fn session(&self, work: Work, stream: StreamRef) -> Result<KernelSession, DriverError> {
        let primary = stream.stream().primary();
        let kernels = self.kernels(primary)?;
        let blocks = match work {
            Work::Trace => stream.sms().saturating_mul(8),
            Work::Compute | Work::Stream | Work::Cache => stream.sms().saturating_mul(4),
            Work::Fault => 1,
        };
        let length = usize::try_from(blocks).unwrap_or(0).saturating_mul(size_of::<u32>());
        let both = |bytes| {
            Ok::<_, DriverError>((
                DeviceBuffer::allocate(primary, bytes)?,
                DeviceBuffer::allocate(primary, bytes)?,
            ))
        };
        let copies = match work {
            Work::Stream => Some(both(STREAM_BYTES)?),
            Work::Cache => Some(both(CACHE_BYTES)?),
            Work::Trace | Work::Compute | Work::Fault => None,
        };
        let spec = |name: &str, dim| TensorSpec {
            name: name.to_owned(),
            datatype: Datatype::Uint32,
            dims: vec![dim],
            optional: false,
        };
        let outputs = vec![spec("words", Dim::Free)];
        Ok(KernelSession {
            work,
            blocks,
            done: Event::create(primary)?,
            host: PinnedBuffer::allocate(primary, length)?,
            out: DeviceBuffer::allocate(primary, length)?,
            copies,
            kernels,
            signature: Signature { inputs: vec![spec("amount", Dim::Fixed(1))], outputs, max_batch: 0 },
            stream,
        })
    }
}

impl SessionMaker for KernelMaker {
    fn make(
        &self,
        files: &ModelFiles,
        _options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError> {
        let failed = |why: String| DeviceError(format!("model `{}`: {why}", files.name));
        let word = files.name.as_str();
        let work = Work::ALL.into_iter().find(|work| work.name() == word);
        let work = work.ok_or_else(|| failed("expected the name of a kernel".to_owned()))?;
        Ok(Box::new(self.session(work, stream).map_err(|error| failed(error.to_string()))?))
    }

    /// Nothing is expected: their buffers are counted when they are measured.
    fn need(&self, _files: &ModelFiles, _options: &LoadOptions) -> Need {
        Need { weights: 0, arena: 0 }
    }
}

/// Fields drop in this order.
struct KernelSession {
    work: Work,
    blocks: u32,
    done: Event,
    host: PinnedBuffer,
    out: DeviceBuffer,
    copies: Option<(DeviceBuffer, DeviceBuffer)>,
    kernels: Arc<Kernels>,
    signature: Signature,
    stream: StreamRef,
}

impl KernelSession {
    fn work(&mut self, amount: u32) -> Result<(), DriverError> {
        let stream: &Stream = self.stream.stream();
        let (kernels, done) = (&self.kernels, &self.done);
        match (self.work, &mut self.copies) {
            (Work::Trace, _) => {
                kernels.record_sms(stream, &mut self.out, Duration::from_micros(amount.into()), done)?;
            }
            (Work::Compute, _) => kernels.work(stream, &mut self.out, amount.into(), done)?,
            (Work::Stream | Work::Cache, Some((from, to))) => {
                return kernels.copy(stream, (from, to), (self.blocks, amount), done);
            }
            (Work::Stream | Work::Cache, None) => {}
            (Work::Fault, _) => kernels.fault(stream, done)?,
        }
        stream.copy_out(&self.out, &mut self.host, done)
    }
}

impl Session for KernelSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let input = batch.inputs.first().and_then(Option::as_ref);
        let amount = input.and_then(|input| input.data.get(..4)?.try_into().ok()).map(u32::from_le_bytes);
        let amount =
            amount.ok_or_else(|| RunError::Input("input `amount`: expected one number".to_owned()))?;
        self.work(amount).map_err(|error| RunError::Engine(error.to_string()))?;
        let data = match self.work {
            Work::Stream | Work::Cache => Vec::new(),
            Work::Trace | Work::Compute | Work::Fault => self.host.bytes().to_vec(),
        };
        let shape = Shape::from_extents(&[u64::try_from(data.len() / 4).unwrap_or(0)]);
        Ok(vec![Tensor { name: "words".to_owned(), datatype: Datatype::Uint32, shape, data: data.into() }])
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        "kernel"
    }
}
