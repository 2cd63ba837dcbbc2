//! `model_warmup`: requests to run before a model is ready.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use bytes::Bytes;
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarmUpValues {
    /// All zero.
    Zero,
    /// Sample values of the type, the same at every start.
    Random,
    /// The content of a file: the elements of one row, which every row of the batch gets, or those of all rows. Numbers are
    /// little-endian, strings have a length of 4 bytes before them.
    File {
        /// Path in the folder `warmup` of the model.
        path: String,
        /// Empty until the file was read.
        data: Bytes,
    },
}

impl WarmUpInput {
    /// Rows that the data of a file holds: 1, or those of the batch.
    fn rows_of(&self, data: &[u8], batch: u32) -> Result<u32, String> {
        let elements = self
            .dims
            .iter()
            .try_fold(1_usize, |product, dim| product.checked_mul(usize::try_from(*dim).ok()?));
        let of_rows = |rows: u32| elements?.checked_mul(usize::try_from(rows.max(1)).ok()?);
        let (found, unit) = match self.datatype.size().filter(|_| self.datatype != Datatype::Bytes) {
            Some(width) if data.len().is_multiple_of(width) => (Some(data.len() / width), "elements"),
            Some(width) => return Err(format!("has {} bytes: expected a multiple of {width}", data.len())),
            None => (strings(data), "strings"),
        };
        let Some(found) = found else {
            return Err("is cut off: expected strings, each after its length of 4 bytes".to_owned());
        };
        match [1, batch].into_iter().find(|rows| of_rows(*rows) == Some(found)) {
            Some(rows) => Ok(rows.max(1)),
            None => Err(format!(
                "has {found} {unit}: expected {} for one row{}",
                elements.map_or_else(|| "fewer".to_owned(), |elements| elements.to_string()),
                if batch > 1 { format!(", or {batch} times as many for the batch") } else { String::new() }
            )),
        }
    }

    /// The data of a file for a batch.
    pub(crate) fn batch_data(&self, data: &Bytes, batch: u32) -> Result<Bytes, String> {
        let rows = self.rows_of(data, batch)?;
        if rows == batch.max(1) {
            return Ok(data.clone());
        }
        Ok(data.repeat(usize::try_from(batch).unwrap_or(usize::MAX)).into())
    }
}

/// Number of strings; `None` if the last one is cut off.
fn strings(mut data: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !data.is_empty() {
        let (length, rest) = data.split_first_chunk::<4>()?;
        data = rest.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)?;
        count += 1;
    }
    Some(count)
}

/// Reads the files of warm-up requests.
///
/// # Errors
/// The field, and what is wrong with the file.
pub(in super::super) fn read_files(
    warm_ups: &mut [WarmUp],
    read: impl Fn(&Path) -> Result<Bytes, String>,
) -> Result<(), (String, String)> {
    for warm_up in warm_ups {
        for (name, input) in &mut warm_up.inputs {
            let WarmUpValues::File { path, .. } = &input.values else { continue };
            let field =
                format!("config.pbtxt: model_warmup `{}`: input `{name}`: input_data_file", warm_up.name);
            let path = path.clone();
            let inner = Path::new("warmup").join(&path);
            let refuse = |reason: String| (field, reason);
            if !Path::new(&path).components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(refuse(format!(
                    "is `{path}`: expected a file in the folder `warmup` of the model"
                )));
            }
            let data = match read(&inner).and_then(|data| match input.rows_of(&data, warm_up.batch) {
                Ok(_) => Ok(data),
                Err(reason) => Err(format!("{} {reason}", inner.display())),
            }) {
                Ok(data) => data,
                Err(reason) => return Err(refuse(reason)),
            };
            input.values = WarmUpValues::File { path, data };
        }
    }
    Ok(())
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
            Some(InputDataType::RandomData(_)) => WarmUpValues::Random,
            Some(InputDataType::InputDataFile(path)) => {
                WarmUpValues::File { path: path.clone(), data: Bytes::new() }
            }
        };
        inputs.insert(name.clone(), WarmUpInput { datatype, dims, values });
    }
    WarmUp { name: source.name.clone(), batch: source.batch_size, count: source.count.max(1), inputs }
}
