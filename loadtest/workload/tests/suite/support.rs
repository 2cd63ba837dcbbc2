//! Workloads for tests, in few words.

use std::collections::BTreeMap;

use workload::{Arrivals, Offered, Workload, WorkloadError};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// A profile line for models whose times do not matter.
pub const PROFILE: &str = r#"profile = { alpha = "1ms", beta = "4ms", max_batch = 32 }"#;

pub fn try_parse(text: &str, files: &[(&str, &str)]) -> Result<Workload, WorkloadError> {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    let mut find =
        |name: &str| files.get(name).map(|text| (*text).to_owned()).ok_or("no such file".to_owned());
    Workload::parse(text, &mut find)
}

pub fn parse(text: &str, files: &[(&str, &str)]) -> Workload {
    try_parse(text, files).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// One model `m` with these lines, for so long.
pub fn one(duration: &str, model: &str, files: &[(&str, &str)]) -> Workload {
    let text = format!(
        "name = \"one\"\nseed = 7\nduration = \"{duration}\"\n[models.m]\nslo = \"1s\"\n{PROFILE}\n{model}\n"
    );
    parse(&text, files)
}

/// When each request comes, in nanoseconds.
pub fn times(workload: &Workload) -> Vec<u64> {
    Arrivals::new(workload).map(|offered| offered.at).collect()
}

/// What one model is offered.
pub fn of_model(workload: &Workload, name: &str) -> Vec<Offered> {
    let model = workload.models.iter().position(|model| model.name == name).unwrap();
    Arrivals::new(workload).filter(|offered| offered.model == u32::try_from(model).unwrap()).collect()
}
