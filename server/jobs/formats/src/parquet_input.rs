//! Rows of Parquet files.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::BytesMut;
use oip::binary::push_element;
use oip::{Datatype, Shape, Tensor};
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use crate::FormatError;

const TOO_LONG: &str = "has a text of 4 GiB or more";
/// Bytes of a file's metadata, at most: they are decoded at once.
const METADATA_BYTES_MAX: u32 = 32 << 20;

fn wrong(what: impl Into<String>) -> FormatError {
    FormatError::Input(what.into())
}

fn damaged(error: ParquetError) -> FormatError {
    wrong(format!("expected a Parquet file: {error}"))
}

/// The library panics at some damaged files, and clients send these.
fn caught<T>(call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, FormatError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(damaged),
        Err(_) => Err(wrong("expected a Parquet file: its metadata do not fit together")),
    }
}

pub(crate) fn read(
    file: &File,
    row_max: usize,
    each: &mut dyn FnMut(Vec<Tensor>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    check_metadata(file)?;
    let file = file.try_clone()?;
    let reader = caught(|| SerializedFileReader::new(file))?;
    let datatypes = datatypes(reader.metadata().file_metadata().schema_descr())?;
    let mut rows = caught(|| reader.get_row_iter(None))?;
    for number in 0_u64.. {
        let Some(row) = caught(|| rows.next().transpose())? else { break };
        let mut tensors = Vec::new();
        for (name, field) in row.into_columns() {
            // A value that is not there is an input that is not there.
            if matches!(field, Field::Null) {
                continue;
            }
            let told = |what: &str| wrong(format!("row {number}, column `{name}`: {what}"));
            let datatype = datatypes.get(&name).copied().ok_or_else(|| told("is not in the schema"))?;
            let mut values = Values { datatype, shape: Vec::new(), data: BytesMut::new() };
            values.add(&field, 0).map_err(told)?;
            if values.data.len() > row_max {
                return Err(told(&format!("expected at most {row_max} bytes (`limits.body`)")));
            }
            tensors.push(values.tensor(name));
        }
        each(tensors)?;
    }
    Ok(())
}

/// The length of the metadata stands in front of the last four bytes (Parquet format, "File format").
fn check_metadata(file: &File) -> Result<(), FormatError> {
    let mut end = [0; 8];
    let from = file.metadata()?.len().checked_sub(end.len() as u64);
    let from = from.ok_or_else(|| wrong("expected a Parquet file: it is too short"))?;
    file.read_exact_at(&mut end, from)?;
    let [length @ .., b'P', b'A', b'R', b'1'] = end else {
        return Err(wrong("expected a Parquet file: it does not end as one"));
    };
    let length = u32::from_le_bytes(length);
    if length > METADATA_BYTES_MAX {
        return Err(wrong(format!(
            "the file has {length} bytes of metadata: expected at most {METADATA_BYTES_MAX}, in fewer columns or row groups"
        )));
    }
    Ok(())
}

/// The datatype of each column. Columns that are no tensors are refused here: the library panics at some of their values.
fn datatypes(schema: &SchemaDescriptor) -> Result<BTreeMap<String, Datatype>, FormatError> {
    let mut datatypes = BTreeMap::new();
    for column in schema.columns() {
        let name = column.path().parts().first().cloned().unwrap_or_default();
        let told = |what: String| wrong(format!("column `{name}`: {what}"));
        let datatype = datatype(column).ok_or_else(|| {
            let (physical, meaning) = (column.physical_type(), column.converted_type());
            let found =
                if meaning == ConvertedType::NONE { physical.to_string() } else { meaning.to_string() };
            told(format!("has values of type {found}: expected numbers, booleans, text or lists of these"))
        })?;
        if usize::try_from(column.max_rep_level()).is_ok_and(|levels| levels > Shape::MAX_RANK) {
            return Err(told(format!("expected at most {} lists inside each other", Shape::MAX_RANK)));
        }
        if datatypes.insert(name.clone(), datatype).is_some() {
            return Err(told("has fields: expected numbers, booleans, text or lists of these".to_owned()));
        }
    }
    Ok(datatypes)
}

fn datatype(column: &ColumnDescriptor) -> Option<Datatype> {
    use ConvertedType as Meaning;
    Some(match (column.physical_type(), column.converted_type()) {
        (Physical::BOOLEAN, Meaning::NONE) => Datatype::Bool,
        (Physical::INT32, Meaning::INT_8) => Datatype::Int8,
        (Physical::INT32, Meaning::INT_16) => Datatype::Int16,
        (Physical::INT32, Meaning::INT_32 | Meaning::NONE) => Datatype::Int32,
        (Physical::INT32, Meaning::UINT_8) => Datatype::Uint8,
        (Physical::INT32, Meaning::UINT_16) => Datatype::Uint16,
        (Physical::INT32, Meaning::UINT_32) => Datatype::Uint32,
        (Physical::INT64, Meaning::INT_64 | Meaning::NONE) => Datatype::Int64,
        (Physical::INT64, Meaning::UINT_64) => Datatype::Uint64,
        (Physical::FLOAT, Meaning::NONE) => Datatype::Fp32,
        (Physical::DOUBLE, Meaning::NONE) => Datatype::Fp64,
        (Physical::BYTE_ARRAY, Meaning::UTF8 | Meaning::NONE | Meaning::ENUM | Meaning::JSON) => {
            Datatype::Bytes
        }
        (Physical::FIXED_LEN_BYTE_ARRAY, Meaning::NONE)
            if column.logical_type_ref() == Some(&LogicalType::Float16) =>
        {
            Datatype::Fp16
        }
        _ => return None,
    })
}

/// Values of one column in one row.
struct Values {
    datatype: Datatype,
    /// Extents of the lists around each other, as far as they were seen.
    shape: Vec<u64>,
    data: BytesMut,
}

impl Values {
    fn tensor(self, name: String) -> Tensor {
        let shape = Shape::from_extents(&self.shape);
        Tensor { name, datatype: self.datatype, shape, data: self.data.freeze() }
    }

    fn add(&mut self, field: &Field, depth: usize) -> Result<(), &'static str> {
        let data = &mut self.data;
        match (field, self.datatype) {
            (Field::ListInternal(list), _) => {
                let extent = list.len() as u64;
                match self.shape.get(depth) {
                    None => self.shape.push(extent),
                    Some(before) if *before == extent => {}
                    Some(_) => return Err("has lists of different lengths inside of one list"),
                }
                return list.elements().iter().try_for_each(|element| self.add(element, depth + 1));
            }
            (Field::Bool(value), Datatype::Bool) => data.extend_from_slice(&[u8::from(*value)]),
            (Field::Byte(value), Datatype::Int8) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::Short(value), Datatype::Int16) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::Int(value), Datatype::Int32) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::Long(value), Datatype::Int64) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::UByte(value), Datatype::Uint8) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::UShort(value), Datatype::Uint16) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::UInt(value), Datatype::Uint32) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::ULong(value), Datatype::Uint64) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::Float16(value), Datatype::Fp16) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::Float(value), Datatype::Fp32) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::Double(value), Datatype::Fp64) => data.extend_from_slice(&value.to_le_bytes()),
            (Field::Str(text), Datatype::Bytes) => {
                push_element(data, text.as_bytes()).map_err(|_| TOO_LONG)?
            }
            (Field::Bytes(text), Datatype::Bytes) => push_element(data, text.data()).map_err(|_| TOO_LONG)?,
            (Field::Null, _) => return Err("has an empty value inside of a list"),
            _ => return Err("has a value that is not of the column's type"),
        }
        if self.shape.len() == depth { Ok(()) } else { Err("has values and lists inside of one list") }
    }
}
