//! The profiles that come with the repository.

use gpulet_core::profile::{Profile, Quantile};

const H200: &str = include_str!("../../../../models/profiles/nvidia-h200.jsonl");

#[test]
fn profiles_of_an_h200_have_times_on_every_share() {
    let profiles = Profile::read(H200).unwrap();
    let names: Vec<&str> = profiles.iter().map(Profile::model).collect();
    assert_eq!(names, ["densenet161", "googlenet", "lenet", "mobilenet_v2", "resnet50", "vgg16"]);
    for profile in &profiles {
        assert_eq!((profile.device(), profile.units_total()), ("NVIDIA H200 (15 units)", 15));
        let time = |units| profile.latency_us(Quantile::P50, 32, units).unwrap();
        let times: Vec<f64> = (1..=15).map(time).collect();
        assert!(
            times.iter().zip(&times[1..]).all(|(less, more)| less >= more),
            "{}: {times:?}",
            profile.model()
        );
    }
    let resnet = profiles.iter().find(|profile| profile.model() == "resnet50").unwrap();
    // As measured: a batch of 32 takes 25.7 ms on one unit, and 2.37 ms on the whole GPU.
    let time = |units| resnet.latency_us(Quantile::P50, 32, units).unwrap();
    assert!(
        (time(1) - 25_694.0).abs() < 100.0 && (time(15) - 2_374.0).abs() < 20.0,
        "{} {}",
        time(1),
        time(15)
    );
}
