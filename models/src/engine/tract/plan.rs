//! Plans: graphs optimised for given input shapes, and the bounded cache of them.

use std::collections::VecDeque;

use tract_onnx::prelude::{InferenceModel, TValue, TVec, TractResult, TypedModel};
use tract_onnx::tract_core::model::TypedRunnableModel;
use tract_onnx::tract_hir::infer::{InferenceFact, InferenceModelExt};
use tract_onnx::tract_hir::internal::{IntoRunnable, TDim, ToDim};

use super::value;
use crate::{Dim, Signature};

/// A graph ready to run.
pub(super) struct Plan(std::sync::Arc<TypedRunnableModel>);

impl Plan {
    pub(super) fn run(&self, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        self.0.run(inputs)
    }
}

/// The plan for these input shapes.
pub(super) fn concrete(
    template: &InferenceModel,
    signature: &Signature,
    shapes: &[Vec<u64>],
) -> TractResult<Plan> {
    let dims = shapes.iter().map(|shape| shape.iter().map(|&extent| extent.to_dim()).collect());
    finish(template, signature, dims.collect())
}

/// One plan for every number of rows of a batched model whose other dimensions are fixed.
pub(super) fn symbolic_batch(template: &InferenceModel, signature: &Signature) -> TractResult<Plan> {
    let rows = template.symbols.sym("tessera_rows");
    let dims = signature.inputs.iter().map(|input| {
        let fixed = input.dims.iter().skip(1).map(|dim| match dim {
            Dim::Fixed(extent) => extent.to_dim(),
            Dim::Free => 1.to_dim(),
        });
        std::iter::once(rows.to_dim()).chain(fixed).collect()
    });
    finish(template, signature, dims.collect())
}

/// Checks that the graph makes sense to tract with the dimensions as free as the file leaves them.
pub(super) fn analyse(template: &InferenceModel) -> TractResult<()> {
    template.clone().into_typed().map(|_: TypedModel| ())
}

fn finish(template: &InferenceModel, signature: &Signature, dims: Vec<TVec<TDim>>) -> TractResult<Plan> {
    let mut model = template.clone();
    for (index, (spec, dims)) in signature.inputs.iter().zip(dims).enumerate() {
        let datum = value::datum_type(spec.datatype)?;
        model.set_input_fact(index, InferenceFact::dt_shape(datum, dims))?;
    }
    Ok(Plan(model.into_optimized()?.into_runnable()?))
}

/// Plans by input shapes, most recently used first.
pub(super) struct PlanCache {
    plans: VecDeque<(Vec<Vec<u64>>, Plan)>,
    bound: usize,
}

impl PlanCache {
    pub(super) fn new(bound: usize) -> Self {
        Self { plans: VecDeque::new(), bound: bound.max(1) }
    }

    pub(super) fn insert(&mut self, shapes: Vec<Vec<u64>>, plan: Plan) {
        self.plans.truncate(self.bound.saturating_sub(1));
        self.plans.push_front((shapes, plan));
    }

    /// The plan for these shapes. If it does not exist, it is made now and replaces the least recently used one.
    pub(super) fn get_or_make(
        &mut self,
        shapes: Vec<Vec<u64>>,
        make: impl FnOnce(&[Vec<u64>]) -> TractResult<Plan>,
    ) -> TractResult<&Plan> {
        match self.plans.iter().position(|(key, _)| *key == shapes) {
            Some(0) => {}
            Some(index) => {
                if let Some(found) = self.plans.remove(index) {
                    self.plans.push_front(found);
                }
            }
            None => {
                let plan = make(&shapes)?;
                self.insert(shapes, plan);
            }
        }
        self.plans
            .front()
            .map(|(_, plan)| plan)
            .ok_or_else(|| tract_onnx::prelude::TractError::msg("the plan cache lost a plan"))
    }
}
