//! The tensor element types of the protocol.

use std::fmt;
use std::str::FromStr;

/// Element type of a tensor, named as on the wire (OIP v2, "Tensor Data Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Datatype {
    /// One byte an element, 0 or 1.
    Bool,
    /// 8-bit unsigned.
    Uint8,
    /// 16-bit unsigned.
    Uint16,
    /// 32-bit unsigned.
    Uint32,
    /// 64-bit unsigned.
    Uint64,
    /// 8-bit signed.
    Int8,
    /// 16-bit signed.
    Int16,
    /// 32-bit signed.
    Int32,
    /// 64-bit signed.
    Int64,
    /// IEEE 754 half precision.
    Fp16,
    /// IEEE 754 single precision.
    Fp32,
    /// IEEE 754 double precision.
    Fp64,
    /// bfloat16: the upper half of a single.
    Bf16,
    /// Variable-length byte strings.
    Bytes,
}

/// A datatype name that the protocol does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown datatype `{0}`: expected BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, \
     FP32, FP64, BF16 or BYTES"
)]
pub struct UnknownDatatype(pub String);

impl Datatype {
    /// Every datatype, in the protocol's order.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Fp32,
        Self::Fp64,
        Self::Bf16,
        Self::Bytes,
    ];

    /// Bytes an element takes, or `None` for `BYTES`, whose elements vary.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bf16 => "BF16",
            Self::Bytes => "BYTES",
        }
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Datatype {
    type Err = UnknownDatatype;

    fn from_str(name: &str) -> Result<Self, UnknownDatatype> {
        Self::ALL
            .into_iter()
            .find(|datatype| datatype.as_str() == name)
            .ok_or_else(|| UnknownDatatype(name.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_to_its_datatype() {
        for datatype in Datatype::ALL {
            assert_eq!(datatype.as_str().parse(), Ok(datatype));
        }
        assert!("fp32".parse::<Datatype>().is_err());
    }
}
