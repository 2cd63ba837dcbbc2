//! An engine for tests: sessions that return their input, with configurable time and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuda_standin::Control;
use gpulet::DeviceError;
use gpulet_cuda::{Cudnn, Need, SessionMaker, StreamRef};
use models::engine::{Batch, RunError, Session};
use models::{Dim, LoadOptions, ModelFiles, Signature, TensorSpec};
use oip::{Datatype, Tensor};

/// Makes sessions that return their input.
#[derive(Default)]
pub struct Echo {
    /// Time of a batch on one unit, and of each row. A batch sleeps, so that other lanes get the cores.
    pub takes: (Duration, Duration),
    /// Device memory of the first session, and of every later one.
    pub memory: (u64, u64),
    /// Whether a session was made.
    pub made: AtomicBool,
    /// Added to every number of the output.
    pub wrong_by: f32,
}

impl SessionMaker for Echo {
    fn make(
        &self,
        _files: &ModelFiles,
        _options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError> {
        let control = Control::open().unwrap();
        let spec = |name: &str| TensorSpec {
            name: name.to_owned(),
            datatype: Datatype::Fp32,
            dims: vec![Dim::Free, Dim::Fixed(4)],
            optional: false,
        };
        let further = self.made.swap(true, Ordering::Relaxed);
        let taken = if further { self.memory.1 } else { self.memory.0 };
        control.occupy(taken, true);
        let signature = Signature { inputs: vec![spec("x")], outputs: vec![spec("y")], max_batch: 32 };
        let (takes, wrong_by) = (self.takes, self.wrong_by);
        Ok(Box::new(Echoing { stream, control, signature, takes, wrong_by, taken }))
    }

    fn need(&self, files: &ModelFiles, _options: &LoadOptions) -> Need {
        Need { weights: u64::try_from(files.bytes.len()).unwrap(), arena: 0 }
    }
}

/// The engine in the form that checks take.
pub fn engine(echo: Echo) -> gpucheck::Engine {
    let echo: Arc<dyn SessionMaker> = Arc::new(echo);
    Ok(Arc::new(move |_| Arc::clone(&echo)))
}

/// An engine that refuses green contexts, cuDNN, or both.
pub fn engine_that_refuses(green: bool, cudnn: bool) -> gpucheck::Engine {
    Ok(Arc::new(move |use_of_cudnn| {
        let refused = cudnn && use_of_cudnn != Cudnn::Never;
        Arc::new(Refusing { green, cudnn: refused, echo: Echo::default() })
    }))
}

struct Refusing {
    green: bool,
    cudnn: bool,
    echo: Echo,
}

impl SessionMaker for Refusing {
    fn make(
        &self,
        files: &ModelFiles,
        options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError> {
        // Here, a stream on all SMs does not belong to a green context.
        if (self.green || self.cudnn) && stream.sms() < 132 {
            let why = "CUDNN failure 3007: CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH";
            return Err(DeviceError(format!("model `{}`: {why}", files.name)));
        }
        self.echo.make(files, options, stream)
    }

    fn need(&self, files: &ModelFiles, options: &LoadOptions) -> Need {
        self.echo.need(files, options)
    }
}

struct Echoing {
    stream: StreamRef,
    control: Control,
    signature: Signature,
    takes: (Duration, Duration),
    wrong_by: f32,
    taken: u64,
}

impl Session for Echoing {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        assert!(
            !self.control.stream_sms(self.stream.address()).is_empty(),
            "the stream ended before its session"
        );
        let units = self.stream.units().count().max(1);
        std::thread::sleep((self.takes.0 + self.takes.1 * batch.rows) / units);
        let input = batch.inputs[0].clone().unwrap();
        let numbers = input.data.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
        let data: Vec<u8> = numbers.flat_map(|number| (number + self.wrong_by).to_le_bytes()).collect();
        Ok(vec![Tensor { name: "y".to_owned(), data: data.into(), ..input }])
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        "echo"
    }
}

impl Drop for Echoing {
    fn drop(&mut self) {
        self.control.occupy(self.taken, false);
    }
}
