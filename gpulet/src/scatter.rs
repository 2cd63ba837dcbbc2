//! One batch's outputs back to its requests.

use models::engine::Member;
use oip::{Datatype, Tensor};

/// Splits every output along dimension 0 by the members' rows. Slices share the batch's memory. A single
/// member gets the outputs unchanged.
///
/// # Errors
/// An output has not as many rows as the members together.
pub fn scatter(outputs: Vec<Tensor>, members: &[Member]) -> Result<Vec<Vec<Tensor>>, String> {
    if members.len() == 1 {
        return Ok(vec![outputs]);
    }
    let rows: u64 = members.iter().map(|member| u64::from(member.rows)).sum();
    let mut answers: Vec<Vec<Tensor>> = members.iter().map(|_| Vec::with_capacity(outputs.len())).collect();
    for output in &outputs {
        let found = output.shape.extents().first().copied();
        if found != Some(rows) {
            let name = &output.name;
            return Err(format!(
                "output `{name}`: expected {rows} rows for the batch, got shape {}",
                output.shape
            ));
        }
        let mut rest = output.data.clone();
        for (member, answer) in members.iter().zip(&mut answers) {
            let length = leading_bytes(output, &rest, u64::from(member.rows), rows)
                .filter(|&length| length <= rest.len())
                .ok_or_else(|| {
                    format!("output `{}`: its data is shorter than its shape says", output.name)
                })?;
            let shape = output.shape.with_outermost(u64::from(member.rows));
            let data = rest.split_to(length);
            answer.push(Tensor { name: output.name.clone(), datatype: output.datatype, shape, data });
        }
    }
    Ok(answers)
}

/// Bytes that the next `rows` rows take at the start of `rest`.
fn leading_bytes(output: &Tensor, rest: &[u8], rows: u64, all_rows: u64) -> Option<usize> {
    if output.datatype != Datatype::Bytes {
        let row = (output.data.len() as u64).checked_div(all_rows)?;
        return usize::try_from(row.checked_mul(rows)?).ok();
    }
    let elements = output.shape.element_count()?.checked_div(all_rows)?.checked_mul(rows)?;
    let mut end = 0_usize;
    for _ in 0..elements {
        let prefix: [u8; 4] = rest.get(end..end.checked_add(4)?)?.try_into().ok()?;
        end = end.checked_add(4)?.checked_add(usize::try_from(u32::from_le_bytes(prefix)).ok()?)?;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::Shape;

    fn members(rows: &[u32]) -> Vec<Member> {
        rows.iter().map(|&rows| Member::of(Vec::new(), rows)).collect()
    }

    fn output(datatype: Datatype, extents: &[u64], data: &'static [u8]) -> Tensor {
        Tensor { name: "y".to_owned(), datatype, shape: Shape::from_extents(extents), data: data.into() }
    }

    #[test]
    fn each_request_gets_its_rows() {
        let answers =
            scatter(vec![output(Datatype::Uint8, &[3, 2], &[1, 2, 3, 4, 5, 6])], &members(&[1, 2])).unwrap();
        assert_eq!(&answers[0][0].data[..], [1, 2]);
        assert_eq!(&answers[1][0].data[..], [3, 4, 5, 6]);
        assert_eq!(answers[1][0].shape.extents(), [2, 2]);
    }

    #[test]
    fn strings_are_split_by_element() {
        let data = &[1, 0, 0, 0, b'a', 0, 0, 0, 0, 2, 0, 0, 0, b'b', b'c'];
        let answers = scatter(vec![output(Datatype::Bytes, &[3], data)], &members(&[2, 1])).unwrap();
        assert_eq!(&answers[0][0].data[..], [1, 0, 0, 0, b'a', 0, 0, 0, 0]);
        assert_eq!(&answers[1][0].data[..], [2, 0, 0, 0, b'b', b'c']);
    }

    #[test]
    fn a_model_that_lies_about_its_rows_is_found_out() {
        let error = scatter(vec![output(Datatype::Uint8, &[1, 2], &[1, 2])], &members(&[1, 1])).unwrap_err();
        assert_eq!(error, "output `y`: expected 2 rows for the batch, got shape [1,2]");
        assert!(scatter(vec![output(Datatype::Bytes, &[2], &[9, 0, 0, 0])], &members(&[1, 1])).is_err());
    }
}
