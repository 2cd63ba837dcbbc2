//! Reads profile files by path or pattern.

use std::path::{Path, PathBuf};

use gpulet_core::profile::Profile;
use units::Fault;

use crate::files::read_text;

/// Largest profile file.
const PROFILE_BYTES: u64 = 256 << 20;
/// Most profile files of a problem.
const FILES_MAX: usize = 4_096;

/// All profiles, in the order of the paths and, behind a `*`, of the names. `option` is where the paths stand.
pub fn named(option: &str, paths: &[String], folder: &Path) -> Result<Vec<Profile>, Fault> {
    let mut profiles = Vec::new();
    let mut files = 0_usize;
    for (at, path) in paths.iter().enumerate() {
        let field = if paths.len() == 1 { option.to_owned() } else { format!("{option}[{at}]") };
        for file in matching(&field, folder, path)? {
            files = files.saturating_add(1);
            if files > FILES_MAX {
                return fault(field, format!("expected at most {FILES_MAX} files"));
            }
            let text = match read_text(&file, PROFILE_BYTES) {
                Ok(text) => text,
                Err(error) => return fault(field, format!("{error:#}")),
            };
            let found = Profile::read(&text).map_err(|error| Fault {
                file: file.display().to_string(),
                line: error.line.and_then(|line| u32::try_from(line).ok()),
                field: error.field,
                problem: error.problem,
            })?;
            profiles.extend(found);
        }
    }
    Ok(profiles)
}

fn fault<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::apart(field, problem))
}

/// The files that a path stands for, by name.
fn matching(field: &str, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, Fault> {
    let path = folder.join(pattern);
    let shown = path.display();
    if !pattern.contains('*') {
        return Ok(vec![path]);
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let Some((before, after)) = name.split_once('*').filter(|_| pattern.matches('*').count() == 1) else {
        return fault(field, format!("`{shown}`: expected at most one `*`, in the last part of the path"));
    };
    let opened = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match std::fs::read_dir(opened) {
        Ok(entries) => entries,
        Err(error) => return fault(field, format!("cannot read `{}`: {error}", opened.display())),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let long = name.len() >= before.len().saturating_add(after.len());
            long && name.starts_with(before) && name.ends_with(after)
        })
        .collect();
    names.sort_unstable();
    if names.is_empty() {
        return fault(field, format!("`{shown}`: no file of that name"));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
