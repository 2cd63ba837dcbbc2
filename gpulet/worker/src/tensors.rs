//! Tensors in a region of shared memory, as both processes write them.

use std::io;
use std::os::fd::OwnedFd;

use oip::Tensor;

use crate::memory::{OutOfBounds, Region};
use crate::wire::TensorHead;

/// Each tensor starts at a multiple of this, which aligns every element type.
const ALIGNMENT: usize = 64;

/// Why tensors could not be written to a region. `what` is `inputs` or `outputs`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("{what} take {bytes} bytes: expected at most {max}")]
    TooLarge { what: &'static str, bytes: usize, max: usize },
    #[error("no memory for {bytes} bytes of {what}: {error}")]
    Memory { what: &'static str, bytes: usize, error: io::Error },
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
}

/// Writes tensors to the region, of at most `max` bytes. A region that is missing or too small is replaced by a new
/// one, whose file is returned for the other process. An absent tensor has no head.
pub(crate) fn write<'t>(
    what: &'static str,
    tensors: impl Iterator<Item = Option<&'t Tensor>> + Clone,
    region: &mut Option<Region>,
    max: usize,
) -> Result<(Vec<Option<TensorHead>>, Option<OwnedFd>), WriteError> {
    let mut bytes = 0_usize;
    let mut place = |tensor: &Tensor| {
        let start = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        bytes = start.saturating_add(tensor.data.len());
        (start, TensorHead::new(tensor.datatype, &tensor.shape, start, tensor.data.len()))
    };
    let placed: Vec<_> = tensors.clone().map(|tensor| tensor.map(&mut place)).collect();
    if bytes > max {
        return Err(WriteError::TooLarge { what, bytes, max });
    }
    let mut file = None;
    let mut target = match region.take().filter(|region| region.len() >= bytes) {
        Some(large_enough) => large_enough,
        None => {
            let (created, its_file) =
                Region::create(bytes).map_err(|error| WriteError::Memory { what, bytes, error })?;
            file = Some(its_file);
            created
        }
    };
    for (tensor, (start, _)) in tensors.flatten().zip(placed.iter().flatten()) {
        target.write(*start, &tensor.data)?;
    }
    *region = Some(target);
    Ok((placed.into_iter().map(|placed| placed.map(|(_, head)| head)).collect(), file))
}
