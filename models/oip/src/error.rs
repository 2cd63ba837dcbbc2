//! Protocol errors, each naming the field at fault.

use std::fmt;

use crate::{Datatype, Shape, ShapeError, UnknownDatatype};

/// What a protocol error means to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The message breaks the protocol. Sending it again does not help.
    Malformed,
    /// The message is valid but larger than this server accepts.
    TooLarge,
    /// The message is valid but asks for something that this server does not offer.
    Unsupported,
    /// The engine's output is invalid; the request was valid.
    BadOutput,
}

/// A message that cannot be decoded, or an answer that cannot be encoded.
///
/// `field` is the path of the offending member, such as `inputs[1].shape`. Text from the client is
/// truncated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Not JSON, or a member of the wrong type.
    #[error("{field}: {problem}")]
    Json {
        /// Path of the member; `request body` at the top.
        field: String,
        /// What the parser said, with line and column.
        problem: String,
    },
    /// A required member is absent.
    #[error("{field}: missing: expected {expected}")]
    Missing {
        /// Path of the member.
        field: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// Arrays or objects nested too deep.
    #[error("request body: nested deeper than {limit} levels")]
    Depth {
        /// The bound.
        limit: usize,
    },
    /// The body is too long.
    #[error("request body: {bytes} bytes: expected at most {limit}")]
    BodyTooLarge {
        /// Its length.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The elements of all tensors of one list together are too many bytes.
    #[error("{field}: {bytes} bytes with those before it: expected at most {limit}")]
    TensorTooLarge {
        /// The tensor that crossed the bound.
        field: String,
        /// Bytes of the tensors up to this one.
        bytes: u64,
        /// The bound.
        limit: usize,
    },
    /// Too many inputs, outputs or parameters.
    #[error("{field}: {count} entries: expected at most {limit}")]
    TooMany {
        /// Path of the list.
        field: String,
        /// How many there are.
        count: usize,
        /// The bound.
        limit: usize,
    },
    /// A name or id is too long.
    #[error("{field}: {bytes} bytes: expected at most {limit}")]
    TooLong {
        /// Path of the member.
        field: String,
        /// Its length.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The same name twice in one list.
    #[error("{field}: `{name}` was given before: expected every name once")]
    Duplicate {
        /// Path of the second one.
        field: String,
        /// The name.
        name: String,
    },
    /// A datatype that the protocol does not know.
    #[error("{field}: {source}")]
    Datatype {
        /// Path of the member.
        field: String,
        /// The name given.
        source: UnknownDatatype,
    },
    /// Numbers that are no shape.
    #[error("{field}: {source}")]
    Shape {
        /// Path of the member.
        field: String,
        /// What is wrong with them.
        source: ShapeError,
    },
    /// The number of elements is not what the shape calls for.
    #[error("{field}: {count} elements: expected {expected} for shape {shape}")]
    ElementCount {
        /// Path of the data.
        field: String,
        /// Elements found.
        count: u64,
        /// Elements expected.
        expected: u64,
        /// The declared shape.
        shape: Shape,
    },
    /// The number of bytes is not what datatype and shape call for.
    #[error("{field}: {bytes} bytes: expected {expected} for {datatype} of shape {shape}")]
    ByteSize {
        /// Path of the data or of its size.
        field: String,
        /// Bytes found.
        bytes: u64,
        /// Bytes expected.
        expected: u64,
        /// The declared datatype.
        datatype: Datatype,
        /// The declared shape.
        shape: Shape,
    },
    /// An element is not a value of the datatype.
    #[error("{field}: element {index} is {found}: expected {expected}")]
    Element {
        /// Path of the data.
        field: String,
        /// Its position, row-major, from 0.
        index: u64,
        /// What was there.
        found: String,
        /// What belongs there.
        expected: String,
    },
    /// More binary data declared than the body has.
    #[error(
        "{field}: {bytes} bytes: expected at most the {available} bytes that follow the JSON header, whose \
         length is in `Inference-Header-Content-Length`"
    )]
    BinaryBeyondBody {
        /// Path of the size.
        field: String,
        /// The size given.
        bytes: u64,
        /// What the body still has.
        available: usize,
    },
    /// Bytes of the body that no input claims.
    #[error("request body: {bytes} bytes after the last input: expected none")]
    Unclaimed {
        /// How many.
        bytes: usize,
    },
    /// The header length lies outside the body.
    #[error("inference-header-content-length: {length}: expected at most the {body} bytes of the body")]
    HeaderLength {
        /// The length given.
        length: usize,
        /// Length of the body.
        body: usize,
    },
    /// No elements, or elements in two places.
    #[error("{field}: {found}: expected exactly one of {choices}")]
    DataSource {
        /// The input.
        field: String,
        /// What was there.
        found: &'static str,
        /// What may be there.
        choices: &'static str,
    },
    /// A member with a value that it cannot have.
    #[error("{field}: {found}: expected {expected}")]
    Value {
        /// Path of the member.
        field: String,
        /// What was there.
        found: String,
        /// What belongs there.
        expected: String,
    },
    /// Something that this form of the message cannot carry.
    #[error("{field}: {problem}")]
    Unsupported {
        /// Path of the member, or the output.
        field: String,
        /// Why not, and what to do.
        problem: String,
    },
    /// An output whose data is not what its datatype and shape call for.
    #[error("output `{name}`: {problem}")]
    BadOutput {
        /// Name of the output.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl ProtocolError {
    /// Which answer the error calls for.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::BodyTooLarge { .. } | Self::TensorTooLarge { .. } => ErrorKind::TooLarge,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::BadOutput { .. } => ErrorKind::BadOutput,
            Self::Json { .. }
            | Self::Missing { .. }
            | Self::Depth { .. }
            | Self::TooMany { .. }
            | Self::TooLong { .. }
            | Self::Duplicate { .. }
            | Self::Datatype { .. }
            | Self::Shape { .. }
            | Self::ElementCount { .. }
            | Self::ByteSize { .. }
            | Self::Element { .. }
            | Self::BinaryBeyondBody { .. }
            | Self::Unclaimed { .. }
            | Self::HeaderLength { .. }
            | Self::DataSource { .. }
            | Self::Value { .. } => ErrorKind::Malformed,
        }
    }
}

