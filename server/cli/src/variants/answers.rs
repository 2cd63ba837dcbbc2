//! The class that a model gives to each row of a file.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use job_formats::{Format, FormatError};
use models::engine::{Batch, Session};
use oip::{Datatype, Shape, Tensor};

/// Bytes of a row at most.
const ROW_MAX: usize = 64 << 20;
/// Rows of a batch at most.
const BATCH_MAX: usize = 64;
/// Rows of a file at most.
const ROWS_MAX: usize = 100_000_000;

/// A file of rows.
pub struct Rows {
    path: PathBuf,
    format: Format,
}

impl Rows {
    /// A file with this path, which is opened when it is read.
    ///
    /// # Errors
    /// Its ending is of no format of arrays by name.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        match Format::of_path(path) {
            Some(format @ (Format::Npz | Format::Parquet)) => Ok(Self { path: path.to_owned(), format }),
            _ => anyhow::bail!("{}: expected a file .npz or .parquet", path.display()),
        }
    }

    fn each(&self, each: &mut dyn FnMut(Vec<Tensor>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let shown = || self.path.display().to_string();
        let file = File::open(&self.path).with_context(shown)?;
        let mut failed = None;
        let read = job_formats::read(&file, self.format, ROW_MAX, &mut |row| {
            each(row).map_err(|error| {
                failed = Some(error);
                FormatError::Input(String::new())
            })
        });
        match (failed, read) {
            (Some(error), _) => Err(error),
            (None, read) => read.with_context(shown),
        }
    }
}

/// What a model answered.
#[derive(Debug, Default, PartialEq)]
pub struct Answers {
    /// The class of each row.
    pub classes: Vec<i64>,
    /// The right one. Empty without labels.
    pub labels: Vec<i64>,
}

impl Answers {
    /// Runs all rows. `label`: the name of the right classes in the file.
    ///
    /// # Errors
    /// Rows that the model does not take, or outputs that are no classes.
    pub fn of(
        session: &mut dyn Session,
        rows: &Rows,
        output: Option<&str>,
        label: Option<&str>,
    ) -> anyhow::Result<Self> {
        let signature = session.signature().clone();
        let output = match (output, &signature.outputs[..]) {
            (Some(name), outputs) => {
                outputs.iter().position(|spec| spec.name == name).with_context(|| {
                    let known: Vec<&str> = outputs.iter().map(|spec| spec.name.as_str()).collect();
                    format!("--output: has no output `{name}`: expected one of {}", known.join(", "))
                })?
            }
            (None, [_]) => 0,
            (None, outputs) => {
                let known: Vec<&str> = outputs.iter().map(|spec| spec.name.as_str()).collect();
                anyhow::bail!("has several outputs: expected --output with one of {}", known.join(", "))
            }
        };
        let largest = (signature.max_batch as usize).clamp(1, BATCH_MAX);
        let mut answers = Self::default();
        let mut waiting: Vec<Vec<Option<Tensor>>> = Vec::new();
        rows.each(&mut |mut row| {
            anyhow::ensure!(
                answers.labels.len() + answers.classes.len() < 2 * ROWS_MAX,
                "more than {ROWS_MAX} rows"
            );
            if let Some(label) = label {
                let known: Vec<String> = row.iter().map(|tensor| tensor.name.clone()).collect();
                let place = row.iter().position(|tensor| tensor.name == label);
                let place = place.with_context(|| {
                    format!("--label: the file has no `{label}`: expected one of {}", known.join(", "))
                })?;
                let given = row.swap_remove(place);
                let right = class(&given)
                    .with_context(|| format!("`{label}`: expected whole numbers, got {}", given.datatype))?;
                answers.labels.push(right);
            }
            let mut inputs = Vec::new();
            for spec in &signature.inputs {
                let found = row
                    .iter()
                    .position(|tensor| tensor.name == spec.name)
                    .map(|place| row.swap_remove(place));
                anyhow::ensure!(found.is_some() || spec.optional, "the file has no input `{}`", spec.name);
                let cast =
                    found.map(|tensor| job_formats::cast(tensor, spec.datatype).map_err(anyhow::Error::msg));
                inputs.push(cast.transpose()?);
            }
            let alike = |other: &Vec<Option<Tensor>>| {
                inputs.iter().zip(other).all(|(one, two)| {
                    one.as_ref().map(|tensor| &tensor.shape) == two.as_ref().map(|tensor| &tensor.shape)
                })
            };
            if waiting.len() >= largest || waiting.first().is_some_and(|first| !alike(first)) {
                answers.run(session, std::mem::take(&mut waiting), output)?;
            }
            waiting.push(inputs);
            Ok(())
        })?;
        if !waiting.is_empty() {
            answers.run(session, waiting, output)?;
        }
        Ok(answers)
    }

