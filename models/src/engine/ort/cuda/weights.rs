//! Weights on a device, shared by all sessions of a model.
//!
//! The runtime accepts a weight that its caller put on the device (`AddInitializer`) instead of its own, if the weight
//! is where the runtime planned it. Optimisation renames and rewrites weights, so a session that optimises shares almost
//! nothing. Therefore one session optimises the model and only writes the result. The weights of the result are copied to
//! the device, and the sessions that serve are made from the result without optimising again, all with the same tensors.
//! The result keeps all weights, because the runtime silently takes a few of them from the host.
//!
//! Not shared; the device's memory ledger measures what they take:
//! - weights below [`SHARED_BYTES_MIN`], which are shapes and scalars;
//! - weights in other files, because the file with the graph does not identify them;
//! - weights of models of more than 2 GiB, which the runtime does not write to one file;
//! - copies that kernels make of their weights in another layout.
//!
//! The runtime copies nothing and holds no reference: [`Weights`] must outlive every session made with them. The
//! wrapper crate can express that only for tensors that it allocated itself, which the runtime refuses to share; so the
//! tensors are made by the C interface.
//!
//! **\[open\]**: that the optimised file, written with copies between devices in it, loads again on the provider that
//! wrote it; that the second session takes less than a tenth of the weights. While the first session of a model is
//! made, its weights are on the device twice.

#![expect(unsafe_code, reason = "tensors at addresses of the device; each use says why it is sound")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ::ort::memory::{Allocator, MemoryInfo};
use ::ort::session::Session as OrtInner;
use ::ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ::ort::value::DynValue;
use ::ort::{AsPointer, Error, api};
use bytes::Bytes;
use oip::Datatype;
use prost::Message;
use rustix::fs::{MemfdFlags, memfd_create};
use tract_onnx::pb;

use super::binding::element_type;
use super::session::Source;
use super::staging::lay_out;
use super::stream::{CudaStream, DeviceBytes};
use super::{Cuda, fault};
use crate::{ContentHash, LoadOptions, ModelFiles, onnx};

/// Smaller weights are not shared: they are shapes, axes and scalars, which are often on the host.
pub(super) const SHARED_BYTES_MIN: usize = 4096;

/// Size of the pinned buffer through which weights are copied to the device.
const CHUNK_BYTES: usize = 8 * 1024 * 1024;

/// Weights of one device, by model. Weights that no session uses are freed.
#[derive(Default)]
pub struct SharedWeights {
    held: Mutex<HashMap<Key, Weak<Weights>>>,
}

/// What the optimised graph depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    hash: ContentHash,
    free_batch: bool,
    prefer_nhwc: bool,
    cudnn: bool,
}

/// Configures a session with a level of optimisation.
pub(super) type Configured<'a> = dyn Fn(GraphOptimizationLevel) -> Result<SessionBuilder, Error> + 'a;

impl SharedWeights {
    /// The store of a device that has no weights yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The weights of a model, copied to the device unless they are there already. `None`: they cannot be shared; the
    /// reason is logged.
    pub(super) fn of(
        &self,
        files: &ModelFiles,
        source: &Source<'_>,
        options: &LoadOptions,
        cuda: &Cuda,
        configured: &Configured<'_>,
        device: impl Fn() -> Result<MemoryInfo<'static>, Error>,
    ) -> Option<Arc<Weights>> {
        if source.folder.is_some() {
            tracing::info!(model = %files.name, "weights are not shared: they lie in other files");
            return None;
        }
        let (hash, prefer_nhwc, cudnn) = (files.hash, cuda.prefer_nhwc, cuda.cudnn);
        let key = Key { hash, free_batch: options.free_batch, prefer_nhwc, cudnn };
        // Locked while the weights are copied: otherwise two sessions that load at once would both copy them.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weights) = held.get(&key).and_then(Weak::upgrade) {
            return Some(weights);
        }
        held.retain(|_, weights| weights.strong_count() > 0);
        let made = device()
            .map_err(|error| fault::in_short(error.message()))
            .and_then(|device| Weights::make(source, cuda.stream.as_ref(), configured, &device));
        match made {
            Ok(weights) => {
                let weights = Arc::new(weights);
                held.insert(key, Arc::downgrade(&weights));
                Some(weights)
            }
            Err(reason) => {
                tracing::warn!(model = %files.name, reason, "weights are not shared");
                None
            }
        }
    }
}

/// An optimised model and its weights on a device. Outlives every session made with it. Fields drop in this order.
pub(super) struct Weights {
    tensors: Vec<(String, Arc<DynValue>)>,
    _memory: Box<dyn DeviceBytes>,
    model: Bytes,
}

