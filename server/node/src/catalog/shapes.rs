//! Shape keys: requests with equal keys may share a batch. Also counts the requests of each shape.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use models::{Dim, Signature};
use oip::Tensor;
use oip::metadata::SeenShape;
use router_core::ShapeKey;
use smallvec::SmallVec;

/// Shapes of one model that have their own number and count. Requests of further shapes run alone,
/// without batching, and are counted together.
const MAX_SHAPES: usize = 4_096;

/// Stands for an optional input that a request leaves out.
const ABSENT: u64 = u64::MAX;

type Extents = SmallVec<[u64; 8]>;

/// Shapes of requests for one model version.
pub struct Shapes {
    /// Whether shapes can differ in more than the batch size.
    vary: bool,
    /// Dimensions before those of a row: 1 if the model has a batch dimension.
    batch_dims: usize,
    inputs: Vec<Input>,
    table: DashMap<Extents, Row>,
    next: AtomicU64,
    /// Requests of shapes that are not in the table.
    other: AtomicU64,
}

/// An input of the signature.
struct Input {
    name: String,
    /// Dimensions of a row.
    rank: usize,
    /// Whether its rows may have different shapes.
    open: bool,
    optional: bool,
}

/// One shape.
struct Row {
    key: u64,
    requests: AtomicU64,
}

/// Counts of requests by shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All requests.
    pub requests: u64,
    /// Those of shapes that did not fit into the table.
    pub other: u64,
    /// Every shape of the table, most requests first.
    pub shapes: Vec<SeenShape>,
}

impl Shapes {
    /// Shapes for a model with this signature.
    pub fn new(signature: &Signature) -> Self {
        let batch_dims = usize::from(signature.max_batch > 0);
        let free = |dims: &[Dim]| dims.iter().skip(batch_dims).any(|dim| *dim == Dim::Free);
        let vary = signature.inputs.iter().any(|input| input.optional || free(&input.dims));
        let inputs = signature.inputs.iter().map(|spec| Input {
            name: spec.name.clone(),
            rank: spec.dims.len().saturating_sub(batch_dims),
            open: free(&spec.dims),
            optional: spec.optional,
        });
        Self {
            vary,
            batch_dims,
            inputs: inputs.collect(),
            table: DashMap::new(),
            next: AtomicU64::new(1),
            other: AtomicU64::new(0),
        }
    }

    /// Whether all requests have the same shape but for the batch.
    pub fn are_fixed(&self) -> bool {
        !self.vary
    }

    /// Counts a validated request and gives its key.
    pub fn key(&self, inputs: &[Option<Tensor>]) -> ShapeKey {
        if !self.vary {
            return ShapeKey(0);
        }
        let mut extents = Extents::new();
        for input in inputs {
            match input {
                Some(tensor) => extents.extend(tensor.shape.extents().iter().skip(self.batch_dims).copied()),
                None => extents.push(ABSENT),
            }
        }
        let key = self.count(extents);
        // Requests without batch dimension never share a batch.
        if self.batch_dims == 0 { ShapeKey(0) } else { ShapeKey(key) }
    }

    fn count(&self, extents: Extents) -> u64 {
        if let Some(row) = self.table.get(&extents) {
            row.requests.fetch_add(1, Ordering::Relaxed);
            return row.key;
        }
        let fresh = self.next.fetch_add(1, Ordering::Relaxed);
        if self.table.len() >= MAX_SHAPES {
            self.other.fetch_add(1, Ordering::Relaxed);
            return fresh;
        }
        let row =
            self.table.entry(extents).or_insert_with(|| Row { key: fresh, requests: AtomicU64::new(0) });
        row.requests.fetch_add(1, Ordering::Relaxed);
        row.key
    }

    /// Requests by shape so far.
    pub fn counts(&self) -> Counts {
        let row = |entry: dashmap::mapref::multiple::RefMulti<'_, Extents, Row>| SeenShape {
            inputs: self.named(entry.key()),
            requests: entry.requests.load(Ordering::Relaxed),
        };
        let mut shapes: Vec<SeenShape> = self.table.iter().map(row).collect();
        shapes.sort_unstable_by(|one, other| {
            other.requests.cmp(&one.requests).then_with(|| one.inputs.cmp(&other.inputs))
        });
        let other = self.other.load(Ordering::Relaxed);
        let requests = shapes.iter().map(|shape| shape.requests).fold(other, u64::saturating_add);
        Counts { requests, other, shapes }
    }

    /// The shapes of a row of the inputs that are open.
    fn named(&self, mut extents: &[u64]) -> BTreeMap<String, Vec<u64>> {
        let mut named = BTreeMap::new();
        for Input { name, rank, open, optional } in &self.inputs {
            if let Some((&ABSENT, rest)) = extents.split_first().filter(|_| *optional) {
                extents = rest;
                continue;
            }
            let (own, rest) = extents.split_at_checked(*rank).unwrap_or((extents, &[]));
            extents = rest;
            if *open {
                named.insert(name.clone(), own.to_vec());
            }
        }
        named
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
        assert_eq!(shapes.table.len(), MAX_SHAPES);
        let beyond = || shapes.key(&[tensor(&[1, 9_999])]);
        assert_ne!(beyond(), beyond());
        let counts = shapes.counts();
        assert_eq!((counts.requests, counts.other), (MAX_SHAPES as u64 + 12, 12));
    }

    #[test]
    fn requests_are_counted_by_the_shape_of_a_row() {
        let spec = |name: &str, dims: &[Dim], optional| TensorSpec {
            name: name.to_owned(),
            datatype: Datatype::Uint8,
            dims: dims.to_vec(),
            optional,
        };
        let inputs = vec![
            spec("image", &[Dim::Free, Dim::Fixed(3), Dim::Free], false),
            spec("scale", &[Dim::Free, Dim::Fixed(1)], false),
            spec("mask", &[Dim::Free, Dim::Free], true),
        ];
        let shapes = Shapes::new(&Signature { inputs, outputs: vec![], max_batch: 8 });
        let ask = |rows, width, mask: Option<u64>| {
            let mask = mask.and_then(|mask| tensor(&[rows, mask]));
            shapes.key(&[tensor(&[rows, 3, width]), tensor(&[rows, 1]), mask])
        };
        ask(1, 32, None);
        ask(2, 64, Some(9));
        ask(1, 32, None);
        let seen = |inputs: &[(&str, &[u64])], requests| SeenShape {
            inputs: inputs.iter().map(|(name, row)| ((*name).to_owned(), row.to_vec())).collect(),
            requests,
        };
        let expected = vec![seen(&[("image", &[3, 32])], 2), seen(&[("image", &[3, 64]), ("mask", &[9])], 1)];
        assert_eq!(shapes.counts(), Counts { requests: 3, other: 0, shapes: expected });
    }

    #[test]
    fn requests_without_batch_are_counted_and_share_a_key() {
        let spec = TensorSpec {
            name: "x".to_owned(),
            datatype: Datatype::Uint8,
            dims: vec![Dim::Free],
            optional: false,
        };
        let shapes = Shapes::new(&Signature { inputs: vec![spec], outputs: vec![], max_batch: 0 });
        assert_eq!(shapes.key(&[tensor(&[5])]), shapes.key(&[tensor(&[6])]));
        assert_eq!(shapes.counts().shapes.len(), 2);
        let fixed = Shapes::new(&Signature { inputs: vec![], outputs: vec![], max_batch: 8 });
        fixed.key(&[]);
        assert!(fixed.are_fixed() && fixed.counts() == Counts::default());
    }
}
