//! Validates a decoded request against the model's signature. Pure.

use gpulet::Member;
use models::{Dim, Signature, TensorSpec};
use node::reason::{Reason, Refusal};
use oip::{InputTensor, RequestedOutput, Shape, Tensor, TensorData};

/// Inputs in signature order, with the facts that the router needs.
#[derive(Debug)]
pub struct Validated {
    /// Inputs and rows.
    pub member: Member,
    /// Bytes of all inputs.
    pub bytes: u64,
}

fn malformed(message: String) -> Refusal {
    Refusal::new(Reason::Malformed, message)
}

/// Checks names, datatypes, shapes and batch size, and puts the inputs into signature order. Inputs in
/// shared memory must have been read.
pub fn inputs(signature: &Signature, given: Vec<InputTensor>) -> Result<Validated, Refusal> {
    if let Some(unknown) =
        given.iter().find(|input| signature.inputs.iter().all(|spec| spec.name != input.name))
    {
        let expected = names(&signature.inputs);
        return Err(malformed(format!("input `{}`: unknown, expected {expected}", unknown.name)));
    }
    let mut given: Vec<Option<InputTensor>> = given.into_iter().map(Some).collect();
    let mut rows: Option<(u64, &str)> = None;
    let mut bytes = 0_u64;
    let mut tensors = Vec::with_capacity(signature.inputs.len());
    for spec in &signature.inputs {
        let found =
            given.iter_mut().find(|input| input.as_ref().is_some_and(|input| input.name == spec.name));
        let Some(input) = found.and_then(Option::take) else {
            if spec.optional {
                tensors.push(None);
                continue;
            }
            return Err(malformed(format!("input `{}`: missing", spec.name)));
        };
        check(spec, &input)?;
        if signature.max_batch > 0 {
            rows = Some(batch_rows(rows, spec, &input.shape)?);
        }
        let TensorData::Inline(data) = input.data else {
            return Err(Refusal::new(
                Reason::Internal,
                format!("input `{}`: its shared memory was not read", spec.name),
            ));
        };
        bytes = bytes.saturating_add(data.len() as u64);
        tensors.push(Some(Tensor { name: input.name, datatype: input.datatype, shape: input.shape, data }));
    }
    let rows = match rows {
        None => 1,
        Some((rows, name)) => allowed_rows(rows, name, signature.max_batch)?,
    };
    Ok(Validated { member: Member::of(tensors, rows), bytes })
}

fn check(spec: &TensorSpec, input: &InputTensor) -> Result<(), Refusal> {
    let name = &spec.name;
    if input.datatype != spec.datatype {
        return Err(malformed(format!(
            "input `{name}`: expected datatype {}, got {}",
            spec.datatype, input.datatype
        )));
    }
    let extents = input.shape.extents();
    let fits = extents.len() == spec.dims.len()
        && spec.dims.iter().zip(extents).all(|(dim, &extent)| match dim {
            Dim::Free => true,
            Dim::Fixed(fixed) => *fixed == extent,
        });
    if fits {
        return Ok(());
    }
    let expected: Vec<_> = spec.dims.iter().map(|dim| dim.to_wire().to_string()).collect();
    Err(malformed(format!("input `{name}`: expected shape [{}], got {}", expected.join(","), input.shape)))
}

fn batch_rows<'a>(
    seen: Option<(u64, &'a str)>,
    spec: &'a TensorSpec,
    shape: &Shape,
) -> Result<(u64, &'a str), Refusal> {
    let rows = shape.extents().first().copied().unwrap_or(0);
    match seen {
        Some((first, other)) if first != rows => Err(malformed(format!(
            "input `{}`: expected {first} rows as in input `{other}`, got {rows}",
            spec.name
        ))),
        _ => Ok((rows, &spec.name)),
    }
}

fn allowed_rows(rows: u64, name: &str, max_batch: u32) -> Result<u32, Refusal> {
    match u32::try_from(rows) {
        Ok(rows) if rows >= 1 && rows <= max_batch => Ok(rows),
        _ => Err(malformed(format!(
            "input `{name}`: expected 1 to {max_batch} rows along dimension 0, got {rows}"
        ))),
    }
}