/// Path of a member. It becomes text only when there is an error to report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'a> {
    /// A member at the top.
    Top(&'static str),
    /// An entry of a list.
    Entry(&'static str, usize),
    /// A member of an entry.
    Member(&'static str, usize, &'static str),
    /// A parameter of the request.
    Parameter(&'a str),
    /// A parameter of an entry.
    EntryParameter(&'static str, usize, &'a str),
}

impl Field<'_> {
    pub(crate) const fn input(index: usize, member: &'static str) -> Self {
        Self::Member("inputs", index, member)
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Top(name) => f.write_str(name),
            Self::Entry(list, index) => write!(f, "{list}[{index}]"),
            Self::Member(list, index, member) => write!(f, "{list}[{index}].{member}"),
            Self::Parameter(name) => write!(f, "parameters.{}", truncate(name)),
            Self::EntryParameter(list, index, name) => {
                write!(f, "{list}[{index}].parameters.{}", truncate(name))
            }
        }
    }
}

/// At most 200 bytes of a text from a client: an error must not grow with the request.
pub(crate) fn truncate(text: &str) -> &str {
    const LIMIT: usize = 200;
    text.get(..text.floor_char_boundary(LIMIT)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_text_is_truncated_at_a_character() {
        let long = "é".repeat(150);
        assert_eq!(truncate(&long).len(), 200);
        assert_eq!(truncate("short"), "short");
        assert!(Field::Parameter(&"x".repeat(1 << 20)).to_string().len() < 256);
    }

    #[test]
    fn fields_read_as_paths() {
        assert_eq!(Field::input(1, "shape").to_string(), "inputs[1].shape");
        assert_eq!(
            Field::EntryParameter("outputs", 0, "classification").to_string(),
            "outputs[0].parameters.classification"
        );
    }
}
