//! The header of a NumPy array (`numpy.lib.format`, versions 1 to 3).
//!
//! A header is a Python literal. Only the form that NumPy writes is read, without recursion, because clients send these files.

use std::io::Read;

use bytes::{Bytes, BytesMut};
use oip::Datatype;
use oip::binary::push_element;

use crate::FormatError;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Bytes of a header, at most. NumPy's own limit is 10,000.
const HEADER_MAX: u32 = 64 << 10;
/// Data begins at a multiple of this (`numpy.lib.format`, `ARRAY_ALIGN`).
const ALIGNMENT: usize = 64;

/// What an element is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    /// As the protocol has it.
    Same(Datatype),
    /// Text of this many bytes, filled up with zeros.
    Text(usize),
    /// Text of this many characters of four bytes, filled up with zeros.
    Characters(usize),
}

/// An array whose elements follow.
#[derive(Debug, PartialEq, Eq)]
pub struct Array {
    element: Element,
    /// Extents, rows included.
    pub shape: Vec<u64>,
}

fn wrong(what: impl Into<String>) -> FormatError {
    FormatError::Input(what.into())
}

impl Array {
    /// Reads a header.
    pub fn read(reader: &mut impl Read) -> Result<Self, FormatError> {
        let mut start = [0; 8];
        let not_numpy = |_| wrong("expected a NumPy array (`numpy.save`)");
        reader.read_exact(&mut start).map_err(not_numpy)?;
        let [magic @ .., major, _] = start;
        if magic != MAGIC {
            return Err(wrong("expected a NumPy array (`numpy.save`)"));
        }
        let length = match major {
            1 => {
                let mut length = [0; 2];
                reader.read_exact(&mut length)?;
                u32::from(u16::from_le_bytes(length))
            }
            2 | 3 => {
                let mut length = [0; 4];
                reader.read_exact(&mut length)?;
                u32::from_le_bytes(length)
            }
            other => return Err(wrong(format!("version {other} of NumPy's format: expected 1, 2 or 3"))),
        };
        if length > HEADER_MAX {
            return Err(wrong(format!(
                "the array's header has {length} bytes: expected at most {HEADER_MAX}"
            )));
        }
        let mut text = Vec::new();
        reader.take(u64::from(length)).read_to_end(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| wrong("the array's header is not UTF-8"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, FormatError> {
        let (mut element, mut shape) = (None, None);
        let mut literal = Literal(text.trim());
        literal.expect('{')?;
        while !literal.takes('}') {
            let key = literal.quoted()?;
            literal.expect(':')?;
            match key {
                "descr" => element = Some(self::element(literal.dtype()?)?),
                "fortran_order" => literal.row_major()?,
                "shape" => shape = Some(literal.extents()?),
                other => return Err(wrong(format!("the array's header has `{other}`, which is unknown"))),
            }
            literal.takes(',');
        }
        let missing = || wrong("the array's header has no `descr` or no `shape`");
        Ok(Self { element: element.ok_or_else(missing)?, shape: shape.ok_or_else(missing)? })
    }

    /// Bytes of a row in the file, and bytes of it as a tensor, at most.
    pub fn row_bytes(&self) -> Option<u64> {
        let size = match self.element {
            Element::Same(datatype) => datatype.size().unwrap_or(1),
            Element::Text(size) => size,
            Element::Characters(count) => count.checked_mul(4)?,
        };
        self.shape.iter().skip(1).try_fold(size as u64, |bytes, extent| bytes.checked_mul(*extent))
    }

    /// Datatype of its rows as tensors.
    pub fn datatype(&self) -> Datatype {
        match self.element {
            Element::Same(datatype) => datatype,
            Element::Text(_) | Element::Characters(_) => Datatype::Bytes,
        }
    }

    /// The bytes of a row as the data of a tensor.
    pub fn data(&self, mut row: Vec<u8>) -> Result<Bytes, FormatError> {
        let mut data = BytesMut::new();
        let mut put = |text: &[u8]| push_element(&mut data, text).map_err(|error| wrong(error.to_string()));
        match self.element {
            Element::Same(Datatype::Bool) => {
                row.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                return Ok(row.into());
            }
            Element::Same(_) => return Ok(row.into()),
            Element::Text(size) => row.chunks_exact(size).try_for_each(|text| {
                let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                put(text.get(..end).unwrap_or_default())
            })?,
            Element::Characters(count) => {
                for text in row.chunks_exact(count * 4) {
                    let (characters, _) = text.as_chunks::<4>();
                    let characters = characters.iter().map(|bytes| u32::from_le_bytes(*bytes));
                    let text: Option<String> = characters.map(char::from_u32).collect();
                    let text =
                        text.ok_or_else(|| wrong("a text has a character that Unicode does not have"))?;
                    put(text.trim_end_matches('\0').as_bytes())?;
                }
            }
        }
        Ok(data.freeze())
    }
}

fn element(dtype: &str) -> Result<Element, FormatError> {
    let advice = || wrong(format!("dtype `{dtype}`: expected whole numbers, floats, booleans or text"));
    let mut characters = dtype.chars();
    let (order, kind) = characters.next().zip(characters.next()).ok_or_else(advice)?;
    let size: usize = characters.as_str().parse().map_err(|_| advice())?;
    if order == '>' {
        return Err(wrong(format!(
            "dtype `{dtype}`: expected little-endian, as `a.astype('<{kind}{size}')`"
        )));
    }
    let same = |datatype| Ok(Element::Same(datatype));
    match (kind, size) {
        ('b', 1) => same(Datatype::Bool),
        ('u', 1) => same(Datatype::Uint8),
        ('u', 2) => same(Datatype::Uint16),
        ('u', 4) => same(Datatype::Uint32),
        ('u', 8) => same(Datatype::Uint64),
        ('i', 1) => same(Datatype::Int8),
        ('i', 2) => same(Datatype::Int16),
        ('i', 4) => same(Datatype::Int32),
        ('i', 8) => same(Datatype::Int64),
        ('f', 2) => same(Datatype::Fp16),
        ('f', 4) => same(Datatype::Fp32),
        ('f', 8) => same(Datatype::Fp64),
        ('S', 1..) => Ok(Element::Text(size)),
        ('U', 1..) => Ok(Element::Characters(size)),
        _ => Err(advice()),
    }
}

/// The rest of a Python literal.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    fn takes(&mut self, character: char) -> bool {
        let rest = self.0.trim_start().strip_prefix(character);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, character: char) -> Result<(), FormatError> {
        if self.takes(character) {
            Ok(())
        } else {
            Err(wrong("the array's header is not as NumPy writes it"))
        }
    }

    fn quoted(&mut self) -> Result<&'a str, FormatError> {
        self.expect('\'')?;
        let both = self.0.split_once('\'');
        let (text, rest) = both.ok_or_else(|| wrong("the array's header is not as NumPy writes it"))?;
        self.0 = rest;
        Ok(text)
    }

