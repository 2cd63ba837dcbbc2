//! Weights in files other than the graph's.

use std::path::{Component, Path};

use tract_onnx::pb;

use crate::{LoadError, ModelFiles};

/// Whether a file that was not decoded may keep weights in other files: such tensors have an entry of this name.
pub(crate) fn may_have_external_data(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"location").is_some()
}

/// Whether the graph keeps weights in other files. Refuses files that lie outside the version's folder, are
/// not there, or are shorter than the graph says.
pub(crate) fn check_external_data(files: &ModelFiles, proto: &pb::ModelProto) -> Result<bool, LoadError> {
    let mut tensors = Vec::new();
    if let Some(graph) = &proto.graph {
        collect_tensors(graph, &mut tensors);
    }
    let external = tensors.into_iter().filter(|tensor| !tensor.external_data.is_empty());
    let mut any = false;
    for tensor in external {
        any = true;
        check_tensor(files, tensor).map_err(|reason| LoadError::Files {
            model: files.name.to_string(),
            reason: format!("external data of `{}`: {reason}", tensor.name),
        })?;
    }
    Ok(any)
}

fn collect_tensors<'a>(graph: &'a pb::GraphProto, found: &mut Vec<&'a pb::TensorProto>) {
    found.extend(&graph.initializer);
    for attribute in graph.node.iter().flat_map(|node| &node.attribute) {
        found.extend(attribute.t.as_ref());
        found.extend(&attribute.tensors);
        for subgraph in attribute.g.iter().chain(&attribute.graphs) {
            collect_tensors(subgraph, found);
        }
    }
}

fn check_tensor(files: &ModelFiles, tensor: &pb::TensorProto) -> Result<(), String> {
    let folder =
        files.folder().ok_or("this model has no folder of its own, so it must carry all its weights")?;
    let entry = |key: &str| tensor.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let location = entry("location").ok_or("names no location")?;
    if !Path::new(location).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return Err(format!("location `{location}` leaves the version's folder"));
    }
    let path = folder
        .join(location)
        .canonicalize()
        .map_err(|error| format!("location `{location}` cannot be opened: {error}"))?;
    let folder =
        folder.canonicalize().map_err(|error| format!("the version's folder cannot be opened: {error}"))?;
    if !path.starts_with(&folder) {
        return Err(format!("location `{location}` is a link that leaves the version's folder"));
    }
    let size = std::fs::metadata(&path).map_err(|error| format!("`{location}`: {error}"))?.len();
    let number = |key: &str| match entry(key) {
        None => Ok(0),
        Some(text) => text.parse::<u64>().map_err(|_| format!("{key} is `{text}`: expected a whole number")),
    };
    let end = number("offset")?.checked_add(number("length")?).ok_or("offset and length overflow")?;
    if end > size {
        return Err(format!("`{location}` has {size} bytes but {end} are needed: it is not complete"));
    }
    Ok(())
}
