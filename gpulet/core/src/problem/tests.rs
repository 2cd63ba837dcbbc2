use super::*;
use crate::interference::{DevicePower, Igniter, NoInterference};
use crate::profile::{Cell, Header, Line, Source};

fn device_type(units: u32) -> Arc<DeviceType> {
    Arc::new(DeviceType {
        name: "d".to_owned(),
        units,
        sizes: vec![1, 2, units],
        gpulets_max: 4,
        base_bytes: 0,
        gpulet_bytes: 0,
    })
}

fn device(name: &str) -> Device {
    Device {
        name: name.into(),
        device_type: device_type(4),
        memory_bytes: 0,
        fault_domain: name.to_owned(),
        cost: 1.0,
    }
}

fn workload(name: &str) -> Workload {
    Workload {
        name: name.to_owned(),
        model: "m".to_owned(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: 100.0,
        rate: 1.0,
        headroom: 1.0,
        replicas_min: 1,
        batch_max: 8,
    }
}

fn profile() -> Profile {
    let header = Header {
        version: 1,
        model: "m".to_owned(),
        model_sha256: None,
        device: "d".to_owned(),
        engine: "e".to_owned(),
        source: Source::Synthesised,
        note: String::new(),
        shapes: Vec::new(),
        units_total: 4,
        weights_bytes: None,
        load_us_per_row: 0.0,
    };
    let cell = Cell {
        batch: 1,
        units: 4,
        p50_us: 1.0,
        p95_us: 1.0,
        p99_us: 1.0,
        count: 1,
        left_out: None,
        doubt: None,
        predicted: None,
    };
    Profile::of_lines([Line::Profile(header), Line::Cell(cell)]).unwrap().remove(0)
}

fn told(devices: Vec<Device>, workloads: Vec<Workload>, profiles: Vec<Profile>) -> String {
    let none = Interference::NoInterference(NoInterference);
    Problem::new(devices, workloads, profiles, none).unwrap_err().to_string()
}

#[test]
fn invalid_problems_name_the_field() {
    let of = |change: fn(&mut Workload)| {
        let mut changed = workload("w");
        change(&mut changed);
        told(vec![device("a")], vec![changed], vec![profile()])
    };
    assert_eq!(
        of(|w| w.slo_us = 0.0),
        "workloads.w.slo_us: expected above 0 and at most 3600000000 microseconds, got 0"
    );
    assert!(of(|w| w.rate = f64::NAN).starts_with("workloads.w.rate: expected 0 to"));
    assert_eq!(of(|w| w.headroom = 0.5), "workloads.w.headroom: expected 1 to 1000, got 0.5");
    assert_eq!(of(|w| w.batch_max = 0), "workloads.w.batch_max: expected at least 1, got 0");
    assert_eq!(
        of(|w| w.model = "x".to_owned()),
        "workloads.w.model: no profile of `x` on any of the devices, run `tessera profile`"
    );
    let twice = told(vec![device("a"), device("a")], vec![], vec![]);
    assert_eq!(twice, "devices.a: expected names that are not empty and differ");
    let mut other = device("b");
    other.device_type = device_type(8);
    assert_eq!(
        told(vec![device("a"), other], vec![], vec![]),
        "devices.b.device_type: expected one description of device type `d`, got two"
    );
    let two = told(vec![device("a")], vec![workload("w")], vec![profile(), profile()]);
    assert_eq!(two, "profiles.m.d: expected one profile of a model on a device type, got two");
    let wide = Device { device_type: device_type(8), ..device("a") };
    assert_eq!(
        told(vec![wide], vec![], vec![profile()]),
        "profiles.m.d: expected 8 units like the device, got 4"
    );
}

#[test]
fn interference_reports_missing_profile_data() {
    let igniter = Interference::Igniter(Igniter { devices: [("d".to_owned(), DevicePower::V100)].into() });
    let error = Problem::new(vec![device("a")], vec![workload("w")], vec![profile()], igniter).unwrap_err();
    assert_eq!(error.to_string(), "profiles.m.d: interference model `igniter` needs a coefficients line");
}

#[test]
fn sizes_are_rounded_to_legal_ones() {
    let device_type = device_type(4);
    assert_eq!(
        [1, 2, 3, 4, 5].map(|units| device_type.size_for(units)),
        [Some(1), Some(2), Some(4), Some(4), None]
    );
    assert_eq!(
        [0, 1, 3, 4, 9].map(|units| device_type.size_within(units)),
        [None, Some(1), Some(2), Some(4), Some(4)]
    );
}

#[test]
fn tenants_exclude_each_other_in_both_directions() {
    let (mut first, mut second) = (workload("a"), workload("b"));
    second.tenant = "rival".to_owned();
    assert!(!first.excludes(&second));
    first.not_with = vec!["rival".to_owned()];
    assert!(first.excludes(&second) && second.excludes(&first) && !first.excludes(&first));
}
