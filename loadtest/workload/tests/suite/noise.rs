//! True execution times: wrong as told, by the seed, and held up by stalls.

use crate::support::{PROFILE, SECOND, parse};
use workload::{ExecutionNoise, LaneChange, Workload};

const MS: u64 = 1_000_000;

fn noisy(noise: &str) -> Workload {
    parse(
        &format!(
            "name = \"x\"\nseed = 5\nduration = \"1s\"\n[lanes]\ncount = 4\n[lanes.noise]\n{noise}\n[models.m]\ncount = 200\nslo = \"1s\"\n{PROFILE}\nrate = 1.0\n"
        ),
        &[],
    )
}

#[test]
fn without_noise_the_profile_is_the_truth() {
    let mut noise = ExecutionNoise::new(&noisy("")).unwrap();
    assert_eq!(noise.time(0, 0, 1, 0), 5 * MS);
    assert_eq!(noise.time(3, 199, 32, 7), 36 * MS);
    assert_eq!((noise.time(0, 0, 0, 0), noise.time(9, 0, 1, 0), noise.time(0, 200, 1, 0)), (0, 5 * MS, 0));
}

#[test]
fn jitter_has_its_mean_and_variation() {
    for cv in [0.02, 0.3] {
        let mut noise = ExecutionNoise::new(&noisy(&format!("cv = {cv}"))).unwrap();
        let times: Vec<f64> = (0..100_000).map(|_| noise.time(1, 0, 16, 0) as f64).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / times.len() as f64;
        let found = variance.sqrt() / mean;
        println!("cv {cv}: mean {mean:.0} ns, cv {found:.4}");
        assert!((mean / (20 * MS) as f64 - 1.0).abs() < 4.0 * cv / 316.0);
        assert!((found / cv - 1.0).abs() < 0.03);
    }
}

#[test]
fn bias_and_spread_are_fixed_factors() {
    let workload = noisy("bias = 1.2\nspread = 0.2");
    let mut noise = ExecutionNoise::new(&workload).unwrap();
    let factors: Vec<f64> = (0..200).map(|model| noise.factor(model)).collect();
    let (low, high) = factors.iter().fold((f64::MAX, 0.0_f64), |(low, high), f| (low.min(*f), high.max(*f)));
    assert!(low >= 0.96 && high <= 1.44 && low < 0.98 && high > 1.42, "{low} {high}");
    let mean = factors.iter().sum::<f64>() / 200.0;
    assert!((mean - 1.2).abs() < 4.0 * 1.2 * 0.2 / 3.0_f64.sqrt() / 200.0_f64.sqrt(), "{mean}");
    for model in [0, 7] {
        let expected = (9.0 * MS as f64 * noise.factor(model)).round() as u64;
        assert_eq!(noise.time(0, model, 5, 0), expected);
        assert_eq!(noise.time(2, model, 5, SECOND), expected, "the same on every lane at every time");
    }
    let other = ExecutionNoise::new(&workload.with_seed(6)).unwrap();
    assert!((other.factor(0) - noise.factor(0)).abs() > 1e-9);
}

#[test]
fn stalls_take_their_share_of_a_busy_lane() {
    let mut noise = ExecutionNoise::new(&noisy("stalls = { every = \"1s\", time = \"200ms\" }")).unwrap();
    let (mut now, mut longest, batches) = (0, 0, 400_000);
    for _ in 0..batches {
        let time = noise.time(0, 0, 1, now);
        longest = longest.max(time);
        now += time;
    }
    let work = batches as f64 * 0.005;
    let stalls = (now as f64 / 1e9 - work) / 0.2;
    println!("{stalls:.0} stalls in {work} s of work, longest batch {longest} ns");
    assert!((stalls - work).abs() < 4.0 * work.sqrt(), "{stalls}");
    assert!(longest >= 205 * MS);
}

#[test]
fn a_stall_on_an_idle_lane_passes_unless_it_is_still_on() {
    let workload = noisy("stalls = { every = \"1s\", time = \"200ms\" }");
    // Batches far apart meet a stall that is on (1 in 6 of the time) or one that starts while they run.
    let mut noise = ExecutionNoise::new(&workload).unwrap();
    let batches = 40_000_u64;
    let delays: Vec<u64> =
        (0..batches).map(|batch| noise.time(0, 0, 1, batch * 3 * SECOND) - 5 * MS).collect();
    let met = delays.iter().filter(|delay| **delay > 0).count() as f64;
    let expected = batches as f64 * (1.0 / 6.0 + 5.0 / 6.0 * 0.005);
    println!("{met} of {batches} batches met a stall, {expected:.0} expected");
    assert!((met - expected).abs() < 4.0 * expected.sqrt());
    let started = delays.iter().filter(|delay| **delay > 0 && **delay < 200 * MS).count() as f64;
    assert!(started / met > 0.9, "most are met halfway");
}

#[test]
fn a_batch_cut_short_leaves_later_stalls_to_the_next() {
    let workload = noisy("stalls = { every = \"10ms\", time = \"1ms\" }");
    let mut whole = ExecutionNoise::new(&workload).unwrap();
    let mut restarted = ExecutionNoise::new(&workload).unwrap();
    let expected = whole.time(0, 0, 32, 0);
    assert!(expected > 37 * MS, "{expected}");
    restarted.time(0, 0, 32, 0);
    assert_eq!(
        restarted.time(0, 0, 32, 0),
        expected,
        "started again at the same time, it meets the same stalls"
    );
}

#[test]
fn lanes_do_not_disturb_one_another() {
    let workload = noisy("cv = 0.1\nstalls = { every = \"1s\", time = \"200ms\" }");
    let series = |others: bool| {
        let mut noise = ExecutionNoise::new(&workload).unwrap();
        let times = (0..1_000).map(|batch| {
            if others {
                noise.time(1, 3, 7, batch * SECOND / 10);
            }
            noise.time(0, 0, 4, batch * SECOND / 10)
        });
        times.collect::<Vec<u64>>()
    };
    assert_eq!(series(false), series(true));
}

#[test]
fn failures_are_told_in_order_of_time() {
    let text = format!(
        "name = \"x\"\nduration = \"1s\"\n[lanes]\ncount = 4\n[[lanes.failures]]\nlane = 2\nfrom = \"5s\"\n[[lanes.failures]]\nlane = 1\nfrom = \"1s\"\nuntil = \"9s\"\n[models.m]\nslo = \"1s\"\n{PROFILE}\nrate = 1.0\n"
    );
    let change = |at: u64, lane, up| LaneChange { at: at * SECOND, lane, up };
    let workload = parse(&text, &[]);
    assert_eq!(workload.lanes.changes, [change(1, 1, false), change(5, 2, false), change(9, 1, true)]);
    assert_eq!(workload.models[0].name, "m");
}
