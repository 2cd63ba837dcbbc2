//! Nexus' worked example, and light models.

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Problem, Workload};
use gpulet_core::profile::{Profile, Quantile};

use crate::data;
use crate::support::{devices, header, place_soundly, table, whole_only, workload};

/// Times of Nexus' tables 2 and 3 (SOSP 2019), as published notes quote them; the tables start at batch 4, so smaller
/// batches take as long.
fn models() -> Vec<Profile> {
    let times = [("a", [50.0, 75.0, 100.0]), ("b", [50.0, 90.0, 125.0]), ("c", [60.0, 95.0, 125.0])];
    let of = |(model, [four, eight, sixteen]): (&str, [f64; 3])| {
        let cells = [(1, four), (4, four), (8, eight), (16, sixteen)];
        table(header(model, 1), cells.map(|(batch, ms)| (batch, 1, 1e3 * ms)))
    };
    times.into_iter().map(of).collect()
}

fn problem(workloads: Vec<Workload>) -> Problem {
    let none = Interference::NoInterference(NoInterference);
    Problem::new(devices(&whole_only(), 8), workloads, models(), none).unwrap()
}

/// Milliseconds of a cycle, if there is one, with workloads and batches.
type Cycle<'a> = (Option<f64>, Vec<(&'a str, u32)>);

fn cycles(plan: &Plan) -> Vec<Cycle<'_>> {
    let of = |gpulet: &gpulet_core::plan::Gpulet| gpulet.duty_us.map(|duty| duty / 1e3);
    plan.gpulets
        .iter()
        .map(|gpulet| {
            (of(gpulet), gpulet.slots.iter().map(|slot| (slot.workload.as_str(), slot.batch)).collect())
        })
        .collect()
}

#[test]
fn a_and_b_share_a_cycle_of_125_ms_and_c_does_not_fit() {
    let a = workload("a", 200.0, 64.0);
    let (plan, _) = place_soundly("temporal", &problem(vec![a.clone(), workload("b", 250.0, 32.0)]));
    assert_eq!(cycles(&plan), [(Some(125.0), vec![("a-200", 8), ("b-250", 4)])]);
    let (plan, validation) = place_soundly("temporal", &problem(vec![a, workload("c", 250.0, 32.0)]));
    assert_eq!(validation.devices_used, 2, "{plan:#?}");
}

#[test]
fn saturated_models_get_devices_of_their_own() {
    let both = vec![workload("a", 200.0, 160.0 + 64.0), workload("b", 250.0, 128.0 + 32.0)];
    let (plan, validation) = place_soundly("temporal", &problem(both));
    assert_eq!(validation.devices_used, 3);
    let expected = [
        (None, vec![("a-200", 16)]),
        (None, vec![("b-250", 16)]),
        (Some(125.0), vec![("a-200", 8), ("b-250", 4)]),
    ];
    assert_eq!(cycles(&plan), expected);
}

#[test]
fn light_models_share_a_device() {
    let light = ["a", "b", "c"].map(|model| workload(model, 250.0, 2.0));
    let (plan, validation) = place_soundly("temporal", &problem(light.to_vec()));
    assert_eq!(validation.devices_used, 1);
    assert!(plan.gpulets[0].slots.iter().all(|slot| slot.batch == 1), "{plan:#?}");
}

#[test]
fn an_objective_below_two_batches_of_one_is_refused_with_the_number() {
    let hasty = problem(vec![workload("c", 119.0, 1.0)]);
    let refused = gpulet_core::placement::Policy::named("temporal").unwrap().place(&hasty).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "workload `c-119`: answered after 120000 us at best (two batches of one on the largest share), \
         its objective is 119000 us; set its slo to at least 120000 us"
    );
}

#[test]
fn missing_devices_are_counted() {
    let none = Interference::NoInterference(NoInterference);
    let wanted = vec![workload("a", 200.0, 700.0)];
    let short = Problem::new(devices(&whole_only(), 2), wanted, models(), none).unwrap();
    let refused = gpulet_core::placement::Policy::named("temporal").unwrap().place(&short).unwrap_err();
    assert_eq!(refused.to_string(), "workload `a-200`: does not fit on 2 devices; add 3 of `whole`");
}

/// Nexus' measurements on a TITAN X (Pascal): mean and standard deviation, as its scheduler adds them.
fn titan_x() -> Vec<Profile> {
    let files = [
        ("vgg16", "caffe_vgg16_1"),
        ("vgg-face", "caffe_vgg_face_1"),
        ("vgg-s", "caffe_vgg_s_1"),
        ("yolo9000", "darknet_yolo9000_1"),
    ];
    let of = |(model, file): (&str, &str)| {
        let cells =
            data::lines_of(&format!("nexus/titan_x_pascal/{file}.txt")).into_iter().filter_map(|line| {
                let numbers: Vec<f64> = line.split(',').map_while(|number| number.parse().ok()).collect();
                let [batch, mean, deviation, ..] = numbers[..] else { return None };
                (batch <= 32.0).then_some((batch as u32, 1, mean + deviation))
            });
        table(header(model, 1), cells)
    };
    files.into_iter().map(of).collect()
}

