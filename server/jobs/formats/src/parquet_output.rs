//! Records as Parquet files: a column for each output, and one for errors.

use std::io::Write;
use std::sync::Arc;

use half::{bf16, f16};
use oip::binary::elements;
use oip::{Datatype, Tensor};
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::record::{Records, Row};
use crate::{Column, FormatError, Open};

/// Bytes of records that become one row group.
const GROUP_BYTES: usize = 32 << 20;
/// Rows of a row group, at most.
const GROUP_ROWS: usize = 1 << 20;
/// Column for rows that have no result.
const ERROR: &str = "error";

fn failed(error: ParquetError) -> FormatError {
    FormatError::Io(std::io::Error::other(error))
}

pub(crate) fn write(
    columns: &[Column],
    open: Open<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), FormatError> {
    let fields: Result<Vec<TypePtr>, _> = columns.iter().map(|column| field(column).map(Arc::new)).collect();
    let mut fields = fields.map_err(failed)?;
    let is_taken = columns.iter().any(|column| column.name == ERROR);
    let error = if is_taken { "tessera_error" } else { ERROR };
    let error = leaf(error, Datatype::Bytes, Repetition::OPTIONAL).map_err(failed)?;
    fields.push(Arc::new(error));
    let schema = Type::group_type_builder("schema").with_fields(fields).build().map_err(failed)?;
    // Every reader has this compression. Floats do not repeat, so a dictionary is only work.
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .build();
    let mut writer =
        SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
    let mut records = Records::new(open()?);
    loop {
        let (mut rows, mut bytes): (Vec<Row>, usize) = (Vec::new(), 0);
        while bytes < GROUP_BYTES && rows.len() < GROUP_ROWS {
            let Some(row) = records.next().transpose()? else { break };
            bytes = bytes.saturating_add(size(&row));
            rows.push(row);
        }
        if rows.is_empty() {
            break;
        }
        let mut group = writer.next_row_group().map_err(failed)?;
        for (place, column) in columns.iter().enumerate() {
            write_column(&mut group, column, place, &rows)?;
        }
        write_errors(&mut group, &rows)?;
        group.close().map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    Ok(())
}

fn size(row: &Row) -> usize {
    match row {
        Ok(tensors) => tensors.iter().map(|tensor| tensor.data.len()).sum(),
        Err(error) => error.len(),
    }
}

/// A nullable column: a value, or lists inside each other, one for each dimension.
fn field(column: &Column) -> Result<Type, ParquetError> {
    let Some(inner) = column.shape.len().checked_sub(1) else {
        return leaf(&column.name, column.datatype, Repetition::OPTIONAL);
    };
    let mut element = leaf("element", column.datatype, Repetition::REQUIRED)?;
    for _ in 0..inner {
        element = list("element", Repetition::REQUIRED, element)?;
    }
    list(&column.name, Repetition::OPTIONAL, element)
}

fn list(name: &str, repetition: Repetition, element: Type) -> Result<Type, ParquetError> {
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    Type::group_type_builder(name)
        .with_repetition(repetition)
        .with_converted_type(ConvertedType::LIST)
        .with_fields(vec![Arc::new(repeated)])
        .build()
}

fn leaf(name: &str, datatype: Datatype, repetition: Repetition) -> Result<Type, ParquetError> {
    let (physical, meaning) = match datatype {
        Datatype::Bool => (Physical::BOOLEAN, ConvertedType::NONE),
        Datatype::Uint8 => (Physical::INT32, ConvertedType::UINT_8),
        Datatype::Uint16 => (Physical::INT32, ConvertedType::UINT_16),
        Datatype::Uint32 => (Physical::INT32, ConvertedType::UINT_32),
        Datatype::Uint64 => (Physical::INT64, ConvertedType::UINT_64),
        Datatype::Int8 => (Physical::INT32, ConvertedType::INT_8),
        Datatype::Int16 => (Physical::INT32, ConvertedType::INT_16),
        Datatype::Int32 => (Physical::INT32, ConvertedType::NONE),
        Datatype::Int64 => (Physical::INT64, ConvertedType::NONE),
        // Halves are floats as well, and more readers have floats.
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 => (Physical::FLOAT, ConvertedType::NONE),
        Datatype::Fp64 => (Physical::DOUBLE, ConvertedType::NONE),
        Datatype::Bytes => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
    };
    Type::primitive_type_builder(name, physical)
        .with_converted_type(meaning)
        .with_repetition(repetition)
        .build()
}

/// Levels of a column's values (Parquet's `definition` and `repetition` levels).
#[derive(Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl Levels {
    fn add_null(&mut self) {
        self.definition.push(0);
        self.repetition.push(0);
    }

    /// A value inside of lists of these lengths.
    fn add(&mut self, shape: &[u64]) {
        // Of a list without elements, nothing inside is there.
        let depth = shape.iter().position(|extent| *extent == 0);
        let (lists, defined) = match depth {
            Some(empty) => (shape.get(..empty).unwrap_or_default(), empty + 1),
            None => (shape, shape.len() + 1),
        };
        let defined = i16::try_from(defined).unwrap_or(i16::MAX);
        let elements: u64 = lists.iter().product();
        for element in 0..elements {
            let (mut inside, mut level) = (elements, 0);
            if element > 0 {
                // The outermost list that goes on here.
                for (depth, extent) in (1_i16..).zip(lists) {
                    inside /= extent;
                    if element.is_multiple_of(inside) {
                        level = depth;
                        break;
                    }
                }
            }
            self.definition.push(defined);
            self.repetition.push(level);
        }
    }
}

