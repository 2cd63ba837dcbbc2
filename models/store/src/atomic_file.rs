//! Files that are complete or absent, also after a power failure.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces a file: writes a temporary one next to it, syncs it and renames it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Points a symbolic link to another target.
pub(crate) fn replace_link(link: &Path, target: &Path) -> io::Result<()> {
    let temporary = link.with_extension("tmp");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, &temporary)?;
    fs::rename(&temporary, link)?;
    sync_folder(link.parent().unwrap_or(Path::new(".")))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
