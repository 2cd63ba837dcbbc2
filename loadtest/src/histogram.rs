//! HDR histograms as text, the way all HdrHistogram implementations exchange them: V2, deflated, base64.
//!
//! Ours count microseconds. Reading is bounded: a header that promises more than a histogram of times can hold is an
//! error before anything is allocated for it.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

/// Significant digits from which on a histogram is larger than ours ever are.
const DIGITS_MAX: u32 = 3;
/// Longest time that a histogram may have room for, in microseconds: nine years.
const HIGH_MAX: u64 = 1 << 48;
/// Most bytes of a histogram before they are deflated.
const BYTES_MAX: u64 = 1 << 20;
/// Cookie and length before the deflated part.
const OUTER_HEADER: usize = 8;
/// Cookie, length, offset, digits, lowest, highest, ratio (HdrHistogram's V2 encoding).
const INNER_HEADER: usize = 40;

/// Why a text is not a histogram of times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an HDR histogram (V2, deflated, base64): {0}")]
pub struct BadHistogram(String);

/// The histogram as text.
///
/// # Errors
/// If it holds more values than the format can say.
pub fn encode(histogram: &Histogram<u64>) -> Result<String, BadHistogram> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| BadHistogram(error.to_string()))?;
    Ok(STANDARD.encode(bytes))
}

/// The histogram that [`encode`], or another implementation of HdrHistogram, made the text from.
///
/// # Errors
/// If it is not one, or has room for more than times of nine years to three digits.
pub fn decode(text: &str) -> Result<Histogram<u64>, BadHistogram> {
    let bytes = STANDARD.decode(text).map_err(|error| bad(&error.to_string()))?;
    let deflated = bytes.get(OUTER_HEADER..).ok_or_else(|| bad("its header is cut off"))?;
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(deflated).take(BYTES_MAX + 1).read_to_end(&mut plain);
    read.map_err(|error| bad(&error.to_string()))?;
    check(&plain)?;
    Deserializer::new().deserialize(&mut plain.as_slice()).map_err(|error| bad(&error.to_string()))
}

/// What must hold before memory is spent on it.
fn check(plain: &[u8]) -> Result<(), BadHistogram> {
    let cut = || bad("its header is cut off");
    let short = |at: usize| {
        let bytes = plain.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or_else(cut)
    };
    let high = plain.get(24..32).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    let (length, digits, high) = (short(4)?, short(12)?, high.ok_or_else(cut)?);
    let counts = plain.len().checked_sub(INNER_HEADER).ok_or_else(cut)?;
    if plain.len() as u64 > BYTES_MAX || u64::from(length) != counts as u64 {
        return Err(bad("its length is not what its header says"));
    }
    if digits > DIGITS_MAX {
        return Err(bad(&format!("it has {digits} digits, at most {DIGITS_MAX}")));
    }
    if high > HIGH_MAX {
        return Err(bad("it has room for more than nine years"));
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
    fn what_is_written_is_read_back() {
        for values in [vec![], vec![1], vec![1_000, 25_000, 60_000_000]] {
            let histogram = filled(&values);
            let back = decode(&encode(&histogram).unwrap()).unwrap();
            assert_eq!(back.len(), histogram.len());
            assert_eq!(back.max(), histogram.max());
            assert!(back.iter_recorded().eq(histogram.iter_recorded()));
        }
    }

    #[test]
    fn what_is_none_is_said() {
        for (text, why) in [
            ("*", "Invalid symbol"),
            ("AAAA", "header is cut off"),
            ("HISTFAAAAAB4nA==", "incomplete deflate stream"),
        ] {
            let error = decode(text).unwrap_err().to_string();
            assert!(error.starts_with("not an HDR histogram") && error.contains(why), "{text}: {error}");
        }
        let fine = Histogram::<u64>::new_with_bounds(1, 1_000_000, 4).unwrap();
        assert!(decode(&encode(&fine).unwrap()).unwrap_err().to_string().contains("4 digits, at most 3"));
        let wide = Histogram::<u64>::new_with_bounds(1, u64::MAX / 2, 3).unwrap();
        assert!(decode(&encode(&wide).unwrap()).unwrap_err().to_string().contains("nine years"));
    }

    proptest! {
        /// Never a panic, never much memory, whatever the file says.
        #[test]
        fn any_header_is_survived(header in prop::collection::vec(any::<u8>(), 0..64), digits in 0..6_u32, high in any::<u64>()) {
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
