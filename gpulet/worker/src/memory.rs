//! Memory that both processes see.
//!
//! A [`Region`] is a file in memory of a fixed size: sealed against shrinking and growing before the other process
//! gets it, so that no access to its mapping can fail. One that is too small, or too large, is replaced by another.
//! One side writes a region while the other one waits for a message, and reads it after the message was sent: the
//! process that runs batches writes nothing into the inputs, and the one that asks writes nothing into the outputs.
//!
//! All `unsafe` of this crate is here.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// What every region is sealed against.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// What a file that is only read is sealed against.
const CONTENT_SEALS: SealFlags = SIZE_SEALS.union(SealFlags::WRITE);
/// The smallest region: one that small batches do not have to replace.
const REGION_BYTES_MIN: usize = 64 * 1024;

/// Shared memory of a fixed size.
pub(crate) struct Region {
    map: MmapRaw,
}

/// A range that does not lie in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {start} to {end} of a region of {len}")]
pub(crate) struct Outside {
    start: usize,
    end: usize,
    len: usize,
}

impl Region {
    /// A region for so many bytes, and more if that is not a round number; and its file for the other process.
    pub fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let len = bytes.max(REGION_BYTES_MIN).checked_next_power_of_two().unwrap_or(bytes);
        let file = memfd_create(c"tessera-tensors", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, u64::try_from(len).unwrap_or(u64::MAX))?;
        fcntl_add_seals(&file, SIZE_SEALS)?;
        let map = MmapRaw::map_raw(&file)?;
        Ok((Self { map }, file))
    }

    /// A region that the other process made.
    pub fn open(file: &OwnedFd) -> io::Result<Self> {
        let refuse = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(refuse("a region that can shrink"));
        }
        if fstat(file)?.st_size <= 0 {
            return Err(refuse("a region without bytes"));
        }
        Ok(Self { map: MmapRaw::map_raw(file)? })
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    fn check(&self, start: usize, bytes: usize) -> Result<Range<usize>, Outside> {
        let (end, len) = (start.saturating_add(bytes), self.len());
        if end > len { Err(Outside { start, end, len }) } else { Ok(start..end) }
    }

    /// Copies bytes into it.
    pub fn write(&mut self, start: usize, bytes: &[u8]) -> Result<(), Outside> {
        let range = self.check(start, bytes.len())?;
        #[expect(unsafe_code, reason = "there is no safe way to write to memory that another process sees")]
        // SAFETY: the range lies in the mapping, which is writable, lives as long as `self`, and cannot lose pages,
        // because its file is sealed against shrinking. `bytes` is no part of it: nothing in this process that
        // borrows a region is left when it is written (the other side of a region is in another process), and the
        // other process does not touch it before it is told that it was written.
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
    pub fn read(&self, start: usize, bytes: usize) -> Result<Bytes, Outside> {
        let range = self.check(start, bytes)?;
        #[expect(unsafe_code, reason = "there is no safe way to read from memory that another process sees")]
        // SAFETY: the range lies in the mapping, which lives as long as `self` and cannot lose pages, because its
        // file is sealed against shrinking. The other process does not write it between its message and the next
        // run, which needs `&mut` of the session that owns this region.
        let seen = unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(range.start), range.len()) };
        Ok(Bytes::copy_from_slice(seen))
    }

    /// Bytes of it without a copy. The region lives as long as they do; [`Arc::strong_count`] tells whether any are
    /// left.
    pub fn borrow(self: &Arc<Self>, start: usize, bytes: usize) -> Result<Bytes, Outside> {
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
        // SAFETY: the range was checked to lie in the mapping, which `region` keeps alive and which cannot lose pages,
        // because its file is sealed against shrinking. The other process writes it only after it was told that the
        // run is over and that nothing of the region is borrowed any more; otherwise it takes another region.
        unsafe {
            std::slice::from_raw_parts(self.region.map.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

/// A file with these bytes that nobody can change any more.
pub(crate) fn share_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(c"tessera-model", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, CONTENT_SEALS)?;
    Ok(file.into())
}

/// The bytes of such a file, without a copy.
pub(crate) fn shared_file(file: OwnedFd) -> io::Result<Bytes> {
    Ok(Bytes::from_owner(Mmap::map_if_safe(&File::from(file))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_another_one_reads() {
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
    fn nothing_outside_is_touched() {
        let (mut region, file) = Region::create(1).unwrap();
        let len = region.len();
        let said = region.write(len - 1, b"ab").unwrap_err().to_string();
        assert_eq!(said, "bytes 65535 to 65537 of a region of 65536");
        assert!(region.read(usize::MAX, 2).is_err());
        assert!(Arc::new(Region::open(&file).unwrap()).borrow(len, 1).is_err());
        assert_eq!(region.read(len, 0).unwrap(), "");
    }

    #[test]
    fn a_region_that_could_vanish_under_its_reader_is_refused() {
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
    fn a_shared_file_cannot_change_and_one_that_can_is_refused() {
        let file = share_file(b"weights").unwrap();
        let writer = File::from(file.try_clone().unwrap());
        assert!((&writer).write_all(b"x").is_err());
        assert_eq!(shared_file(file).unwrap(), "weights");
        let loose = memfd_create(c"loose", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&loose, 4096).unwrap();
        assert!(shared_file(loose).is_err());
    }
}
