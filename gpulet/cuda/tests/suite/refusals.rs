//! Every refusal is one line with the reason, and does not affect running gpulets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_standin::{Control, Driver, Kind, Shape, staged, with_driver};
use gpulet::{Device, Partition};
use gpulet_cuda::{CudaDevice, CudaOptions, MemoryState, Need};
use models::LoadOptions;
use models::engine::{RunError, Session};

use crate::stage::{Failures, Tracer, batch, model, sms_of, spec, take};

/// A gpulet that serves while other requests are refused.
struct Running {
    device: CudaDevice,
    tracer: Arc<Tracer>,
    failures: Arc<Failures>,
    _gpulet: Arc<dyn Partition>,
    session: Box<dyn Session>,
    ledger: MemoryState,
}

impl Running {
    fn start() -> Self {
        let (device, tracer) = take(&CudaOptions::default());
        let failures = Failures::new();
        let gpulet = device.open(&spec(0, 0, 4), Arc::clone(&failures) as _).unwrap();
        let session = gpulet.load(&model("m"), &LoadOptions::default()).unwrap();
        let ledger = device.memory();
        Self { device, tracer, failures, _gpulet: gpulet, session, ledger }
    }

    /// It runs on the same SMs, was told of no failure, and the ledger and the contexts are unchanged.
    fn is_untouched(&mut self, control: &Control, after: &str) {
        assert_eq!(sms_of(self.session.as_mut()), (0..32).collect::<Vec<_>>(), "{after}");
        assert_eq!((self.failures.all(), self.device.failure()), (Vec::new(), None), "{after}");
        assert_eq!(self.device.memory(), self.ledger, "{after}");
        let idle = u64::try_from(self.device.idle_contexts().len()).unwrap();
        assert_eq!(control.alive(Kind::Green) - idle, 1, "{after}");
    }

    fn open(&self, units: u32) -> Result<Arc<dyn Partition>, String> {
        self.device.open(&spec(1, 8, units), Failures::new()).map_err(|error| error.to_string())
    }

    fn load(&self) -> String {
        let gpulet = self.open(4).unwrap();
        let refused = gpulet.load(&model("other"), &LoadOptions::default()).err().unwrap().to_string();
        drop(gpulet);
        refused
    }
}

#[test]
fn a_model_too_large_for_the_device() {
    with_driver("refusals::a_model_too_large_for_the_device", Shape::default(), |control| {
        let mut running = Running::start();
        *running.tracer.needs.lock().unwrap() = Some(Need { weights: 100 << 30, arena: 1 << 30 });
        let refused = running.load();
        assert!(refused.starts_with("gpu0: model `other`: needs 103424 MiB, and "), "{refused}");
        running.is_untouched(control, &refused);
    });
}

#[test]
fn an_operator_that_runs_on_the_cpu() {
    with_driver("refusals::an_operator_that_runs_on_the_cpu", Shape::default(), |control| {
        let mut running = Running::start();
        let error = "node `c` (Conv) would run on CPUExecutionProvider: expected every heavy operator on CUDAExecutionProvider";
        *running.tracer.breaks.lock().unwrap() = Some(error.to_owned());
        assert_eq!(running.load(), format!("model `other`: {error}"));
        running.is_untouched(control, error);
    });
}

#[test]
fn a_share_smaller_than_a_unit_or_beyond_the_last() {
    with_driver("refusals::a_share_smaller_than_a_unit_or_beyond_the_last", Shape::default(), |control| {
        let mut running = Running::start();
        for (units, problem) in [
            (0, "0 units from unit 8 on: expected at least 1, and no unit beyond the last, 15"),
            (9, "9 units from unit 8 on: expected at least 1, and no unit beyond the last, 15"),
        ] {
            let refused = running.open(units).err().unwrap();
            assert_eq!(refused, format!("gpu0: gpulet 1: {problem}"));
            running.is_untouched(control, problem);
        }
    });
}

#[test]
fn memory_that_runs_out_while_a_gpulet_is_prepared() {
    with_driver("refusals::memory_that_runs_out_while_a_gpulet_is_prepared", Shape::default(), |control| {
        let mut running = Running::start();
        for call in ["cuDevResourceGenerateDesc", "cuGreenCtxCreate", "cuGreenCtxStreamCreate"] {
            control.fail(call, 1, 2);
            let refused = running.open(4).err().unwrap();
            assert_eq!(
                refused,
                format!("gpu0: gpulet 1: units 8 to 11: {call}: CUDA_ERROR_OUT_OF_MEMORY (2)")
            );
            running.is_untouched(control, call);
        }
        let error = "CUDA failure 2: out of memory";
        *running.tracer.breaks.lock().unwrap() = Some(error.to_owned());
        running.tracer.takes.store(1 << 30, Ordering::Relaxed);
        assert_eq!(running.load(), format!("model `other`: {error}"));
        running.is_untouched(control, error);
    });
}

#[test]
fn a_driver_that_shuts_down_is_reported_once_and_nothing_hangs() {
    let test = "refusals::a_driver_that_shuts_down_is_reported_once_and_nothing_hangs";
    staged(test, &Driver::Standin(Shape::default()), || {
        // Objects of a driver that shut down cannot be destroyed, so this does not check for objects left behind.
        let control = Control::open().unwrap();
        let mut running = Running::start();
        // As when its module is unloaded.
        control.fail("cuStreamQuery", 1, 4);
        let lost = running.session.run(&batch(true)).unwrap_err();
        let reason =
            "gpu0 failed: cuStreamQuery: CUDA_ERROR_DEINITIALIZED (4) while a batch ran: planted".to_owned();
        assert_eq!(lost, RunError::DeviceFailed(reason.clone()));
        assert_eq!(running.failures.all(), [(0, reason.clone())]);
        control.heal();
        assert_eq!(running.open(4).err(), Some(format!("gpu0: gpulet 1: {reason}")));
        assert_eq!(running.session.run(&batch(false)), Err(RunError::DeviceFailed(reason.clone())));
        assert_eq!(running.failures.all().len(), 1, "told once");
    });
}
