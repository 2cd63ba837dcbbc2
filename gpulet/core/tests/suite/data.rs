//! Public measurements that must not be copied into this project. Tests read them from the folder that `TESSERA_DATA`
//! names, or from `shared/data` next to the project. `cargo test -p gpulet-core --release -- --ignored` runs these
//! tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpulet_core::profile::{Cell, Line, Profile, Utilisation, UtilisationLine};

use crate::support::igniter_profile;

pub type Row = BTreeMap<String, String>;

#[expect(clippy::disallowed_methods, reason = "the tests that need the data folder look for it")]
fn folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    std::env::var_os("TESSERA_DATA").map_or_else(default, PathBuf::from)
}

pub fn rows(file: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_path(folder().join(file)).unwrap();
    reader.deserialize().collect::<Result<_, _>>().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the tests that need the data folder read it")]
pub fn lines_of(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().map(str::to_owned).collect()
}

pub fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap()
}

pub fn count(row: &Row, column: &str) -> u32 {
    row[column].parse().unwrap()
}

pub fn cell(batch: u32, units: u32, time_us: f64) -> Line {
    Line::Cell(Cell {
        batch,
        units,
        p50_us: time_us,
        p95_us: time_us,
        p99_us: time_us,
        count: 1,
        left_out: None,
        doubt: None,
        predicted: None,
    })
}

pub fn utilisation(file: &str, model: &str) -> Vec<Line> {
    let rows = rows(file);
    let of = rows.iter().filter(|row| row["model"] == model);
    of.map(|row| {
        let share = |column| number(row, column) / 100.0;
        let used = Utilisation { cache: share("l2_full_gpu_pct"), bandwidth: share("dram_full_gpu_pct") };
        Line::Utilisation(UtilisationLine { batch: count(row, "batch"), used })
    })
    .collect()
}

/// Times alone as measured, with iGniter's coefficients and the measured utilisation.
pub fn measured_v100(model: &str) -> Profile {
    let known = igniter_profile(model);
    let mut lines = known.lines();
    let measured = rows("igniter/v100_latency.csv");
    lines.extend(measured.iter().filter(|row| row["model"] == model).map(|row| {
        cell(count(row, "batch"), count(row, "partition_pct") * 2 / 5, 1e3 * number(row, "latency_ms"))
    }));
    lines.extend(utilisation("planner-profiles/utilisation_v100.csv", model));
    Profile::of_lines(lines).unwrap().remove(0)
}
