//! Reads kernel lists from a folder.

use std::path::Path;

use anyhow::Context as _;
use colocation::kernel::Program;
use colocation::orion_data;
use node::files::read_text;

/// Folder of the lists, in the folder of the data.
const FOLDER: &str = "model_kernels";
/// Ending of the lists.
const ENDING: &str = "csv";
/// Largest list or trace.
const BYTES: u64 = 16 << 20;

/// Names of the lists of a folder, sorted.
pub fn names(data: &Path) -> anyhow::Result<Vec<String>> {
    let folder = data.join(FOLDER);
    let shown = folder.display();
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read `{shown}`"))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read `{shown}`"))?.path();
        if path.extension().is_some_and(|ending| ending == ENDING)
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            names.push(name.to_owned());
        }
    }
    anyhow::ensure!(!names.is_empty(), "`{shown}`: expected files such as `resnet50_4_fwd.{ENDING}`");
    names.sort_unstable();
    Ok(names)
}

/// Reads the list of a name.
pub fn read(data: &Path, name: &str) -> anyhow::Result<Program> {
    let text = read_text(&data.join(FOLDER).join(format!("{name}.{ENDING}")), BYTES)?;
    orion_data::program(name, &text).map_err(anyhow::Error::msg)
}

/// Finds and reads the list that a word of a flag means.
pub fn find(data: &Path, flag: &str, word: &str, names: &[String]) -> anyhow::Result<Program> {
    let name = orion_data::choose(word, names).map_err(|problem| anyhow::anyhow!("`{flag}`: {problem}"))?;
    read(data, name)
}

/// Reads the recorded times between requests, in nanoseconds.
pub fn gaps(data: &Path) -> anyhow::Result<Vec<u64>> {
    let path = data.join("inter_arrival_times.json");
    let text = read_text(&path, BYTES)?;
    orion_data::gaps(&text).map_err(|problem| anyhow::anyhow!("`{}`: {problem}", path.display()))
}
