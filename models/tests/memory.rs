//! Unloading gives memory back. Alone in its process, because it reads the size of the process.

#![expect(clippy::unwrap_used, reason = "a test, with helpers outside its test function")]

mod dense;

use models::engine::ort::{Environment, discover};
use models::engine::{Batch, Session};
use models::{EngineChoice, LoadOptions, Loader, release_unused_memory};
use oip::{Datatype, Shape, Tensor};

const WIDTH: u64 = 1024;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn run(session: &mut dyn Session, rows: u64) {
    let data: Vec<u8> = (0..rows * WIDTH).flat_map(|index| (index as f32).to_le_bytes()).collect();
    let shape = Shape::from_extents(&[rows, WIDTH]);
    let input = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape, data: data.into() };
    session.run(&Batch { inputs: vec![Some(input)], rows: rows as u32 }).unwrap();
}

#[test]
fn twenty_cycles_of_load_run_and_unload_leave_nothing_behind() {
    const BOUND_KIB: u64 = 16 * 1024;
    let environment = Environment::of_variables(|name| std::env::var_os(name));
    let loader = Loader::new(discover(None, &environment));
    let files = dense::layers(WIDTH as usize);
    for engine in ["tract", "ort"] {
        if let ("ort", Err(missing)) = (engine, &loader.ort) {
            eprintln!("not tested on engine `ort`: {missing}");
            continue;
        }
        let options = LoadOptions { engine: EngineChoice::Named(engine), ..LoadOptions::default() };
        let cycle = || {
            let mut session = loader.load(&files, &options).unwrap();
            [1, 4, 16].into_iter().for_each(|rows| run(session.as_mut(), rows));
            let loaded = resident_kib();
            drop(session);
            release_unused_memory();
            loaded
        };
        // The first cycles set up what an engine keeps for ever: thread stacks, kernels, allocator arenas.
        let loaded = (0..3).map(|_| cycle()).max().unwrap_or_default();
        let before = resident_kib();
        (0..20).for_each(|_| {
            cycle();
        });
        let after = resident_kib();
        eprintln!(
            "{engine}: resident {loaded} KiB loaded, {before} KiB unloaded, {after} KiB after 20 more cycles"
        );
        assert!(after <= before + BOUND_KIB, "{engine}: grew from {before} to {after} KiB");
        assert!(loaded >= after + 2 * 4 * 1024, "{engine}: the weights were not given back");
    }
}
