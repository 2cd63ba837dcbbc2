//! Reading ONNX graphs as far as serving needs: inputs, outputs, and the batch dimension.
//!
//! The signature comes from the file and not from an engine, so that it is the same whichever engine runs the
//! model, and known before one is chosen.

mod element;
mod external;
mod free_batch;
mod graph;
mod steady_time;
mod tensor_type;

#[cfg(test)]
pub(crate) mod fixture;

pub(crate) use element::datatype;
pub(crate) use external::{check_external_data, may_have_external_data};
pub(crate) use free_batch::{constant_shapes, free_batch};
pub(crate) use graph::{Graph, GraphDim, GraphTensor};
pub(crate) use steady_time::has_steady_time;
pub(crate) use tensor_type::{TensorType, element, has_shape};
