//! Shape keys: requests with equal keys may share a batch.

use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use models::{Dim, Signature};
use oip::Tensor;
use router_core::ShapeKey;
use smallvec::SmallVec;

/// Shapes of one model that have their own number. Requests of further shapes run alone,
/// without batching.
const MAX_SHAPES: usize = 4_096;

type Extents = SmallVec<[u64; 8]>;

/// Shapes of requests for one model version.
pub struct Shapes {
    /// Whether shapes can differ in more than the batch size.
    vary: bool,
    keys: DashMap<Extents, u64>,
    next: AtomicU64,
}

impl Shapes {
    /// Shapes for a model with this signature.
    pub fn new(signature: &Signature) -> Self {
        let batched = usize::from(signature.max_batch > 0);
        let free = |dims: &[Dim]| dims.iter().skip(batched).any(|dim| *dim == Dim::Free);
        let vary = signature.inputs.iter().any(|input| input.optional || free(&input.dims));
        Self { vary: vary && signature.max_batch > 0, keys: DashMap::new(), next: AtomicU64::new(1) }
    }

    /// The key of a validated request.
    pub fn key(&self, inputs: &[Option<Tensor>]) -> ShapeKey {
        if !self.vary {
            return ShapeKey(0);
        }
        let mut extents = Extents::new();
        for input in inputs {
            match input {
                Some(tensor) => extents.extend(tensor.shape.extents().iter().skip(1).copied()),
                None => extents.push(u64::MAX),
            }
        }
        if let Some(key) = self.keys.get(&extents) {
            return ShapeKey(*key);
        }
        let fresh = self.next.fetch_add(1, Ordering::Relaxed);
        if self.keys.len() >= MAX_SHAPES {
            return ShapeKey(fresh);
        }
        ShapeKey(*self.keys.entry(extents).or_insert(fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::TensorSpec;
    use oip::{Datatype, Shape};

    fn tensor(extents: &[u64]) -> Option<Tensor> {
        let data = vec![0; extents.iter().product::<u64>() as usize].into();
        Some(Tensor {
            name: "x".to_owned(),
            datatype: Datatype::Uint8,
            shape: Shape::from_extents(extents),
            data,
        })
    }

    fn shapes(dims: &[Dim]) -> Shapes {
        let spec = TensorSpec {
            name: "x".to_owned(),
            datatype: Datatype::Uint8,
            dims: dims.to_vec(),
            optional: false,
        };
        Shapes::new(&Signature { inputs: vec![spec], outputs: vec![], max_batch: 8 })
    }

    #[test]
    fn requests_that_differ_only_in_rows_share_a_key() {
        let shapes = shapes(&[Dim::Free, Dim::Free]);
        let key = |extents: &[u64]| shapes.key(&[tensor(extents)]);
        assert_eq!(key(&[1, 5]), key(&[7, 5]));
        assert_ne!(key(&[1, 5]), key(&[1, 6]));
    }

    #[test]
    fn the_table_is_bounded_and_what_does_not_fit_never_collides() {
        let shapes = shapes(&[Dim::Free, Dim::Free]);
        for width in 0..MAX_SHAPES as u64 + 10 {
            shapes.key(&[tensor(&[1, width])]);
        }
        assert_eq!(shapes.keys.len(), MAX_SHAPES);
        let beyond = || shapes.key(&[tensor(&[1, 9_999])]);
        assert_ne!(beyond(), beyond());
    }
}
