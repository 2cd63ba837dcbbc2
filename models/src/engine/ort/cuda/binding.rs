//! A session's inputs and outputs, bound to memory of its device.

#![expect(
    unsafe_code,
    reason = "copies between addresses that the runtime and the driver give; each says why it is sound"
)]

use std::ops::Range;

use ::ort::Error;
use ::ort::memory::{Allocator, MemoryInfo};
use ::ort::session::{IoBinding, RunOptions, Session as OrtInner};
use ::ort::value::{DynTensor, DynTensorValueType, TensorElementType};
use bytes::Bytes;
use oip::{Datatype, Shape, Tensor};

use super::placement::{self, Place};
use super::recording::Recorded;
use super::staging::{Staging, lay_out};
use super::stream::{CudaFault, CudaStream};
use crate::engine::Batch;
use crate::{Signature, TensorSpec};

/// Why a batch did not run.
pub(super) enum Refused {
    /// A tensor of the request does not match the signature.
    Input(String),
    /// The runtime rejected the binding. Nothing ran.
    Binding(Error),
    /// The run failed.
    Run(Error),
    /// The gpulet's stream or memory failed.
    Fault(CudaFault),
}

/// Where the runtime places a session's tensors.
pub(super) struct Places {
    pub inputs: Vec<Place>,
    pub outputs: Vec<Place>,
    /// The device's memory as the runtime names it.
    pub device: MemoryInfo<'static>,
}

impl Places {
    /// Reads the places from a session. `device` is the memory of its device.
    pub fn of(session: &OrtInner, device: MemoryInfo<'static>) -> Result<Self, Error> {
        Ok(Self { inputs: placement::inputs(session)?, outputs: placement::outputs(session)?, device })
    }
}

struct Input {
    place: Place,
    /// The bound tensor. It is reused while batches have the same shape.
    bound: Option<DynTensor>,
}

/// An output after a run.
pub(super) struct Left {
    value: DynTensor,
    shape: Shape,
    length: usize,
    /// Where its bytes are copied to, if it is on the device.
    copied: Option<Range<usize>>,
}

/// The binding of one session. Drop it before the session, and only when no work is in flight.
pub(super) struct Binding {
    /// Runs that are enqueued with one call. They use memory of the session.
    pub(super) recorded: Vec<Recorded>,
    io: IoBinding,
    inputs: Vec<Input>,
    outputs: Vec<Place>,
    on_device: Allocator,
    on_host: Allocator,
    device: MemoryInfo<'static>,
    host: MemoryInfo<'static>,
    inward: Staging,
    outward: Staging,
}

impl Binding {
    /// Binds a session whose tensors all have elements of a fixed size.
    pub fn new(session: &OrtInner, places: Places) -> Result<Self, Error> {
        let Places { inputs, outputs, device } = places;
        Ok(Self {
            recorded: Vec::new(),
            io: session.create_binding()?,
            inputs: inputs.into_iter().map(|place| Input { place, bound: None }).collect(),
            outputs,
            on_device: Allocator::new(session, device.clone())?,
            on_host: Allocator::default(),
            device,
            host: MemoryInfo::default(),
            inward: Staging::default(),
            outward: Staging::default(),
        })
    }

    /// Runs a batch, and returns after all of its work has finished.
    pub fn run(
        &mut self,
        session: &mut OrtInner,
        stream: &dyn CudaStream,
        batch: &Batch,
        signature: &Signature,
        options: &RunOptions,
    ) -> Result<Vec<Tensor>, Refused> {
        let tensors = fitting_all(batch, signature, self.inputs.len())?;
        if let Some(place) = self.recorded.iter().position(|recorded| recorded.fits(&tensors)) {
            let mut recorded = self.recorded.swap_remove(place);
            let done = self.replay(&mut recorded, stream, &tensors);
            let outputs = self.after_wait(done, stream.wait(), &recorded.outputs, signature);
            self.recorded.push(recorded);
            return outputs;
        }
        let mut left = Vec::new();
        let done = self
            .enter(stream, &tensors, signature)
            .and_then(|()| self.execute(session, signature, options))
            .and_then(|made| {
                left = made;
                self.leave(stream, &mut left)
            });
        let outputs = self.after_wait(done, stream.wait(), &left, signature);
        self.io.clear_outputs();
        outputs
    }

