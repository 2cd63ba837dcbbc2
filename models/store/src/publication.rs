//! Builds the folder of a snapshot and makes it current.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::atomic_file;
use crate::blobs::Blobs;
use crate::cache::Cache;
use crate::error::Error;
use crate::key::Key;
use crate::manifest::{Entry, Manifest};

/// Makes a manifest the current snapshot. All its content must be in the cache. Until the last step, readers see the old one. The
/// caller holds the lock of the cache.
pub(crate) fn publish(cache: &Cache, manifest: &Manifest) -> Result<(), Error> {
    let id = manifest.id();
    let folder = cache.snapshots().join(&id);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| Error::cache(&path, &error)
    };
    let is_current = fs::read_link(cache.link()).is_ok_and(|target| target.ends_with(&id));
    if !is_whole(&folder, manifest) {
        atomic_file::sync_folder(cache.blobs().folder()).map_err(failed(cache.blobs().folder()))?;
        let temporary = cache.snapshots().join(format!("{id}.tmp"));
        remove_folder(&temporary).map_err(failed(&temporary))?;
        build(&temporary, manifest, cache.blobs())?;
        if folder.exists() {
            // Damaged from outside.
            let damaged = cache.snapshots().join(format!("{id}.damaged.tmp"));
            remove_folder(&damaged).map_err(failed(&damaged))?;
            fs::rename(&folder, &damaged).map_err(failed(&folder))?;
        }
        fs::rename(&temporary, &folder).map_err(failed(&folder))?;
        atomic_file::sync_folder(&cache.snapshots()).map_err(failed(&cache.snapshots()))?;
    }
    let path = cache.manifests().join(format!("{id}.json"));
    let bytes = serde_json::to_vec(manifest).map_err(|error| Error::cache(&path, &error.into()))?;
    atomic_file::replace(&path, &bytes).map_err(failed(&path))?;
    if !is_current {
        let target = PathBuf::from("snapshots").join(&id);
        atomic_file::replace_link(&cache.link(), &target).map_err(failed(&cache.link()))?;
    }
    Ok(())
}

/// Whether a folder has every object of a manifest in full length.
fn is_whole(folder: &Path, manifest: &Manifest) -> bool {
    manifest.objects.iter().all(|(key, entry)| {
        fs::symlink_metadata(key.inside(folder))
            .is_ok_and(|found| found.is_file() && found.len() == entry.listed.size)
    })
}

fn build(folder: &Path, manifest: &Manifest, blobs: &Blobs) -> Result<(), Error> {
    let mut folders = BTreeSet::from([folder.to_owned()]);
    for (key, entry) in &manifest.objects {
        folders.extend(key.folders().map(|inner| folder.join(inner)));
        let path = key.inside(folder);
        place(folder, key, entry, blobs).map_err(|error| Error::cache(&path, &error))?;
    }
    for folder in &folders {
        fs::create_dir_all(folder).map_err(|error| Error::cache(folder, &error))?;
        atomic_file::sync_folder(folder).map_err(|error| Error::cache(folder, &error))?;
    }
    Ok(())
}

/// Links a file to its content. Where the file system cannot, for example because a file has too many links, the content is copied.
fn place(folder: &Path, key: &Key, entry: &Entry, blobs: &Blobs) -> io::Result<()> {
    let path = key.inside(folder);
    fs::create_dir_all(path.parent().unwrap_or(folder))?;
    let blob = blobs.path(entry.digest);
    match fs::hard_link(&blob, &path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => {
            fs::copy(&blob, &path)?;
            fs::File::open(&path)?.sync_all()
        }
        Ok(()) => Ok(()),
    }
}

/// Removes a folder if it exists.
pub(crate) fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
