//! Weights of an optimised graph in one read-only block.

#![expect(unsafe_code, reason = "tensors in a block that they do not own; each use says why it is sound")]

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ::ort::memory::{Allocator, MemoryInfo};
use ::ort::value::DynValue;
use ::ort::{AsPointer, Error, api};
use memmap2::{Mmap, MmapMut};
use oip::Datatype;
use tract_onnx::pb;

use super::super::cuda::{element_type, lay_out};
use super::NO_WEIGHTS;
use crate::onnx;

/// Tensors of weights by name, and the block in which they lie. Fields drop in this order.
pub(super) struct Weights {
    tensors: Vec<(String, Arc<DynValue>)>,
    block: Option<Mmap>,
}

/// Where a weight lies in the file that the runtime wrote.
struct Written {
    name: String,
    dims: Vec<i64>,
    datatype: Datatype,
    offset: u64,
    length: usize,
}

impl Weights {
    /// Moves the weights of a graph and of its subgraphs from a file to a block. The graph then refers to no file for them.
    /// Weights that cannot be shared become part of the graph.
    ///
    /// # Errors
    /// What is wrong with the graph or the file.
    pub fn taken_from(graph: &mut pb::GraphProto, file: &File) -> Result<Self, String> {
        let mut names = BTreeMap::new();
        count_names(graph, &mut names);
        let mut written = Vec::new();
        take(graph, file, &|name| names.get(name) == Some(&1), &mut written)?;
        let too_large = "the weights are larger than memory can be";
        let (places, length) = lay_out(written.iter().map(|weight| weight.length)).ok_or(too_large)?;
        if length == 0 {
            return Ok(Self { tensors: Vec::new(), block: None });
        }
        let mut block =
            MmapMut::map_anon(length).map_err(|error| format!("no memory for weights: {error}"))?;
        for (weight, place) in written.iter().zip(&places) {
            let target = block.get_mut(place.clone()).ok_or(too_large)?;
            file.read_exact_at(target, weight.offset)
                .map_err(|error| format!("weight `{}` cannot be read: {error}", weight.name))?;
        }
        let block = block.make_read_only().map_err(|error| format!("weights stay writable: {error}"))?;
        let tensors = written.into_iter().zip(places).map(|(weight, place)| {
            let tensor = tensor_at(&block, place, &weight)
                .map_err(|error| format!("weight `{}`: {}", weight.name, error.message()))?;
            Ok((weight.name, Arc::new(tensor)))
        });
        let tensors = tensors.collect::<Result<_, String>>()?;
        Ok(Self { tensors, block: Some(block) })
    }

    /// The tensors by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Arc<DynValue>)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Bytes of the block.
    pub fn bytes(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len())
    }
}

fn subgraphs(graph: &mut pb::GraphProto) -> impl Iterator<Item = &mut pb::GraphProto> {
    let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    attributes.flat_map(|attribute| attribute.g.iter_mut().chain(&mut attribute.graphs))
}

/// Counts weights of a name in a graph and its subgraphs: sessions are given weights by name alone.
fn count_names(graph: &mut pb::GraphProto, names: &mut BTreeMap<String, u32>) {
    for weight in &graph.initializer {
        *names.entry(weight.name.clone()).or_default() += 1;
    }
    for subgraph in subgraphs(graph) {
        count_names(subgraph, names);
    }
}

fn take(
    graph: &mut pb::GraphProto,
    file: &File,
    is_unique: &dyn Fn(&str) -> bool,
    taken: &mut Vec<Written>,
) -> Result<(), String> {
    // An input may be given by a request instead of its weight. An output is returned where it lies, and may outlive the block.
    let given: HashSet<String> =
        graph.input.iter().chain(&graph.output).map(|tensor| tensor.name.clone()).collect();
    for weight in &mut graph.initializer {
        if weight.external_data.is_empty() {
            continue;
        }
        let refuse = |reason: &str| format!("weight `{}`: {reason}", weight.name);
        let (offset, length) = extent(weight).ok_or_else(|| refuse("lies at no valid place"))?;
        let datatype = shared_type(weight, length);
        match datatype.filter(|_| is_unique(&weight.name) && !given.contains(&weight.name)) {
            Some(datatype) => {
                let (name, dims) = (weight.name.clone(), weight.dims.clone());
                taken.push(Written { name, dims, datatype, offset, length });
                refer_to_nothing(weight);
            }
            None => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset).map_err(|error| refuse(&error.to_string()))?;
                weight.raw_data = bytes;
                weight.external_data.clear();
                weight.data_location = None;
            }
        }
    }
    for subgraph in subgraphs(graph) {
        take(subgraph, file, is_unique, taken)?;
    }
    Ok(())
}

/// Offset and length of a weight in its file.
fn extent(weight: &pb::TensorProto) -> Option<(u64, usize)> {
    let entry =
        |key: &str| weight.external_data.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
    let offset = entry("offset").map_or(Some(0), |offset| offset.parse().ok())?;
    Some((offset, entry("length")?.parse().ok()?))
}

fn refer_to_nothing(weight: &mut pb::TensorProto) {
    for entry in &mut weight.external_data {
        match entry.key.as_str() {
            "location" => NO_WEIGHTS.1.clone_into(&mut entry.value),
            "offset" => "0".clone_into(&mut entry.value),
            _ => {}
        }
    }
}

/// The datatype of a weight of this many bytes; `None`: it is not shared.
fn shared_type(weight: &pb::TensorProto, length: usize) -> Option<Datatype> {
    let datatype = onnx::datatype(weight.data_type).ok().filter(|datatype| *datatype != Datatype::Bytes)?;
    let extents = weight.dims.iter().map(|dim| usize::try_from(*dim).ok());
    let count = extents.into_iter().try_fold(1_usize, |all, dim| all.checked_mul(dim?))?;
    (count.checked_mul(datatype.size()?) == Some(length)).then_some(datatype)
}

/// A tensor in the block, which it does not own.
fn tensor_at(block: &Mmap, place: Range<usize>, weight: &Written) -> Result<DynValue, Error> {
    let bytes = block.get(place).ok_or_else(|| Error::new("lies outside of its block"))?;
    let mut value = ptr::null_mut();
    let memory = MemoryInfo::default();
    // SAFETY: the bytes stay where they are until `Weights` is dropped, after all sessions and the tensor itself. The runtime
    // does not write to weights. The shape is read at once, and its elements were checked to take these bytes.
    let status = unsafe {
        (api().CreateTensorWithDataAsOrtValue)(
            memory.ptr(),
            bytes.as_ptr().cast_mut().cast(),
            bytes.len(),
            weight.dims.as_ptr(),
            weight.dims.len(),
            element_type(weight.datatype).into(),
            &raw mut value,
        )
    };
    // SAFETY: the status comes from the call just made.
    unsafe { Error::result_from_status(status) }?;
    let value = NonNull::new(value).ok_or_else(|| Error::new("the runtime made no tensor"))?;
    // SAFETY: no other owner of the tensor exists. It owns no memory, so its nominal allocator never frees any.
    Ok(unsafe { DynValue::from_ptr(value, Some(&Allocator::default())) })
}
