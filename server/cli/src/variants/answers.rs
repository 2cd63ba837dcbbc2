//! The class that a model gives to each row of a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::BytesMut;
use job_formats::{Format, FormatError};
use models::engine::{Batch, Session};
use oip::{Shape, Tensor};

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

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
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
    /// Time of all batches.
    pub time: Duration,
    /// Number of batches.
    pub batches: u32,
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
                let right = models::whole_number(given.datatype, &given.data)
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
        let started = Instant::now();
        let outputs = session.run(&batch)?;
        self.time += started.elapsed();
        self.batches += 1;
        let answer = outputs.get(output).context("gave no such output")?;
        self.classes.extend(models::classes(answer, count).map_err(anyhow::Error::msg)?);
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use oip::Datatype;

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
    fn rows_become_a_batch() {
        let row = |value: u8| vec![Some(tensor(Datatype::Uint8, &[value])), None];
        let batch = gathered(vec![row(1), row(2), row(3)], &[2, 2]);
        let input = batch.inputs[0].as_ref().unwrap();
        assert_eq!((input.shape.extents(), &input.data[..], batch.rows), (&[3, 1][..], &[1, 2, 3][..], 3));
        assert!(batch.inputs[1].is_none());
        assert_eq!(gathered(vec![row(1)], &[1, 1]).inputs[0].as_ref().unwrap().shape.extents(), [1]);
    }
}