/// Numbers from 0 to 1, the same in every run.
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// `count` sessions of random models with objectives of 3 to 12 times a batch of one and the work of 0.05 to `most`
/// devices. Also the devices that they need if every model always runs its best batch and nothing is left over.
fn sessions(profiles: &[Profile], count: usize, most: f64, seed: u64) -> (Vec<Workload>, f64) {
    let mut number = numbers(seed);
    let mut bound = 0.0;
    let session = |at: usize| {
        let profile = &profiles[((number() * 4.0) as usize).min(3)];
        let time = |batch| profile.latency_us(Quantile::P99, batch, 1).unwrap();
        let slo_us = time(1) * (3.0 + 9.0 * number());
        let fits = (1..=profile.batches().1.min(32)).filter(|&batch| 2.0 * time(batch) <= slo_us);
        let rate = fits.map(|batch| 1e6 * f64::from(batch) / time(batch)).fold(0.0, f64::max);
        let work = 0.05 * (most / 0.05).powf(number());
        bound += work;
        let name = format!("s{at:02}");
        Workload { name, ..workload(profile.model(), slo_us / 1e3, rate * work) }
    };
    ((0..count).map(session).collect(), bound)
}

/// Whether the sessions can share one device: a cycle in which each runs what arrives during it.
fn share_a_device(profiles: &[Profile], group: &[&Workload]) -> bool {
    // Infinite for batches beyond those that were measured.
    let time = |session: &Workload, batch: u32| {
        let profile = profiles.iter().find(|profile| profile.model() == session.model).unwrap();
        profile.latency_us(Quantile::P99, batch, 1).unwrap_or(f64::INFINITY)
    };
    let cycles = group.iter().flat_map(|session| {
        (1..=32)
            .flat_map(|batch| [1e6 * f64::from(batch) / session.rate, session.slo_us - time(session, batch)])
    });
    cycles.filter(|&cycle| cycle > 0.0).any(|cycle| {
        let batches: Vec<f64> =
            group.iter().map(|session| (cycle * session.rate / 1e6 - 1e-9).ceil().max(1.0)).collect();
        if batches.iter().any(|&batch| batch > 32.0) {
            return false;
        }
        let times: Vec<f64> =
            group.iter().zip(&batches).map(|(session, &batch)| time(session, batch as u32)).collect();
        let in_time = |(session, time): (&&Workload, &f64)| cycle + time <= session.slo_us + 1e-6;
        times.iter().sum::<f64>() <= cycle + 1e-6 && group.iter().zip(&times).all(in_time)
    })
}

/// The fewest devices for sessions of less than one device each, by trying every partition.
fn fewest<'a>(profiles: &[Profile], sessions: &'a [Workload], groups: &mut Vec<Vec<&'a Workload>>) -> usize {
    let Some((session, others)) = sessions.split_first() else { return groups.len() };
    groups.push(vec![session]);
    let mut least = fewest(profiles, others, groups);
    groups.pop();
    for at in 0..groups.len() {
        groups[at].push(session);
        if share_a_device(profiles, &groups[at]) {
            least = least.min(fewest(profiles, others, groups));
        }
        groups[at].pop();
    }
    least
}

/// Nexus served a long run within 84 % of the optimum, taken as a bound: 11.7 devices, where 9.8 are the least possible
/// (section 7.5). Against the true optimum of small problems it is nearer. The bound of ours is looser than theirs: it
/// gives every session its best batch, however rarely its requests come.
#[test]
#[ignore = "reads public measurements: see data.rs"]
fn on_random_sessions_nexus_is_as_near_the_optimum_as_the_paper_says() {
    let profiles = titan_x();
    let used = |sessions: &[Workload]| {
        let none = Interference::NoInterference(NoInterference);
        let devices = devices(&whole_only(), 4 * sessions.len());
        let problem = Problem::new(devices, sessions.to_vec(), profiles.clone(), none).unwrap();
        place_soundly("temporal", &problem).1.devices_used
    };
    let (mut bounds, mut large) = (0.0, 0);
    for seed in 0..100 {
        let (sessions, bound) = sessions(&profiles, 24, 2.0, seed);
        bounds += bound;
        large += used(&sessions);
    }
    let (mut best, mut small) = (0, 0);
    for seed in 0..100 {
        let (sessions, _) = sessions(&profiles, 7, 0.8, 1_000 + seed);
        let (least, devices) = (fewest(&profiles, &sessions, &mut Vec::new()), used(&sessions));
        assert!(least <= devices, "seed {seed}: {least} and {devices}");
        best += least;
        small += devices;
    }
    let (of_bound, of_best) = (bounds / large as f64, best as f64 / small as f64);
    println!(
        "24 sessions, 100 times: {large} devices, {:.1} % of them are the least possible; 7 sessions without saturated \
         devices, 100 times: {small} devices, {best} are optimal, {:.1} %",
        100.0 * of_bound,
        100.0 * of_best
    );
    assert_eq!((large, small, best), (1841, 437, 413), "{of_bound} and {of_best}");
}
