//! `model_warmup`: requests to run before a model is ready.

use std::collections::BTreeMap;

use oip::Datatype;
use oip::proto::model_warmup::input::InputDataType;
use oip::proto::{self, ModelConfig};

use super::datatype;
use super::problems::Problems;

/// Bounds on what a file may ask for.
const WARM_UPS_MAX: usize = 64;
const WARM_UP_RUNS_MAX: u32 = 1000;
const WARM_UP_BATCH_MAX: u32 = 65_536;

/// One entry of `model_warmup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// Name for messages.
    pub name: String,
    /// Rows; 0: the inputs are the whole shapes.
    pub batch: u32,
    /// Number of runs, at least 1.
    pub count: u32,
    /// Inputs by name.
    pub inputs: BTreeMap<String, WarmUpInput>,
}

/// One input of a warm-up request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUpInput {
    /// Element type.
    pub datatype: Datatype,
    /// Extents, without the batch when `batch` is above 0.
    pub dims: Vec<u64>,
    /// Which values the elements have.
    pub values: WarmUpValues,
}

/// Values of a warm-up input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUpValues {
    /// All zero.
    Zero,
    /// Sample values of the type, the same at every start.
    Random,
}

/// The warm-up requests of a file. Problems are added to `problems`.
pub(super) fn warm_ups(source: &ModelConfig, problems: &mut Problems<'_>) -> Vec<WarmUp> {
    if source.model_warmup.len() > WARM_UPS_MAX {
        problems.add("model_warmup", format!("has more than {WARM_UPS_MAX} entries"));
        return Vec::new();
    }
    let warm_ups = source.model_warmup.iter().enumerate();
    warm_ups.map(|(index, entry)| warm_up(&format!("model_warmup[{index}]"), entry, problems)).collect()
}

fn warm_up(path: &str, source: &proto::ModelWarmup, problems: &mut Problems<'_>) -> WarmUp {
    if source.count > WARM_UP_RUNS_MAX {
        problems.add(
            &format!("{path}.count"),
            format!("is {}: expected at most {WARM_UP_RUNS_MAX}", source.count),
        );
    }
    if source.batch_size > WARM_UP_BATCH_MAX {
        let reason = format!("is {}: expected at most {WARM_UP_BATCH_MAX}", source.batch_size);
        problems.add(&format!("{path}.batch_size"), reason);
    }
    let mut inputs = BTreeMap::new();
    for (name, input) in &source.inputs {
        let field = |field: &str| format!("{path}.inputs.{field}");
        let Some(datatype) = datatype(input.data_type) else {
            problems.add(&field("data_type"), format!("is missing or invalid for input `{name}`"));
            continue;
        };
        let mut dims = Vec::with_capacity(input.dims.len());
        for &dim in &input.dims {
            match u64::try_from(dim) {
                Ok(dim) => dims.push(dim),
                Err(_) => {
                    problems.add(&field("dims"), format!("has {dim} for input `{name}`: expected 0 or more"))
                }
            }
        }
        let values = match &input.input_data_type {
            None | Some(InputDataType::ZeroData(_)) => WarmUpValues::Zero,
            // A file is refused before this (see `support`).
            Some(InputDataType::RandomData(_) | InputDataType::InputDataFile(_)) => WarmUpValues::Random,
        };
        inputs.insert(name.clone(), WarmUpInput { datatype, dims, values });
    }
    WarmUp { name: source.name.clone(), batch: source.batch_size, count: source.count.max(1), inputs }
}
