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

/// How far outputs are from others.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The output that differs most.
    pub output: String,
    /// The largest difference of a number, as a share of the largest number of its output. Infinite if one is not a number, and 1 if
    /// values that are not numbers differ.
    pub share: f64,
}

/// The largest difference between outputs; `None` if all bits are the same.
///
/// # Errors
/// An output is missing, or has another type or shape.
pub fn largest_difference(known: &[Tensor], given: &[Tensor]) -> Result<Option<Difference>, String> {
    let mut largest: Option<Difference> = None;
    for expected in known {
        let Some(output) = given.iter().find(|output| output.name == expected.name) else {
            return Err(format!("output `{}` is missing", expected.name));
        };
        if expected.datatype != output.datatype || expected.shape != output.shape {
            let form = |tensor: &Tensor| format!("{} {}", tensor.datatype.as_str(), tensor.shape);
            return Err(format!("output `{}` is {}: expected {}", output.name, form(output), form(expected)));
        }
        if expected.data == output.data {
            continue;
        }
        let share = difference(&expected.data, &output.data, expected.datatype);
        if largest.as_ref().is_none_or(|largest| share > largest.share) {
            largest = Some(Difference { output: expected.name.clone(), share });
        }
    }
    Ok(largest)
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
    fn the_largest_difference_is_a_share_of_the_largest_value() {
        let known = [output("a", &[1.0, 100.0]), output("b", &[8.0])];
        assert_eq!(largest_difference(&known, &known), Ok(None));
        let given = [output("a", &[2.0, 100.0]), output("b", &[7.0])];
        let expected = Difference { output: "b".to_owned(), share: 0.125 };
        assert_eq!(largest_difference(&known, &given), Ok(Some(expected)));
        let shorter = largest_difference(&known, &[output("a", &[1.0]), output("b", &[8.0])]);
        assert_eq!(shorter.unwrap_err(), "output `a` is FP32 [1]: expected FP32 [2]");
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
