//! The tensor element types of the protocol.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares [`Datatype`]: for each one its name on the wire, and the bytes of an element.
macro_rules! datatypes {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $size:expr;)+) => {
        /// Element type of a tensor, named as on the wire (OIP v2, "Tensor Data Types").
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Datatype {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)+
        }

        impl Datatype {
            /// Every datatype, in the protocol's order.
            pub const ALL: [Self; 14] = [$(Self::$variant),+];

            /// Bytes of an element, or `None` for `BYTES`, whose elements vary.
            pub const fn size(self) -> Option<usize> {
                match self {
                    $(Self::$variant => $size,)+
                }
            }

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

datatypes! {
    /// One byte per element, 0 or 1.
    Bool, "BOOL", Some(1);
    /// 8-bit unsigned.
    Uint8, "UINT8", Some(1);
    /// 16-bit unsigned.
    Uint16, "UINT16", Some(2);
    /// 32-bit unsigned.
    Uint32, "UINT32", Some(4);
    /// 64-bit unsigned.
    Uint64, "UINT64", Some(8);
    /// 8-bit signed.
    Int8, "INT8", Some(1);
    /// 16-bit signed.
    Int16, "INT16", Some(2);
    /// 32-bit signed.
    Int32, "INT32", Some(4);
    /// 64-bit signed.
    Int64, "INT64", Some(8);
    /// IEEE 754 half precision.
    Fp16, "FP16", Some(2);
    /// IEEE 754 single precision.
    Fp32, "FP32", Some(4);
    /// IEEE 754 double precision.
    Fp64, "FP64", Some(8);
    /// bfloat16: the upper half of a single.
    Bf16, "BF16", Some(2);
    /// Variable-length byte strings.
    Bytes, "BYTES", None;
}

/// A datatype name that the protocol does not define.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown datatype `{0}`: expected BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, \
     FP32, FP64, BF16 or BYTES"
)]
pub struct UnknownDatatype(pub String);

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
