//! `model_warmup`: requests to run before a model is ready.

use std::collections::BTreeMap;

use oip::Datatype;
use oip::proto::model_warmup::input::InputDataType;
use oip::proto::{self, ModelConfig};

use super::datatype;

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

/// The warm-up requests of a file, checked.
pub(super) fn warm_ups(source: &ModelConfig) -> Result<Vec<WarmUp>, (String, String)> {
    if source.model_warmup.len() > WARM_UPS_MAX {
        return Err(("model_warmup".to_owned(), format!("has more than {WARM_UPS_MAX} entries")));
    }
    source.model_warmup.iter().map(warm_up).collect()
}

fn warm_up(source: &proto::ModelWarmup) -> Result<WarmUp, (String, String)> {
    let path = |field: &str| format!("model_warmup `{}`: {field}", source.name);
    if source.count > WARM_UP_RUNS_MAX {
        return Err((path("count"), format!("is {}: expected at most {WARM_UP_RUNS_MAX}", source.count)));
    }
    if source.batch_size > WARM_UP_BATCH_MAX {
        return Err((
            path("batch_size"),
            format!("is {}: expected at most {WARM_UP_BATCH_MAX}", source.batch_size),
        ));
    }
    let inputs = source.inputs.iter().map(|(name, input)| {
        let inner = |field: &str| path(&format!("inputs `{name}`: {field}"));
        let dims = input.dims.iter().map(|&dim| {
            u64::try_from(dim).map_err(|_| (inner("dims"), format!("has {dim}: expected 0 or more")))
        });
        let values = match &input.input_data_type {
            None | Some(InputDataType::ZeroData(_)) => WarmUpValues::Zero,
            Some(InputDataType::RandomData(_)) => WarmUpValues::Random,
            Some(InputDataType::InputDataFile(_)) => {
                return Err((inner("input_data_file"), "is not supported".to_owned()));
            }
        };
        let datatype = datatype(input.data_type);
        let warm = WarmUpInput {
            datatype: datatype.ok_or_else(|| (inner("data_type"), "is missing or invalid".to_owned()))?,
            dims: dims.collect::<Result<_, _>>()?,
            values,
        };
        Ok((name.clone(), warm))
    });
    Ok(WarmUp {
        name: source.name.clone(),
        batch: source.batch_size,
        count: source.count.max(1),
        inputs: inputs.collect::<Result<_, _>>()?,
    })
}
