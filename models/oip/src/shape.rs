//! Concrete tensor shapes.

use std::fmt;

use smallvec::SmallVec;

use crate::Datatype;

/// The extents of one tensor that exists, outermost dimension first. Wildcards (`-1`) live in model
/// signatures, never here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[u64; 6]>);

/// Why a list of numbers is not the shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A dimension below zero.
    #[error("dimension {index} is {value}: expected 0 or more")]
    Negative {
        /// Position in the shape.
        index: usize,
        /// The offending extent.
        value: i64,
    },
    /// More dimensions than any tensor may have.
    #[error("{0} dimensions: expected at most {max}", max = Shape::MAX_RANK)]
    Rank(usize),
    /// The element count does not fit in 64 bits.
    #[error("the number of elements overflows 64 bits")]
    Overflow,
    /// The elements are more bytes than memory can address.
    #[error("{shape} of {datatype}: the number of bytes overflows 63 bits")]
    BytesOverflow {
        /// The shape.
        shape: Shape,
        /// Type of the elements.
        datatype: Datatype,
    },
}

impl Shape {
    /// Bound on the number of dimensions.
    pub const MAX_RANK: usize = 64;

    /// Checks sign, rank and that the element count fits in 64 bits.
    pub fn from_wire(dims: &[i64]) -> Result<Self, ShapeError> {
        if dims.len() > Self::MAX_RANK {
            return Err(ShapeError::Rank(dims.len()));
        }
        let mut extents = SmallVec::with_capacity(dims.len());
        for (index, &value) in dims.iter().enumerate() {
            extents.push(u64::try_from(value).map_err(|_| ShapeError::Negative { index, value })?);
        }
        let shape = Self(extents);
        shape.element_count().ok_or(ShapeError::Overflow)?;
        Ok(shape)
    }

    /// The same shape, if the bytes of its elements can be counted. A `BYTES` element takes 4 bytes at least.
    pub(crate) fn holding(self, datatype: Datatype) -> Result<Self, ShapeError> {
        let size = datatype.size().unwrap_or(size_of::<u32>()) as u64;
        match self.element_count().and_then(|count| count.checked_mul(size)) {
            Some(bytes) if i64::try_from(bytes).is_ok() => Ok(self),
            _ => Err(ShapeError::BytesOverflow { shape: self, datatype }),
        }
    }

    /// A shape from extents that are already known to be sound.
    pub fn from_extents(extents: &[u64]) -> Self {
        Self(SmallVec::from_slice(extents))
    }

    /// Extents, outermost first.
    pub fn extents(&self) -> &[u64] {
        &self.0
    }

    /// Number of dimensions; 0 for a scalar.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Product of the extents (1 for a scalar), or `None` when it overflows.
    pub fn element_count(&self) -> Option<u64> {
        // An overflow hidden behind a later zero is still refused: such shapes are only ever hostile.
        let zero_free: u64 =
            self.0.iter().filter(|&&extent| extent != 0).try_fold(1_u64, |a, &b| a.checked_mul(b))?;
        Some(if self.0.contains(&0) { 0 } else { zero_free })
    }

    /// The same shape with another outermost extent; a scalar stays a scalar.
    #[must_use]
    pub fn with_outermost(&self, extent: u64) -> Self {
        let mut changed = self.clone();
        if let Some(outermost) = changed.0.first_mut() {
            *outermost = extent;
        }
        changed
    }

    /// As signed numbers, the way protobuf carries them.
    pub fn to_wire(&self) -> Vec<i64> {
        self.0.iter().map(|&extent| i64::try_from(extent).unwrap_or(i64::MAX)).collect()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, extent) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{extent}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_shapes_are_refused() {
        assert_eq!(Shape::from_wire(&[1, -1]), Err(ShapeError::Negative { index: 1, value: -1 }));
        assert_eq!(Shape::from_wire(&[i64::MAX, 3]), Err(ShapeError::Overflow));
        assert_eq!(Shape::from_wire(&[i64::MAX, 3, 0]), Err(ShapeError::Overflow));
        assert_eq!(Shape::from_wire(&[1; 65]), Err(ShapeError::Rank(65)));
    }

    #[test]
    fn element_counts_follow_the_protocol() {
        assert_eq!(Shape::from_extents(&[]).element_count(), Some(1));
        assert_eq!(Shape::from_extents(&[2, 3]).element_count(), Some(6));
        assert_eq!(Shape::from_extents(&[2, 0]).element_count(), Some(0));
        assert_eq!(Shape::from_extents(&[2, 3]).to_string(), "[2,3]");
    }
}
