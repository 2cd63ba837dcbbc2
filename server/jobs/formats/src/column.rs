//! What the results of every row have in common.

use oip::{Datatype, Tensor};
use serde::{Deserialize, Serialize};

use crate::Format;

/// An output of every row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub datatype: Datatype,
    /// Its extents in the first row, without the batch dimension.
    pub shape: Vec<u64>,
}

impl From<&Tensor> for Column {
    fn from(tensor: &Tensor) -> Self {
        Self { name: tensor.name.clone(), datatype: tensor.datatype, shape: tensor.shape.extents().to_vec() }
    }
}

/// Checks that the columns of a row can be in one file of this format with those of the first row.
///
/// # Errors
/// What is different, and which formats take it.
pub fn check_row(format: Format, first: &[Column], row: &[Column]) -> Result<(), String> {
    let names =
        |columns: &[Column]| columns.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(", ");
    match format {
        Format::JsonLines => return Ok(()),
        Format::Npy if row.len() != 1 => {
            let outputs = names(row);
            return Err(format!(
                "an .npy file has one array, and the outputs are {outputs}: choose one, or npz"
            ));
        }
        Format::Npy | Format::Npz => {
            if let Some(text) = row.iter().find(|column| column.datatype == Datatype::Bytes) {
                let name = &text.name;
                return Err(format!(
                    "output `{name}` is text, which NumPy results do not have: use parquet or jsonl"
                ));
            }
        }
        Format::Parquet => {}
    }
    if first.len() != row.len() || first.iter().zip(row).any(|(first, one)| first.name != one.name) {
        return Err(format!("its outputs are {}, and those of the first row {}", names(row), names(first)));
    }
    for (first, one) in first.iter().zip(row) {
        let name = &one.name;
        if first.datatype != one.datatype {
            return Err(format!(
                "output `{name}` is {}, and {} in the first row",
                one.datatype, first.datatype
            ));
        }
        let fits = match format {
            Format::Parquet => first.shape.len() == one.shape.len(),
            _ => first.shape == one.shape,
        };
        if !fits {
            let (shape, before) = (&one.shape, &first.shape);
            let advice = if format == Format::Parquet { "jsonl" } else { "parquet or jsonl" };
            return Err(format!(
                "output `{name}` has shape {shape:?}, and {before:?} in the first row: use {advice}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, datatype: Datatype, shape: &[u64]) -> Column {
        Column { name: name.to_owned(), datatype, shape: shape.to_vec() }
    }

    #[test]
    fn rows_that_do_not_fit_into_one_file_say_what_would_take_them() {
        use Datatype::{Bytes, Fp32, Fp64};
        let first = [column("x", Fp32, &[2, 3])];
        let check = |format, row: &[Column]| check_row(format, &first, row).err().unwrap_or_default();
        assert_eq!(check(Format::Npy, &first), "");
        assert!(check(Format::Npy, &[column("x", Fp32, &[3, 3])]).ends_with("use parquet or jsonl"));
        assert_eq!(check(Format::Parquet, &[column("x", Fp32, &[3, 3])]), "");
        assert!(check(Format::Parquet, &[column("x", Fp32, &[3])]).ends_with("use jsonl"));
        assert!(check(Format::Parquet, &[column("x", Fp64, &[2, 3])]).contains("is FP64, and FP32 in"));
        assert!(check(Format::Parquet, &[column("y", Fp32, &[2, 3])]).contains("its outputs are y"));
        assert!(check(Format::Npz, &[column("x", Bytes, &[2, 3])]).contains("is text"));
        assert!(check(Format::Npy, &[]).contains("has one array"));
        assert_eq!(check(Format::JsonLines, &[]), "");
    }
}
