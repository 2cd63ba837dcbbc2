//! Reading files that must lie inside a folder.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

/// Reads a regular file of at most `limit` bytes that lies inside `root` (canonical). The reason for a refusal
/// starts with the file's path inside the root.
pub(super) fn read(root: &Path, inner: &Path, limit: u64) -> Result<Bytes, String> {
    let refuse = |reason: String| format!("{}: {reason}", inner.display());
    // Without O_NONBLOCK opening a named pipe would wait for a writer for ever.
    let mut file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(root.join(inner))
        .map_err(|error| refuse(error.to_string()))?;
    let real = real_path(&file, &root.join(inner)).map_err(refuse)?;
    if !real.starts_with(root) {
        return Err(refuse("is a link that leaves the repository".to_owned()));
    }
    let metadata = file.metadata().map_err(|error| refuse(error.to_string()))?;
    if !metadata.is_file() {
        return Err(refuse("is not a regular file".to_owned()));
    }
    if metadata.len() > limit {
        return Err(refuse(format!("has {} bytes: expected at most {limit}", metadata.len())));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0).saturating_add(1));
    file.by_ref().take(limit).read_to_end(&mut bytes).map_err(|error| refuse(error.to_string()))?;
    if bytes.len() as u64 != metadata.len() {
        return Err(refuse("changed while it was read: publish by renaming a finished folder".to_owned()));
    }
    Ok(bytes.into())
}

/// Where an open file really lies: the kernel's answer for the descriptor, which no later rename or link can
/// make untrue, or the path resolved again where there is no `/proc`.
fn real_path(file: &File, path: &Path) -> Result<PathBuf, String> {
    let by_descriptor = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    by_descriptor.or_else(|_| path.canonicalize()).map_err(|error| error.to_string())
}
