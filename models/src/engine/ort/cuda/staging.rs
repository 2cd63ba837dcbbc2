//! Pinned memory of a session, for copies to the device or from it.

use std::ops::Range;

use super::stream::{CudaFault, CudaStream, HostBytes};

/// Alignment of tensors in a block, which makes copies fast.
const ALIGNMENT: usize = 256;

/// Grows to the size that a batch needs and keeps it. Allocating can wait for the whole device, so it happens
/// during warm-up. Memory that no batch needed between two calls of [`trim`](Self::trim) is released.
#[derive(Default)]
pub(super) struct Staging {
    block: Option<Box<dyn HostBytes>>,
    needed: usize,
}

impl Staging {
    /// At least `length` bytes, of any value.
    pub fn at_least(&mut self, stream: &dyn CudaStream, length: usize) -> Result<&mut [u8], CudaFault> {
        self.needed = self.needed.max(length);
        if length == 0 {
            return Ok(&mut []);
        }
        if self.capacity() < length {
            // The old block goes first: the two together may be more than there is.
            self.block = None;
            self.block = Some(stream.host_bytes(length)?);
        }
        Ok(self.block.as_mut().map_or(&mut [], |block| block.bytes_mut()))
    }

    /// The bytes of the block.
    pub fn bytes(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| block.bytes())
    }

    /// Bytes held.
    pub fn capacity(&self) -> usize {
        self.bytes().len()
    }

    /// Releases the block if less than half of it was needed since the last call. Returns whether it did. Call only while
    /// no copy is in flight.
    pub fn trim(&mut self) -> bool {
        let too_large = self.capacity() / 2 > self.needed;
        if too_large {
            self.block = None;
        }
        self.needed = 0;
        too_large
    }
}

/// Places for tensors of these lengths in one block, and the block's length; `None`: more than can be addressed.
pub(in super::super) fn lay_out(
    lengths: impl IntoIterator<Item = usize>,
) -> Option<(Vec<Range<usize>>, usize)> {
    let mut end = 0_usize;
    let places = lengths.into_iter().map(|length| {
        let begin = end.checked_next_multiple_of(ALIGNMENT)?;
        end = begin.checked_add(length)?;
        Some(begin..end)
    });
    let places = places.collect::<Option<Vec<_>>>()?;
    Some((places, end))
}
