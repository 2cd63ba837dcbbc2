//! Comparison of tensors.

use half::{bf16, f16};
use oip::{Datatype, Tensor};

/// Compares element by element: integers and strings exactly, others within `tolerance`, absolute or relative to the
/// expected value, whichever is larger.
pub(crate) fn compare(expected: &Tensor, found: &Tensor, tolerance: f64) -> Result<(), String> {
    if expected.datatype != found.datatype {
        return Err(format!("expected {}, got {}", expected.datatype, found.datatype));
    }
    if expected.shape != found.shape {
        return Err(format!("expected shape {}, got {}", expected.shape, found.shape));
    }
    match (reals(expected), reals(found)) {
        (Some(expected), Some(found)) => {
            for (index, (expected, found)) in expected.into_iter().zip(found).enumerate() {
                let near = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
                if !(near || found == expected || found.is_nan() && expected.is_nan()) {
                    return Err(format!("element {index}: expected {expected}, got {found}"));
                }
            }
            Ok(())
        }
        _ if expected.data == found.data => Ok(()),
        _ => {
            let differ =
                expected.data.iter().zip(&found.data).position(|(expected, found)| expected != found);
            let at = differ.unwrap_or(expected.data.len().min(found.data.len()));
            let size = expected.datatype.size().unwrap_or(1);
            Err(match expected.datatype {
                Datatype::Bytes => format!("the strings differ from byte {at} on"),
                _ => {
                    let [wanted, got] = [expected, found].map(|tensor| whole(tensor, at / size));
                    format!("element {}: expected {wanted}, got {got}", at / size)
                }
            })
        }
    }
}

/// An element of a tensor of whole numbers, or of truth values as 0 and 1.
fn whole(tensor: &Tensor, element: usize) -> i128 {
    let size = tensor.datatype.size().unwrap_or(1);
    let bytes = tensor.data.chunks(size).nth(element).unwrap_or_default();
    let is_signed =
        matches!(tensor.datatype, Datatype::Int8 | Datatype::Int16 | Datatype::Int32 | Datatype::Int64);
    let is_negative = is_signed && bytes.last().is_some_and(|last| *last >= 0x80);
    let mut whole = [if is_negative { 0xff } else { 0 }; 16];
    whole.iter_mut().zip(bytes).for_each(|(into, from)| *into = *from);
    i128::from_le_bytes(whole)
}

/// The values of a tensor of a floating-point type.
fn reals(tensor: &Tensor) -> Option<Vec<f64>> {
    let data = &tensor.data;
    match tensor.datatype {
        Datatype::Fp16 => Some(each(data, |bytes| f16::from_le_bytes(bytes).to_f64())),
        Datatype::Bf16 => Some(each(data, |bytes| bf16::from_le_bytes(bytes).to_f64())),
        Datatype::Fp32 => Some(each(data, |bytes| f64::from(f32::from_le_bytes(bytes)))),
        Datatype::Fp64 => Some(each(data, f64::from_le_bytes)),
        Datatype::Bool
        | Datatype::Uint8
        | Datatype::Uint16
        | Datatype::Uint32
        | Datatype::Uint64
        | Datatype::Int8
        | Datatype::Int16
        | Datatype::Int32
        | Datatype::Int64
        | Datatype::Bytes => None,
    }
}

fn each<const N: usize>(data: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    data.as_chunks::<N>().0.iter().map(|&bytes| value(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use oip::Shape;

    fn tensor(datatype: Datatype, data: impl Into<Bytes>, count: u64) -> Tensor {
        Tensor { name: "y".into(), datatype, shape: Shape::from_extents(&[count]), data: data.into() }
    }

    fn singles(values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        tensor(Datatype::Fp32, data, values.len() as u64)
    }

    #[test]
    fn reals_may_be_a_little_off_and_nothing_else_may() {
        assert_eq!(compare(&singles(&[1.0, 100.0]), &singles(&[1.001, 100.1]), 1e-2), Ok(()));
        assert_eq!(compare(&singles(&[f32::NAN]), &singles(&[f32::NAN]), 0.0), Ok(()));
        let off = compare(&singles(&[1.0, 2.0]), &singles(&[1.0, 3.0]), 1e-2).unwrap_err();
        assert_eq!(off, "element 1: expected 2, got 3");
        assert!(compare(&singles(&[1.0]), &singles(&[f32::NAN]), 1e-2).is_err());
        let whole = |values: &[i32]| {
            let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensor(Datatype::Int32, data, values.len() as u64)
        };
        let off = compare(&whole(&[7, 8]), &whole(&[7, 9]), 1.0).unwrap_err();
        assert_eq!(off, "element 1: expected 8, got 9");
        let off = compare(&whole(&[-7]), &whole(&[i32::MAX]), 1.0).unwrap_err();
        assert_eq!(off, "element 0: expected -7, got 2147483647");
        assert!(compare(&whole(&[7]), &singles(&[7.0]), 1.0).unwrap_err().contains("expected INT32"));
        assert!(compare(&whole(&[7]), &whole(&[7, 7]), 1.0).unwrap_err().contains("expected shape [1]"));
        let text = |text: &'static str| tensor(Datatype::Bytes, Bytes::from_static(text.as_bytes()), 1);
        let off = compare(&text("\x02\0\0\0ab"), &text("\x02\0\0\0ac"), 1.0).unwrap_err();
        assert_eq!(off, "the strings differ from byte 5 on");
    }
}
