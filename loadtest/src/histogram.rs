//! HDR histograms as text, in the exchange format of all HdrHistogram implementations: V2, deflated, base64.
//!
//! Ours count microseconds. Reading is bounded: the library allocates what a header claims, so a header that claims more
//! than a histogram of times needs is refused first.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

/// More significant digits than ours ever have are refused.
const DIGITS_MAX: u32 = 3;
/// Largest time range of a histogram, in microseconds: nine years.
const HIGH_MAX: u64 = 1 << 48;
/// Upper bound on the bytes of a histogram after inflation.
const BYTES_MAX: u64 = 1 << 20;
/// Cookie and length before the deflated part.
const OUTER_HEADER: usize = 8;
/// Cookie, length, offset, digits, lowest, highest, ratio (HdrHistogram's V2 encoding).
const INNER_HEADER: usize = 40;

/// A text is not a histogram of times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an HDR histogram (V2, deflated, base64): {0}")]
pub struct BadHistogram(String);

/// The histogram as text.
///
/// # Errors
/// It holds more values than the format can represent.
pub fn encode(histogram: &Histogram<u64>) -> Result<String, BadHistogram> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| BadHistogram(error.to_string()))?;
    Ok(STANDARD.encode(bytes))
}

/// The histogram of a text that [`encode`], or another implementation of HdrHistogram, wrote.
///
/// # Errors
/// It is not a histogram, or its range exceeds nine years or three digits.
pub fn decode(text: &str) -> Result<Histogram<u64>, BadHistogram> {
    let bytes = STANDARD.decode(text).map_err(|error| bad(&error.to_string()))?;
    let deflated = bytes.get(OUTER_HEADER..).ok_or_else(|| bad("its header is truncated"))?;
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(deflated).take(BYTES_MAX + 1).read_to_end(&mut plain);
    read.map_err(|error| bad(&error.to_string()))?;
    check(&plain)?;
    Deserializer::new().deserialize(&mut plain.as_slice()).map_err(|error| bad(&error.to_string()))
}

/// Checks the header before memory is allocated for it.
fn check(plain: &[u8]) -> Result<(), BadHistogram> {
    let truncated = || bad("its header is truncated");
    let short = |at: usize| {
        let bytes = plain.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or_else(truncated)
    };
    let high = plain.get(24..32).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    let (length, digits, high) = (short(4)?, short(12)?, high.ok_or_else(truncated)?);
    let counts = plain.len().checked_sub(INNER_HEADER).ok_or_else(truncated)?;
    if plain.len() as u64 > BYTES_MAX || u64::from(length) != counts as u64 {
        return Err(bad("its length differs from its header"));
    }
    if digits > DIGITS_MAX {
        return Err(bad(&format!("expected at most {DIGITS_MAX} digits, got {digits}")));
    }
    if high > HIGH_MAX {
        return Err(bad("its range exceeds nine years"));
    }
    Ok(())
}

fn bad(why: &str) -> BadHistogram {
    BadHistogram(why.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(values: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        values.iter().for_each(|value| histogram.record(*value).unwrap());
        histogram
    }

    #[test]
    fn a_histogram_survives_a_round_trip() {
        for values in [vec![], vec![1], vec![1_000, 25_000, 60_000_000]] {
            let histogram = filled(&values);
            let back = decode(&encode(&histogram).unwrap()).unwrap();
            assert_eq!(back.len(), histogram.len());
            assert_eq!(back.max(), histogram.max());
            assert!(back.iter_recorded().eq(histogram.iter_recorded()));
        }
    }

    #[test]
    fn other_text_is_refused() {
        for (text, why) in [
            ("*", "Invalid symbol"),
            ("AAAA", "header is truncated"),
            ("HISTFAAAAAB4nA==", "incomplete deflate stream"),
        ] {
            let error = decode(text).unwrap_err().to_string();
            assert!(error.starts_with("not an HDR histogram") && error.contains(why), "{text}: {error}");
        }
        let fine = Histogram::<u64>::new_with_bounds(1, 1_000_000, 4).unwrap();
        assert!(
            decode(&encode(&fine).unwrap())
                .unwrap_err()
                .to_string()
                .contains("expected at most 3 digits, got 4")
        );
        let wide = Histogram::<u64>::new_with_bounds(1, u64::MAX / 2, 3).unwrap();
        assert!(decode(&encode(&wide).unwrap()).unwrap_err().to_string().contains("nine years"));
    }

    proptest! {
        /// No header causes a panic or a large allocation.
        #[test]
        fn any_header_is_handled(header in prop::collection::vec(any::<u8>(), 0..64), digits in 0..6_u32, high in any::<u64>()) {
            let mut plain = header;
            plain.resize(64, 0);
            plain[..4].copy_from_slice(&0x1c84_9303_u32.to_be_bytes());
            plain[4..8].copy_from_slice(&24_u32.to_be_bytes());
            plain[8..12].fill(0);
            plain[12..16].copy_from_slice(&digits.to_be_bytes());
            plain[24..32].copy_from_slice(&high.to_be_bytes());
            plain[32..40].copy_from_slice(&1.0_f64.to_be_bytes());
            let mut bytes = 0x1c84_9314_u32.to_be_bytes().to_vec();
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            std::io::Write::write_all(&mut encoder, &plain).unwrap();
            let deflated = encoder.finish().unwrap();
            bytes.extend(u32::try_from(deflated.len()).unwrap().to_be_bytes());
            bytes.extend(deflated);
            let _ = decode(&STANDARD.encode(bytes));
        }
    }
}
