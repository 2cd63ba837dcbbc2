//! Traffic that grows faster than changes follow: what the default placement and the default scaler make of it together.

use sim::{Report, Setup, Simulation};
use workload::Workload;

fn ramps() -> Workload {
    let mut files = |name: &str| match name {
        "ramps.txt" => Ok(include_str!("../../../partition/ramps.txt").to_owned()),
        "../../gpulet/core/examples/igniter-v100.jsonl" => {
            Ok(include_str!("../../../../gpulet/core/examples/igniter-v100.jsonl").to_owned())
        }
        _ => Err(format!("no file {name}")),
    };
    Workload::parse(include_str!("../../../partition/ramps.toml"), &mut files).unwrap()
}

/// Part of the requests of some seconds that were answered in time.
fn kept(report: &Report, from_s: f64, to_s: f64) -> f64 {
    let within = report.series.iter().filter(|bucket| (from_s..to_s).contains(&bucket.t));
    let (good, offered) =
        within.fold((0, 0), |(good, offered), bucket| (good + bucket.good, offered + bucket.offered));
    good as f64 / offered as f64
}

#[test]
fn traffic_that_grows_tenfold_within_half_a_minute_is_kept_up_with() {
    let report = Simulation::new(&ramps(), &Setup::default()).unwrap().run(&mut |_| {}).unwrap();
    let own = report.partition.as_ref().unwrap();
    // Up in 30 s out of nothing that was ever seen, again, up in 60 s, and threefold at once.
    let phases = [(120.0, 270.0), (390.0, 540.0), (660.0, 870.0), (960.0, 1_050.0)];
    let phases = phases.map(|(from, to)| kept(&report, from, to));
    println!("{:.4} in all, {phases:.4?}, {:.2} devices on average", report.attainment, own.devices_mean);
    assert!(report.attainment >= 0.985, "{}", report.attainment);
    assert!(phases[0] > 0.95, "the first rise is not predictable: {phases:?}");
    assert!(phases[1] >= 0.99 && phases[2] >= 0.99, "it was seen before: {phases:?}");
    assert!(phases[3] > 0.97, "{phases:?}");
    assert!(own.devices_mean < 3.2, "{}", own.devices_mean);
    assert_eq!(own.failures, 0);
}
