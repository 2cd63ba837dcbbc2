//! Rows of jobs that are tensors: as inputs of a model, and the outputs of a model as such rows.

use models::{Dim, TensorSpec};
use node::reason::{Reason, Refusal};
use oip::binary::elements;
use oip::{Datatype, InferResponse, InputTensor, Shape, Tensor, TensorData};

use crate::flat_json;
use crate::service::ModelView;

fn wrong(name: &str, what: &str) -> Refusal {
    Refusal::new(Reason::Malformed, format!("input `{name}`: {what}"))
}

/// Tensors without a batch dimension as inputs of a model. One without a name is that of a model with one input.
///
/// # Errors
/// An input that the model does not have, or values or a shape that the input does not take.
pub fn inputs(view: &ModelView, tensors: Vec<Tensor>) -> Result<Vec<InputTensor>, Refusal> {
    tensors.into_iter().map(|tensor| input(view, tensor)).collect()
}

fn input(view: &ModelView, tensor: Tensor) -> Result<InputTensor, Refusal> {
    let known = &view.signature.inputs;
    let names = || known.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ");
    let spec = match (tensor.name.as_str(), known.as_slice()) {
        ("", [only]) => only,
        ("", _) => {
            let told = format!("the model has the inputs {}: name the arrays in an .npz file", names());
            return Err(Refusal::new(Reason::Malformed, told));
        }
        (name, _) => known.iter().find(|spec| spec.name == name).ok_or_else(|| {
            wrong(name, &format!("the model does not have it: expected some of {}", names()))
        })?,
    };
    let shape = shape(view, spec, &tensor)?;
    let cast = job_formats::cast(tensor, spec.datatype).map_err(|told| wrong(&spec.name, &told))?;
    Ok(InputTensor {
        name: spec.name.clone(),
        datatype: cast.datatype,
        shape: Shape::from_extents(&shape),
        data: TensorData::Inline(cast.data),
        parameters: Vec::new(),
    })
}

/// The shape of a row as an input: its own with the batch dimension, or one that its elements fill.
fn shape(view: &ModelView, spec: &TensorSpec, tensor: &Tensor) -> Result<Vec<u64>, Refusal> {
    let own = tensor.shape.extents();
    let mut shape = own.to_vec();
    if view.signature.max_batch > 0 {
        shape.insert(0, 1);
    }
    let fits = |(dim, extent): (&Dim, &u64)| match dim {
        Dim::Fixed(fixed) => fixed == extent,
        Dim::Free => true,
    };
    if shape.len() == spec.dims.len() && spec.dims.iter().zip(&shape).all(fits) {
        return Ok(shape);
    }
    let filled = tensor.shape.element_count().and_then(|count| flat_json::filled(&spec.dims, count));
    filled.ok_or_else(|| {
        let dims: Vec<i64> = spec.dims.iter().map(|dim| dim.to_wire()).collect();
        wrong(&spec.name, &format!("a row has shape {own:?}, which does not fill {dims:?}"))
    })
}

/// The outputs of one row as tensors without a batch dimension.
pub fn outputs(view: &ModelView, response: InferResponse) -> Vec<Tensor> {
    let without_batch = |mut tensor: Tensor| {
        if let (1.., [1, row @ ..]) = (view.signature.max_batch, tensor.shape.extents()) {
            tensor.shape = Shape::from_extents(row);
        }
        tensor
    };
    response.outputs.into_iter().map(|(tensor, _)| without_batch(tensor)).collect()
}

/// Name of an output with text that is not UTF-8.
pub fn not_utf8(tensors: &[Tensor]) -> Option<&str> {
    let is_text = |tensor: &&Tensor| {
        elements(&tensor.data).all(|text| text.is_ok_and(|text| std::str::from_utf8(text).is_ok()))
    };
    let mut texts = tensors.iter().filter(|tensor| tensor.datatype == Datatype::Bytes);
    texts.find(|tensor| !is_text(tensor)).map(|tensor| tensor.name.as_str())
}
