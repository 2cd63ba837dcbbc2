//! BYTES elements: each a 4-byte little-endian length followed by that many bytes.

use bytes::{BufMut, BytesMut};

/// The elements of a BYTES tensor, borrowed.
pub(super) fn decode(mut data: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut elements = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (element, rest) = rest
            .split_at_checked(length)
            .ok_or_else(|| format!("BYTES element {} is longer than its tensor", elements.len()))?;
        elements.push(element);
        data = rest;
    }
    if data.is_empty() { Ok(elements) } else { Err("BYTES tensor ends inside a length".to_owned()) }
}

/// Appends one element.
pub(super) fn encode(element: &[u8], target: &mut BytesMut) -> Result<(), String> {
    let length =
        u32::try_from(element.len()).map_err(|_| "a BYTES element is longer than 4 GiB".to_owned())?;
    target.reserve(element.len().saturating_add(4));
    target.put_u32_le(length);
    target.put_slice(element);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_a_round_trip_and_cuts_are_refused() {
        let mut encoded = BytesMut::new();
        for element in [b"abc".as_slice(), b"", b"\xff\0"] {
            encode(element, &mut encoded).unwrap();
        }
        assert_eq!(decode(&encoded).unwrap(), [b"abc".as_slice(), b"", b"\xff\0"]);
        assert!(decode(&encoded[..encoded.len() - 1]).is_err());
        assert!(decode(&encoded[..2]).is_err());
    }
}
