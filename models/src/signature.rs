//! Inputs and outputs of a model.

use oip::Datatype;
use serde::{Deserialize, Serialize};

/// One dimension of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dim {
    /// Always this extent.
    Fixed(u64),
    /// Any extent (`-1` on the wire).
    Free,
}

impl Dim {
    /// The extent as the protocol writes it: `-1` when free.
    pub fn to_wire(self) -> i64 {
        match self {
            Self::Fixed(extent) => i64::try_from(extent).unwrap_or(i64::MAX),
            Self::Free => -1,
        }
    }
}

/// One input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Name in the graph.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// Dimensions as clients see them. For a batched model the first is the batch and is free.
    pub dims: Vec<Dim>,
    /// Whether a request may leave it out (an input with a default in the graph).
    pub optional: bool,
}

/// The two shapes of an input or output, batch included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reshape {
    /// Name of the tensor.
    pub tensor: String,
    /// Shape that clients send or receive.
    pub client: Vec<Dim>,
    /// Shape in the graph.
    pub graph: Vec<Dim>,
}

/// Inputs and outputs of a model in graph order, and whether its first dimension is a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Inputs in graph order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs in graph order.
    pub outputs: Vec<TensorSpec>,
    /// Largest batch in rows. 0: the model has no batch dimension, every request runs alone, shapes are
    /// taken as they are. 1 or more: dimension 0 of *every* input and output is the batch (Triton's meaning of
    /// `max_batch_size`, except that `dims` here does include the batch dimension).
    pub max_batch: u32,
}

impl Signature {
    /// Every input and output, with the word `input` or `output`.
    pub fn tensors(&self) -> impl Iterator<Item = (&'static str, &TensorSpec)> {
        let inputs = self.inputs.iter().map(|spec| ("input", spec));
        inputs.chain(self.outputs.iter().map(|spec| ("output", spec)))
    }

    /// Whether every dimension of every input is known, but for the batch.
    pub fn has_fixed_inputs(&self) -> bool {
        let batch_dims = usize::from(self.max_batch > 0);
        self.inputs
            .iter()
            .all(|input| input.dims.iter().skip(batch_dims).all(|dim| matches!(dim, Dim::Fixed(_))))
    }

    /// Whether a request can make a valid graph fail: by extents that do not fit together, or by whole numbers that the
    /// graph uses as indices or shapes.
    pub fn depends_on_values(&self) -> bool {
        let floats = [Datatype::Fp16, Datatype::Fp32, Datatype::Fp64, Datatype::Bf16];
        !self.has_fixed_inputs() || self.inputs.iter().any(|input| !floats.contains(&input.datatype))
    }
}
