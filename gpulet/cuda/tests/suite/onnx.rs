//! ONNX models on gpulets: what the engine is lent, errors where the provider is missing, and on a GPU, results that
//! equal those of the CPU.

#![expect(unsafe_code, reason = "copies to addresses of the device; each says why it is sound")]

use std::sync::Arc;

use cuda_standin::{Shape, with_driver};
use gpulet::{Device, DeviceError};
use gpulet_cuda::{
    Backend, CudaDevice, CudaOptions, OnnxMaker, OnnxOptions, SessionMaker, StreamRef, lend, probe,
};
use models::engine::ort::{CudaStream, Environment, discover};
use models::engine::{Batch, RunError, Session};
use models::{Format, LoadOptions, Loader, ModelFiles, ModelName, Signature, Version};
use oip::{Datatype, Tensor};

use crate::stage::{Failures, Tracer, spec};

/// Sends bytes to the device and back on every stream that it gets.
struct RoundTrip;

fn round_trip_works(stream: &dyn CudaStream) -> bool {
    let sent: Vec<u8> = (0..5000_u32).map(|index| (index % 251) as u8).collect();
    let mut host = stream.host_bytes(sent.len()).unwrap();
    let device = stream.device_bytes(sent.len()).unwrap();
    host.bytes_mut().copy_from_slice(&sent);
    // SAFETY: both have this many bytes, and are not accessed until the stream was waited for.
    unsafe { stream.copy_in(host.bytes(), device.address()) }.unwrap();
    stream.wait().unwrap();
    host.bytes_mut().fill(0);
    // SAFETY: as above.
    unsafe { stream.copy_out(device.address(), host.bytes_mut()) }.unwrap();
    stream.wait().unwrap();
    device.length() == sent.len() && host.bytes() == sent
}

