//! Lanes with the shares that an operator fixed.

use super::*;

use gpulet::LaneReport;

struct Unheard;

impl LaneSink for Unheard {
    fn report(&self, _: LaneReport) {}

    fn gone(&self, _: u32) {}
}

impl PartitionWatch for Unheard {
    fn lost(&self, _: u32, _: &str) {}
}

#[test]
fn lanes_of_unequal_share_are_not_taken_for_equally_fast() {
    let device = |name: &str, kind: &str| -> Arc<dyn Device> {
        let times = Arc::new(Profiled(Vec::new()));
        Arc::new(EmulatedDevice::new(name, kind, vec![1, 2], u64::MAX, times))
    };
    let all = vec![device("gpu0", "small"), device("gpu1", "small"), device("gpu2", "large")];
    let devices = Devices::from_parts(all, Vec::new());
    let kind = |lane: u32, device: &str, units: u32| {
        let share = Share { device: device.to_owned(), first_unit: 0, units };
        devices.open(lane, &share, Arc::new(Unheard), Arc::new(Unheard)).unwrap().kind()
    };
    let small = kind(0, "gpu0", 1);
    assert_eq!(kind(1, "gpu1", 1), small, "as many units of the same kind of device");
    let larger = kind(2, "gpu1", 2);
    assert_ne!(larger, small, "more units");
    let other = kind(3, "gpu2", 1);
    assert!(![small, larger].contains(&other), "another kind of device");
    assert!(![small, larger, other].contains(&0), "0 is for lanes of which nothing is known");
}
