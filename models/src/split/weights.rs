//! Weights of stages: how large they are, and copies of those in other files.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use model_split::Stage;
use tract_onnx::pb;
use tract_onnx::pb::tensor_proto::DataType;

use crate::onnx::constant_shapes;

/// The file of a stage's weights, next to `model.onnx`, if the model keeps them in other files.
const DATA_FILE: &str = "model.onnx.data";

/// Where the weights of a tensor begin: engines map files by pages.
const ALIGNMENT: u64 = 4096;

/// Bytes of the weights of a stage, and of constants that its nodes make.
pub(super) fn bytes(body: &pb::GraphProto, stage: &Stage) -> u64 {
    let constants = body.initializer.iter().filter(|tensor| stage.constants.contains(&tensor.name));
    let dense = constants.map(|tensor| data_bytes(tensor.data_type, &tensor.dims));
    let shapes = constant_shapes(body);
    let nodes = stage.nodes.iter().filter_map(|&index| body.node.get(index)).map(|node| {
        let attributes = node.attribute.iter();
        match node.op_type.as_str() {
            "Constant" => {
                let values = attributes.filter_map(|attribute| attribute.t.as_ref());
                values.map(|tensor| data_bytes(tensor.data_type, &tensor.dims)).fold(0, u64::saturating_add)
            }
            "ConstantOfShape" => {
                let element = attributes.filter_map(|attribute| attribute.t.as_ref()).next();
                let element = element.map_or(DataType::Float as i32, |tensor| tensor.data_type);
                let shape = node.input.first().and_then(|name| shapes.get(name));
                shape.map_or(0, |dims| data_bytes(element, dims))
            }
            _ => 0,
        }
    });
    dense.chain(nodes).fold(0, u64::saturating_add)
}

fn data_bytes(element: i32, dims: &[i64]) -> u64 {
    let extents = dims.iter().map(|dim| u64::try_from(*dim).unwrap_or(0));
    let count = extents.fold(1, u64::saturating_mul);
    count.saturating_mul(element_bits(element)).div_ceil(8)
}

fn element_bits(element: i32) -> u64 {
    match DataType::try_from(element) {
        Ok(DataType::Double | DataType::Int64 | DataType::Uint64 | DataType::Complex64) => 64,
        Ok(DataType::Complex128) => 128,
        Ok(DataType::Float | DataType::Int32 | DataType::Uint32) => 32,
        Ok(DataType::Float16 | DataType::Bfloat16 | DataType::Int16 | DataType::Uint16) => 16,
        _ => 8,
    }
}

/// Copies weights that a stage has in other files of `from` into one file of `to`, and lets the stage refer to that.
///
/// # Errors
/// A file and the error of the operating system.
pub(super) fn move_external_data(
    proto: &mut pb::ModelProto,
    from: Option<&Path>,
    to: &Path,
) -> Result<(), (String, io::Error)> {
    let (Some(from), Some(body)) = (from, &mut proto.graph) else { return Ok(()) };
    let path = to.join(DATA_FILE);
    let mut data = None;
    let mut end = 0;
    visit(body, &mut |tensor| {
        if tensor.external_data.is_empty() {
            return Ok(());
        }
        let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key);
        let source = from.join(entry("location").map_or("", |entry| entry.value.as_str()));
        let number = |key: &str| entry(key).and_then(|entry| entry.value.parse::<u64>().ok());
        let (offset, length) = (number("offset").unwrap_or(0), number("length"));
        let length = length.unwrap_or_else(|| data_bytes(tensor.data_type, &tensor.dims));
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error| (path, error)
        };
        let file = match &mut data {
            Some(file) => file,
            None => data.insert(File::create(&path).map_err(failed(&path))?),
        };
        let begin = u64::next_multiple_of(end, ALIGNMENT);
        copy((&source, offset), length, file, begin).map_err(failed(&source))?;
        end = begin.saturating_add(length);
        tensor.external_data = [
            ("location", DATA_FILE.to_owned()),
            ("offset", begin.to_string()),
            ("length", length.to_string()),
        ]
        .map(|(key, value)| pb::StringStringEntryProto { key: key.to_owned(), value })
        .to_vec();
        Ok(())
    })
}

/// Copies a part of a file to a place in another one. Fails if the part is not all there.
fn copy((source, offset): (&Path, u64), length: u64, target: &mut File, begin: u64) -> io::Result<()> {
    let mut source = File::open(source)?;
    source.seek(SeekFrom::Start(offset))?;
    target.seek(SeekFrom::Start(begin))?;
    let copied = io::copy(&mut source.take(length), target)?;
    if copied < length {
        return Err(io::Error::other(format!(
            "has {copied} bytes of a tensor of {length}: it is not complete"
        )));
    }
    target.flush()
}

/// Calls a function for every tensor with data, also in attributes and subgraphs.
fn visit<E>(
    body: &mut pb::GraphProto,
    each: &mut impl FnMut(&mut pb::TensorProto) -> Result<(), E>,
) -> Result<(), E> {
    body.initializer.iter_mut().try_for_each(&mut *each)?;
    for attribute in body.node.iter_mut().flat_map(|node| &mut node.attribute) {
        attribute.t.iter_mut().chain(&mut attribute.tensors).try_for_each(&mut *each)?;
        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            visit(graph, each)?;
        }
    }
    Ok(())
}
