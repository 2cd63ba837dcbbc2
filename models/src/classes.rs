//! The classes that a classifier's output has: what quality is measured by, and what variants vote for.

use half::{bf16, f16};
use oip::{Datatype, Tensor};

/// The class of each of `rows` rows: a whole number, or the place of the largest of several numbers, the first of equal ones.
///
/// # Errors
/// The output has no numbers, or not the same number of values for each row.
pub fn classes(output: &Tensor, rows: usize) -> Result<Vec<i64>, String> {
    let (name, datatype, bytes) = (&output.name, output.datatype, output.data.len());
    let numbers = || {
        let expected = "expected whole numbers, or numbers for each class";
        format!("output `{name}`: {expected}, got {datatype}")
    };
    let size = datatype.size().ok_or_else(numbers)?;
    if rows == 0 {
        return Ok(Vec::new());
    }
    let width = bytes / rows;
    if width == 0 || !width.is_multiple_of(size) || width * rows != bytes {
        let values = bytes / size;
        let expected = "expected at least one value for each row, and as many for each";
        return Err(format!("output `{name}`: {expected}, got {values} values for {rows} rows"));
    }
    let each = output.data.chunks_exact(width);
    each.map(|row| whole_number(datatype, row).or_else(|| largest(datatype, row)).ok_or_else(numbers))
        .collect()
}

/// A single whole number that fits into 64 bits with a sign.
pub fn whole_number(datatype: Datatype, data: &[u8]) -> Option<i64> {
    Some(match datatype {
        Datatype::Int8 => i64::from(i8::from_le_bytes(data.try_into().ok()?)),
        Datatype::Uint8 => i64::from(u8::from_le_bytes(data.try_into().ok()?)),
        Datatype::Int16 => i64::from(i16::from_le_bytes(data.try_into().ok()?)),
        Datatype::Uint16 => i64::from(u16::from_le_bytes(data.try_into().ok()?)),
        Datatype::Int32 => i64::from(i32::from_le_bytes(data.try_into().ok()?)),
        Datatype::Uint32 => i64::from(u32::from_le_bytes(data.try_into().ok()?)),
        Datatype::Int64 => i64::from_le_bytes(data.try_into().ok()?),
        Datatype::Bool
        | Datatype::Uint64
        | Datatype::Fp16
        | Datatype::Bf16
        | Datatype::Fp32
        | Datatype::Fp64
        | Datatype::Bytes => return None,
    })
}

/// The place of the largest number, the first of equal ones.
fn largest(datatype: Datatype, row: &[u8]) -> Option<i64> {
    match datatype {
        Datatype::Bool | Datatype::Uint8 => first_largest(row, u8::from_le_bytes),
        Datatype::Uint16 => first_largest(row, u16::from_le_bytes),
        Datatype::Uint32 => first_largest(row, u32::from_le_bytes),
        Datatype::Uint64 => first_largest(row, u64::from_le_bytes),
        Datatype::Int8 => first_largest(row, i8::from_le_bytes),
        Datatype::Int16 => first_largest(row, i16::from_le_bytes),
        Datatype::Int32 => first_largest(row, i32::from_le_bytes),
        Datatype::Int64 => first_largest(row, i64::from_le_bytes),
        Datatype::Fp16 => first_largest(row, f16::from_le_bytes),
        Datatype::Bf16 => first_largest(row, bf16::from_le_bytes),
        Datatype::Fp32 => first_largest(row, f32::from_le_bytes),
        Datatype::Fp64 => first_largest(row, f64::from_le_bytes),
        Datatype::Bytes => None,
    }
}

fn first_largest<const N: usize, T: PartialOrd>(row: &[u8], read: impl Fn([u8; N]) -> T) -> Option<i64> {
    let mut best: Option<(i64, T)> = None;
    for (place, bytes) in (0..).zip(row.as_chunks::<N>().0) {
        let number = read(*bytes);
        if best.as_ref().is_none_or(|(_, most)| number > *most) {
            best = Some((place, number));
        }
    }
    best.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use oip::Shape;

    use super::*;

    fn tensor(datatype: Datatype, data: Vec<u8>) -> Tensor {
        Tensor { name: "y".to_owned(), datatype, shape: Shape::from_extents(&[1]), data: data.into() }
    }

    #[test]
    fn a_class_is_a_whole_number_or_the_place_of_the_largest() {
        assert_eq!(whole_number(Datatype::Int64, &7_i64.to_le_bytes()), Some(7));
        assert_eq!(whole_number(Datatype::Uint8, &[200]), Some(200));
        assert_eq!(whole_number(Datatype::Int32, &(-1_i32).to_le_bytes()), Some(-1));
        assert_eq!(whole_number(Datatype::Fp32, &1_f32.to_le_bytes()), None);
        let scores: Vec<u8> = [0.1_f32, 0.7, 0.7, 0.2, -3.0, -1.0, -2.0, -2.0]
            .iter()
            .flat_map(|one| one.to_le_bytes())
            .collect();
        assert_eq!(classes(&tensor(Datatype::Fp32, scores.clone()), 2), Ok(vec![1, 1]));
        assert_eq!(classes(&tensor(Datatype::Fp32, scores), 1), Ok(vec![1]));
        assert_eq!(classes(&tensor(Datatype::Uint8, vec![3, 9, 4, 4]), 2), Ok(vec![1, 0]));
        assert_eq!(classes(&tensor(Datatype::Int8, vec![3, 0xff]), 2), Ok(vec![3, -1]));
        let halves: Vec<u8> = [1.5, 2.5].iter().flat_map(|one| f16::from_f32(*one).to_le_bytes()).collect();
        assert_eq!(classes(&tensor(Datatype::Fp16, halves), 1), Ok(vec![1]));
    }

    #[test]
    fn outputs_without_classes_are_named() {
        let text = classes(&tensor(Datatype::Bytes, vec![0; 4]), 1).unwrap_err();
        assert_eq!(text, "output `y`: expected whole numbers, or numbers for each class, got BYTES");
        for (bytes, rows) in [(8, 3), (0, 1), (6, 1)] {
            let text = classes(&tensor(Datatype::Fp32, vec![0; bytes]), rows).unwrap_err();
            assert!(text.contains("expected at least one value for each row"), "{text}");
        }
        assert_eq!(classes(&tensor(Datatype::Fp32, vec![]), 0), Ok(vec![]));
    }
}
