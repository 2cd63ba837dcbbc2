//! The name of the model in the first bytes of a `ModelInfer` call, without decoding the rest.

use std::io::Read;

use flate2::read::{GzDecoder, ZlibDecoder};

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// Most of a compressed message that is inflated. Names come first.
const INFLATED_MAX: u64 = 4 * 1024;

/// What the first bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The name.
    Name(String),
    /// More bytes are needed.
    NotYet,
    /// The message has no name, or cannot be read.
    Nothing,
}

/// Finds the name in the first bytes of a call. `coding`: what compressed messages are compressed with.
pub fn find(bytes: &[u8], coding: Option<&str>) -> Found {
    let Some((prefix, message)) = bytes.split_at_checked(PREFIX) else { return Found::NotYet };
    let (Some((compressed, length)), false) = (prefix.split_first(), message.is_empty()) else {
        return Found::NotYet;
    };
    let length = length.iter().fold(0_usize, |length, byte| (length << 8) | usize::from(*byte));
    let message = message.get(..length).unwrap_or(message);
    let is_whole = message.len() == length;
    let found = match (compressed, coding) {
        (0, _) => name(message),
        (1, Some("gzip")) => name(&inflated(GzDecoder::new(message))),
        (1, Some("deflate")) => name(&inflated(ZlibDecoder::new(message))),
        _ => Found::Nothing,
    };
    if is_whole && found == Found::NotYet { Found::Nothing } else { found }
}

/// As much as the bytes give.
fn inflated(decoder: impl Read) -> Vec<u8> {
    let mut text = Vec::new();
    // What came before an error, such as the end of the bytes, is in the buffer.
    let _ = decoder.take(INFLATED_MAX).read_to_end(&mut text);
    text
}

/// Field 1 of a protobuf message.
fn name(mut message: &[u8]) -> Found {
    loop {
        let Some(key) = varint(&mut message) else { return Found::NotYet };
        let size = match key & 7 {
            0 => match varint(&mut message) {
                Some(_) => 0,
                None => return Found::NotYet,
            },
            1 => 8,
            2 => match varint(&mut message) {
                Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
                None => return Found::NotYet,
            },
            5 => 4,
            _ => return Found::Nothing,
        };
        let Some((value, rest)) = message.split_at_checked(size) else { return Found::NotYet };
        if key == (1 << 3 | 2) {
            return std::str::from_utf8(value).map_or(Found::Nothing, |name| Found::Name(name.to_owned()));
        }
        message = rest;
    }
}

/// Takes a number of at most ten bytes. `None`: it is not complete.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use oip::proto::ModelInferRequest;
    use prost::Message as _;
    use std::io::Write as _;

    fn message() -> Vec<u8> {
        ModelInferRequest {
            model_name: "resnet".to_owned(),
            model_version: "3".to_owned(),
            raw_input_contents: vec![vec![7; 10_000].into()],
            ..Default::default()
        }
        .encode_to_vec()
    }

    fn framed(compressed: u8, message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![compressed];
        bytes.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend(message);
        bytes
    }

    fn found(name: &str) -> Found {
        Found::Name(name.to_owned())
    }

    #[test]
    fn the_name_is_found_as_soon_as_it_is_there() {
        let bytes = framed(0, &message());
        let least = PREFIX + 2 + "resnet".len();
        for length in 0..least {
            assert_eq!(find(&bytes[..length], None), Found::NotYet, "{length}");
        }
        assert_eq!(find(&bytes[..least], None), found("resnet"));
    }

    #[test]
    fn fields_before_the_name_are_skipped() {
        let version = ModelInferRequest { model_version: "3".to_owned(), ..Default::default() };
        let name = ModelInferRequest { model_name: "m".to_owned(), ..Default::default() };
        let mut message = version.encode_to_vec();
        // A number, and a field of each fixed size.
        message.extend([0x78, 0x96, 1, 0x79, 1, 2, 3, 4, 5, 6, 7, 8, 0x7d, 1, 2, 3, 4]);
        message.extend(name.encode_to_vec());
        assert_eq!(find(&framed(0, &message), None), found("m"));
    }

    #[test]
    fn compressed_messages_are_inflated_as_far_as_needed() {
        let (mut gzip, mut zlib) = (
            GzEncoder::new(Vec::new(), Compression::fast()),
            ZlibEncoder::new(Vec::new(), Compression::fast()),
        );
        gzip.write_all(&message()).unwrap();
        zlib.write_all(&message()).unwrap();
        assert_eq!(find(&framed(1, &gzip.finish().unwrap()), Some("gzip")), found("resnet"));
        assert_eq!(find(&framed(1, &zlib.finish().unwrap()), Some("deflate")), found("resnet"));
        assert_eq!(find(&framed(1, b"abc"), Some("zstd")), Found::Nothing);
    }

    #[test]
    fn messages_without_a_name_are_told_apart_from_those_to_come() {
        for message in [&[][..], &[0x12, 1, b'3'], &[0x0a, 9, b'a'], &[0x0a, 1, 0xff], &[0x0b], &[0xff; 12]] {
            let mut bytes = framed(0, message);
            bytes.push(0);
            assert_eq!(find(&bytes, None), Found::Nothing, "{message:?}");
        }
        assert_eq!(find(&framed(0, &[]), None), Found::NotYet);
    }
}
