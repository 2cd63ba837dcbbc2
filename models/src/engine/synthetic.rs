//! The `synthetic` engine: models that take as long as their description says, and can fail on request.
//!
//! Most tests of the server want a model that takes an exactly known time and no processor. A `model.toml` in a version's folder makes one:
//!
//! ```toml
//! max_batch = 8                 # 0 or absent: no batch dimension
//! inputs = [{ name = "x", datatype = "FP32", dims = [-1, 16] }]
//! outputs = [{ name = "y", datatype = "FP32", dims = [-1, 16] }]
//!
//! [time]
//! alpha_us = 500                # a batch of n rows takes alpha + beta * n ...
//! beta_us = 100
//! # points = [[1, 600], [8, 1300]]   # ... or what this table says, straight lines between
//! mode = "sleep"                # or "spin": keeps the core busy, as a real model does
//! jitter = 0.0                  # share of the time that varies, up and down, from `seed`
//! seed = 0
//!
//! [fail]
//! every = 10                    # runs 10, 20, 30, ... fail
//! message = "out of memory"
//! ```
//!
//! An output equals the first input of the same type and dimensions; one that has no such input is zeros.
//!
//! A model of one FP32 input may give any number of rows for each row. A row then begins with the number of its request and its own
//! number in that request, both from 0, and the table says how many rows come of it: copies, which have their new numbers.
//!
//! ```toml
//! fan_out = [[3], [0, 2]]       # 3 rows of the row of request 0; none and 2 of the rows of request 1; then again
//! ```

mod description;
mod fan_out;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use oip::{Datatype, Shape, Tensor};

use super::{
    Batch, Colocated, Content, Engine, Interrupt, Libraries, Member, Prepared, Response, RunError, Session,
};
use crate::{Dim, EngineFailure, Format, LoadOptions, Signature, TensorSpec};
pub(crate) use description::Description;
use description::Mode;

/// Name of this engine.
pub const NAME: &str = "synthetic";

/// Bound on a zero-filled output, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 30;

/// The engine.
pub(crate) const ENGINE: Engine = Engine {
    name: NAME,
    platform: "synthetic",
    format: Format::Synthetic,
    runs_on_gpus: false,
    takes_undecoded: false,
    load,
};

fn load(
    model: &Prepared<'_>,
    _libraries: &Libraries<'_>,
    _options: &LoadOptions,
) -> Result<Box<dyn Session>, EngineFailure> {
    let Content::Synthetic(description) = &model.content else {
        let reason = "takes only synthetic models".to_owned();
        return Err(EngineFailure { engine: NAME, operator: None, reason });
    };
    let echo = Echo::new(model.signature.clone());
    Ok(Box::new(SyntheticSession { description: description.clone(), echo, pause: Arc::default(), runs: 0 }))
}

/// Time of a batch by its rows.
pub type TimeOf = Box<dyn Fn(u32) -> Duration + Send>;

/// A session that answers as a synthetic model with this signature would, and takes such times asleep.
pub fn emulate(signature: Signature, time: TimeOf) -> Box<dyn Session> {
    Box::new(Emulated { echo: Echo::new(signature), time, pause: Arc::default() })
}

struct Emulated {
    echo: Echo,
    time: TimeOf,
    pause: Arc<Pause>,
}

impl Session for Emulated {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let until = Instant::now() + (self.time)(batch.rows);
        let outputs = self.echo.outputs(batch)?;
        self.pause.until(Mode::Sleep, until)?;
        Ok(outputs)
    }

    fn signature(&self) -> &Signature {
        &self.echo.signature
    }

    fn engine(&self) -> &'static str {
        NAME
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(Arc::clone(&self.pause) as Arc<dyn Interrupt>)
    }
}

/// Position of the input that an output repeats.
fn source_of(output: &TensorSpec, signature: &Signature) -> Option<usize> {
    signature
        .inputs
        .iter()
        .position(|input| input.datatype == output.datatype && input.dims == output.dims && !input.optional)
}

struct SyntheticSession {
    description: Description,
    echo: Echo,
    pause: Arc<Pause>,
    runs: u64,
}

