//! Everything that can be missing has an error of one line, and nothing crashes.

use cuda_standin::{Driver, Shape, staged, with_driver};
use gpulet_cuda::{Backend, GreenMissing, ProbeError, choose, mps_daemon, probe};

fn error(result: Result<impl std::fmt::Debug, ProbeError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_missing_driver_is_named() {
    staged("probing::a_missing_driver_is_named", &Driver::Broken, || {
        let expected = "no NVIDIA driver: libcuda.so.1 was not found (is the driver installed, and visible in this \
                        container?)";
        assert_eq!(error(probe()), expected);
        assert_eq!(error(probe()), expected, "the second call too");
    });
}

#[test]
fn a_library_that_lacks_calls_is_refused() {
    let lacking = ["cuMemAlloc_v2", "cuDeviceGetUuid_v2"].map(str::to_owned).to_vec();
    let driver = Driver::Without(Shape::default(), lacking);
    staged("probing::a_library_that_lacks_calls_is_refused", &driver, || {
        assert_eq!(
            error(probe()),
            "the NVIDIA driver library lacks cuDeviceGetUuid_v2, cuMemAlloc_v2: it is too old or not the driver's"
        );
    });
}

#[test]
fn an_old_driver_still_has_streams() {
    let green = ["cuDeviceGetDevResource", "cuDevSmResourceSplitByCount", "cuGreenCtxStreamCreate"];
    let shape = Shape { driver: 12_020, ..Shape::default() };
    let driver = Driver::Without(shape, green.map(str::to_owned).to_vec());
    staged("probing::an_old_driver_still_has_streams", &driver, || {
        let found = probe().unwrap().remove(0);
        let old = found.green.clone().unwrap_err();
        assert_eq!(old.to_string(), "driver 12.2 has no streams in green contexts: expected 12.5 or later");
        let absent = mps_daemon(std::path::Path::new("/nonexistent"));
        let choice = choose(&found, &absent, None).unwrap();
        assert_eq!(choice.backend, Backend::CudaStream);
        assert!(choose(&found, &absent, Some(Backend::CudaGreen)).is_err());
    });
}

#[test]
fn a_driver_that_lacks_calls_of_its_version_is_detected() {
    let driver = Driver::Without(Shape::default(), vec!["cuGreenCtxStreamCreate".to_owned()]);
    staged("probing::a_driver_that_lacks_calls_of_its_version_is_detected", &driver, || {
        let missing = probe().unwrap().remove(0).green.unwrap_err();
        let calls = vec!["cuGreenCtxStreamCreate"];
        assert_eq!(missing, GreenMissing::Calls { version: 13_000, calls });
        assert_eq!(missing.to_string(), "driver 13.0 lacks cuGreenCtxStreamCreate");
    });
}

#[test]
fn a_machine_without_a_gpu_is_refused() {
    let shape = Shape { devices: 0, ..Shape::default() };
    with_driver("probing::a_machine_without_a_gpu_is_refused", shape, |_| {
        assert_eq!(probe().unwrap_err(), ProbeError::NoDevice);
    });
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    with_driver("probing::a_driver_that_does_not_start_says_why", Shape::default(), |control| {
        control.fail("cuInit", 1, 803);
        let expected = "the NVIDIA driver does not start: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)";
        assert_eq!(error(probe()), expected);
        control.fail("cuInit", 1, 123_456);
        let expected = "the NVIDIA driver does not start: cuInit: unnamed error (123456)";
        assert_eq!(error(probe()), expected);
        assert_eq!(probe().unwrap().len(), 1, "the next call succeeds");
    });
}

#[test]
fn a_gpu_that_cannot_be_described_is_named() {
    let shape = Shape { devices: 2, ..Shape::default() };
    with_driver("probing::a_gpu_that_cannot_be_described_is_named", shape, |control| {
        control.fail("cuDeviceTotalMem_v2", 2, 999);
        assert_eq!(error(probe()), "gpu1: cuDeviceTotalMem_v2: CUDA_ERROR_UNKNOWN (999)");
        control.heal();
    });
}

#[test]
fn every_gpu_is_described_without_creating_a_context() {
    let shape = Shape { devices: 2, name: "NVIDIA H100 80GB HBM3".to_owned(), ..Shape::default() };
    with_driver("probing::every_gpu_is_described_without_creating_a_context", shape, |control| {
        let found = probe().unwrap();
        assert_eq!(found.len(), 2);
        let second = &found[1];
        assert_eq!((second.ordinal, second.name.as_str()), (1, "NVIDIA H100 80GB HBM3"));
        assert_eq!(second.uuid, "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a01");
        assert_eq!((second.capability, second.sms, second.memory_bytes), ((9, 0), 132, 80 << 30));
        assert_eq!((second.green.clone(), second.mig), (Ok(()), false));
        assert_eq!(control.calls("cuDevicePrimaryCtxRetain"), 0);
    });
}

#[test]
fn an_instance_of_a_gpu_is_a_device_of_its_own() {
    let shape = Shape { name: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".to_owned(), sms: 16, ..Shape::default() };
    with_driver("probing::an_instance_of_a_gpu_is_a_device_of_its_own", shape, |_| {
        let found = probe().unwrap().remove(0);
        assert!(found.mig && found.uuid.starts_with("MIG-"));
        let absent = mps_daemon(std::path::Path::new("/nonexistent"));
        assert_eq!(choose(&found, &absent, None).unwrap().backend, Backend::Mig);
    });
}
