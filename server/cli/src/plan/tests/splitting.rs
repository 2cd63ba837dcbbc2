//! Workloads with `parallel = "auto"`: whole, or in stages.

use std::collections::BTreeMap;

use gpulet_core::validate::{Validation, validate};

use super::*;

/// `weights` MiB, on devices of four units of which each takes its part of the work; 20 ms and 4 ms a row on a whole one.
fn profile(weights: u64) -> String {
    let mut text = format!(
        "{{\"profile\":{{\"version\":1,\"model\":\"big\",\"device\":\"cpu\",\"engine\":\"tract\",\"source\":\"measured\",\"units_total\":4,\"weights_bytes\":{}}}}}\n",
        weights << 20
    );
    for batch in [1_u32, 2, 4, 8, 16] {
        for units in [1_u32, 2, 4] {
            let us = (20_000 + 4_000 * batch) * 4 / units;
            text.push_str(&format!(
                "{{\"cell\":{{\"batch\":{batch},\"units\":{units},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\"count\":200}}}}\n"
            ));
        }
    }
    text.push_str("{\"arena\":{\"batch\":16,\"bytes\":1048576}}\n");
    text
}

/// Layers of `(time, MiB)`, each of which sends 64 KiB.
fn layers(layers: &[(u32, u64)]) -> String {
    let mut text = "name,latency_s,memory_bytes,output_bytes\n".to_owned();
    for (number, (time, mib)) in layers.iter().enumerate() {
        let output = if number + 1 == layers.len() { 0 } else { 65_536 };
        text.push_str(&format!("l{number},{:.3},{},{output}\n", f64::from(*time) / 1e3, mib << 20));
    }
    text
}

/// `memory` MiB on each of `count` devices.
fn bench((count, memory): (u32, u64), (slo_ms, rate): (u32, u32), own: &[(u32, u64)]) -> Bench {
    let bench = Bench::new(&format!(
        "profiles = \"profiles/big.jsonl\"\ninterference = \"none\"\n\n[devices.cpu]\ncount = {count}\nmemory = \"{memory}MiB\"\n\n\
         [workloads.big]\nslo = \"{slo_ms}ms\"\nrate = {rate}\nparallel = \"auto\"\nlayers = \"layers.csv\"\nbandwidth = \"1GiB\"\n"
    ));
    let weights = own.iter().map(|(_, mib)| mib).sum();
    std::fs::write(bench.file("profiles/big.jsonl"), profile(weights)).unwrap();
    std::fs::write(bench.file("layers.csv"), layers(own)).unwrap();
    bench
}

const FOUR: [(u32, u64); 4] = [(6, 200), (6, 200), (6, 200), (6, 200)];

#[test]
fn a_model_that_fits_no_single_device_is_planned_in_stages() {
    let bench = bench((3, 600), (400, 20), &FOUR);
    let answer = bench.json(&["--explain"]);
    let choice = &answer["splits"][0];
    assert_eq!((&choice["workload"], &choice["stages"]), (&"big".into(), &2.into()), "{choice}");
    let reason = choice["reason"].as_str().unwrap();
    let expected =
        "split into 2 stages: it fits no single device: it needs 801 MiB, and a device has at most 600 MiB";
    assert_eq!(reason, expected);
    assert_eq!(choice["tried"][1]["layers"], serde_json::json!([[0, 2], [2, 4]]));
    let names: Vec<&Value> = answer["workloads"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["big.big-1", "big.big-2"]);
    assert_eq!(answer["policies"][0]["sound"], true);
    let text = bench.answer(&["--explain"]);
    assert!(text.contains("big: split into 2 stages") && text.contains("1-2 / 3-4"), "{text}");
    assert!(text.contains("split = { big-1 ="), "{text}");
}

