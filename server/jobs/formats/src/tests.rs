//! What one end writes, the other reads.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};

use oip::{Datatype, Shape, Tensor};

use super::*;

fn tensor(name: &str, datatype: Datatype, shape: &[u64], data: Vec<u8>) -> Tensor {
    Tensor { name: name.to_owned(), datatype, shape: Shape::from_extents(shape), data: data.into() }
}

fn floats(name: &str, shape: &[u64], first: f32) -> Tensor {
    let count: u64 = shape.iter().product();
    let data = (0..count).flat_map(|index| (first + index as f32).to_le_bytes()).collect();
    tensor(name, Datatype::Fp32, shape, data)
}

fn texts(name: &str, texts: &[&str]) -> Tensor {
    let mut data = Vec::new();
    for text in texts {
        data.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
        data.extend_from_slice(text.as_bytes());
    }
    tensor(name, Datatype::Bytes, &[texts.len() as u64], data)
}

fn written(format: Format, rows: &[record::Row]) -> File {
    let records: Vec<u8> = rows.iter().flat_map(|row| record::encode(row.clone()).unwrap()).collect();
    let columns: Vec<Column> = rows.iter().flatten().next().unwrap().iter().map(Column::from).collect();
    let open = || Ok(Box::new(io::Cursor::new(records.clone())) as Box<dyn Read + Send>);
    let mut file = tempfile::tempfile().unwrap();
    write(format, &columns, rows.len() as u64, &open, &mut file).unwrap();
    file.rewind().unwrap();
    file
}

fn read_all(file: &File, format: Format) -> Result<Vec<Vec<Tensor>>, String> {
    let mut rows = Vec::new();
    let read = read(file, format, 1 << 20, &mut |row| {
        rows.push(row);
        Ok(())
    });
    read.map(|()| rows).map_err(|error| error.to_string())
}

#[test]
fn arrays_by_name_come_back() {
    let rows: Vec<record::Row> = (0..300_u16)
        .map(|row| {
            let doubles = tensor("y", Datatype::Int64, &[], i64::from(row).to_le_bytes().to_vec());
            Ok(vec![floats("x", &[2, 3], f32::from(row)), doubles])
        })
        .collect();
    let expected: Vec<Vec<Tensor>> = rows.iter().cloned().map(Result::unwrap).collect();
    assert_eq!(read_all(&written(Format::Npz, &rows), Format::Npz), Ok(expected));
}

#[test]
fn one_array_comes_back_without_its_name() {
    let rows: Vec<record::Row> = (0..5_u8).map(|row| Ok(vec![floats("x", &[4], f32::from(row))])).collect();
    let read = read_all(&written(Format::Npy, &rows), Format::Npy).unwrap();
    assert_eq!(read.len(), 5);
    assert_eq!(read[3], vec![floats("", &[4], 3.0)]);
}

#[test]
fn columns_of_every_type_come_back_and_errors_have_their_column() {
    let row = |first: u8| {
        let mut row = vec![floats("matrix", &[2, 2], f32::from(first)), texts("texts", &["é", "", "c"])];
        row.extend(Datatype::ALL.iter().filter_map(|datatype| {
            let halves = [Datatype::Fp16, Datatype::Bf16].contains(datatype);
            let size = datatype.size().filter(|_| !halves)?;
            let mut data = vec![0; size];
            data[0] = if *datatype == Datatype::Bool { 1 } else { first };
            Some(tensor(datatype.as_str(), *datatype, &[], data))
        }));
        row
    };
    // Lists of other lengths, as long as there are as many dimensions.
    let mut longer = row(9);
    longer[0] = floats("matrix", &[1, 5], 7.0);
    let rows = vec![Ok(row(1)), Err("too long".to_owned()), Ok(longer.clone()), Ok(row(200))];
    let read = read_all(&written(Format::Parquet, &rows), Format::Parquet).unwrap();
    assert_eq!(read.len(), 4);
    assert_eq!(read[0], row(1));
    assert_eq!(read[1], vec![tensor("error", Datatype::Bytes, &[], b"\x08\0\0\0too long".to_vec())]);
    assert_eq!(read[2], longer);
    assert_eq!(read[3], row(200));
}

#[test]
fn files_that_are_something_else_are_refused_and_nothing_panics() {
    let rows: Vec<record::Row> = (0..50_u8).map(|row| Ok(vec![floats("x", &[2], f32::from(row))])).collect();
    for format in [Format::Npy, Format::Npz, Format::Parquet] {
        let mut whole = Vec::new();
        written(format, &rows).read_to_end(&mut whole).unwrap();
        let try_bytes = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.rewind().unwrap();
            read_all(&file, format)
        };
        assert_eq!(try_bytes(&whole).unwrap().len(), 50);
        for length in 0..whole.len() {
            assert!(try_bytes(&whole[..length]).is_err(), "{format}: {length} of {} bytes", whole.len());
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x41;
            let _ = try_bytes(&damaged);
        }
    }
}

#[test]
fn arrays_that_do_not_belong_together_are_named() {
    let npy = |rows, shape: &[u64], bytes: usize| {
        [array::header(Datatype::Uint8, rows, shape).unwrap(), vec![0; bytes]].concat()
    };
    let npz = |members: &[(&str, Vec<u8>)]| {
        let mut archive = zip::ZipWriter::new(tempfile::tempfile().unwrap());
        for (name, bytes) in members {
            archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(bytes).unwrap();
        }
        let mut file = archive.finish().unwrap();
        file.rewind().unwrap();
        read_all(&file, Format::Npz)
    };
    let (two, three) = (npy(2, &[4], 8), npy(3, &[4], 12));
    assert_eq!(npz(&[("a.npy", two.clone()), ("b.npy", two.clone())]).unwrap().len(), 2);
    let told = npz(&[("a.npy", two.clone()), ("b.npy", three)]).unwrap_err();
    assert_eq!(told, "array `b` has 3 rows, and array `a` 2: expected the same number");
    assert!(npz(&[]).unwrap_err().contains("has no arrays"));
    assert!(npz(&[("a.npy", npy(2, &[0], 0))]).unwrap_err().contains("no elements or too many"));
    assert!(npz(&[("a.npy", npy(2, &[u64::MAX, 3], 0))]).unwrap_err().contains("no elements or too many"));
    assert!(
        npz(&[("a.npy", npy(2, &[2 << 20], 0))]).unwrap_err().contains("at most 1048576 (`limits.body`)")
    );
}
