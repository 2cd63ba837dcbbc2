//! Memory that both processes map.
//!
//! A [`Region`] is a memory file of a fixed size. It is sealed against shrinking and growing before the other process
//! gets it, so access to its mapping cannot fail. A region that is too small is replaced by a new one. One side writes
//! a region while the other waits for a message, and the other reads it after that message: the worker never writes
//! inputs, and the server never writes outputs.
//!
//! All `unsafe` code of this crate is in this module, except in tests.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// The seals of a region.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// The seals of a file that is only read.
const CONTENT_SEALS: SealFlags = SIZE_SEALS.union(SealFlags::WRITE);
/// The smallest region, so that small batches need only one.
const REGION_BYTES_MIN: usize = 64 * 1024;

/// Shared memory of a fixed size.
pub(crate) struct Region {
    map: MmapRaw,
}

/// A range is not within a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a range within a region of {len} bytes, got {start} to {end}")]
pub(crate) struct OutOfBounds {
    start: usize,
    end: usize,
    len: usize,
}

impl Region {
    /// A region of at least `bytes` bytes, rounded up to a power of two, and its file for the other process.
    pub fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let len = bytes.max(REGION_BYTES_MIN).checked_next_power_of_two().unwrap_or(bytes);
        let file = memfd_create(c"tessera-tensors", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, u64::try_from(len).unwrap_or(u64::MAX))?;
        fcntl_add_seals(&file, SIZE_SEALS)?;
        let map = MmapRaw::map_raw(&file)?;
        Ok((Self { map }, file))
    }

    /// A region that the other process created.
    pub fn open(file: &OwnedFd) -> io::Result<Self> {
        let refuse = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(refuse("the region is not sealed against shrinking"));
        }
        if fstat(file)?.st_size <= 0 {
            return Err(refuse("the region is empty"));
        }
        Ok(Self { map: MmapRaw::map_raw(file)? })
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    fn check(&self, start: usize, bytes: usize) -> Result<Range<usize>, OutOfBounds> {
        let (end, len) = (start.saturating_add(bytes), self.len());
        if end > len { Err(OutOfBounds { start, end, len }) } else { Ok(start..end) }
    }

    /// Copies bytes into it.
    pub fn write(&mut self, start: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let range = self.check(start, bytes.len())?;
        #[expect(unsafe_code, reason = "there is no safe way to write to memory that another process sees")]
        // SAFETY: the range is within the mapping, which is writable, lives as long as `self`, and cannot lose pages,
        // because its file is sealed against shrinking. `bytes` is not part of it: this process holds no borrow of a
        // region that it writes (only the other process reads it), and the other process does not access it before
        // the message that says that it was written.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.map.as_mut_ptr().add(range.start),
                bytes.len(),
            );
        }
        Ok(())
    }

    /// Copies bytes out of it.
    pub fn read(&self, start: usize, bytes: usize) -> Result<Bytes, OutOfBounds> {
        let range = self.check(start, bytes)?;
        #[expect(unsafe_code, reason = "there is no safe way to read from memory that another process sees")]
        // SAFETY: the range is within the mapping, which lives as long as `self` and cannot lose pages, because its
        // file is sealed against shrinking. The other process does not write it between its message and the next
        // run, which needs `&mut` of the session that owns this region.
        let seen = unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(range.start), range.len()) };
        Ok(Bytes::copy_from_slice(seen))
    }

    /// Borrows bytes without a copy. They keep the region alive; [`Arc::strong_count`] tells whether any are left.
    pub fn borrow(self: &Arc<Self>, start: usize, bytes: usize) -> Result<Bytes, OutOfBounds> {
        let range = self.check(start, bytes)?;
        Ok(Bytes::from_owner(Borrowed { region: Arc::clone(self), range }))
    }
}

struct Borrowed {
    region: Arc<Region>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        #[expect(unsafe_code, reason = "there is no safe way to read from memory that another process sees")]
        // SAFETY: the range was checked to be within the mapping, which `region` keeps alive and which cannot lose
        // pages, because its file is sealed against shrinking. The other process writes it only after the message that
        // the run is over and that no bytes are borrowed any more; otherwise it uses another region.
        unsafe {
            std::slice::from_raw_parts(self.region.map.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

/// A memory file with these bytes, sealed against any change.
pub(crate) fn share_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(c"tessera-model", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, CONTENT_SEALS)?;
    Ok(file.into())
}

/// The bytes of a file made by [`share_file`], without a copy.
pub(crate) fn shared_file(file: OwnedFd) -> io::Result<Bytes> {
    Ok(Bytes::from_owner(Mmap::map_if_safe(&File::from(file))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_through_one_mapping_are_read_through_another() {
        let (mut here, file) = Region::create(100_000).unwrap();
        assert_eq!(here.len(), 131_072);
        let there = Arc::new(Region::open(&file).unwrap());
        here.write(4096, b"tensor").unwrap();
        assert_eq!(there.read(4096, 6).unwrap(), "tensor");
        let borrowed = there.borrow(4097, 2).unwrap();
        assert_eq!((&borrowed[..], Arc::strong_count(&there)), (&b"en"[..], 2));
        drop(borrowed);
        assert_eq!(Arc::strong_count(&there), 1);
    }

    #[test]
    fn access_outside_a_region_is_refused() {
        let (mut region, file) = Region::create(1).unwrap();
        let len = region.len();
        let said = region.write(len - 1, b"ab").unwrap_err().to_string();
        assert_eq!(said, "expected a range within a region of 65536 bytes, got 65535 to 65537");
        assert!(region.read(usize::MAX, 2).is_err());
        assert!(Arc::new(Region::open(&file).unwrap()).borrow(len, 1).is_err());
        assert_eq!(region.read(len, 0).unwrap(), "");
    }

    #[test]
    fn a_region_that_could_shrink_is_refused() {
        let file = memfd_create(c"loose", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert!(Region::open(&file).is_err());
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(Region::open(&file).is_ok());
        let empty = memfd_create(c"empty", MemfdFlags::ALLOW_SEALING).unwrap();
        fcntl_add_seals(&empty, SealFlags::SHRINK).unwrap();
        assert!(Region::open(&empty).is_err());
        assert!(Region::open(&File::open("/dev/null").unwrap().into()).is_err());
    }

    #[test]
    fn a_file_that_can_change_is_refused() {
        let file = share_file(b"weights").unwrap();
        let writer = File::from(file.try_clone().unwrap());
        assert!((&writer).write_all(b"x").is_err());
        assert_eq!(shared_file(file).unwrap(), "weights");
        let loose = memfd_create(c"loose", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&loose, 4096).unwrap();
        assert!(shared_file(loose).is_err());
    }
}