fn write_column(
    group: &mut SerializedRowGroupWriter<'_, &mut (dyn Write + Send)>,
    column: &Column,
    place: usize,
    rows: &[Row],
) -> Result<(), FormatError> {
    let mut levels = Levels::default();
    let mut tensors: Vec<&Tensor> = Vec::with_capacity(rows.len());
    for row in rows {
        match row.as_ref().ok().and_then(|tensors| tensors.get(place)) {
            Some(tensor) => {
                levels.add(tensor.shape.extents());
                tensors.push(tensor);
            }
            None => levels.add_null(),
        }
    }
    let writer = group.next_column().map_err(failed)?;
    let mut writer = writer.ok_or_else(|| FormatError::Input("the schema has too few columns".to_owned()))?;
    let is_list = !column.shape.is_empty();
    macro_rules! put {
        ($type:ty, $size:literal, $of:expr) => {{
            let data = tensors.iter().flat_map(|tensor| tensor.data.as_chunks::<$size>().0);
            put::<$type>(&mut writer, data.map(|bytes| $of(*bytes)).collect(), &levels, is_list)
        }};
    }
    match column.datatype {
        Datatype::Bool => put!(BoolType, 1, |[byte]: [u8; 1]| byte != 0),
        Datatype::Uint8 => put!(Int32Type, 1, |bytes| i32::from(u8::from_le_bytes(bytes))),
        Datatype::Uint16 => put!(Int32Type, 2, |bytes| i32::from(u16::from_le_bytes(bytes))),
        Datatype::Int8 => put!(Int32Type, 1, |bytes| i32::from(i8::from_le_bytes(bytes))),
        Datatype::Int16 => put!(Int32Type, 2, |bytes| i32::from(i16::from_le_bytes(bytes))),
        // Unsigned numbers have the bits of signed ones.
        Datatype::Int32 | Datatype::Uint32 => put!(Int32Type, 4, i32::from_le_bytes),
        Datatype::Int64 | Datatype::Uint64 => put!(Int64Type, 8, i64::from_le_bytes),
        Datatype::Fp16 => put!(FloatType, 2, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Datatype::Bf16 => put!(FloatType, 2, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        Datatype::Fp32 => put!(FloatType, 4, f32::from_le_bytes),
        Datatype::Fp64 => put!(DoubleType, 8, f64::from_le_bytes),
        Datatype::Bytes => {
            let texts = tensors.iter().flat_map(|tensor| elements(&tensor.data));
            let texts: Result<_, _> = texts.map(|text| text.map(ByteArray::from)).collect();
            let texts = texts.map_err(|_| FormatError::Input("a record is damaged".to_owned()))?;
            put::<ByteArrayType>(&mut writer, texts, &levels, is_list)
        }
    }?;
    writer.close().map_err(failed)
}

fn write_errors(
    group: &mut SerializedRowGroupWriter<'_, &mut (dyn Write + Send)>,
    rows: &[Row],
) -> Result<(), FormatError> {
    let mut levels = Levels::default();
    let mut errors: Vec<ByteArray> = Vec::new();
    for row in rows {
        match row {
            Ok(_) => levels.add_null(),
            Err(error) => {
                levels.add(&[]);
                errors.push(error.as_str().into());
            }
        }
    }
    let writer = group.next_column().map_err(failed)?;
    let mut writer = writer.ok_or_else(|| FormatError::Input("the schema has too few columns".to_owned()))?;
    put::<ByteArrayType>(&mut writer, errors, &levels, false)?;
    writer.close().map_err(failed)
}

fn put<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: Vec<T::T>,
    levels: &Levels,
    is_list: bool,
) -> Result<(), FormatError> {
    let repetition = is_list.then_some(levels.repetition.as_slice());
    let written = writer.typed::<T>().write_batch(&values, Some(&levels.definition), repetition);
    written.map(|_| ()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_says_which_list_goes_on() {
        let levels = |shape: &[u64]| {
            let mut levels = Levels::default();
            levels.add(shape);
            (levels.repetition, levels.definition)
        };
        assert_eq!(levels(&[]), (vec![0], vec![1]));
        assert_eq!(levels(&[3]), (vec![0, 1, 1], vec![2; 3]));
        assert_eq!(levels(&[2, 3]), (vec![0, 2, 2, 1, 2, 2], vec![3; 6]));
        assert_eq!(levels(&[2, 1, 2]), (vec![0, 3, 1, 3], vec![4; 4]));
        assert_eq!(levels(&[0, 3]), (vec![0], vec![1]));
        assert_eq!(levels(&[2, 0]), (vec![0, 1], vec![2; 2]));
    }
}
