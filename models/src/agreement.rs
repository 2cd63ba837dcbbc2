//! Whether two answers to the same input are the same, but for the order in which numbers were added.

use oip::Tensor;

use crate::batching::{ROW_TOLERANCE, difference};

/// Whether outputs agree in names, types, shapes and values. Numbers may differ by a hundredth of the largest of their output: how
/// many threads share a sum, and how an engine fuses operators, changes its order.
///
/// # Errors
/// How they differ.
pub fn agree(known: &[Tensor], given: &[Tensor]) -> Result<(), String> {
    if given.len() != known.len() {
        return Err(format!("{} outputs: expected {}", given.len(), known.len()));
    }
    for expected in known {
        let Some(output) = given.iter().find(|output| output.name == expected.name) else {
            return Err(format!("output `{}` is missing", expected.name));
        };
        let same_form = expected.datatype == output.datatype && expected.shape == output.shape;
        if !same_form || difference(&expected.data, &output.data, expected.datatype) > ROW_TOLERANCE {
            return Err(format!("output `{}` differs", expected.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::{Datatype, Shape};

    fn output(name: &str, values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = Shape::from_extents(&[values.len() as u64]);
        Tensor { name: name.to_owned(), datatype: Datatype::Fp32, shape, data: data.into() }
    }

    #[test]
    fn small_differences_are_agreement_and_others_are_named() {
        let known = [output("a", &[1.0, 100.0]), output("b", &[0.0])];
        let same = [output("b", &[0.0]), output("a", &[1.5, 100.0])];
        assert_eq!(agree(&known, &same), Ok(()));
        for (given, expected) in [
            (vec![output("a", &[1.0, 100.0])], "1 outputs: expected 2"),
            (vec![output("a", &[1.0, 100.0]), output("c", &[0.0])], "output `b` is missing"),
            (vec![output("a", &[4.0, 100.0]), output("b", &[0.0])], "output `a` differs"),
            (vec![output("a", &[1.0, f32::NAN]), output("b", &[0.0])], "output `a` differs"),
            (vec![output("a", &[1.0]), output("b", &[0.0])], "output `a` differs"),
        ] {
            assert_eq!(agree(&known, &given).unwrap_err(), expected);
        }
    }
}