    fn run(
        &mut self,
        session: &mut dyn Session,
        rows: Vec<Vec<Option<Tensor>>>,
        output: usize,
    ) -> anyhow::Result<()> {
        let count = rows.len();
        let ranks: Vec<usize> = session.signature().inputs.iter().map(|spec| spec.dims.len()).collect();
        let batch = gathered(rows, &ranks);
        let outputs = session.run(&batch)?;
        let answer = outputs.get(output).context("gave no such output")?;
        let values: u64 = answer.shape.extents().iter().product();
        let (per_row, width) = (values / count.max(1) as u64, answer.data.len() / count.max(1));
        anyhow::ensure!(per_row > 0 && width > 0, "output `{}`: has no values", answer.name);
        for row in answer.data.chunks_exact(width) {
            let one = Tensor {
                name: answer.name.clone(),
                datatype: answer.datatype,
                shape: Shape::from_extents(&[per_row]),
                data: Bytes::copy_from_slice(row),
            };
            let found = class(&one).or_else(|| largest(&one));
            self.classes.push(found.with_context(|| {
                format!(
                    "output `{}`: expected whole numbers, or numbers for each class, got {}",
                    one.name, one.datatype
                )
            })?);
        }
        Ok(())
    }
}

/// Rows as a batch. `ranks`: how many dimensions each input has, which are those of a row if the model takes no batches.
fn gathered(rows: Vec<Vec<Option<Tensor>>>, ranks: &[usize]) -> Batch {
    let count = rows.len();
    let width = rows.first().map_or(0, Vec::len);
    let input = |place: usize| {
        let of_rows: Vec<&Tensor> = rows.iter().filter_map(|row| row.get(place)?.as_ref()).collect();
        let first = of_rows.first()?;
        let mut extents = first.shape.extents().to_vec();
        if ranks.get(place).is_some_and(|rank| *rank == extents.len() + 1) {
            extents.insert(0, count as u64);
        }
        let mut data = BytesMut::new();
        of_rows.iter().for_each(|tensor| data.extend_from_slice(&tensor.data));
        Some(Tensor {
            name: first.name.clone(),
            datatype: first.datatype,
            shape: Shape::from_extents(&extents),
            data: data.freeze(),
        })
    };
    Batch { inputs: (0..width).map(input).collect(), rows: u32::try_from(count).unwrap_or(u32::MAX) }
}

/// A single whole number.
fn class(tensor: &Tensor) -> Option<i64> {
    let data = &tensor.data[..];
    let number = match tensor.datatype {
        Datatype::Int8 => i64::from(i8::from_le_bytes(data.try_into().ok()?)),
        Datatype::Uint8 => i64::from(u8::from_le_bytes(data.try_into().ok()?)),
        Datatype::Int16 => i64::from(i16::from_le_bytes(data.try_into().ok()?)),
        Datatype::Uint16 => i64::from(u16::from_le_bytes(data.try_into().ok()?)),
        Datatype::Int32 => i64::from(i32::from_le_bytes(data.try_into().ok()?)),
        Datatype::Uint32 => i64::from(u32::from_le_bytes(data.try_into().ok()?)),
        Datatype::Int64 => i64::from_le_bytes(data.try_into().ok()?),
        _ => return None,
    };
    Some(number)
}

/// The place of the largest number, the first of several.
fn largest(tensor: &Tensor) -> Option<i64> {
    let wide = job_formats::cast(tensor.clone(), Datatype::Fp64).ok()?;
    let numbers =
        wide.data.chunks_exact(8).filter_map(|bytes| Some(f64::from_le_bytes(bytes.try_into().ok()?)));
    let mut best: Option<(i64, f64)> = None;
    for (place, number) in (0..).zip(numbers) {
        if best.is_none_or(|(_, most)| number > most) {
            best = Some((place, number));
        }
    }
    best.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(datatype: Datatype, data: &[u8]) -> Tensor {
        Tensor {
            name: "x".to_owned(),
            datatype,
            shape: Shape::from_extents(&[1]),
            data: Bytes::copy_from_slice(data),
        }
    }

    #[test]
    fn a_class_is_a_whole_number_or_the_place_of_the_largest() {
        assert_eq!(class(&tensor(Datatype::Int64, &7_i64.to_le_bytes())), Some(7));
        assert_eq!(class(&tensor(Datatype::Uint8, &[200])), Some(200));
        assert_eq!(class(&tensor(Datatype::Int32, &(-1_i32).to_le_bytes())), Some(-1));
        let scores: Vec<u8> = [0.1_f32, 0.7, 0.7, 0.2].iter().flat_map(|score| score.to_le_bytes()).collect();
        let scores = tensor(Datatype::Fp32, &scores);
        assert_eq!((class(&scores), largest(&scores)), (None, Some(1)));
        assert_eq!(largest(&tensor(Datatype::Bytes, b"no")), None);
    }

    #[test]
    fn rows_become_a_batch() {
        let row = |value: u8| vec![Some(tensor(Datatype::Uint8, &[value])), None];
        let batch = gathered(vec![row(1), row(2), row(3)], &[2, 2]);
        let input = batch.inputs[0].as_ref().unwrap();
        assert_eq!((input.shape.extents(), &input.data[..], batch.rows), (&[3, 1][..], &[1, 2, 3][..], 3));
        assert!(batch.inputs[1].is_none());
        assert_eq!(gathered(vec![row(1)], &[1, 1]).inputs[0].as_ref().unwrap().shape.extents(), [1]);
    }
}
