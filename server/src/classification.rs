//! Classification extension: an output as its top `k` classes, `"value:index"` or `"value:index:label"`.
//!
//! The text is Triton's: values as C's `%f` prints them, integers plainly, highest first, ties by index.

use bytes::{BufMut as _, BytesMut};
use node::reason::{Reason, Refusal};
use oip::{Datatype, InferResponse, RequestedOutput, Shape, Tensor};

/// Whether any requested output is to be classified.
pub fn is_asked_for(outputs: Option<&[RequestedOutput]>) -> bool {
    outputs.is_some_and(|outputs| {
        outputs.iter().any(|output| output.parameters.classification.is_some_and(|classes| classes > 0))
    })
}

/// Replaces each classified output by its top classes. If `batched`, dimension 0 is the batch and every row
/// is ranked separately. `labels` returns the labels of an output, if it has any.
pub fn apply<'a>(
    response: &mut InferResponse,
    batched: bool,
    labels: impl Fn(&str) -> Option<&'a [String]>,
) -> Result<(), Refusal> {
    for (tensor, parameters) in &mut response.outputs {
        if let Some(classes) = parameters.classification.filter(|&classes| classes > 0) {
            *tensor = rank(tensor, classes, batched, labels(&tensor.name))?;
        }
    }
    Ok(())
}

/// Values of one row, ready to be ranked and printed.
enum Row {
    Float(Vec<f64>),
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
}

fn rank(tensor: &Tensor, classes: u32, batched: bool, labels: Option<&[String]>) -> Result<Tensor, Refusal> {
    let size = match tensor.datatype {
        Datatype::Bool | Datatype::Bytes | Datatype::Fp16 | Datatype::Bf16 => return Err(unrankable(tensor)),
        other => other.size().ok_or_else(|| unrankable(tensor))?,
    };
    let extents = tensor.shape.extents();
    let rows = if batched { extents.first().copied().unwrap_or(1) } else { 1 };
    let row_bytes =
        if rows == 0 { 0 } else { tensor.data.len() / usize::try_from(rows).unwrap_or(usize::MAX) };
    let kept = (row_bytes / size).min(usize::try_from(classes).unwrap_or(usize::MAX));
    let mut data = BytesMut::new();
    if row_bytes > 0 {
        for row in tensor.data.chunks_exact(row_bytes) {
            write_row(&read_row(tensor.datatype, row), kept, labels, &mut data);
        }
    }
    let kept = kept as u64;
    let shape = if batched { Shape::from_extents(&[rows, kept]) } else { Shape::from_extents(&[kept]) };
    Ok(Tensor { name: tensor.name.clone(), datatype: Datatype::Bytes, shape, data: data.freeze() })
}

fn unrankable(tensor: &Tensor) -> Refusal {
    Refusal::new(
        Reason::Malformed,
        format!(
            "output `{}`: parameter `classification` needs an integer, FP32 or FP64 output, and this one is {}",
            tensor.name, tensor.datatype
        ),
    )
}

fn read_row(datatype: Datatype, row: &[u8]) -> Row {
    fn each<const N: usize, T>(row: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
        row.as_chunks::<N>().0.iter().map(|&bytes| read(bytes)).collect()
    }
    match datatype {
        Datatype::Int8 => Row::Signed(each(row, |bytes| i8::from_le_bytes(bytes).into())),
        Datatype::Int16 => Row::Signed(each(row, |bytes| i16::from_le_bytes(bytes).into())),
        Datatype::Int32 => Row::Signed(each(row, |bytes| i32::from_le_bytes(bytes).into())),
        Datatype::Int64 => Row::Signed(each(row, i64::from_le_bytes)),
        Datatype::Uint8 | Datatype::Bool | Datatype::Bytes => {
            Row::Unsigned(each(row, |bytes| u8::from_le_bytes(bytes).into()))
        }
        Datatype::Uint16 | Datatype::Fp16 | Datatype::Bf16 => {
            Row::Unsigned(each(row, |bytes| u16::from_le_bytes(bytes).into()))
        }
        Datatype::Uint32 => Row::Unsigned(each(row, |bytes| u32::from_le_bytes(bytes).into())),
        Datatype::Uint64 => Row::Unsigned(each(row, u64::from_le_bytes)),
        Datatype::Fp32 => Row::Float(each(row, |bytes| f32::from_le_bytes(bytes).into())),
        Datatype::Fp64 => Row::Float(each(row, f64::from_le_bytes)),
    }
}

