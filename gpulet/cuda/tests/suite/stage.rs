//! Shared by the tests: devices on the stand-in, an engine that reports where it ran, and a watch.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cuda_standin::Control;
use gpulet::{Device, DeviceError, Partition, PartitionSpec, PartitionWatch};
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Need, SessionMaker, StreamRef, probe};
use models::engine::{Batch, RunError, Session};
use models::{Dim, Format, LoadOptions, ModelFiles, ModelName, Signature, TensorSpec, Version};
use oip::{Datatype, Shape, Tensor};

/// A watch that records failed gpulets.
#[derive(Default)]
pub struct Failures(Mutex<Vec<(u32, String)>>);

impl Failures {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn all(&self) -> Vec<(u32, String)> {
        self.0.lock().unwrap().clone()
    }
}

impl PartitionWatch for Failures {
    fn failed(&self, lane: u32, reason: &str) {
        self.0.lock().unwrap().push((lane, reason.to_owned()));
    }
}

/// Makes sessions that return the numbers of the SMs that their stream may use.
#[derive(Default)]
pub struct Tracer {
    /// Device memory that the next sessions take, in bytes.
    pub takes: AtomicU64,
    /// Error of the next loads; none if they succeed.
    pub breaks: Mutex<Option<String>>,
    /// Expected memory of sessions; none: the length of the file.
    pub needs: Mutex<Option<Need>>,
    /// Address of the last session's stream.
    pub last_stream: AtomicUsize,
}

impl SessionMaker for Tracer {
    fn make(
        &self,
        files: &ModelFiles,
        _options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError> {
        if let Some(error) = self.breaks.lock().unwrap().clone() {
            return Err(DeviceError(format!("model `{}`: {error}", files.name)));
        }
        self.last_stream.store(stream.address(), Ordering::Relaxed);
        let takes = self.takes.load(Ordering::Relaxed);
        let control = Control::open().unwrap();
        control.occupy(takes, true);
        let spec = |name: &str, datatype| TensorSpec {
            name: name.to_owned(),
            datatype,
            dims: vec![Dim::Free],
            optional: false,
        };
        let signature = Signature {
            inputs: vec![spec("fails", Datatype::Uint8)],
            outputs: vec![spec("sms", Datatype::Uint32)],
            max_batch: 0,
        };
        Ok(Box::new(Traced { stream, control, signature, takes }))
    }

    fn need(&self, files: &ModelFiles, _options: &LoadOptions) -> Need {
        let weights = u64::try_from(files.bytes.len()).unwrap();
        self.needs.lock().unwrap().unwrap_or(Need { weights, arena: 0 })
    }
}

struct Traced {
    stream: StreamRef,
    control: Control,
    signature: Signature,
    takes: u64,
}

impl Session for Traced {
    /// A first byte other than zero makes the engine fail.
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        if batch.inputs[0].as_ref().unwrap().data[0] != 0 {
            return Err(RunError::Engine("planted".to_owned()));
        }
        let sms = self.control.stream_sms(self.stream.address());
        assert_eq!(u32::try_from(sms.len()).unwrap(), self.stream.sms());
        let shape = Shape::from_extents(&[u64::try_from(sms.len()).unwrap()]);
        let data = sms.iter().flat_map(|sm| sm.to_le_bytes()).collect::<Vec<_>>().into();
        Ok(vec![Tensor { name: "sms".to_owned(), datatype: Datatype::Uint32, shape, data }])
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        "tracer"
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        assert!(
            !self.control.stream_sms(self.stream.address()).is_empty(),
            "the stream ended before its session"
        );
        self.control.occupy(self.takes, false);
    }
}

/// A batch that succeeds or fails.
pub fn batch(fails: bool) -> Batch {
    let data = vec![u8::from(fails)].into();
    let tensor = Tensor {
        name: "fails".to_owned(),
        datatype: Datatype::Uint8,
        shape: Shape::from_extents(&[1]),
        data,
    };
    Batch { inputs: vec![Some(tensor)], rows: 1 }
}

/// SMs on which a batch of this session runs.
pub fn sms_of(session: &mut dyn Session) -> Vec<u32> {
    let outputs = session.run(&batch(false)).unwrap();
    outputs[0].data.chunks_exact(4).map(|sm| u32::from_le_bytes(sm.try_into().unwrap())).collect()
}

pub fn model(name: &str) -> ModelFiles {
    let name = ModelName::new(name).unwrap();
    ModelFiles::from_bytes(name.clone(), Version(1), Format::Synthetic, name.as_str().as_bytes().to_vec())
}

/// The first GPU of the stand-in, with green contexts.
pub fn take(options: &CudaOptions) -> (CudaDevice, Arc<Tracer>) {
    let tracer = Arc::new(Tracer::default());
    let found = probe().unwrap().remove(0);
    let device = CudaDevice::take(&found, Backend::CudaGreen, Arc::clone(&tracer) as _, options).unwrap();
    (device, tracer)
}

pub fn spec(lane: u32, first_unit: u32, units: u32) -> PartitionSpec {
    PartitionSpec { lane, first_unit, units }
}

/// Opens a gpulet without looking at its watch.
pub fn open(device: &CudaDevice, lane: u32, first_unit: u32, units: u32) -> Arc<dyn Partition> {
    device.open(&spec(lane, first_unit, units), Failures::new()).unwrap()
}

/// Opens a gpulet and loads a session for it.
pub fn serve(
    device: &CudaDevice,
    lane: u32,
    first_unit: u32,
    units: u32,
) -> (Arc<dyn Partition>, Box<dyn Session>) {
    let gpulet = open(device, lane, first_unit, units);
    let session = gpulet.load(&model("m"), &LoadOptions::default()).unwrap();
    (gpulet, session)
}

impl Tracer {
    /// Address of a gpulet's stream, from a session that is loaded for this.
    pub fn stream_of(&self, gpulet: &dyn Partition) -> usize {
        drop(gpulet.load(&model("where"), &LoadOptions::default()).unwrap());
        self.last_stream.load(Ordering::Relaxed)
    }
}
