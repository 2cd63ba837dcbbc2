//! Values in the datatype that a model has.

use bytes::Bytes;
use half::{bf16, f16};
use oip::{Datatype, Tensor};

/// A tensor in another datatype. Whole numbers become floats and smaller or larger whole numbers, floats become other floats with the
/// nearest value. Texts, and floats that would become whole numbers, do not change.
///
/// # Errors
/// A value that the datatype does not have.
pub fn cast(tensor: Tensor, to: Datatype) -> Result<Tensor, String> {
    if tensor.datatype == to {
        return Ok(tensor);
    }
    let from = tensor.datatype;
    let cannot = || format!("is {from}, and the model's is {to}");
    let data = match (numbers(from, &tensor.data), to) {
        (None, _) | (_, Datatype::Bytes) => return Err(cannot()),
        (Some(Numbers::Whole(numbers)), _) => whole(&numbers, to)?,
        (Some(Numbers::Floats(numbers)), _) => floats(&numbers, to).ok_or_else(cannot)?,
    };
    Ok(Tensor { datatype: to, data, ..tensor })
}

enum Numbers {
    Whole(Vec<i128>),
    Floats(Vec<f64>),
}

/// `data` as numbers. `None`: it is text.
fn numbers(datatype: Datatype, data: &[u8]) -> Option<Numbers> {
    macro_rules! read {
        ($kind:ident, $size:literal, $of:expr) => {
            Numbers::$kind(data.as_chunks::<$size>().0.iter().map(|bytes| $of(*bytes).into()).collect())
        };
    }
    Some(match datatype {
        Datatype::Bool | Datatype::Uint8 => read!(Whole, 1, u8::from_le_bytes),
        Datatype::Uint16 => read!(Whole, 2, u16::from_le_bytes),
        Datatype::Uint32 => read!(Whole, 4, u32::from_le_bytes),
        Datatype::Uint64 => read!(Whole, 8, u64::from_le_bytes),
        Datatype::Int8 => read!(Whole, 1, i8::from_le_bytes),
        Datatype::Int16 => read!(Whole, 2, i16::from_le_bytes),
        Datatype::Int32 => read!(Whole, 4, i32::from_le_bytes),
        Datatype::Int64 => read!(Whole, 8, i64::from_le_bytes),
        Datatype::Fp16 => read!(Floats, 2, f16::from_le_bytes),
        Datatype::Bf16 => read!(Floats, 2, bf16::from_le_bytes),
        Datatype::Fp32 => read!(Floats, 4, f32::from_le_bytes),
        Datatype::Fp64 => read!(Floats, 8, f64::from_le_bytes),
        Datatype::Bytes => return None,
    })
}

fn whole(numbers: &[i128], to: Datatype) -> Result<Bytes, String> {
    macro_rules! write {
        ($of:ty) => {{
            let mut data = Vec::with_capacity(numbers.len() * size_of::<$of>());
            for number in numbers {
                let value = <$of>::try_from(*number);
                let value = value.map_err(|_| format!("has the value {number}, which {to} does not have"))?;
                data.extend_from_slice(&value.to_le_bytes());
            }
            Ok(data.into())
        }};
    }
    match to {
        Datatype::Bool => match numbers.iter().find(|number| !(0..=1).contains(*number)) {
            None => Ok(numbers.iter().map(|number| u8::from(*number == 1)).collect()),
            Some(number) => Err(format!("has the value {number}, which {to} does not have")),
        },
        Datatype::Uint8 => write!(u8),
        Datatype::Uint16 => write!(u16),
        Datatype::Uint32 => write!(u32),
        Datatype::Uint64 => write!(u64),
        Datatype::Int8 => write!(i8),
        Datatype::Int16 => write!(i16),
        Datatype::Int32 => write!(i32),
        Datatype::Int64 => write!(i64),
        _ => {
            let numbers: Vec<f64> = numbers.iter().map(|number| *number as f64).collect();
            floats(&numbers, to).ok_or_else(|| format!("has numbers, and the model's is {to}"))
        }
    }
}

/// `None`: not a datatype of floats.
#[expect(clippy::cast_possible_truncation, reason = "the nearest value is what is asked for")]
fn floats(numbers: &[f64], to: Datatype) -> Option<Bytes> {
    let numbers = numbers.iter();
    Some(match to {
        Datatype::Fp16 => numbers.flat_map(|number| f16::from_f64(*number).to_le_bytes()).collect(),
        Datatype::Bf16 => numbers.flat_map(|number| bf16::from_f64(*number).to_le_bytes()).collect(),
        Datatype::Fp32 => numbers.flat_map(|number| (*number as f32).to_le_bytes()).collect(),
        Datatype::Fp64 => numbers.flat_map(|number| number.to_le_bytes()).collect(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use oip::Shape;

    use super::*;

    fn tensor(datatype: Datatype, data: Vec<u8>) -> Tensor {
        Tensor { name: "x".to_owned(), datatype, shape: Shape::from_extents(&[1]), data: data.into() }
    }

    #[test]
    fn values_that_a_datatype_has_are_cast_and_others_are_named() {
        let long = |value: i64| tensor(Datatype::Int64, value.to_le_bytes().to_vec());
        let double = |value: f64| tensor(Datatype::Fp64, value.to_le_bytes().to_vec());
        assert_eq!(&cast(long(-3), Datatype::Int32).unwrap().data[..], (-3_i32).to_le_bytes());
        assert_eq!(&cast(long(7), Datatype::Fp32).unwrap().data[..], 7_f32.to_le_bytes());
        assert_eq!(&cast(double(0.1), Datatype::Fp32).unwrap().data[..], 0.1_f32.to_le_bytes());
        assert_eq!(&cast(double(1.5), Datatype::Bf16).unwrap().data[..], bf16::from_f32(1.5).to_le_bytes());
        assert!(cast(double(f64::NAN), Datatype::Fp16).unwrap().data.len() == 2);
        assert_eq!(cast(long(1), Datatype::Bool).unwrap().data[..], [1]);
        assert!(cast(long(300), Datatype::Uint8).unwrap_err().contains("the value 300, which UINT8"));
        assert!(cast(long(2), Datatype::Bool).unwrap_err().contains("the value 2"));
        assert!(
            cast(double(1.0), Datatype::Int32).unwrap_err().contains("is FP64, and the model's is INT32")
        );
        assert!(cast(long(1), Datatype::Bytes).is_err());
        assert!(cast(tensor(Datatype::Bytes, vec![0; 4]), Datatype::Fp32).is_err());
    }

    #[test]
    fn every_number_of_a_smaller_datatype_survives_the_way_there_and_back() {
        for number in 0..=u16::MAX {
            let own = tensor(Datatype::Fp16, number.to_le_bytes().to_vec());
            if f16::from_bits(number).is_nan() {
                continue;
            }
            for wide in [Datatype::Fp32, Datatype::Fp64] {
                let there = cast(own.clone(), wide).unwrap();
                assert_eq!(cast(there, Datatype::Fp16).unwrap(), own);
            }
            let own = tensor(Datatype::Int16, number.to_le_bytes().to_vec());
            let there = cast(own.clone(), Datatype::Int64).unwrap();
            assert_eq!(cast(there, Datatype::Int16).unwrap(), own);
        }
    }
}
