//! The `data` array of an input: text to little-endian bytes.
//!
//! Hot path for clients that send JSON. serde has checked that the text is one JSON value, so finding the elements
//! needs no grammar: they are what is left between brackets, commas and white space. The protocol allows flat and
//! nested arrays. The elements are taken row-major; nested arrays must be regular but need not follow the shape, as in
//! Triton.

use std::borrow::Cow;
use std::fmt;

use half::{bf16, f16};
use smallvec::SmallVec;

use crate::error::{Field, truncate};
use crate::{Datatype, ProtocolError, Shape, binary};

/// What the elements must be, and the field that holds them.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) datatype: Datatype,
    pub(super) shape: &'a Shape,
    pub(super) field: Field<'a>,
}

/// The most elements that an array of this text can hold: each takes a character, and a comma or the last bracket.
pub(super) fn most_elements(text: &str) -> u64 {
    text.len().div_ceil(2) as u64
}

/// Counts the elements without storing any.
pub(super) fn check_count(text: &str, target: Target<'_>) -> Result<(), ProtocolError> {
    each(text, target, |_, _| Ok(()))
}

/// Decodes the elements. Allocates at most 4 bytes for each byte of `text`, whatever the shape says.
pub(super) fn parse(text: &str, target: Target<'_>) -> Result<Vec<u8>, ProtocolError> {
    if !text.starts_with('[') {
        return Err(ProtocolError::Value {
            field: target.field.to_string(),
            found: truncate(text).to_owned(),
            expected: "an array".to_owned(),
        });
    }
    macro_rules! integers {
        ($type:ty) => {
            numbers(
                text,
                target,
                format_args!("an integer from {} to {}", <$type>::MIN, <$type>::MAX),
                |token| Some(token.parse::<$type>().ok()?.to_le_bytes()),
            )
        };
    }
    match target.datatype {
        Datatype::Bool => numbers(text, target, "true or false", |token| match token {
            "true" => Some([1]),
            "false" => Some([0]),
            _ => None,
        }),
        Datatype::Uint8 => integers!(u8),
        Datatype::Uint16 => integers!(u16),
        Datatype::Uint32 => integers!(u32),
        Datatype::Uint64 => integers!(u64),
        Datatype::Int8 => integers!(i8),
        Datatype::Int16 => integers!(i16),
        Datatype::Int32 => integers!(i32),
        Datatype::Int64 => integers!(i64),
        Datatype::Fp16 => numbers(text, target, "a number from -65504 to 65504", |t| {
            Some(f16::from_f64(t.parse().ok()?)).filter(|value| value.is_finite()).map(f16::to_le_bytes)
        }),
        Datatype::Bf16 => numbers(text, target, "a number in the range of BF16", |t| {
            Some(bf16::from_f64(t.parse().ok()?)).filter(|value| value.is_finite()).map(bf16::to_le_bytes)
        }),
        Datatype::Fp32 => numbers(text, target, "a number in the range of FP32", |t| {
            t.parse().ok().filter(|value: &f32| value.is_finite()).map(f32::to_le_bytes)
        }),
        Datatype::Fp64 => numbers(text, target, "a number in the range of FP64", |t| {
            t.parse().ok().filter(|value: &f64| value.is_finite()).map(f64::to_le_bytes)
        }),
        Datatype::Bytes => strings(text, target),
    }
}

fn numbers<const N: usize>(
    text: &str,
    target: Target<'_>,
    expected: impl fmt::Display + Copy,
    encode: impl Fn(&str) -> Option<[u8; N]>,
) -> Result<Vec<u8>, ProtocolError> {
    let count = binary::element_count(target.shape).min(most_elements(text));
    let mut data = Vec::with_capacity(usize::try_from(count).unwrap_or(0).saturating_mul(N));
    each(text, target, |index, token| match encode(token) {
        Some(bytes) => {
            data.extend_from_slice(&bytes);
            Ok(())
        }
        None => Err(wrong(target, index, token, expected)),
    })?;
    Ok(data)
}

fn strings(text: &str, target: Target<'_>) -> Result<Vec<u8>, ProtocolError> {
    let mut data = Vec::with_capacity(text.len());
    each(text, target, |index, token| {
        let element = unquote(token).ok_or_else(|| wrong(target, index, token, "a string"))?;
        binary::push_element(&mut data, element.as_bytes())
    })?;
    Ok(data)
}

fn unquote(token: &str) -> Option<Cow<'_, str>> {
    let inner = token.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(token).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

fn wrong(target: Target<'_>, index: u64, token: &str, expected: impl fmt::Display) -> ProtocolError {
    ProtocolError::Element {
        field: target.field.to_string(),
        index,
        found: truncate(token).to_owned(),
        expected: format!("{expected} for {}", target.datatype),
    }
}