/// Checks that every requested output exists.
pub fn outputs(signature: &Signature, asked: Option<&[RequestedOutput]>) -> Result<(), Refusal> {
    let unknown = |asked: &&RequestedOutput| signature.outputs.iter().all(|spec| spec.name != asked.name);
    match asked.unwrap_or_default().iter().find(unknown) {
        None => Ok(()),
        Some(asked) => {
            let expected = names(&signature.outputs);
            Err(malformed(format!("output `{}`: unknown, expected {expected}", asked.name)))
        }
    }
}

fn names(specs: &[TensorSpec]) -> String {
    const SHOWN: usize = 8;
    let mut list: Vec<_> = specs.iter().take(SHOWN).map(|spec| format!("`{}`", spec.name)).collect();
    if specs.len() > SHOWN {
        list.push(format!("{} more", specs.len() - SHOWN));
    }
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::Datatype;

    fn spec(name: &str, dims: &[Dim], optional: bool) -> TensorSpec {
        TensorSpec { name: name.to_owned(), datatype: Datatype::Uint8, dims: dims.to_vec(), optional }
    }

    fn signature(max_batch: u32) -> Signature {
        let dims = [Dim::Free, Dim::Fixed(2)];
        let inputs = vec![spec("a", &dims, false), spec("b", &dims, true)];
        Signature { inputs, outputs: vec![spec("y", &dims, false)], max_batch }
    }

    fn input(name: &str, extents: &[u64]) -> InputTensor {
        let shape = Shape::from_extents(extents);
        let data = TensorData::Inline(vec![0; shape.element_count().unwrap() as usize].into());
        InputTensor { name: name.to_owned(), datatype: Datatype::Uint8, shape, data, parameters: Vec::new() }
    }

    fn refused(signature: &Signature, given: Vec<InputTensor>) -> String {
        let refusal = inputs(signature, given).unwrap_err();
        assert_eq!(refusal.reason, Reason::Malformed);
        refusal.message
    }

    #[test]
    fn inputs_come_in_signature_order_and_optional_ones_may_be_absent() {
        let valid = inputs(&signature(8), vec![input("b", &[3, 2]), input("a", &[3, 2])]).unwrap();
        let order: Vec<_> = valid.member.inputs.iter().flatten().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!((order, valid.member.rows, valid.bytes), (vec!["a", "b"], 3, 12));
        let valid = inputs(&signature(8), vec![input("a", &[1, 2])]).unwrap();
        assert!(valid.member.inputs[1].is_none());
    }

    #[test]
    fn a_model_without_batch_takes_any_extent_as_one_row() {
        assert_eq!(inputs(&signature(0), vec![input("a", &[900, 2])]).unwrap().member.rows, 1);
    }

    #[test]
    fn mistakes_are_named() {
        let batched = signature(8);
        assert_eq!(refused(&batched, vec![input("c", &[1, 2])]), "input `c`: unknown, expected `a`, `b`");
        assert_eq!(refused(&batched, vec![]), "input `a`: missing");
        assert_eq!(
            refused(&batched, vec![input("a", &[1, 3])]),
            "input `a`: expected shape [-1,2], got [1,3]"
        );
        assert_eq!(refused(&batched, vec![input("a", &[2])]), "input `a`: expected shape [-1,2], got [2]");
        let uneven = vec![input("a", &[1, 2]), input("b", &[2, 2])];
        assert_eq!(refused(&batched, uneven), "input `b`: expected 1 rows as in input `a`, got 2");
        for rows in [0, 9] {
            let expected = format!("input `a`: expected 1 to 8 rows along dimension 0, got {rows}");
            assert_eq!(refused(&batched, vec![input("a", &[rows, 2])]), expected);
        }
        let typed = InputTensor { datatype: Datatype::Int8, ..input("a", &[1, 2]) };
        assert_eq!(refused(&batched, vec![typed]), "input `a`: expected datatype UINT8, got INT8");
    }

    #[test]
    fn outputs_that_do_not_exist_are_named() {
        let asked = [RequestedOutput { name: "z".to_owned(), parameters: Default::default() }];
        assert_eq!(
            outputs(&signature(1), Some(&asked)).unwrap_err().message,
            "output `z`: unknown, expected `y`"
        );
        assert!(outputs(&signature(1), None).is_ok());
    }
}
