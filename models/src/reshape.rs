//! `reshape` of `config.pbtxt`: tensors whose shape for clients differs from their shape in the graph.
//!
//! Both shapes hold the same elements in the same order, so only the extents change.

use std::sync::Arc;
use std::time::Duration;

use oip::{Shape, Tensor};

use crate::engine::ort::PreparedModel;
use crate::engine::{Batch, Colocated, Interrupt, Member, Response, RunError, Session};
use crate::{Dim, LoadError, ModelFiles, Reshape, Signature, TensorSpec};

/// Whether two lists of dimensions hold the same elements whatever the free ones are: equally many free dimensions,
/// and equal products before, between and after them. -1 is free.
pub(crate) fn agree(one: &[i64], other: &[i64]) -> bool {
    let products = |dims: &[i64]| -> Vec<i64> {
        dims.split(|&dim| dim < 0)
            .map(|fixed| fixed.iter().fold(1, |a: i64, &b| a.saturating_mul(b)))
            .collect()
    };
    products(one) == products(other)
}

/// The signature that clients see.
pub(crate) fn for_clients(signature: &Signature, reshapes: &[Reshape]) -> Signature {
    with_dims(signature, reshapes, |reshape| &reshape.client)
}

/// The signature of the graph.
pub(crate) fn for_graph(signature: &Signature, reshapes: &[Reshape]) -> Signature {
    with_dims(signature, reshapes, |reshape| &reshape.graph)
}

fn with_dims(signature: &Signature, reshapes: &[Reshape], dims: impl Fn(&Reshape) -> &Vec<Dim>) -> Signature {
    let change = |spec: &TensorSpec| {
        let reshape = reshapes.iter().find(|reshape| reshape.tensor == spec.name);
        let dims = reshape.map_or_else(|| spec.dims.clone(), |reshape| dims(reshape).clone());
        TensorSpec { dims, ..spec.clone() }
    };
    Signature {
        inputs: signature.inputs.iter().map(change).collect(),
        outputs: signature.outputs.iter().map(change).collect(),
        max_batch: signature.max_batch,
    }
}

/// A session that takes and gives the shapes that clients see.
pub(crate) struct Reshaped {
    session: Box<dyn Session>,
    signature: Signature,
    reshapes: Vec<Reshape>,
}

impl Reshaped {
    /// Wraps a session of the graph. Refuses a reshape of a tensor that the graph does not have.
    pub(crate) fn new(
        session: Box<dyn Session>,
        reshapes: &[Reshape],
        files: &ModelFiles,
    ) -> Result<Self, LoadError> {
        let names: Vec<&str> = session.signature().tensors().map(|(_, spec)| spec.name.as_str()).collect();
        if let Some(unknown) = reshapes.iter().find(|reshape| !names.contains(&reshape.tensor.as_str())) {
            return Err(LoadError::Signature {
                model: files.name.to_string(),
                tensor: format!("reshape of `{}`", unknown.tensor),
                reason: format!("expected one of {}", names.join(", ")),
            });
        }
        let signature = for_clients(session.signature(), reshapes);
        Ok(Self { session, signature, reshapes: reshapes.to_vec() })
    }

    fn of(&self, tensor: &Tensor) -> Option<&Reshape> {
        self.reshapes.iter().find(|reshape| reshape.tensor == tensor.name)
    }

    /// Inputs in the shapes of the graph.
    fn inputs(&self, inputs: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, RunError> {
        let reshaped = inputs.iter().map(|input| match input {
            None => Ok(None),
            Some(tensor) => match self.of(tensor) {
                None => Ok(Some(tensor.clone())),
                Some(reshape) => change(tensor, &reshape.client, &reshape.graph)
                    .map(Some)
                    .map_err(|reason| RunError::Input(format!("input `{}`: {reason}", tensor.name))),
            },
        });
        reshaped.collect()
    }

    /// Outputs in the shapes of clients.
    fn outputs(&self, outputs: Vec<Tensor>) -> Result<Vec<Tensor>, RunError> {
        let reshaped = outputs.into_iter().map(|tensor| match self.of(&tensor) {
            None => Ok(tensor),
            Some(reshape) => change(&tensor, &reshape.graph, &reshape.client)
                .map_err(|reason| RunError::Engine(format!("output `{}`: {reason}", tensor.name))),
        });
        reshaped.collect()
    }
}

impl Session for Reshaped {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let batch = Batch { inputs: self.inputs(&batch.inputs)?, rows: batch.rows };
        let outputs = self.session.run(&batch)?;
        self.outputs(outputs)
    }

    fn takes_requests(&self) -> bool {
        self.session.takes_requests()
    }

    fn decoupled(&self) -> bool {
        self.session.decoupled()
    }

    fn takes_samples(&self) -> bool {
        self.session.takes_samples()
    }

    fn run_requests(
        &mut self,
        requests: &[Member],
        colocated: &mut dyn Colocated,
    ) -> Result<Vec<Result<Response, RunError>>, RunError> {
        let members = requests.iter().map(|member| {
            let inputs = self.inputs(&member.inputs)?;
            Ok(Member { inputs, ..member.clone() })
        });
        // An input of the right shape for clients can always be reshaped.
        let members = members.collect::<Result<Vec<_>, RunError>>()?;
        let results = self.session.run_requests(&members, colocated)?;
        let result = |result: Result<Response, RunError>| {
            let Response { outputs, parameters } = result?;
            Ok(Response { outputs: self.outputs(outputs)?, parameters })
        };
        Ok(results.into_iter().map(result).collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        self.session.engine()
    }

    fn took(&self) -> Option<Duration> {
        self.session.took()
    }

    fn settles_each_size(&self) -> bool {
        self.session.settles_each_size()
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        self.session.interrupt()
    }

    fn runs_on_any_thread(&self) -> bool {
        self.session.runs_on_any_thread()
    }

    fn prepared(&self) -> Option<PreparedModel> {
        self.session.prepared()
    }

    fn trim(&mut self) {
        self.session.trim();
    }
}

/// The same elements with the other extents. Free dimensions keep their extents, in order.
fn change(tensor: &Tensor, from: &[Dim], to: &[Dim]) -> Result<Tensor, String> {
    let extents = tensor.shape.extents();
    let mut free = from.iter().zip(extents).filter(|(dim, _)| **dim == Dim::Free).map(|(_, extent)| *extent);
    let extents = to.iter().map(|dim| match dim {
        Dim::Fixed(extent) => Some(*extent),
        Dim::Free => free.next(),
    });
    let shape = extents.collect::<Option<Vec<u64>>>().map(|extents| Shape::from_extents(&extents));
    let shape = shape.filter(|shape| shape.element_count() == tensor.shape.element_count());
    let shape = shape.ok_or_else(|| {
        let to: Vec<i64> = to.iter().map(|dim| dim.to_wire()).collect();
        format!("shape {} cannot be reshaped to {to:?}", tensor.shape)
    })?;
    Ok(Tensor { shape, ..tensor.clone() })
}