/// Calls `take` for each element and checks that there are as many as the shape calls for.
fn each(
    text: &str,
    target: Target<'_>,
    mut take: impl FnMut(u64, &str) -> Result<(), ProtocolError>,
) -> Result<(), ProtocolError> {
    let expected = binary::element_count(target.shape);
    let mut count = 0_u64;
    let mut tokens = Tokens { rest: text, nesting: Nesting::default() };
    while let Some(token) = tokens.next().map_err(|ragged| ragged.explain(target))? {
        if token.starts_with('{') {
            return Err(wrong(target, count, "an object", "a plain value"));
        }
        if count < expected {
            take(count, token)?;
        }
        count = count.saturating_add(1);
    }
    if count == expected { Ok(()) } else { Err(count_mismatch(target, count)) }
}

fn count_mismatch(target: Target<'_>, count: u64) -> ProtocolError {
    ProtocolError::ElementCount {
        field: target.field.to_string(),
        count,
        expected: binary::element_count(target.shape),
        shape: target.shape.clone(),
    }
}

/// The scalars of a valid JSON array, in order. An object comes out as one token that starts with a brace,
/// after which the rest makes no sense.
struct Tokens<'a> {
    rest: &'a str,
    nesting: Nesting,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Result<Option<&'a str>, Ragged> {
        let mut start = None;
        for (index, byte) in self.rest.bytes().enumerate() {
            match byte {
                b',' | b' ' | b'\n' | b'\r' | b'\t' => {}
                b'[' => self.nesting.open()?,
                b']' => self.nesting.close()?,
                _ => {
                    start = Some(index);
                    break;
                }
            }
        }
        let Some((_, rest)) = start.and_then(|start| self.rest.split_at_checked(start)) else {
            return Ok(None);
        };
        self.nesting.element()?;
        let end = if rest.starts_with('"') {
            string_length(rest.as_bytes())
        } else {
            rest.bytes()
                .position(|byte| matches!(byte, b',' | b'[' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
                .unwrap_or(rest.len())
        };
        let Some((token, rest)) = rest.split_at_checked(end) else { return Ok(None) };
        self.rest = rest;
        Ok(Some(token))
    }
}

/// Checks that nested arrays are regular: arrays of one level are equally long, and all elements are of one level.
#[derive(Default)]
struct Nesting {
    /// Entries seen in each open array, outermost first.
    open: SmallVec<[u64; 6]>,
    /// Length of the arrays of each level, from the first of them that was closed.
    lengths: SmallVec<[Option<u64>; 6]>,
    /// Arrays around each element, from the first element.
    depth: Option<usize>,
}

/// An array that does not have the form of those before it.
struct Ragged {
    /// Index of the offending entry at each level.
    path: SmallVec<[u64; 6]>,
    found: String,
    expected: String,
}