    /// The outputs, or why the run failed. The outputs and both blocks are accessed by copies until `waited` was returned,
    /// whatever happened before.
    fn after_wait(
        &self,
        done: Result<(), Refused>,
        waited: Result<(), CudaFault>,
        left: &[Left],
        signature: &Signature,
    ) -> Result<Vec<Tensor>, Refused> {
        match (done, waited) {
            (Ok(()), Ok(())) => Ok(self.collect(left, signature)),
            (Err(Refused::Input(_) | Refused::Binding(_) | Refused::Run(_)), Err(fault)) if fault.sticky => {
                Err(Refused::Fault(fault))
            }
            (Err(refused), _) => Err(refused),
            (Ok(()), Err(fault)) => Err(Refused::Fault(fault)),
        }
    }

    /// Records the run of a batch of the same shapes as the last one.
    ///
    /// # Errors
    /// Why it cannot be recorded.
    pub fn record(
        &mut self,
        session: &mut OrtInner,
        stream: &dyn CudaStream,
        signature: &Signature,
        options: &RunOptions,
    ) -> Result<(), Refused> {
        let mut places = self.inputs.iter().map(|input| input.place).chain(self.outputs.iter().copied());
        if places.any(|place| place == Place::Host) {
            return Err(refused("an input or output is on the host"));
        }
        let mut made = None;
        let graph = stream.record(&mut || made = Some(self.execute(session, signature, options)));
        self.io.clear_outputs();
        let (graph, outputs) = match (graph, made) {
            // What the runtime says is the reason why the driver could not record.
            (_, Some(Err(refused))) => return Err(refused),
            (Err(fault), _) => return Err(Refused::Fault(fault)),
            (Ok(_), None) => return Err(refused("nothing was enqueued")),
            (Ok(graph), Some(Ok(outputs))) => (graph, outputs),
        };
        let inputs = self.inputs.iter_mut().map(|input| input.bound.take()).collect::<Option<Vec<_>>>();
        let inputs = inputs.ok_or_else(|| refused("an input is not bound"))?;
        self.recorded.push(Recorded { graph, inputs, outputs });
        Ok(())
    }

    /// Enqueues the copies of a batch, a recorded run, and the copies of its outputs.
    fn replay(
        &mut self,
        recorded: &mut Recorded,
        stream: &dyn CudaStream,
        tensors: &[&Tensor],
    ) -> Result<(), Refused> {
        let (places, length) =
            lay_out(tensors.iter().map(|tensor| tensor.data.len())).ok_or_else(too_large)?;
        let block = self.inward.at_least(stream, length).map_err(Refused::Fault)?;
        for ((tensor, input), place) in tensors.iter().zip(&mut recorded.inputs).zip(places) {
            if !tensor.data.is_empty() {
                let pinned = block.get_mut(place).ok_or_else(too_large)?;
                pinned.copy_from_slice(&tensor.data);
                // SAFETY: the tensor has the shape of the recorded one, whose memory is on the device; it and the block are
                // left alone until `run` has waited.
                unsafe { stream.copy_in(pinned, input.data_ptr_mut().addr()) }.map_err(Refused::Fault)?;
            }
        }
        // SAFETY: the session, the inputs and the outputs have the memory that they had while this was recorded, and one
        // run of the session is in flight at a time.
        unsafe { recorded.graph.launch() }.map_err(Refused::Fault)?;
        self.leave(stream, &mut recorded.outputs)
    }