    fn dtype(&mut self) -> Result<&'a str, FormatError> {
        if self.takes('[') {
            return Err(wrong("the array has fields: save each as an array of its own"));
        }
        self.quoted()
    }

    fn row_major(&mut self) -> Result<(), FormatError> {
        match self.0.trim_start().strip_prefix("False") {
            Some(rest) => {
                self.0 = rest;
                Ok(())
            }
            None => Err(wrong("the array is in Fortran order: save `numpy.ascontiguousarray(a)`")),
        }
    }

    fn extents(&mut self) -> Result<Vec<u64>, FormatError> {
        self.expect('(')?;
        let both = self.0.split_once(')');
        let (list, rest) = both.ok_or_else(|| wrong("the array's header is not as NumPy writes it"))?;
        self.0 = rest;
        let numbers = list.split(',').map(str::trim).filter(|number| !number.is_empty());
        let numbers: Result<Vec<u64>, _> = numbers.map(str::parse).collect();
        numbers.map_err(|_| wrong(format!("shape ({list}): expected whole numbers")))
    }
}

/// The header of an array of `rows` rows, whose elements follow. `None`: NumPy has no such datatype.
pub fn header(datatype: Datatype, rows: u64, shape: &[u64]) -> Option<Vec<u8>> {
    let dtype = match datatype {
        Datatype::Bool => "|b1",
        Datatype::Uint8 => "|u1",
        Datatype::Uint16 => "<u2",
        Datatype::Uint32 => "<u4",
        Datatype::Uint64 => "<u8",
        Datatype::Int8 => "|i1",
        Datatype::Int16 => "<i2",
        Datatype::Int32 => "<i4",
        Datatype::Int64 => "<i8",
        Datatype::Fp16 => "<f2",
        Datatype::Fp32 => "<f4",
        Datatype::Fp64 => "<f8",
        Datatype::Bf16 | Datatype::Bytes => return None,
    };
    let extents: String = [rows].iter().chain(shape).map(|extent| format!("{extent}, ")).collect();
    let mut text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({extents}), }}");
    let before = MAGIC.len() + 2 + 2;
    let padded = (before + text.len() + 1).next_multiple_of(ALIGNMENT) - before;
    text.extend(std::iter::repeat_n(' ', padded - text.len() - 1));
    text.push('\n');
    let mut header = [MAGIC, &[1, 0]].concat();
    header.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (datatype, shape) in
            [(Datatype::Fp32, &[3, 4][..]), (Datatype::Bool, &[]), (Datatype::Int64, &[1])]
        {
            let header = header(datatype, 7, shape).unwrap();
            assert!(header.len().is_multiple_of(ALIGNMENT));
            let array = Array::read(&mut header.as_slice()).unwrap();
            assert_eq!((array.datatype(), &array.shape[..]), (datatype, &[&[7], shape].concat()[..]));
        }
    }

    #[test]
    fn headers_that_are_not_taken_say_why() {
        let told = |text: &str| Array::parse(text).unwrap_err().to_string();
        let with = |dtype: &str| format!("{{'descr': {dtype}, 'fortran_order': False, 'shape': (3,), }}");
        assert!(told(&with("'>f4'")).contains("a.astype('<f4')"));
        assert!(told(&with("'|O'")).contains("dtype `|O`: expected whole numbers"));
        assert!(told(&with("[('a', '<f4')]")).contains("has fields"));
        assert!(told("{'descr': '<f4', 'fortran_order': True, 'shape': (3,)}").contains("ascontiguousarray"));
        assert!(told("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}").contains("shape (-3,)"));
        for text in ["", "{", "{'descr", "{'descr': '<f4'", "((((", "{'other': 3}"] {
            let _ = told(text);
        }
        assert!(Array::read(&mut &b"PK\x03\x04 and more"[..]).is_err());
    }

    #[test]
    fn texts_lose_their_padding() {
        let array = Array::parse("{'descr': '|S3', 'fortran_order': False, 'shape': (1, 2), }").unwrap();
        let data = array.data(b"ab\0\0\0\0".to_vec()).unwrap();
        assert_eq!(&data[..], b"\x02\0\0\0ab\0\0\0\0");
        let array = Array::parse("{'descr': '<U2', 'fortran_order': False, 'shape': (1,), }").unwrap();
        assert_eq!(
            &array.data("é\0".chars().flat_map(|c| (c as u32).to_le_bytes()).collect()).unwrap()[..],
            b"\x02\0\0\0\xc3\xa9"
        );
        assert!(array.data(vec![0xff; 8]).is_err());
    }
}
