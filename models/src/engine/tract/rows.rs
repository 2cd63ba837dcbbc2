//! Taking a batch apart into rows, and putting the answers together.

use bytes::Bytes;
use oip::{ProtocolError, Tensor, binary};

use crate::engine::Batch;

/// One batch for each row. Shares the data.
pub(super) fn split(batch: &Batch) -> Result<Vec<Batch>, String> {
    let rows = batch.rows as usize;
    let mut split: Vec<Batch> = (0..rows).map(|_| Batch { inputs: Vec::new(), rows: 1 }).collect();
    for tensor in &batch.inputs {
        let Some(tensor) = tensor else {
            split.iter_mut().for_each(|row| row.inputs.push(None));
            continue;
        };
        if tensor.shape.extents().first() != Some(&u64::from(batch.rows)) {
            return Err(format!("input `{}`: shape {} has not {rows} rows", tensor.name, tensor.shape));
        }
        let shape = tensor.shape.with_outermost(1);
        for (row, data) in split.iter_mut().zip(parts(tensor, rows)?) {
            row.inputs.push(Some(Tensor { shape: shape.clone(), data, ..tensor.clone() }));
        }
    }
    Ok(split)
}

fn parts(tensor: &Tensor, rows: usize) -> Result<Vec<Bytes>, String> {
    if tensor.datatype.size().is_some() {
        let width = tensor.data.len() / rows;
        return Ok((0..rows).map(|row| tensor.data.slice(row * width..(row + 1) * width)).collect());
    }
    let elements = binary::elements(&tensor.data).collect::<Result<Vec<_>, _>>();
    let elements = elements.map_err(|error| format!("input `{}`: {error}", tensor.name))?;
    let width = (elements.len() / rows).max(1);
    let parts = elements.chunks(width).map(|row| {
        let mut encoded = bytes::BytesMut::new();
        row.iter().try_for_each(|element| binary::push_element(&mut encoded, element))?;
        Ok(encoded.freeze())
    });
    parts.collect::<Result<_, _>>().map_err(|error: ProtocolError| error.to_string())
}

/// The rows' answers as those of one batch.
pub(super) fn join(rows: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>, String> {
    let total = rows.len() as u64;
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let joined = first.iter().enumerate().map(|(index, like)| {
        let mut data = Vec::with_capacity(like.data.len().saturating_mul(rows.len()));
        for answer in &rows {
            let part = answer.get(index).filter(|part| part.shape == like.shape);
            let part = part.ok_or_else(|| format!("output `{}`: rows have different shapes", like.name))?;
            data.extend_from_slice(&part.data);
        }
        Ok(Tensor { shape: like.shape.with_outermost(total), data: data.into(), ..like.clone() })
    });
    joined.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::{Datatype, Shape};

    fn tensor(datatype: Datatype, extents: &[u64], data: &[u8]) -> Tensor {
        let data = Bytes::copy_from_slice(data);
        Tensor { name: "x".into(), datatype, shape: Shape::from_extents(extents), data }
    }

    #[test]
    fn rows_come_apart_and_together_again() {
        let numbers = tensor(Datatype::Int16, &[3, 2], &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]);
        let words = tensor(Datatype::Bytes, &[3, 1], b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc");
        let batch = Batch { inputs: vec![Some(numbers), None, Some(words)], rows: 3 };
        let rows = split(&batch).unwrap();
        assert_eq!(rows[1].inputs[0].as_ref().unwrap().data.as_ref(), [3, 0, 4, 0]);
        assert_eq!(rows[2].inputs[2].as_ref().unwrap().data.as_ref(), b"\x02\0\0\0bc");
        let present = |batch: &Batch| batch.inputs.iter().flatten().cloned().collect::<Vec<_>>();
        assert_eq!(join(rows.iter().map(present).collect()).unwrap(), present(&batch));
    }

    #[test]
    fn rows_of_different_shapes_do_not_join() {
        let rows =
            [[1], [2]].map(|extents| vec![tensor(Datatype::Uint8, &extents, &vec![0; extents[0] as usize])]);
        assert!(join(rows.to_vec()).is_err());
    }
}