impl Nesting {
    fn open(&mut self) -> Result<(), Ragged> {
        if self.depth == Some(self.open.len()) {
            return Err(self.ragged("an array", "an element, like the entries before it"));
        }
        self.count_entry();
        self.open.push(0);
        if self.lengths.len() < self.open.len() {
            self.lengths.push(None);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Ragged> {
        let Some(found) = self.open.pop() else { return Ok(()) };
        let Some(length) = self.lengths.get_mut(self.open.len()) else { return Ok(()) };
        let expected = *length.get_or_insert(found);
        if found == expected {
            return Ok(());
        }
        // The entry was counted when the array was opened.
        if let Some(last) = self.open.last_mut() {
            *last = last.saturating_sub(1);
        }
        let found = format!("an array of {found}");
        Err(self.ragged(&found, &format!("an array of {expected}, like those before it")))
    }

    fn element(&mut self) -> Result<(), Ragged> {
        if *self.depth.get_or_insert(self.open.len()) != self.open.len() {
            return Err(self.ragged("an element", "an array, like the entries before it"));
        }
        self.count_entry();
        Ok(())
    }

    fn count_entry(&mut self) {
        if let Some(entries) = self.open.last_mut() {
            *entries = entries.saturating_add(1);
        }
    }

    fn ragged(&self, found: &str, expected: &str) -> Ragged {
        // Arrays were counted when they were opened; the offending entry of the innermost one is not counted.
        let mut path = self.open.clone();
        path.iter_mut().rev().skip(1).for_each(|index| *index = index.saturating_sub(1));
        Ragged { path, found: found.to_owned(), expected: expected.to_owned() }
    }
}

impl Ragged {
    fn explain(self, target: Target<'_>) -> ProtocolError {
        let path: String = self.path.iter().map(|index| format!("[{index}]")).collect();
        ProtocolError::Value {
            field: format!("{}{path}", target.field),
            found: self.found,
            expected: self.expected,
        }
    }
}

/// Length of a string with its quotes.
fn string_length(text: &[u8]) -> usize {
    let mut bytes = text.iter().enumerate().skip(1);
    while let Some((index, byte)) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return index.saturating_add(1),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(datatype: Datatype, extents: &[u64], text: &str) -> Result<Vec<u8>, String> {
        let shape = Shape::from_extents(extents);
        let target = Target { datatype, shape: &shape, field: Field::input(0, "data") };
        parse(text, target).map_err(|error| error.to_string())
    }

    #[test]
    fn flat_and_nested_arrays_are_the_same() {
        let flat = parsed(Datatype::Int16, &[2, 2], "[1,-2,3,4]");
        assert_eq!(flat, Ok(vec![1, 0, 254, 255, 3, 0, 4, 0]));
        assert_eq!(parsed(Datatype::Int16, &[2, 2], " [ [1, -2],\n[3,\t4] ] ".trim()), flat);
        assert_eq!(parsed(Datatype::Fp32, &[0], "[]"), Ok(vec![]));
        assert_eq!(parsed(Datatype::Fp32, &[], "[1.5]"), Ok(1.5_f32.to_le_bytes().to_vec()));
    }

    #[test]
    fn strings_keep_brackets_and_escapes() {
        let data = parsed(Datatype::Bytes, &[3], r#"["a,]\"", "", "\u00e9"]"#).unwrap();
        let elements: Vec<_> = binary::elements(&data).map(Result::unwrap).collect();
        assert_eq!(elements, [&b"a,]\""[..], b"", "é".as_bytes()]);
    }

    #[test]
    fn halves_round_once() {
        assert_eq!(parsed(Datatype::Fp16, &[2], "[0.1, 65504]"), Ok(vec![0x66, 0x2e, 0xff, 0x7b]));
        assert_eq!(
            parsed(Datatype::Bf16, &[2], "[1, 3.5e38]").unwrap_err(),
            "inputs[0].data: element 1 is 3.5e38: expected a number in the range of BF16 for BF16"
        );
    }

    #[test]
    fn wrong_elements_are_named() {
        let table = [
            (Datatype::Uint8, "[1,256]", "element 1 is 256: expected an integer from 0 to 255 for UINT8"),
            (Datatype::Uint8, "[1,-1]", "element 1 is -1: expected an integer from 0 to 255 for UINT8"),
            (
                Datatype::Int32,
                "[1.0,2]",
                "element 0 is 1.0: expected an integer from -2147483648 to 2147483647 for INT32",
            ),
            (
                Datatype::Fp32,
                "[1,1e39]",
                "element 1 is 1e39: expected a number in the range of FP32 for FP32",
            ),
            (
                Datatype::Fp64,
                "[1,1e999]",
                "element 1 is 1e999: expected a number in the range of FP64 for FP64",
            ),
            (
                Datatype::Fp32,
                "[true,2]",
                "element 0 is true: expected a number in the range of FP32 for FP32",
            ),
            (
                Datatype::Fp32,
                "[null,2]",
                "element 0 is null: expected a number in the range of FP32 for FP32",
            ),
            (
                Datatype::Fp32,
                "[\"nan\",2]",
                "element 0 is \"nan\": expected a number in the range of FP32 for FP32",
            ),
            (Datatype::Bool, "[true,1]", "element 1 is 1: expected true or false for BOOL"),
            (Datatype::Bytes, "[\"a\",1]", "element 1 is 1: expected a string for BYTES"),
            (
                Datatype::Bytes,
                "[{\"a\":1},\"b\"]",
                "element 0 is an object: expected a plain value for BYTES",
            ),
            (Datatype::Fp32, "[1]", "1 elements: expected 2 for shape [2]"),
            (Datatype::Fp32, "[1,2,3]", "3 elements: expected 2 for shape [2]"),
        ];
        for (datatype, text, message) in table {
            assert_eq!(parsed(datatype, &[2], text), Err(format!("inputs[0].data: {message}")), "{text}");
        }
        assert_eq!(parsed(Datatype::Fp32, &[1], "5"), Err("inputs[0].data: 5: expected an array".to_owned()));
    }

    #[test]
    fn ragged_arrays_are_refused_at_the_entry_that_differs() {
        for (text, at, message) in [
            ("[[1],[2,3]]", "[1]", "an array of 2: expected an array of 1, like those before it"),
            ("[[1,2],[3]]", "[1]", "an array of 1: expected an array of 2, like those before it"),
            ("[[],[1,2,3]]", "[1]", "an array of 3: expected an array of 0, like those before it"),
            ("[1,[2,3]]", "[1]", "an array: expected an element, like the entries before it"),
            ("[[1,2],3]", "[1]", "an element: expected an array, like the entries before it"),
            (
                "[ [[1],[2]], [ [3 , 4] ] ]",
                "[1][0]",
                "an array of 2: expected an array of 1, like those before it",
            ),
            ("[[1,2,3],[]]", "[1]", "an array of 0: expected an array of 3, like those before it"),
        ] {
            let expected = format!("inputs[0].data{at}: {message}");
            assert_eq!(parsed(Datatype::Int8, &[3], text), Err(expected), "{text}");
        }
        for text in ["[[[1]],[[2]],[[3]]]", "[[1,2,3]]", "[[[1,2,3]]]"] {
            assert_eq!(parsed(Datatype::Int8, &[3], text), Ok(vec![1, 2, 3]), "{text}");
        }
        assert_eq!(parsed(Datatype::Int8, &[2, 0], "[[],[]]"), Ok(vec![]));
    }

    #[test]
    fn a_shape_that_lies_allocates_nothing() {
        let message = parsed(Datatype::Fp64, &[1 << 40], "[1]").unwrap_err();
        assert_eq!(message, "inputs[0].data: 1 elements: expected 1099511627776 for shape [1099511627776]");
    }
}