impl SessionMaker for RoundTrip {
    fn make(
        &self,
        files: &ModelFiles,
        options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError> {
        let lent = lend(stream.clone());
        assert_eq!((lent.device(), lent.address()), (stream.device(), stream.address()));
        // Lanes run on other threads than those that load.
        let works = || round_trip_works(lent.as_ref());
        assert!(std::thread::scope(|scope| scope.spawn(works).join().unwrap()) && works());
        Tracer::default().make(files, options, stream)
    }
}

fn device(maker: Arc<dyn SessionMaker>) -> CudaDevice {
    let found = probe().unwrap().remove(0);
    CudaDevice::take(&found, Backend::CudaGreen, maker, &CudaOptions::default()).unwrap()
}

#[test]
fn a_gpulet_lends_its_stream_and_memory() {
    with_driver("onnx::a_gpulet_lends_its_stream_and_memory", Shape::default(), |_| {
        let device = device(Arc::new(RoundTrip));
        let gpulet = device.open(&spec(0, 0, 2), Failures::new()).unwrap();
        drop(gpulet.load(&crate::stage::model("m"), &LoadOptions::default()).unwrap());
    });
}

/// Makes sessions whose engine reports that the device failed, although the stream does not.
struct Doomed;

struct DoomedSession(Box<dyn Session>);

impl SessionMaker for Doomed {
    fn make(
        &self,
        files: &ModelFiles,
        options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError> {
        Ok(Box::new(DoomedSession(Tracer::default().make(files, options, stream)?)))
    }
}

impl Session for DoomedSession {
    fn run(&mut self, _: &Batch) -> Result<Vec<Tensor>, RunError> {
        Err(RunError::DeviceFailed("CUDA failure 700: an illegal memory access was encountered".to_owned()))
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn engine(&self) -> &'static str {
        self.0.engine()
    }
}

#[test]
fn an_engine_that_reports_a_failed_device_is_trusted() {
    with_driver("onnx::an_engine_that_reports_a_failed_device_is_trusted", Shape::default(), |_| {
        let device = device(Arc::new(Doomed));
        let failures = Failures::new();
        let gpulet = device.open(&spec(3, 0, 2), Arc::clone(&failures) as _).unwrap();
        let mut session = gpulet.load(&crate::stage::model("m"), &LoadOptions::default()).unwrap();
        let reason = "gpu0 failed: CUDA failure 700: an illegal memory access was encountered".to_owned();
        for _ in 0..2 {
            let said = session.run(&crate::stage::batch(false)).unwrap_err();
            assert_eq!(said, RunError::DeviceFailed(reason.clone()));
        }
        assert_eq!((device.failure(), failures.all()), (Some(reason.clone()), vec![(3, reason)]));
    });
}

fn loader() -> Loader {
    Loader::new(discover(None, &Environment::of_variables(|name| std::env::var_os(name))))
}

fn digits() -> ModelFiles {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/bundled/digits/1/model.onnx");
    let name = ModelName::new("digits").unwrap();
    ModelFiles::from_bytes(name, Version(1), Format::Onnx, std::fs::read(file).unwrap())
}

#[test]
fn a_missing_runtime_is_one_line_and_affects_nothing_else() {
    with_driver("onnx::a_missing_runtime_is_one_line_and_affects_nothing_else", Shape::default(), |_| {
        let maker = OnnxMaker::new(Arc::new(Loader::without_ort()), OnnxOptions::default());
        let device = device(Arc::new(maker));
        let gpulet = device.open(&spec(0, 0, 2), Failures::new()).unwrap();
        let said = gpulet.load(&digits(), &LoadOptions::default()).err().unwrap().to_string();
        let expected =
            "model `digits` version 1: engine `ort`: no ONNX Runtime library: configuration: is switched off";
        assert_eq!(said, expected);
        let state = device.memory();
        assert_eq!((state.weights, state.arenas), (0, 0), "the ledger does not count it");
        assert_eq!(device.failure(), None);
    });
}

#[test]
fn a_runtime_for_cpus_says_what_is_missing() {
    with_driver("onnx::a_runtime_for_cpus_says_what_is_missing", Shape::default(), |_| {
        let loader = loader();
        match &loader.ort {
            Err(missing) => return println!("skipped: {missing}"),
            Ok(library) if library.path.with_file_name("libonnxruntime_providers_cuda.so").exists() => {
                return println!("skipped: the ONNX Runtime here is one for GPUs");
            }
            Ok(_) => {}
        }
        let device = device(Arc::new(OnnxMaker::new(Arc::new(loader), OnnxOptions::default())));
        let gpulet = device.open(&spec(0, 0, 2), Failures::new()).unwrap();
        let said = gpulet.load(&digits(), &LoadOptions::default()).err().unwrap().to_string();
        let expected = "this ONNX Runtime has no CUDA provider: expected the one of onnxruntime-gpu";
        assert_eq!(said, format!("model `digits` version 1: engine `ort`: {expected}"));
    });
}

#[test]
fn weights_in_other_files_of_the_folder_count_too() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.onnx"), vec![0; 100]).unwrap();
    std::fs::write(folder.path().join("weights.bin"), vec![0; 5000]).unwrap();
    let name = ModelName::new("m").unwrap();
    let files = ModelFiles::from_bytes(name, Version(1), Format::Onnx, vec![0; 100]);
    let maker = OnnxMaker::new(Arc::new(Loader::without_ort()), OnnxOptions::default());
    assert_eq!(maker.need(&files, &LoadOptions::default()).weights, 100);
    let files = files.in_folder(folder.path().to_owned());
    assert_eq!(maker.need(&files, &LoadOptions::default()).weights, 5100);
}

/// A GPU that supports green contexts, and a runtime for it. Prints what is missing.
fn on_a_gpu() -> Option<(CudaDevice, Arc<Loader>)> {
    let found = match probe() {
        Ok(found) => found.into_iter().find(|gpu| gpu.green.is_ok()),
        Err(absent) => {
            println!("skipped: {absent}");
            return None;
        }
    };
    let Some(found) = found else {
        println!("skipped: no GPU here supports green contexts");
        return None;
    };
    let loader = Arc::new(loader());
    if let Err(missing) = &loader.ort {
        println!("skipped: {missing}");
        return None;
    }
    let maker = Arc::new(OnnxMaker::new(Arc::clone(&loader), OnnxOptions::default()));
    Some((CudaDevice::take(&found, Backend::CudaGreen, maker, &CudaOptions::default()).unwrap(), loader))
}

fn batch_of(session: &dyn Session, rows: u32) -> Batch {
    let inputs = session.signature().inputs.iter().map(|spec| {
        assert_eq!(spec.datatype, Datatype::Fp32);
        let extents: Vec<u64> = spec
            .dims
            .iter()
            .enumerate()
            .map(
                |(index, dim)| {
                    if index == 0 { rows.into() } else { u64::try_from(dim.to_wire()).unwrap_or(1) }
                },
            )
            .collect();
        let count = extents.iter().product::<u64>();
        let data: Vec<u8> = (0..count).flat_map(|index| ((index % 17) as f32 / 17.0).to_le_bytes()).collect();
        let shape = oip::Shape::from_extents(&extents);
        Some(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data: data.into() })
    });
    Batch { inputs: inputs.collect(), rows }
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.data.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn a_model_answers_on_gpulets_as_on_the_cpu() {
    let Some((device, loader)) = on_a_gpu() else { return };
    let mut cpu = loader.load(&digits(), &LoadOptions::default()).unwrap();
    let gpulets: Vec<_> =
        (0..2).map(|lane| device.open(&spec(lane, lane * 2, 2), Failures::new()).unwrap()).collect();
    for gpulet in &gpulets {
        let mut session = gpulet.load(&digits(), &LoadOptions::default()).unwrap();
        for rows in [1, 3, 32, 2] {
            let batch = batch_of(session.as_ref(), rows);
            let (there, here) = (session.run(&batch).unwrap(), cpu.run(&batch).unwrap());
            for (there, here) in there.iter().zip(&here) {
                assert_eq!((&there.name, &there.shape), (&here.name, &here.shape));
                let largest = floats(here).iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
                let far =
                    floats(there).iter().zip(floats(here)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                println!("{rows} rows, output {}: largest {largest}, largest difference {far}", here.name);
                assert!(far <= largest * 1e-2);
            }
        }
    }
    assert_eq!(device.failure(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn sessions_that_come_and_go_leave_nothing_on_the_device() {
    let Some((device, _)) = on_a_gpu() else { return };
    let found = probe().unwrap().into_iter().find(|gpu| gpu.green.is_ok()).unwrap();
    let used = || {
        let readings = gpulet_cuda::Monitor::open().ok()?.read().ok()?;
        readings.into_iter().find(|gpu| gpu.uuid.as_deref() == Some(&found.uuid))?.memory_used_bytes
    };
    let round = || {
        let gpulet = device.open(&spec(0, 0, 2), Failures::new()).unwrap();
        let mut session = gpulet.load(&digits(), &LoadOptions::default()).unwrap();
        let batch = batch_of(session.as_ref(), 8);
        session.run(&batch).unwrap();
        session.trim();
        session.run(&batch).unwrap();
    };
    (0..3).for_each(|_| round());
    let before = used();
    (0..30).for_each(|_| round());
    let after = used();
    println!("device memory in use: {before:?} bytes before, {after:?} after 30 sessions");
    if let (Some(before), Some(after)) = (before, after) {
        assert!(after <= before + (16 << 20));
    }
    assert_eq!((device.memory().weights, device.memory().arenas), (0, 0));
}
