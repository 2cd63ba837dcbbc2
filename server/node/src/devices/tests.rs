//! Lanes with the shares that an operator fixed.

use super::*;

use gpulet::LaneReport;

struct Unheard;

impl LaneSink for Unheard {
    fn report(&self, _: LaneReport) {}

    fn failed(&self, _: u32) {}
}

impl PartitionWatch for Unheard {
    fn failed(&self, _: u32, _: &str) {}
}

#[test]
fn lanes_of_unequal_share_are_not_taken_for_equally_fast() {
    let device = |name: &str, device_type: &str| -> Arc<dyn Device> {
        let times = Arc::new(Profiled(Vec::new()));
        let emulation = Emulation {
            name: name.to_owned(),
            device_type: device_type.to_owned(),
            sizes: vec![1, 2],
            memory_bytes: u64::MAX,
            base_bytes: 0,
            gpulet_bytes: 0,
            fault_domain: name.to_owned(),
            lost_while: None,
        };
        Arc::new(EmulatedDevice::new(emulation, times))
    };
    let all = vec![device("gpu0", "small"), device("gpu1", "small"), device("gpu2", "large")];
    let devices = Devices::from_parts(all, Vec::new());
    let lane_class = |lane: u32, device: &str, units: u32| {
        let share = Share { device: device.into(), first_unit: 0, units, idle_priority: false };
        devices.open(lane, &share, Arc::new(Unheard), Arc::new(Unheard)).unwrap().lane_class()
    };
    let small = lane_class(0, "gpu0", 1);
    assert_eq!(lane_class(1, "gpu1", 1), small, "as many units of the same device type");
    let larger = lane_class(2, "gpu1", 2);
    assert_ne!(larger, small, "more units");
    let other = lane_class(3, "gpu2", 1);
    assert!(![small, larger].contains(&other), "another device type");
    assert!(![small, larger, other].contains(&0), "0 is for lanes of which nothing is known");
}

#[test]
fn a_batch_beyond_what_was_measured_on_a_share_takes_the_time_of_several_smaller_ones() {
    let header = r#"{"profile":{"version":1,"model":"m","device":"toy","engine":"none","source":"typed_in","note":"","units_total":2,"load_us_per_row":0.0}}"#;
    let cell = |batch: u32, units: u32, us: u32| {
        format!(
            r#"{{"cell":{{"batch":{batch},"units":{units},"p50_us":{us},"p95_us":{us},"p99_us":{us},"count":1}}}}"#
        )
    };
    // Batches of 8 were measured on the whole device only.
    let cells = [cell(1, 1, 4_000), cell(4, 1, 10_000), cell(1, 2, 2_000), cell(8, 2, 9_000)];
    let profiles = Profile::read(&format!("{header}\n{}\n", cells.join("\n"))).unwrap();
    let name = models::ModelName::new("m").unwrap();
    let files = ModelFiles::from_bytes(name, models::Version(1), models::Format::Synthetic, "");
    let time = |rows, units| Profiled(profiles.clone()).time("toy", &files, rows, units);
    assert_eq!(time(8, 1), Some(Duration::from_millis(20)), "two batches of 4");
    assert_eq!(time(9, 2), Some(Duration::from_millis(11)), "a batch of 8 and one of 1");
}