fn write_row(row: &Row, kept: usize, labels: Option<&[String]>, out: &mut BytesMut) {
    match row {
        Row::Float(values) => {
            // NaN ranks last, wherever its sign bit would put it.
            let order = top(values, kept, |a, b| a.is_nan().cmp(&b.is_nan()).then_with(|| b.total_cmp(a)));
            write_classes(order, labels, out, |value| {
                if value.is_nan() { "nan".to_owned() } else { format!("{value:.6}") }
            });
        }
        Row::Signed(values) => {
            write_classes(top(values, kept, |a, b| b.cmp(a)), labels, out, ToString::to_string);
        }
        Row::Unsigned(values) => {
            write_classes(top(values, kept, |a, b| b.cmp(a)), labels, out, ToString::to_string);
        }
    }
}

fn top<T: Copy>(values: &[T], kept: usize, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> Vec<(usize, T)> {
    let mut ranked: Vec<(usize, T)> = values.iter().copied().enumerate().collect();
    let by_rank = |a: &(usize, T), b: &(usize, T)| order(&a.1, &b.1).then_with(|| a.0.cmp(&b.0));
    if kept > 0 && kept < ranked.len() {
        ranked.select_nth_unstable_by(kept - 1, by_rank);
    }
    ranked.truncate(kept);
    ranked.sort_unstable_by(by_rank);
    ranked
}

fn write_classes<T>(
    ranked: Vec<(usize, T)>,
    labels: Option<&[String]>,
    out: &mut BytesMut,
    print: impl Fn(&T) -> String,
) {
    for (index, value) in ranked {
        let mut text = format!("{}:{index}", print(&value));
        if let Some(label) = labels.and_then(|labels| labels.get(index)) {
            text.push(':');
            text.push_str(label);
        }
        out.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
        out.put_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn strings(data: &Bytes) -> Vec<String> {
        let elements = oip::binary::elements(data).map(Result::unwrap);
        elements.map(|element| String::from_utf8(element.to_vec()).unwrap()).collect()
    }
    use oip::OutputParameters;

    fn floats(shape: &[u64], values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor {
            name: "scores".to_owned(),
            datatype: Datatype::Fp32,
            shape: Shape::from_extents(shape),
            data: data.into(),
        }
    }

    #[test]
    fn each_row_of_a_batch_is_ranked_by_itself_in_tritons_text() {
        let labels = vec!["zero".to_owned(), "one".to_owned()];
        let ranked =
            rank(&floats(&[2, 3], &[0.25, 0.5, -1.0, 3.0, 3.0, 4.0]), 2, true, Some(&labels)).unwrap();
        assert_eq!(ranked.shape, Shape::from_extents(&[2, 2]));
        assert_eq!(
            strings(&ranked.data),
            ["0.500000:1:one", "0.250000:0:zero", "4.000000:2", "3.000000:0:zero"]
        );
    }

    #[test]
    fn more_classes_than_values_give_them_all_and_integers_print_plainly() {
        let tensor = Tensor {
            name: "votes".to_owned(),
            datatype: Datatype::Int8,
            shape: Shape::from_extents(&[3]),
            data: Bytes::from_static(&[1, 0xff, 5]),
        };
        let ranked = rank(&tensor, 9, false, None).unwrap();
        assert_eq!(ranked.shape, Shape::from_extents(&[3]));
        assert_eq!(strings(&ranked.data), ["5:2", "1:0", "-1:1"]);
    }

    #[test]
    fn not_a_number_ranks_last_and_empty_rows_give_nothing() {
        let ranked = rank(&floats(&[3], &[f32::NAN, 1.0, f32::INFINITY]), 3, false, None).unwrap();
        assert_eq!(strings(&ranked.data), ["inf:2", "1.000000:1", "nan:0"]);
        let empty = rank(&floats(&[0, 3], &[]), 3, true, None).unwrap();
        assert_eq!(empty.shape.extents()[0], 0);
        assert!(empty.data.is_empty());
    }

    #[test]
    fn text_outputs_cannot_be_ranked() {
        let mut response = InferResponse {
            model_name: "m".to_owned(),
            model_version: "1".to_owned(),
            id: String::new(),
            parameters: Vec::new(),
            outputs: vec![(
                Tensor {
                    name: "text".to_owned(),
                    datatype: Datatype::Bytes,
                    shape: Shape::from_extents(&[0]),
                    data: Bytes::new(),
                },
                OutputParameters { classification: Some(1), ..OutputParameters::default() },
            )],
        };
        let refused = apply(&mut response, false, |_| None).unwrap_err();
        assert_eq!(refused.reason, Reason::Malformed);
        assert!(refused.message.contains("output `text`"), "{}", refused.message);
    }
}