impl Session for SyntheticSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let started = Instant::now();
        self.runs += 1;
        let outputs = self.echo.outputs(batch)?;
        self.take_time(started, batch.rows)?;
        Ok(outputs)
    }

    fn takes_requests(&self) -> bool {
        !self.description.fan_out.is_empty()
    }

    fn run_requests(
        &mut self,
        requests: &[Member],
        _colocated: &mut dyn Colocated,
    ) -> Result<Vec<Result<Response, RunError>>, RunError> {
        let started = Instant::now();
        self.runs += 1;
        let specs = &self.echo.signature.outputs;
        let answer = |member: &Member| {
            let input = member.inputs.iter().flatten().next();
            let input = input.ok_or_else(|| RunError::Input("an input is missing".to_owned()))?;
            let rows = self.description.fan_out.of(input).map_err(RunError::Input)?;
            let outputs = specs.iter().map(|spec| Tensor { name: spec.name.clone(), ..rows.clone() });
            Ok(Response::from(outputs.collect::<Vec<_>>()))
        };
        let answers = requests.iter().map(answer).collect();
        let rows = requests.iter().map(|member| member.rows).fold(0, u32::saturating_add);
        self.take_time(started, rows)?;
        Ok(answers)
    }

    fn signature(&self) -> &Signature {
        &self.echo.signature
    }

    fn engine(&self) -> &'static str {
        NAME
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        Some(Arc::clone(&self.pause) as Arc<dyn Interrupt>)
    }
}

impl SyntheticSession {
    /// Takes the time of a batch that started then.
    fn take_time(&self, started: Instant, rows: u32) -> Result<(), RunError> {
        let time = &self.description.time;
        self.pause.until(time.mode, started + time.of(rows, self.runs))?;
        let fail = &self.description.fail;
        if fail.every > 0 && self.runs.is_multiple_of(fail.every) {
            return Err(RunError::Engine(fail.message.clone()));
        }
        Ok(())
    }
}

/// Returns inputs as outputs.
struct Echo {
    signature: Signature,
    /// Position of the input that each output repeats; none: zeros.
    sources: Vec<Option<usize>>,
}

impl Echo {
    fn new(signature: Signature) -> Self {
        let sources = signature.outputs.iter().map(|output| source_of(output, &signature)).collect();
        Self { signature, sources }
    }

    fn outputs(&self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let pairs = self.signature.outputs.iter().zip(&self.sources);
        pairs
            .map(|(spec, source)| {
                let repeated = source.and_then(|index| batch.inputs.get(index)).and_then(Option::as_ref);
                match repeated {
                    Some(input) => Ok(Tensor { name: spec.name.clone(), ..input.clone() }),
                    None => zeros(spec, batch).map_err(RunError::Input),
                }
            })
            .collect()
    }
}

/// Zeros in the output's shape. A free dimension has the extent that the first input has in the same place,
/// else 1.
fn zeros(spec: &TensorSpec, batch: &Batch) -> Result<Tensor, String> {
    let like = batch.inputs.iter().flatten().next().map_or(&[][..], |input| input.shape.extents());
    let extents: Vec<u64> = spec
        .dims
        .iter()
        .enumerate()
        .map(|(index, dim)| match dim {
            Dim::Fixed(extent) => *extent,
            Dim::Free => like.get(index).copied().unwrap_or(1),
        })
        .collect();
    let shape = Shape::from_extents(&extents);
    let element = spec.datatype.size().unwrap_or(size_of::<u32>()) as u64;
    let size = shape.element_count().and_then(|count| count.checked_mul(element));
    let size = size
        .filter(|&size| size <= OUTPUT_BYTES_MAX)
        .and_then(|size| usize::try_from(size).ok())
        .ok_or_else(|| {
            format!("output `{}` of shape {shape} would exceed {OUTPUT_BYTES_MAX} bytes", spec.name)
        })?;
    let data = Bytes::from(vec![0_u8; size]);
    Ok(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data })
}

/// How a run takes its time; other threads may end it before.
#[derive(Default)]
struct Pause {
    interrupted: Mutex<bool>,
    changed: Condvar,
}

impl Pause {
    /// Takes the time until `until`. An error if it was interrupted.
    fn until(&self, mode: Mode, until: Instant) -> Result<(), RunError> {
        let mut interrupted = self.flag();
        while !*interrupted {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(());
            }
            interrupted = match mode {
                Mode::Sleep => {
                    self.changed.wait_timeout(interrupted, rest).unwrap_or_else(PoisonError::into_inner).0
                }
                Mode::Spin => {
                    drop(interrupted);
                    std::hint::spin_loop();
                    self.flag()
                }
            };
        }
        Err(RunError::Engine("the run was interrupted".to_owned()))
    }

    fn flag(&self) -> MutexGuard<'_, bool> {
        self.interrupted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interrupt for Pause {
    fn interrupt(&self) {
        *self.flag() = true;
        self.changed.notify_all();
    }

    fn clear(&self) {
        *self.flag() = false;
    }
}

