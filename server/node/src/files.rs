//! Text files, read whole within a bound.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Reads a text file of at most `bytes_max` bytes.
pub fn read_text(path: &Path, bytes_max: u64) -> anyhow::Result<String> {
    let shown = path.display();
    let about = fs::metadata(path).with_context(|| format!("cannot read `{shown}`"))?;
    anyhow::ensure!(about.is_file(), "`{shown}` is not a file");
    let length = about.len();
    anyhow::ensure!(length <= bytes_max, "`{shown}` has {length} bytes: expected at most {bytes_max}");
    fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))
}
