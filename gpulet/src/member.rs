//! One request of a batch, as a lane gets it.

use oip::Tensor;

/// One request of a batch.
#[derive(Clone, Debug)]
pub struct Member {
    /// One tensor per input of the model's signature.
    pub inputs: Vec<Option<Tensor>>,
    /// Rows along dimension 0; 1 if the model has no batch dimension.
    pub rows: u32,
}