    /// Releases pinned memory that no recent batch needed.
    pub fn trim(&mut self) {
        self.inward.trim();
        self.outward.trim();
    }

    /// Enqueues the copies of a batch into the bound inputs.
    fn enter(
        &mut self,
        stream: &dyn CudaStream,
        tensors: &[&Tensor],
        signature: &Signature,
    ) -> Result<(), Refused> {
        let (places, length) =
            lay_out(tensors.iter().map(|tensor| tensor.data.len())).ok_or_else(too_large)?;
        let block = self.inward.at_least(stream, length).map_err(Refused::Fault)?;
        let bound = self.inputs.iter_mut().zip(&signature.inputs);
        for ((tensor, (input, spec)), place) in tensors.iter().zip(bound).zip(places) {
            let allocator = match input.place {
                Place::Device => &self.on_device,
                Place::Host => &self.on_host,
            };
            let dims = tensor.shape.to_wire();
            let bound = match input.bound.take() {
                Some(bound) if **bound.shape() == *dims => bound,
                _ => {
                    let made = DynTensor::new(allocator, element_type(tensor.datatype), dims)
                        .map_err(Refused::Run)?;
                    self.io.bind_input(spec.name.as_str(), &made).map_err(Refused::Binding)?;
                    made
                }
            };
            let bound = input.bound.insert(bound);
            if tensor.data.is_empty() {
                continue;
            }
            let to = bound.data_ptr_mut();
            match (input.place, block.get_mut(place)) {
                (Place::Host, _) => {
                    // SAFETY: the runtime allocated this tensor on the host with as many bytes as `fitting` found the
                    // data to have, and nothing runs on it now.
                    unsafe {
                        std::ptr::copy_nonoverlapping(tensor.data.as_ptr(), to.cast(), tensor.data.len())
                    };
                }
                (Place::Device, Some(pinned)) => {
                    pinned.copy_from_slice(&tensor.data);
                    // SAFETY: the runtime allocated this tensor on the device with as many bytes; it and the block are
                    // left alone until `run` has waited.
                    unsafe { stream.copy_in(pinned, to.addr()) }.map_err(Refused::Fault)?;
                }
                (Place::Device, None) => return Err(too_large()),
            }
        }
        Ok(())
    }

    /// Enqueues the model.
    fn execute(
        &mut self,
        session: &mut OrtInner,
        signature: &Signature,
        options: &RunOptions,
    ) -> Result<Vec<Left>, Refused> {
        for (spec, place) in signature.outputs.iter().zip(&self.outputs) {
            let memory = match place {
                Place::Device => &self.device,
                Place::Host => &self.host,
            };
            self.io.bind_output_to_device(spec.name.as_str(), memory).map_err(Refused::Binding)?;
        }
        let values = session.run_binding_with_options(&self.io, options).map_err(Refused::Run)?;
        let left = values.into_iter().map(|(_, value)| {
            let value = value.downcast::<DynTensorValueType>().map_err(Refused::Run)?;
            let shape = Shape::from_wire(value.shape()).map_err(|error| refused(&error.to_string()))?;
            let length = value.size().ok_or_else(|| refused("an output has no size"))?;
            Ok(Left { value, shape, length, copied: None })
        });
        left.collect()
    }

    /// Enqueues the copies of the outputs from the device.
    fn leave(&mut self, stream: &dyn CudaStream, left: &mut [Left]) -> Result<(), Refused> {
        let on_device = |place: &Place| *place == Place::Device;
        let lengths = left
            .iter()
            .zip(&self.outputs)
            .map(|(left, place)| if on_device(place) { left.length } else { 0 });
        let (places, length) =
            lay_out(lengths).ok_or_else(|| refused("the outputs are too large together"))?;
        let block = self.outward.at_least(stream, length).map_err(Refused::Fault)?;
        for ((left, place), range) in left.iter_mut().zip(&self.outputs).zip(places) {
            if !on_device(place) || left.length == 0 {
                continue;
            }
            let to = block.get_mut(range.clone()).ok_or_else(|| refused("an output has no place"))?;
            // SAFETY: the runtime left that many bytes at this address of the device; they and the block are left alone
            // until `run` has waited.
            unsafe { stream.copy_out(left.value.data_ptr().addr(), to) }.map_err(Refused::Fault)?;
            left.copied = Some(range);
        }
        Ok(())
    }

