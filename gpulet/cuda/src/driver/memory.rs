//! Buffers on the device, and pinned buffers on the host, from which the device copies at full speed.

use std::ptr::null_mut;
use std::sync::Arc;

use super::error::DriverError;
use super::library::{call, fetch};
use super::primary::Primary;
use super::sys::CUdeviceptr;

/// Uninitialised bytes on the device.
pub struct DeviceBuffer {
    address: CUdeviceptr,
    length: usize,
    primary: Arc<Primary>,
}

impl DeviceBuffer {
    /// Allocates, which may wait for all work on the device: never while serving. A length of zero is an error.
    ///
    /// # Errors
    /// The driver failed, for example because it is out of memory.
    pub fn allocate(primary: &Arc<Primary>, length: usize) -> Result<Self, DriverError> {
        primary.enter()?;
        // SAFETY: writes one number.
        let address = unsafe { fetch!(primary.driver(), cuMemAlloc_v2(0, length)) }?;
        Ok(Self { address, length, primary: Arc::clone(primary) })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always false: a buffer of zero bytes cannot be allocated.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its address on the device. Meaningless after this is dropped.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: we allocated it, and copies borrow it until they are done. An error here cannot be handled.
        let _ = self
            .primary
            .enter()
            .and_then(|()| unsafe { call!(self.primary.driver(), cuMemFree_v2(self.address)) });
    }
}

/// Pinned bytes on the host, zeroed at first.
pub struct PinnedBuffer {
    place: *mut u8,
    length: usize,
    primary: Arc<Primary>,
}

// SAFETY: it owns its bytes, which are plain memory, and lends them under Rust's borrowing rules.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates, which may wait for all work on the device: never while serving. A length of zero is an error.
    ///
    /// # Errors
    /// The driver failed, for example because it is out of memory.
    pub fn allocate(primary: &Arc<Primary>, length: usize) -> Result<Self, DriverError> {
        primary.enter()?;
        // SAFETY: writes one pointer.
        let place = unsafe { fetch!(primary.driver(), cuMemHostAlloc(null_mut(), length, 0)) }?.cast::<u8>();
        // SAFETY: `length` bytes were allocated there, only for us.
        unsafe { place.write_bytes(0, length) };
        Ok(Self { place, length, primary: Arc::clone(primary) })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always false: a buffer of zero bytes cannot be allocated.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `length` initialised bytes are there, and no code writes to them while they are borrowed.
        unsafe { std::slice::from_raw_parts(self.place, self.length) }
    }

    /// The bytes, mutably.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.place, self.length) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let place = self.place.cast();
        // SAFETY: we allocated it, and copies borrow it until they are done. An error here cannot be handled.
        let _ =
            self.primary.enter().and_then(|()| unsafe { call!(self.primary.driver(), cuMemFreeHost(place)) });
    }
}
