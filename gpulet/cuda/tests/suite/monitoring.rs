//! Readings of GPUs.

use cuda_standin::{Driver, Kind, Shape, staged, with_driver};
use gpulet_cuda::{CudaOptions, Monitor, probe};

use crate::stage::take;

#[test]
fn a_missing_management_library_is_named() {
    let test = "monitoring::a_missing_management_library_is_named";
    staged(test, &Driver::Broken, || {
        let said = Monitor::open().err().unwrap().to_string();
        assert!(said.starts_with("no NVIDIA management library (libnvidia-ml.so.1): "), "{said}");
        assert_eq!(said.lines().count(), 1);
    });
}

#[test]
fn a_gpu_is_read_and_unsupported_values_are_left_out() {
    let shape = Shape { devices: 2, name: "NVIDIA H100 80GB HBM3".to_owned(), ..Shape::default() };
    with_driver("monitoring::a_gpu_is_read_and_unsupported_values_are_left_out", shape, |_| {
        let (device, _) = take(&CudaOptions::default());
        let monitor = Monitor::open().unwrap();
        let readings = monitor.read().unwrap();
        assert_eq!(readings.len(), 2);
        let first = &readings[0];
        assert_eq!(
            first.uuid.as_deref(),
            Some(probe().unwrap()[0].uuid.as_str()),
            "the same name as the driver's"
        );
        assert_eq!((first.busy_percent, first.memory_busy_percent), (Some(37), Some(12)));
        assert_eq!((first.clock_sm_mhz, first.clock_memory_mhz), (Some(1755), Some(2619)));
        assert_eq!(first.throttle_reasons, Some(vec!["SW_POWER_CAP"]));
        assert_eq!((first.power_milliwatts, first.temperature_celsius), (None, Some(41)));
        assert_eq!(first.memory_total_bytes, Some(80 << 30));
        assert!(first.memory_used_bytes > readings[1].memory_used_bytes, "our context is on the first");
        assert!(!first.mig && first.instances.is_empty());
        drop(device);
    });
}

#[test]
fn instances_are_listed() {
    let shape = Shape { instances: 3, ..Shape::default() };
    with_driver("monitoring::instances_are_listed", shape, |_| {
        let readings = Monitor::open().unwrap().read().unwrap().remove(0);
        assert!(readings.mig);
        let uuids: Vec<_> = readings.instances.iter().map(|instance| instance.uuid.as_str()).collect();
        assert_eq!(uuids.len(), 3);
        assert!(uuids.iter().all(|uuid| uuid.starts_with("MIG-")));
        assert_eq!(readings.instances[2].memory_bytes, Some(10 << 30));
    });
}

#[test]
fn gpus_that_do_not_answer_are_left_out() {
    let shape = Shape { devices: 2, ..Shape::default() };
    with_driver("monitoring::gpus_that_do_not_answer_are_left_out", shape, |control| {
        let monitor = Monitor::open().unwrap();
        control.fail("nvmlDeviceGetHandleByIndex_v2", 1, 15);
        assert_eq!(monitor.read().unwrap().len(), 1);
        control.fail("nvmlDeviceGetCount_v2", 1, 999);
        let said = monitor.read().err().unwrap().to_string();
        assert!(said.starts_with("the NVIDIA management library does not list its GPUs: "), "{said}");
        assert_eq!(control.alive(Kind::Management), 1);
        drop(monitor);
    });
}

#[test]
fn activity_is_read_between_two_samples() {
    let shape = Shape { devices: 2, ..Shape::default() };
    with_driver("monitoring::activity_is_read_between_two_samples", shape, |control| {
        let monitor = Monitor::open().unwrap();
        let uuids: Vec<String> = monitor.read().unwrap().into_iter().filter_map(|gpu| gpu.uuid).collect();
        let mut activity = monitor.activity();
        for uuid in &uuids {
            assert_eq!(activity.since_last(uuid).unwrap(), None, "there is only one sample");
        }
        for _ in 0..3 {
            for uuid in &uuids {
                let read = activity.since_last(uuid).unwrap().unwrap();
                let shares = (read.sm_active, read.sm_occupancy, read.memory_bandwidth);
                assert_eq!(shares, (Some(0.42), Some(0.185), Some(0.27)));
            }
        }
        assert_eq!(control.alive(Kind::Sample), 2, "one per GPU is kept");
        control.fail("nvmlGpmSampleGet", 1, 999);
        let said = activity.since_last(&uuids[0]).err().unwrap().to_string();
        assert!(said.starts_with("no GPU performance monitoring (GPM): "), "{said}");
        assert!(activity.since_last(&uuids[0]).unwrap().is_some(), "the call may be repeated");
        drop(activity);
        assert_eq!(control.alive(Kind::Sample), 0);
    });
}

#[test]
fn a_gpu_without_performance_monitoring_is_refused_in_one_line() {
    let shape = Shape { capability: 80, ..Shape::default() };
    with_driver("monitoring::a_gpu_without_performance_monitoring_is_refused_in_one_line", shape, |_| {
        let monitor = Monitor::open().unwrap();
        let uuid = probe().unwrap()[0].uuid.clone();
        let said = |uuid: &str| monitor.activity().since_last(uuid).err().unwrap().to_string();
        let expected = "expected a GPU of Hopper (9.0) or later without MIG";
        assert_eq!(said(&uuid), format!("no GPU performance monitoring (GPM): {expected}"));
        assert!(said("GPU-0").ends_with("lists no GPU `GPU-0`"), "{}", said("GPU-0"));
    });
}