#[test]
fn a_model_that_fits_is_left_whole_where_splitting_loses() {
    let bench = bench((4, 4_096), (400, 60), &FOUR);
    let answer = bench.json(&[]);
    let choice = &answer["splits"][0];
    assert_eq!(choice["stages"], 1, "{choice}");
    let reason = choice["reason"].as_str().unwrap();
    assert!(reason.starts_with("left whole: splitting loses. 2 stages need "), "{reason}");
    let work = |at: usize| choice["tried"][at]["work"].as_f64().unwrap();
    assert!(work(1) > work(0), "{choice}");
    assert_eq!(answer["workloads"][0]["name"], "big");
    let text = bench.answer(&[]);
    assert!(text.contains("note: big is left whole: splitting loses."), "{text}");
}

/// The dynamic program knows what the work costs, and the placement of stages on devices comes after it: another split may fill the memory
/// of devices better.
#[test]
fn another_split_is_rarely_planned_with_fewer_devices() {
    let mut seed = 0x5EED_u64;
    let mut below = |bound: u64| {
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        (seed.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    };
    let (mut in_stages, mut whole, mut more) = (0, 0, Vec::new());
    for case in 0..60 {
        let own: Vec<(u32, u64)> =
            (0..3 + below(3)).map(|_| (1 + below(20) as u32, 50 + below(300))).collect();
        let slo = [200, 400, 800][below(3) as usize];
        let bench = bench((4, 400 + 100 * below(12)), (slo, 5 + below(60) as u32), &own);
        let answer = bench.json(&[]);
        let chosen = |answer: &Value| {
            let policy = &answer["policies"][0];
            (policy["sound"] == true).then(|| policy["devices_used"].as_u64().unwrap())
        };
        // All ways to split the layers.
        let mut best: Option<u64> = None;
        for points in 0..1_u32 << (own.len() - 1) {
            let ends = (1..own.len()).filter(|at| points & (1 << (at - 1)) != 0).chain([own.len()]);
            let mut from = 0;
            let stages = ends.map(|to| (std::mem::replace(&mut from, to), to)).collect();
            let query = reading::read_with(&bench.arguments(&[]).problem, &BTreeMap::from([("big", stages)]))
                .unwrap();
            let plan = Policy::default().place(&query.problem).ok();
            let validation = plan.map(|plan| validate(&query.problem, &plan));
            let devices = validation.filter(Validation::is_sound).map(|sound| sound.devices_used as u64);
            best = [best, devices].into_iter().flatten().min();
        }
        match (chosen(&answer), best) {
            (Some(own), Some(best)) if own > best => more.push((case, own - best)),
            (own, best) => assert_eq!(own, best, "{case}: {own:?}\n{answer}"),
        }
        match answer["splits"][0]["stages"].as_u64() {
            Some(1) => whole += 1,
            _ => in_stages += 1,
        }
    }
    println!("{in_stages} in stages, {whole} whole, devices more than needed: {more:?}");
    assert!(in_stages > 5 && whole > 5, "{in_stages} {whole}");
    assert!(more.len() <= 3 && more.iter().all(|(_, devices)| *devices == 1), "{more:?}");
}

#[test]
fn what_a_split_needs_is_named() {
    let text = |from: &str, to: &str| {
        let bench = bench((2, 600), (400, 20), &FOUR);
        let file = std::fs::read_to_string(bench.file("small.toml")).unwrap();
        std::fs::write(bench.file("small.toml"), file.replace(from, to)).unwrap();
        bench.mistake(&[])
    };
    for (from, to, said) in [
        ("layers = \"layers.csv\"\n", "", "workloads.big.layers: expected the path of a table"),
        ("bandwidth = \"1GiB\"\n", "", "workloads.big.bandwidth: expected the bytes a second"),
        ("parallel = \"auto\"\n", "", "workloads.big.layers: of use with `parallel = \"auto\"` only"),
        ("\"auto\"", "\"yes\"", "workloads.big.parallel: expected `auto`, got `yes`"),
        ("layers.csv", "small.toml", "workloads.big.layers: `small.toml`: "),
        ("layers.csv", "none.csv", "workloads.big.layers: `none.csv`: "),
    ] {
        let mistake = text(from, to);
        assert!(mistake.contains(said), "{from}: {mistake}");
    }
}