impl Description {
    /// What the described model takes and gives.
    pub(crate) fn signature(&self) -> Signature {
        let specs = |tensors: &[description::TensorDescription]| tensors.iter().map(spec).collect();
        Signature { inputs: specs(&self.inputs), outputs: specs(&self.outputs), max_batch: self.max_batch }
    }
}

fn spec(tensor: &description::TensorDescription) -> TensorSpec {
    let dims = tensor.dims.iter().map(|&dim| u64::try_from(dim).map_or(Dim::Free, Dim::Fixed)).collect();
    let datatype: Datatype = tensor.datatype.0;
    TensorSpec { name: tensor.name.clone(), datatype, dims, optional: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineChoice, Loader, ModelFiles, ModelName, Version};

    fn load(text: &'static str) -> Box<dyn Session> {
        let name = ModelName::new("fake").unwrap();
        let files = ModelFiles::from_bytes(name, Version(1), Format::Synthetic, text);
        let options = LoadOptions { engine: EngineChoice::Auto, ..LoadOptions::default() };
        Loader::without_ort().load(&files, &options).unwrap()
    }

    fn batch(rows: u64) -> Batch {
        let data: Vec<u8> = (0..rows * 8).map(|byte| byte as u8).collect();
        let shape = Shape::from_extents(&[rows, 2]);
        let tensor = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape, data: data.into() };
        Batch { inputs: vec![Some(tensor)], rows: rows as u32 }
    }

    const TEXT: &str = r#"
        max_batch = 4
        inputs = [{ name = "x", datatype = "FP32", dims = [-1, 2] }]
        outputs = [{ name = "same", datatype = "FP32", dims = [-1, 2] },
                   { name = "other", datatype = "INT64", dims = [-1, 3] }]
        [time]
        alpha_us = 2000
        beta_us = 1000
        mode = "spin"
        [fail]
        every = 3
        message = "as ordered"
    "#;

    #[test]
    fn a_row_becomes_as_many_rows_as_the_table_says() {
        let mut session = load(
            "max_batch = 8
            inputs = [{ name = \"x\", datatype = \"FP32\", dims = [-1, 3] }]
            outputs = [{ name = \"y\", datatype = \"FP32\", dims = [-1, 3] }]
            fan_out = [[3], [0, 2], []]",
        );
        let member = |rows: &[[f32; 3]]| {
            let data: Vec<u8> = rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
            let shape = Shape::from_extents(&[rows.len() as u64, 3]);
            let tensor = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape, data: data.into() };
            Member::of(vec![Some(tensor)], rows.len() as u32)
        };
        assert!(session.takes_requests());
        let two = member(&[[1.0, 0.0, 0.5], [1.0, 1.0, 0.5]]);
        let asked =
            [member(&[[0.0, 0.0, 0.25]]), two, member(&[[2.0, 0.0, 0.0]]), member(&[[3.0, 0.0, 0.5]])];
        let answers = session.run_requests(&asked, &mut crate::engine::Alone).unwrap();
        let rows = |answer: &Result<Response, RunError>| {
            let output = &answer.as_ref().unwrap().outputs[0];
            assert_eq!((output.name.as_str(), output.shape.extents()[1]), ("y", 3));
            let values = output
                .data
                .chunks_exact(4)
                .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
            values.collect::<Vec<f32>>()
        };
        assert_eq!(rows(&answers[0]), [0.0, 0.0, 0.25, 0.0, 1.0, 0.25, 0.0, 2.0, 0.25]);
        assert_eq!(rows(&answers[1]), [1.0, 0.0, 0.5, 1.0, 1.0, 0.5]);
        assert_eq!(rows(&answers[2]), [0.0; 0], "request 2 has no rows");
        assert_eq!(rows(&answers[3]).len(), 9, "request 3 is like request 0");
    }

    #[test]
    fn it_takes_as_long_as_it_says_and_fails_on_order() {
        let mut session = load(TEXT);
        assert_eq!(session.signature().max_batch, 4);
        for run in 1..=6 {
            let started = Instant::now();
            let answer = session.run(&batch(3));
            assert!(started.elapsed() >= Duration::from_micros(5000));
            if run % 3 == 0 {
                assert_eq!(answer.unwrap_err(), RunError::Engine("as ordered".into()));
                continue;
            }
            let answer = answer.unwrap();
            assert_eq!(answer[0].data, batch(3).inputs[0].as_ref().unwrap().data);
            assert_eq!((answer[1].shape.extents(), answer[1].data.len()), (&[3, 3][..], 72));
        }
    }
}