    /// The outputs as tensors. Call only when no work is in flight.
    fn collect(&self, left: &[Left], signature: &Signature) -> Vec<Tensor> {
        let tensor = |(left, spec): (&Left, &TensorSpec)| {
            let data = match &left.copied {
                _ if left.length == 0 => Bytes::new(),
                Some(range) => {
                    Bytes::copy_from_slice(self.outward.bytes().get(range.clone()).unwrap_or_default())
                }
                None => {
                    let from = left.value.data_ptr().cast::<u8>();
                    // SAFETY: the runtime left that many bytes there, on the host, and nothing runs any more.
                    Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(from, left.length) })
                }
            };
            Tensor { name: spec.name.clone(), datatype: spec.datatype, shape: left.shape.clone(), data }
        };
        left.iter().zip(&signature.outputs).map(tensor).collect()
    }
}

fn refused(reason: &str) -> Refused {
    Refused::Run(Error::new(reason))
}

fn too_large() -> Refused {
    Refused::Input("the inputs are too large together".to_owned())
}

/// The tensors of a batch, if they match the signature and there are `wanted`.
fn fitting_all<'a>(
    batch: &'a Batch,
    signature: &Signature,
    wanted: usize,
) -> Result<Vec<&'a Tensor>, Refused> {
    let tensors = batch.inputs.iter().zip(&signature.inputs);
    let tensors = tensors.map(|(tensor, spec)| fitting(tensor.as_ref(), spec));
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    if tensors.len() != wanted {
        return Err(Refused::Input(format!("{} inputs: expected {wanted}", tensors.len())));
    }
    Ok(tensors)
}

/// The tensor, if its data have the length that its shape requires.
fn fitting<'a>(tensor: Option<&'a Tensor>, spec: &TensorSpec) -> Result<&'a Tensor, Refused> {
    let refuse = |reason: &str| Err(Refused::Input(format!("input `{}`: {reason}", spec.name)));
    let Some(tensor) = tensor else { return refuse("is missing") };
    let length = tensor.shape.element_count().zip(tensor.datatype.size());
    let length = length.and_then(|(count, size)| usize::try_from(count).ok()?.checked_mul(size));
    if tensor.datatype != spec.datatype || length != Some(tensor.data.len()) {
        return refuse("is not as long as its shape and type say");
    }
    if tensor.datatype == Datatype::Bool && tensor.data.iter().any(|byte| *byte > 1) {
        return refuse("a BOOL element is neither 0 nor 1");
    }
    Ok(tensor)
}

pub(in super::super) fn element_type(datatype: Datatype) -> TensorElementType {
    match datatype {
        Datatype::Bool => TensorElementType::Bool,
        Datatype::Uint8 => TensorElementType::Uint8,
        Datatype::Uint16 => TensorElementType::Uint16,
        Datatype::Uint32 => TensorElementType::Uint32,
        Datatype::Uint64 => TensorElementType::Uint64,
        Datatype::Int8 => TensorElementType::Int8,
        Datatype::Int16 => TensorElementType::Int16,
        Datatype::Int32 => TensorElementType::Int32,
        Datatype::Int64 => TensorElementType::Int64,
        Datatype::Fp16 => TensorElementType::Float16,
        Datatype::Bf16 => TensorElementType::Bfloat16,
        Datatype::Fp32 => TensorElementType::Float32,
        Datatype::Fp64 => TensorElementType::Float64,
        Datatype::Bytes => TensorElementType::String,
    }
}
