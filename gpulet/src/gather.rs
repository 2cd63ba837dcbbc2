//! Many requests into one batch.

use bytes::{Bytes, BytesMut};
use models::engine::{Batch, Member};
use oip::Tensor;

/// Concatenates the members' inputs along dimension 0. A single member's tensors are passed on unchanged.
///
/// # Errors
/// There are no members, or their inputs have different types or rows of different shapes.
pub fn gather(members: &[Member]) -> Result<Batch, String> {
    let rows = members.iter().map(|member| member.rows).sum();
    let [first, others @ ..] = members else { return Err("a batch without requests".to_owned()) };
    if others.is_empty() {
        return Ok(Batch { inputs: first.inputs.clone(), rows });
    }
    let column =
        |index: usize| members.iter().map(move |member| member.inputs.get(index).and_then(Option::as_ref));
    let inputs =
        (0..first.inputs.len()).map(|index| concatenate(column(index), rows)).collect::<Result<_, _>>()?;
    Ok(Batch { inputs, rows })
}

fn concatenate<'a>(
    column: impl Iterator<Item = Option<&'a Tensor>> + Clone,
    rows: u32,
) -> Result<Option<Tensor>, String> {
    let mut present = column.clone().flatten();
    let Some(first) = present.next() else { return Ok(None) };
    let row_extents = |tensor: &'a Tensor| tensor.shape.extents().get(1..);
    if column.clone().any(|tensor| {
        tensor.is_none_or(|tensor| {
            tensor.datatype != first.datatype || row_extents(tensor) != row_extents(first)
        })
    }) {
        return Err(format!("input `{}`: requests of different shapes in one batch", first.name));
    }
    let length = column.clone().flatten().map(|tensor| tensor.data.len()).sum();
    let mut data = BytesMut::with_capacity(length);
    for tensor in column.flatten() {
        data.extend_from_slice(&tensor.data);
    }
    let shape = first.shape.with_outermost(u64::from(rows));
    let data: Bytes = data.freeze();
    Ok(Some(Tensor { name: first.name.clone(), datatype: first.datatype, shape, data }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::{Datatype, Shape};

    fn member(rows: u32, width: u64, fill: u8) -> Member {
        let data = vec![fill; rows as usize * width as usize];
        let shape = Shape::from_extents(&[u64::from(rows), width]);
        let tensor = Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape, data: data.into() };
        Member::of(vec![Some(tensor)], rows)
    }

    #[test]
    fn rows_follow_each_other_in_order() {
        let batch = gather(&[member(1, 2, 7), member(2, 2, 9)]).unwrap();
        let input = batch.inputs[0].as_ref().unwrap();
        assert_eq!(input.shape.extents(), [3, 2]);
        assert_eq!(&input.data[..], [7, 7, 9, 9, 9, 9]);
        assert_eq!(batch.rows, 3);
    }

    #[test]
    fn a_lone_request_is_not_copied() {
        let alone = member(2, 2, 1);
        let batch = gather(std::slice::from_ref(&alone)).unwrap();
        let before = alone.inputs[0].as_ref().unwrap().data.as_ptr();
        assert_eq!(batch.inputs[0].as_ref().unwrap().data.as_ptr(), before);
    }

    #[test]
    fn shapes_that_differ_are_refused() {
        assert!(gather(&[member(1, 2, 0), member(1, 3, 0)]).is_err());
    }
}