impl Weights {
    fn make(
        source: &Source<'_>,
        stream: &dyn CudaStream,
        configured: &Configured<'_>,
        device: &MemoryInfo<'static>,
    ) -> Result<Self, String> {
        let model = optimised(source, configured)?;
        let proto = pb::ModelProto::decode(model.as_ref())
            .map_err(|error| format!("the optimised model cannot be read: {error}"))?;
        let graph = proto.graph.ok_or("the optimised model has no graph")?;
        let given: Vec<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
        // A weight that is also an input may be given by a request: no two sessions then have the same.
        let weights = graph.initializer.iter().filter(|weight| !given.contains(&weight.name.as_str()));
        let weights: Vec<(&pb::TensorProto, Vec<u8>)> = weights
            .filter_map(|weight| Some((weight, elements(weight)?)))
            .filter(|(_, bytes)| bytes.len() >= SHARED_BYTES_MIN)
            .collect();
        let too_large = "the weights are larger than memory can be";
        let (places, length) = lay_out(weights.iter().map(|(_, bytes)| bytes.len())).ok_or(too_large)?;
        if length == 0 {
            return Err(format!("no weight has {SHARED_BYTES_MIN} bytes or more"));
        }
        let memory = stream.device_bytes(length).map_err(|said| said.to_string())?;
        let blocks = weights.iter().zip(&places).map(|((_, bytes), place)| (bytes.as_slice(), place));
        send(stream, memory.as_ref(), blocks)?;
        let tensors = weights.iter().zip(places).map(|((weight, _), place)| {
            let tensor = tensor_at(memory.as_ref(), place, weight, device)
                .map_err(|error| format!("weight `{}`: {}", weight.name, fault::in_short(error.message())))?;
            Ok((weight.name.clone(), Arc::new(tensor)))
        });
        let tensors = tensors.collect::<Result<_, String>>()?;
        Ok(Self { tensors, _memory: memory, model })
    }

    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self._memory.address()
    }

    /// Makes a session of the optimised model with these weights. It must end before they do.
    pub(super) fn commit(&self, builder: SessionBuilder) -> Result<OrtInner, Error> {
        let mut builder = builder;
        for (name, tensor) in &self.tensors {
            builder = builder.with_initializer(name, Arc::clone(tensor))?;
        }
        builder.commit_from_memory(&self.model)
    }
}

/// The model after the runtime has optimised it for this device.
fn optimised(source: &Source<'_>, configured: &Configured<'_>) -> Result<Bytes, String> {
    let written = memfd_create("optimised.onnx", MemfdFlags::CLOEXEC).map_err(|error| error.to_string())?;
    let path = format!("/proc/self/fd/{}", written.as_raw_fd());
    // Higher levels make the result specific to the vector width of one processor.
    let session = configured(GraphOptimizationLevel::Level2)
        .and_then(|builder| Ok(builder.with_optimized_model_path(path)?))
        .and_then(|builder| source.commit(builder))
        .map_err(|error| fault::in_short(error.message()))?;
    drop(session);
    let mut model = Vec::new();
    let mut written = File::from(written);
    written.rewind().and_then(|()| written.read_to_end(&mut model)).map_err(|error| error.to_string())?;
    if model.is_empty() {
        return Err("the runtime wrote no optimised model".to_owned());
    }
    Ok(model.into())
}

/// The elements of a weight as in memory. `None`: they are in another file, or their type is not shared.
fn elements(weight: &pb::TensorProto) -> Option<Vec<u8>> {
    if !weight.external_data.is_empty() {
        return None;
    }
    let datatype = shared_type(weight)?;
    let size = datatype.size()?;
    let count =
        weight.dims.iter().try_fold(1_usize, |all, dim| all.checked_mul(usize::try_from(*dim).ok()?))?;
    let bytes: Vec<u8> = match datatype {
        _ if !weight.raw_data.is_empty() => weight.raw_data.clone(),
        Datatype::Fp32 => weight.float_data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        _ => return None,
    };
    (count.checked_mul(size) == Some(bytes.len())).then_some(bytes)
}

/// The datatype of a weight; `None`: weights of this type are not shared.
fn shared_type(weight: &pb::TensorProto) -> Option<Datatype> {
    use Datatype::{Bf16, Fp16, Fp32, Fp64, Int8, Int32, Int64, Uint8};
    let datatype = onnx::datatype(weight.data_type).ok()?;
    matches!(datatype, Fp16 | Bf16 | Fp32 | Fp64 | Int8 | Uint8 | Int32 | Int64).then_some(datatype)
}

/// Copies blocks to their places on the device.
fn send<'a>(
    stream: &dyn CudaStream,
    memory: &dyn DeviceBytes,
    blocks: impl Iterator<Item = (&'a [u8], &'a Range<usize>)>,
) -> Result<(), String> {
    let mut pinned = stream.host_bytes(CHUNK_BYTES).map_err(|said| said.to_string())?;
    for (bytes, place) in blocks {
        let mut begin = place.start;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let end = begin.saturating_add(chunk.len());
            let (Some(block), true) = (pinned.bytes_mut().get_mut(..chunk.len()), end <= memory.length())
            else {
                return Err("a weight has no place on the device".to_owned());
            };
            block.copy_from_slice(chunk);
            // SAFETY: the place ends within the memory, and both are left alone until the wait below.
            let sent = unsafe { stream.copy_in(block, memory.address() + begin) };
            sent.and(stream.wait()).map_err(|said| said.to_string())?;
            begin = end;
        }
    }
    Ok(())
}

/// A tensor on memory that it does not own.
fn tensor_at(
    memory: &dyn DeviceBytes,
    place: Range<usize>,
    weight: &pb::TensorProto,
    device: &MemoryInfo<'static>,
) -> Result<DynValue, Error> {
    let mut value = ptr::null_mut();
    let address = ptr::without_provenance_mut::<std::ffi::c_void>(memory.address() + place.start);
    let element = shared_type(weight).ok_or_else(|| Error::new("its type is not shared"))?;
    // SAFETY: `send` put that many bytes there, which stay as long as `Weights`; the shape is read at once.
    let status = unsafe {
        (api().CreateTensorWithDataAsOrtValue)(
            device.ptr(),
            address,
            place.len(),
            weight.dims.as_ptr(),
            weight.dims.len(),
            element_type(element).into(),
            &raw mut value,
        )
    };
    // SAFETY: the status comes from the call just made.
    unsafe { Error::result_from_status(status) }?;
    let value = NonNull::new(value).ok_or_else(|| Error::new("the runtime made no tensor"))?;
    // SAFETY: no other owner of the tensor exists. It owns no memory, so its nominal allocator never frees any.
    Ok(unsafe { DynValue::from_ptr(value, Some(&Allocator::default())) })
}
