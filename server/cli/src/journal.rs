//! Files to which one run appends a line for each result, so that an interrupted run resumes.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use anyhow::Context as _;

/// Opens a file to append, and locks it. `option` names it on the command line.
///
/// # Errors
/// When it cannot be opened, or another run writes to it.
pub fn lock(option: &str, path: &Path) -> anyhow::Result<File> {
    let place = || format!("{option}: cannot write `{}`", path.display());
    let file = OpenOptions::new().create(true).append(true).open(path).with_context(place)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => anyhow::bail!(
            "{option}: `{}` is being written by another run: wait for it, or name another file",
            path.display()
        ),
        Err(fs::TryLockError::Error(error)) => Err(error).with_context(place),
    }
}

/// Where the incomplete last line begins that a run leaves if it is killed while it writes. `None` if all lines are complete, or if the only line does
/// not begin as `first`, the beginning of every such file: another program wrote it, and nothing of it may be lost.
pub fn incomplete_line(text: &str, first: &str) -> Option<usize> {
    let begin = text.rfind('\n').map_or(0, |end| end.saturating_add(1));
    let last = text.get(begin..).unwrap_or_default();
    let is_of_a_run = begin > 0 || last.starts_with(first) || first.starts_with(last);
    (!last.is_empty() && is_of_a_run).then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_line_of_a_run_is_incomplete() {
        let begins = |text| incomplete_line(text, "{\"profile\":");
        assert_eq!(begins("{\"profile\":{}}\n{\"ce"), Some(15));
        assert_eq!((begins("{\"pro"), begins("{\"profile\":{\"mod")), (Some(0), Some(0)));
        assert_eq!((begins(""), begins("{\"profile\":{}}\n")), (None, None));
        assert_eq!((begins("notes"), begins("{\"name\": \"a\"}")), (None, None), "of another program");
    }
}
