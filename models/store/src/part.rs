//! A download in progress: a file that another attempt, or another process, can continue.
//!
//! The name of the file says which object it belongs to: it is a digest of key, size, ETag and version. A changed object therefore
//! never continues the file of its old content. The identifier of the boot is part of the name, too: after a power failure, the
//! file might have its length but not its content, so its download starts from the beginning.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use md5::Md5;
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::key::Key;
use crate::listing::Listed;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Names the file of an object. Also identifies the object's content among finished downloads.
pub(crate) fn name(key: &Key, listed: &Listed) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // Without a strong ETag, only the time of the last change tells contents apart.
    let modified_us = if listed.strong_etag().is_some() { 0 } else { listed.modified_us };
    let parts = [
        key.as_str(),
        &listed.size.to_string(),
        listed.etag.as_deref().unwrap_or_default(),
        listed.version.as_deref().unwrap_or_default(),
        &modified_us.to_string(),
        boot.trim(),
    ];
    Digest::of(parts.join("\n").as_bytes()).to_string()
}

/// The file of a download in progress.
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    len: u64,
    sha256: Sha256,
    md5: Option<Md5>,
}

/// Digests of a complete download.
pub(crate) struct Finished {
    pub digest: Digest,
    /// In hexadecimal digits. None if it was not asked for.
    pub md5: Option<String>,
}

impl Part {
    /// Opens the file and reads what it holds. A file that is longer than the object, or that must not be resumed, is emptied.
    pub(crate) fn open(path: PathBuf, size: u64, resume: bool, with_md5: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let len = file.metadata()?.len();
        let mut part = Self { path, file, len: 0, sha256: Sha256::new(), md5: with_md5.then(Md5::default) };
        if !resume || len > size {
            part.clear()?;
            return Ok(part);
        }
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = part.file.read(&mut buffer)?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
            part.sha256.update(bytes);
            if let Some(md5) = &mut part.md5 {
                md5::Digest::update(md5, bytes);
            }
            part.len += read as u64;
        }
        Ok(part)
    }

    /// Bytes that have arrived.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Starts from the beginning.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.len = 0;
        self.sha256 = Sha256::new();
        self.md5 = self.md5.is_some().then(Md5::default);
        Ok(())
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, chunks: &[Bytes]) -> io::Result<()> {
        for bytes in chunks {
            self.file.write_all(bytes)?;
            self.sha256.update(bytes);
            if let Some(md5) = &mut self.md5 {
                md5::Digest::update(md5, bytes);
            }
            self.len += bytes.len() as u64;
        }
        Ok(())
    }

    /// Writes everything to disk.
    pub(crate) fn finish(self) -> io::Result<Finished> {
        self.file.sync_all()?;
        let md5 = self.md5.map(|md5| {
            md5::Digest::finalize(md5).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        Ok(Finished { digest: Digest::from_hasher(self.sha256), md5 })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_continues_and_has_the_digest_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.part");
        let mut part = Part::open(path.clone(), 6, true, true).unwrap();
        part.append(&[Bytes::from_static(b"abc")]).unwrap();
        drop(part);
        let mut part = Part::open(path.clone(), 6, true, true).unwrap();
        assert_eq!(part.len(), 3);
        part.append(&[Bytes::from_static(b"d"), Bytes::from_static(b"ef")]).unwrap();
        let finished = part.finish().unwrap();
        assert_eq!(finished.digest, Digest::of(b"abcdef"));
        assert_eq!(finished.md5.as_deref(), Some("e80b5017098950fc58aad83c8c14978e"));
        // Longer than the object: not its content.
        assert_eq!(Part::open(path.clone(), 5, true, false).unwrap().len(), 0);
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn the_name_changes_with_the_content() {
        let key = Key::parse("a").unwrap();
        let listed = |etag: Option<&str>, modified_us| Listed {
            size: 1,
            etag: etag.map(str::to_owned),
            version: None,
            modified_us,
        };
        assert_eq!(name(&key, &listed(Some("x"), 1)), name(&key, &listed(Some("x"), 2)));
        assert_ne!(name(&key, &listed(Some("x"), 1)), name(&key, &listed(Some("y"), 1)));
        assert_ne!(name(&key, &listed(None, 1)), name(&key, &listed(None, 2)));
    }
}
