//! Rows between the files of a client and the model: tensors in the protocol's binary form, with their lengths in front.
//!
//! ```text
//! u32 little-endian   bytes that follow
//! u32 little-endian   bytes of the JSON text among them
//! JSON text, binary data
//! ```

use std::io::{self, BufReader, Read};

use bytes::Bytes;
use oip::{InferResponse, Limits, OutputParameters, Parameter, Tensor};

use crate::FormatError;

/// Bytes in front of the JSON text.
pub const PREFIX: usize = 8;
const ERROR: &str = "error";

/// The tensors of a row, or why it has none.
pub type Row = Result<Vec<Tensor>, String>;

/// A row as a record, whose prefix is included.
///
/// # Errors
/// Data and shape of a tensor do not agree, or it is too large for a record.
pub fn encode(row: Row) -> Result<Bytes, FormatError> {
    let mut message = InferResponse {
        model_name: String::new(),
        model_version: String::new(),
        id: String::new(),
        parameters: Vec::new(),
        outputs: Vec::new(),
    };
    match row {
        Ok(tensors) => {
            message.outputs =
                tensors.into_iter().map(|tensor| (tensor, OutputParameters::default())).collect();
        }
        Err(error) => message.parameters.push((ERROR.to_owned(), Parameter::String(error))),
    }
    let encoded = oip::json::encode_infer(&message, true);
    let encoded = encoded.map_err(|error| FormatError::Input(error.to_string()))?;
    let too_long = |_| FormatError::Input("a row has more than 4 GiB".to_owned());
    let text = u32::try_from(encoded.head.len()).map_err(too_long)?;
    let length = u32::try_from(encoded.body_len().saturating_add(4)).map_err(too_long)?;
    let mut record = Vec::with_capacity(encoded.body_len() + PREFIX);
    record.extend_from_slice(&length.to_le_bytes());
    record.extend_from_slice(&text.to_le_bytes());
    record.extend_from_slice(&encoded.head);
    encoded.tail.iter().for_each(|part| record.extend_from_slice(part));
    Ok(record.into())
}

/// A record, prefix included, as a row.
///
/// # Errors
/// It was not written by [`encode`].
pub fn decode(record: &Bytes) -> Result<Row, FormatError> {
    let damaged = || FormatError::Input("a record is damaged".to_owned());
    let text = record.get(4..PREFIX).and_then(|text| text.try_into().ok()).ok_or_else(damaged)?;
    let text = usize::try_from(u32::from_le_bytes(text)).map_err(|_| damaged())?;
    let limits = Limits {
        body_bytes: usize::MAX,
        tensor_bytes: usize::MAX,
        tensors: Limits::TENSORS_MAX,
        ..Limits::default()
    };
    let message = oip::json::decode_response(&record.slice(PREFIX..), Some(text), &limits);
    let message = message.map_err(|_| damaged())?;
    for (name, value) in message.parameters {
        if let (ERROR, Parameter::String(error)) = (name.as_str(), value) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(message.outputs.into_iter().map(|(tensor, _)| tensor).collect()))
}

/// Reads the next record, prefix included. `None` at the end.
///
/// # Errors
/// The file ends inside of a record, or cannot be read.
pub fn next(reader: &mut impl Read) -> io::Result<Option<Bytes>> {
    let mut prefix = [0; 4];
    match reader.read(&mut prefix)? {
        0 => return Ok(None),
        read => reader.read_exact(prefix.get_mut(read..).unwrap_or_default())?,
    }
    let length = u32::from_le_bytes(prefix);
    let mut record = prefix.to_vec();
    // Grows as bytes arrive, so a damaged length allocates nothing.
    let read = reader.take(u64::from(length)).read_to_end(&mut record)?;
    if read as u64 != u64::from(length) || record.len() < PREFIX {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends inside of a record"));
    }
    Ok(Some(record.into()))
}

/// Rows of records, in order.
pub struct Records<R>(BufReader<R>);

impl<R: Read> Records<R> {
    /// Rows of what is read from here on.
    pub fn new(reader: R) -> Self {
        Self(BufReader::with_capacity(256 << 10, reader))
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = Result<Row, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = next(&mut self.0).map_err(FormatError::from).transpose()?;
        Some(record.and_then(|record| decode(&record)))
    }
}

#[cfg(test)]
mod tests {
    use oip::{Datatype, Shape};

    use super::*;

    #[test]
    fn rows_come_back_as_they_were() {
        let tensor = Tensor {
            name: String::new(),
            datatype: Datatype::Fp32,
            shape: Shape::from_extents(&[2]),
            data: Bytes::from_static(&[0, 0, 0xc0, 0x7f, 1, 2, 3, 4]),
        };
        let scalar =
            Tensor { shape: Shape::from_extents(&[]), data: Bytes::from_static(&[0; 4]), ..tensor.clone() };
        let rows: Vec<Row> = vec![
            Ok(vec![tensor, Tensor { name: "y".to_owned(), ..scalar }]),
            Err("too \"long\"\n".to_owned()),
            Ok(Vec::new()),
        ];
        let file: Vec<u8> = rows.iter().flat_map(|row| encode(row.clone()).unwrap()).collect();
        let read: Result<Vec<Row>, _> = Records::new(file.as_slice()).collect();
        assert_eq!(read.unwrap(), rows);
        for short in 1..file.len() {
            let mut rows = Records::new(file.get(..short).unwrap());
            assert!(rows.by_ref().take(3).filter(Result::is_err).count() <= 1);
        }
        assert!(Records::new(&[0xff, 0xff, 0xff, 0xff, 1][..]).next().unwrap().is_err());
    }
}
